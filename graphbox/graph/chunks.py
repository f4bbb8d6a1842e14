"""Streams: which chunks of new data a graph holds, and what each of them brought.

A chunk is one append. That a graph holds it stands in the same manifest as its nodes and edges, so there is
no moment at which a chunk is there without its record, or twice.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from graphbox.errors import ConflictError, FormatError, UsageError
from graphbox.graph.format import LOCK_TIMEOUT_S, MANIFEST, FolderWriter, read_manifest
from graphbox.graph.layout import write_removal
from graphbox.graph.schema import EdgeType, Int64Array, edge_type_from_text, edge_type_text
from graphbox.graph.snapshot import as_live
from graphbox.graph.store import Graph

_START = "start"
_REMEMBERED_CHUNKS = 1000
"""Default number of chunks that a stream remembers: the last ones."""


@dataclass(frozen=True)
class ChunkLabel:
    """Identity of an appended chunk.

    Attributes:
        number: number of the chunk in its stream, from 0.
        name: its name.
        digest: digest of its content.
        stamp: stamp of the names, sizes and modification times of its files: equal stamps mean equal content.
    """

    number: int
    name: str
    digest: str
    stamp: str = ""


@dataclass(frozen=True)
class ChunkRecord:
    """A chunk that a graph holds.

    Attributes:
        number: of the chunk in its stream, from 0.
        name: what it is called.
        digest: of its content.
        stamp: of its files, see :class:`ChunkLabel`.
        nodes: number of node indices after it, by node type.
        edges: number of stable edge ids after it, by edge type; reverse ones are left out.
    """

    number: int
    name: str
    digest: str
    stamp: str
    nodes: Mapping[str, int]
    edges: Mapping[EdgeType, int]

    @classmethod
    def of(
        cls,
        chunk: ChunkLabel,
        graph: Graph,
        nodes: Mapping[str, int] | None = None,
        edges: Mapping[EdgeType, int] | None = None,
    ) -> ChunkRecord:
        """Return the record of a chunk that adds nodes and edges to a graph.

        Args:
            chunk: which it is.
            graph: the graph before.
            nodes: numbers of nodes that it adds, by node type ...
            edges: ... and of edges, by edge type.
        """
        num_nodes = {node_type: graph.num_nodes(node_type) for node_type in graph.node_types}
        num_edges = {each: as_live(graph.own_edges(each)).num_stable for each in _own(graph)}
        return cls(
            chunk.number,
            chunk.name,
            chunk.digest,
            chunk.stamp,
            num_nodes | {name: num_nodes.get(name, 0) + added for name, added in (nodes or {}).items()},
            num_edges | {each: num_edges.get(each, 0) + added for each, added in (edges or {}).items()},
        )

    def document(self) -> dict[str, Any]:
        """Return it as the manifest keeps it."""
        return {
            "number": self.number,
            "name": self.name,
            "digest": self.digest,
            "stamp": self.stamp,
            "nodes": dict(self.nodes),
            "edges": {edge_type_text(edge_type): count for edge_type, count in self.edges.items()},
        }


@dataclass(frozen=True)
class StreamRecord:
    """The stream whose chunks a graph holds.

    Attributes:
        source: tells the stream from others.
        remembered: of how many of the last chunks it keeps the records. What came with earlier ones can no
            longer expire, nor be known again.
        expired: number of the oldest chunk that has not expired.
        chunks: records of the last chunks, in order.
    """

    source: str
    remembered: int = _REMEMBERED_CHUNKS
    expired: int = 0
    chunks: tuple[ChunkRecord, ...] = ()

    @property
    def last(self) -> ChunkRecord | None:
        """The chunk that came last."""
        return self.chunks[-1] if self.chunks else None

    def with_chunk(self, chunk: ChunkRecord) -> StreamRecord:
        """Return the stream after one more chunk.

        Raises:
            ConflictError: it is not the next one.
        """
        expected = 0 if self.last is None else self.last.number + 1
        if chunk.number != expected:
            raise ConflictError(
                f"expected chunk {expected}, received chunk {chunk.number}, `{chunk.name}`",
                where=self.source,
                hint="another process has appended to the graph meanwhile: begin again",
            )
        chunks = (*self.chunks, chunk)[-self.remembered :]
        return replace(self, chunks=chunks)

    def record(self, number: int) -> ChunkRecord | None:
        """Return the record of a chunk, if it is still remembered."""
        position = number - self.chunks[0].number if self.chunks else -1
        return self.chunks[position] if 0 <= position < len(self.chunks) else None

    def document(self) -> dict[str, Any]:
        """Return it as the manifest keeps it."""
        return {
            "source": self.source,
            "remembered": self.remembered,
            "expired": self.expired,
            "chunks": [chunk.document() for chunk in self.chunks],
        }


def stream_of(path: Path) -> StreamRecord | None:
    """Return the stream whose chunks the graph in a folder holds; None: it holds none.

    Raises:
        NotFoundError: there is no graph.
        FormatError: its manifest is damaged.
    """
    document = read_manifest(path).get("stream")
    if document is None:
        return None
    try:
        return StreamRecord(
            str(document["source"]),
            int(document["remembered"]),
            int(document["expired"]),
            tuple(
                ChunkRecord(
                    int(each["number"]),
                    str(each["name"]),
                    str(each["digest"]),
                    str(each["stamp"]),
                    {str(name): int(count) for name, count in each["nodes"].items()},
                    {edge_type_from_text(name): int(count) for name, count in each["edges"].items()},
                )
                for each in document["chunks"]
            ),
        )
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise FormatError(
            f"expected the record of a stream, received another one ({error!r})",
            where=str(path / MANIFEST),
            hint="import the graph again",
        ) from error


def begin_stream(
    path: Path,
    name: str,
    source: str,
    *,
    remembered: int = _REMEMBERED_CHUNKS,
    lock_timeout_s: float = LOCK_TIMEOUT_S,
) -> None:
    """Let a stream begin with the graph in a folder; where there is none, with an empty one.

    What the graph holds becomes chunk 0, ``start``, if it is anything.

    Args:
        path: the graph's folder.
        name: name of a graph that is made.
        source: tells the stream from others.
        remembered: see :class:`StreamRecord`; at least 2.
        lock_timeout_s: seconds to wait for another process that writes the same graph.

    Raises:
        TimeLimitError: another process is writing the graph.
    """
    stream = StreamRecord(source, remembered)
    if not (path / MANIFEST).exists():
        with FolderWriter(path, lock_timeout_s, activity="beginning a stream in") as writer:
            writer.commit({"name": name, "node_types": [], "edge_types": []}, stream.document())
        return
    with FolderWriter(path, lock_timeout_s, kind="delta", activity="beginning a stream in") as writer:
        start = ChunkRecord.of(ChunkLabel(0, _START, ""), Graph.open(path))
        if any(start.nodes.values()) or any(start.edges.values()):
            stream = stream.with_chunk(start)
        writer.commit({"node_types": [], "edge_types": []}, stream.document())


@dataclass(frozen=True)
class ExpireReport:
    """Removals of expired nodes and edges.

    Attributes:
        nodes: nodes that were removed, by node type.
        edges: edges that were removed, by edge type.
        seconds: time taken.
    """

    nodes: Mapping[str, int]
    edges: Mapping[EdgeType, int]
    seconds: float


def expire_chunks(
    path: Path, first_kept: int, node_types: Sequence[str] = (), *, lock_timeout_s: float = LOCK_TIMEOUT_S
) -> ExpireReport:
    """Remove the edges that came with the chunks before one, and the nodes of some types that came so.

    Chunk ``start`` never expires. Doing it again changes nothing.

    Args:
        path: the graph's folder.
        first_kept: number of the oldest chunk that stays.
        node_types: types whose nodes go as well; no edge type may have them at an end.
        lock_timeout_s: seconds to wait for another process that writes the same graph.

    Raises:
        UsageError: the graph holds no stream, or a node type has edges.
        TimeLimitError: another process is writing the graph.
    """
    started = time.monotonic()
    stream = require_stream(path)
    nodes: dict[str, Int64Array] = {}
    edges: dict[EdgeType, Int64Array] = {}
    before, last = _bounds(stream, first_kept)
    if last is None:
        return ExpireReport({}, {}, time.monotonic() - started)
    with FolderWriter(path, lock_timeout_s, kind="delta", activity="expiring chunks of") as writer:
        graph = Graph.open(path)
        for node_type in node_types:
            nodes[node_type] = _new_nodes(graph, node_type, before, last)
        for edge_type in _own(graph):
            edges[edge_type] = _new_edges(graph, edge_type, before, last)
        _check_loose(graph, nodes)
        body = write_removal(writer, graph, nodes, edges)
        writer.commit(body, replace(stream, expired=first_kept).document(), removes=True)
    return ExpireReport(
        {name: len(removed) for name, removed in nodes.items()},
        {edge_type: len(removed) for edge_type, removed in edges.items()},
        time.monotonic() - started,
    )


def chunk_contents(
    graph: Graph, stream: StreamRecord, number: int
) -> tuple[dict[str, Int64Array], dict[EdgeType, Int64Array]]:
    """Return which nodes and edges came with a chunk and are still there.

    Returns:
        Indices of nodes by node type and ids of edges by edge type, in the order in which they came: of edges
        that is by target, then source. Types without any are left out.

    Raises:
        UsageError: the chunk is not remembered.
    """
    record = stream.record(number)
    before = stream.record(number - 1)
    if record is None or (before is None and number > 0):
        raise UsageError(
            f"expected a chunk that is remembered, received number {number}", where=stream.source
        )
    nodes = {name: _new_nodes(graph, name, before, record) for name in record.nodes}
    edges = {edge_type: _new_edges(graph, edge_type, before, record) for edge_type in record.edges}
    return (
        {name: index for name, index in nodes.items() if len(index)},
        {edge_type: ids for edge_type, ids in edges.items() if len(ids)},
    )


# Details


def require_stream(path: Path) -> StreamRecord:
    """Return the stream whose chunks the graph in a folder holds.

    Raises:
        UsageError: it holds none.
    """
    stream = stream_of(path)
    if stream is None:
        raise UsageError("expected a graph that holds a stream, received one without", where=str(path))
    return stream


def _bounds(stream: StreamRecord, first_kept: int) -> tuple[ChunkRecord | None, ChunkRecord | None]:
    """Return the records of the chunk before those that expire and of the last that does, if any does."""
    if not stream.chunks:
        return None, None
    oldest = stream.chunks[0]
    # Of the oldest one that is remembered it is not known where it begins, unless it is the first.
    is_first = oldest.number == 0 and oldest.name != _START
    first = max(stream.expired, oldest.number + (not is_first))
    first_kept = min(first_kept, stream.chunks[-1].number + 1)
    if first_kept <= first:
        return None, None
    return stream.record(first - 1), stream.record(first_kept - 1)


def _own(graph: Graph) -> list[EdgeType]:
    """Return the edge types that have edges of their own."""
    return [edge_type for edge_type in graph.edge_types if not graph.is_reverse(edge_type)]


def _new_nodes(graph: Graph, node_type: str, before: ChunkRecord | None, last: ChunkRecord) -> Int64Array:
    first = 0 if before is None else before.nodes.get(node_type, 0)
    index = np.arange(first, last.nodes.get(node_type, 0), dtype=np.int64)
    return index[~np.isin(index, graph.removed_nodes(node_type))]


def _new_edges(
    graph: Graph, edge_type: EdgeType, before: ChunkRecord | None, last: ChunkRecord
) -> Int64Array:
    """Return the ids of the edges that came after one chunk and up to another: int64, ascending."""
    first = 0 if before is None else before.edges.get(edge_type, 0)
    stop = last.edges.get(edge_type, 0)
    table = as_live(graph.own_edges(edge_type))
    num_base = table.base.num_stable
    added = np.arange(max(first, num_base), stop, dtype=np.int64) - num_base + table.num_base_edges
    if first >= num_base:
        edge_ids = added
    elif table.base.stable is None:
        edge_ids = np.concatenate([np.arange(first, min(stop, num_base), dtype=np.int64), added])
    else:
        stable = table.base.stable
        edge_ids = np.concatenate([np.flatnonzero((stable >= first) & (stable < stop)), added])
    return edge_ids[~np.isin(edge_ids, table.removed, assume_unique=True)]


def _check_loose(graph: Graph, nodes: Mapping[str, Int64Array]) -> None:
    for edge_type in graph.edge_types:
        for end in (edge_type[0], edge_type[2]):
            if end in nodes:
                raise UsageError(
                    f"expected node types without edges to expire, received `{end}`, which has some",
                    where=edge_type_text(edge_type),
                    hint="nodes with edges stay; their edges expire",
                )

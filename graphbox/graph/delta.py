"""Changing a graph on disk: appending nodes, edges and features, and removing nodes and edges.

A change is written beside the graph as a folder of its own and takes effect at once, when the manifest that
names it is in place: it takes time and bytes in proportion to itself, whatever the graph's size.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from graphbox.errors import DataError, UsageError, did_you_mean
from graphbox.graph.change import AddedNodes, ChangingNodes, EdgeRows, change_of_edges
from graphbox.graph.chunks import ChunkLabel, ChunkRecord, StreamRecord, require_stream
from graphbox.graph.compact import CompactReport, compact_if_needed, in_background, needs_compaction
from graphbox.graph.format import LOCK_TIMEOUT_S, FolderWriter
from graphbox.graph.ids import IdsLike, as_arrow
from graphbox.graph.ingest import EdgeTypeReport, SkippedRows
from graphbox.graph.layout import write_edge_change, write_node_change, write_removal
from graphbox.graph.rows import read_edge_rows, read_node_rows
from graphbox.graph.schema import (
    EdgeSource,
    EdgeType,
    GraphSource,
    IdType,
    Int64Array,
    check_type_name,
    edge_type_text,
)
from graphbox.graph.snapshot import EdgeChange, LiveEdgeTable, as_live
from graphbox.graph.store import Graph

Progress: TypeAlias = Callable[[str, int, int], None]
"""Called with what is being done, and how many of how many tables are done."""

Compaction: TypeAlias = Literal["auto", "background", "never"]
"""Compaction on append where :func:`~graphbox.graph.compact.needs_compaction` holds: ``auto`` compacts before
the append returns, ``background`` in a thread, ``never`` not at all."""

_EXAMPLES = 5


@dataclass(frozen=True)
class AppendReport:
    """Result of an append.

    Attributes:
        name: name of the graph.
        path: its folder.
        nodes: counts of the rows of node tables, and of the nodes met at the ends of edges, by node type.
        edges: one report for each edge table.
        size_bytes: bytes written for the change.
        seconds: time taken.
        compacted: whether the graph was compacted after it.
        compaction: of ``compact="background"``: the compaction that was started, when one was needed.
    """

    name: str
    path: Path
    nodes: Mapping[str, AddedNodes]
    edges: tuple[EdgeTypeReport, ...]
    size_bytes: int
    seconds: float
    compacted: bool
    compaction: Future[CompactReport | None] | None = None

    def as_dict(self) -> dict[str, Any]:
        """Return plain values for ``--json``."""
        return {
            "name": self.name,
            "path": str(self.path),
            "nodes": {node_type: each.as_dict() for node_type, each in self.nodes.items()},
            "edges": [{"type": edge_type_text(report.type), **report.imported()} for report in self.edges],
            "size_bytes": self.size_bytes,
            "seconds": self.seconds,
            "compacted": self.compacted,
        }


@dataclass(frozen=True)
class RemoveReport:
    """Result of a removal.

    Attributes:
        name: name of the graph.
        path: its folder.
        nodes: number of removed nodes, by node type.
        edges: number of removed edges, those of removed nodes among them, by edge type.
        absent: number of the given nodes and edges that were not found, by node type or edge type.
        examples: the first of these in words.
        seconds: time taken.
    """

    name: str
    path: Path
    nodes: Mapping[str, int]
    edges: Mapping[EdgeType, int]
    absent: Mapping[str, int]
    examples: Mapping[str, tuple[str, ...]]
    seconds: float

    def as_dict(self) -> dict[str, Any]:
        """Return plain values for ``--json``."""
        return {
            "name": self.name,
            "path": str(self.path),
            "nodes": dict(self.nodes),
            "edges": {edge_type_text(edge_type): count for edge_type, count in self.edges.items()},
            "absent": dict(self.absent),
            "examples": {kind: list(examples) for kind, examples in self.examples.items()},
            "seconds": self.seconds,
        }


# Appending


def append(
    path: Path,
    source: GraphSource,
    progress: Progress | None = None,
    *,
    strict: bool = False,
    compact: Compaction = "auto",
    chunk: ChunkLabel | None = None,
    lock_timeout_s: float = LOCK_TIMEOUT_S,
) -> AppendReport:
    """Add nodes, edges and features to a graph on disk.

    A row of a node table whose id is there sets the node's features that the table has as columns; other
    rows are new nodes. Edges obey the rules of the import: an end that is no node becomes one where the type
    has no table, and makes the edge dangling elsewhere; an edge that is there, or was read before, is a
    duplicate. Node types and edge types may be new. Readers see all of it or nothing.

    Args:
        path: the graph's folder.
        source: the tables; its name is not used.
        progress: called before each table.
        strict: refuse edges that would be skipped (dangling, duplicate) instead of counting them.
        compact: whether to compact the graph afterwards when changes have become many, and no other process
            is compacting it.
        chunk: the next chunk of the stream that the graph holds, which this is; the graph holds its record
            as soon as its rows, also where these are none.
        lock_timeout_s: seconds to wait for another process that writes the same graph.

    Raises:
        NotFoundError: there is no graph, or a file is missing.
        ConflictError: ``chunk`` is not the next one.
        UsageError: a table has other features than the graph, or names an unknown node type.
        DataError: a table is malformed, or ``strict`` refused an edge.
        DoesNotFitError: the disk has not enough room.
        TimeLimitError: another process is writing the graph.
    """
    started = time.monotonic()
    with FolderWriter(path, lock_timeout_s, kind="delta", activity="appending to") as writer:
        graph = Graph.open(path)
        appended = _Append(graph, source, strict=strict)
        total = len(source.nodes) + len(source.edges)
        for number, node_type in enumerate(source.nodes):
            if progress is not None:
                progress(f"nodes {node_type}", number, total)
            appended.add_nodes(node_type)
        for number, edges in enumerate(source.edges, len(source.nodes)):
            if progress is not None:
                progress(f"edges {edge_type_text(edges.type)}", number, total)
            appended.add_edges(edges)
        appended.write(writer, chunk)
        size_bytes = writer.size_bytes
    compacted = compact == "auto" and compact_if_needed(path) is not None
    is_needed = compact == "background" and needs_compaction(path)
    return AppendReport(
        name=graph.name,
        path=path,
        nodes=appended.node_reports(),
        edges=tuple(appended.reports),
        size_bytes=size_bytes,
        seconds=time.monotonic() - started,
        compacted=compacted,
        compaction=in_background(lambda: compact_if_needed(path)) if is_needed else None,
    )


class _Append:
    """The changes of one append, worked out table by table."""

    def __init__(self, graph: Graph, source: GraphSource, *, strict: bool) -> None:
        self.graph = graph
        self.source = source
        self.strict = strict
        self.reports: list[EdgeTypeReport] = []
        self._read: dict[str, AddedNodes] = {}
        self._nodes: dict[str, ChangingNodes] = {}
        self._edges: dict[EdgeType, tuple[EdgeChange, EdgeType | None]] = {}

    def add_nodes(self, node_type: str) -> None:
        """Read a node table."""
        where = f"node type `{check_type_name(node_type, 'node type')}`"
        nodes = self.source.nodes[node_type]
        if nodes.data is None:
            return
        known = node_type in self.graph.node_types
        if known and self.graph.node_table(node_type).discovered:
            raise UsageError(
                "expected no table of a node type whose nodes are those met at the ends of edges",
                where=where,
                hint="append the edges only",
            )
        unusable = SkippedRows(strict=self.strict)
        rows = read_node_rows(
            node_type,
            nodes,
            self.graph.id_type(node_type) if known else None,
            where,
            unusable,
            first_id=self.graph.num_nodes(node_type) if known else 0,
        )
        if known and nodes.id is None:
            self._check_numbered(node_type, rows.ids, where)
        kind: IdType = "int64" if pa.types.is_int64(rows.ids.type) else "string"
        added = self._changing(node_type, kind).add_rows(rows, where)
        self._read[node_type] = replace(
            added,
            rows=added.rows + sum(unusable.counts.values()),
            skipped=dict(unusable.counts),
            examples=unusable.examples,
        )

    def _check_numbered(self, node_type: str, numbers: pa.Array, where: str) -> None:
        """Refuse rows without ids where the graph's nodes have other ids than their numbers."""
        if self.graph.id_type(node_type) == "int64":
            taken = self.graph.index(node_type, numbers, missing=-1) >= 0
            if not taken.any():
                return
        raise UsageError(
            "expected a column of ids, as the nodes that are there have, received none",
            where=where,
            hint="name it (`id: ...`); rows without ids are appended to nodes that were imported so",
        )

    def _changing(self, node_type: str, kind: IdType) -> ChangingNodes:
        if node_type not in self._nodes:
            table = self.graph.node_table(node_type) if node_type in self.graph.node_types else None
            discovered = self.source.nodes[node_type].data is None if table is None else table.discovered
            self._nodes[node_type] = ChangingNodes(
                node_type, table, kind if table is None else table.ids.kind, discovered=discovered
            )
        return self._nodes[node_type]

    def add_edges(self, edges: EdgeSource) -> None:
        """Read an edge table."""
        where = f"edge type {edge_type_text(edges.type)}"
        is_new = self._check_type(edges, where)
        ends = (edges.type[0], edges.type[2])
        unusable = SkippedRows(strict=self.strict)
        rows = read_edge_rows(edges, [self._id_type(node_type) for node_type in ends], where, unusable)
        kinds: list[IdType] = [
            "int64" if pa.types.is_int64(ids.type) else "string" for ids in (rows.source_ids, rows.target_ids)
        ]
        sources, targets = (
            self._changing(node_type, kind) for node_type, kind in zip(ends, kinds, strict=True)
        )
        if sources is targets and kinds[0] != kinds[1]:
            raise DataError(
                f"expected ids of one kind at both ends, received {kinds[0]} and {kinds[1]}",
                where=where,
                hint="say `id_type: string` of the node type",
            )
        table = (
            LiveEdgeTable(None, (), sources.num_nodes, targets.num_nodes)
            if is_new
            else as_live(self.graph.own_edges(edges.type))
        )
        added = change_of_edges(
            table,
            rows,
            sources,
            targets,
            is_new=is_new,
            keep_duplicates=edges.keep_duplicates,
            where=where,
        )
        skipped = {"dangling_edges": added.dangling, "duplicate_edges": added.duplicate}
        self._refuse(edges, rows, skipped)
        report = EdgeTypeReport(
            type=edges.type,
            rows=len(rows.source_ids) + sum(unusable.counts.values()),
            edges=added.change.num_added,
            duplicate_edges=len(added.duplicate),
            dangling_edges=len(added.dangling),
            self_loops=added.self_loops,
            skipped=dict(unusable.counts),
            examples={
                **unusable.examples,
                **{
                    kind: tuple(_in_words(edges, rows, row) for row in found[:_EXAMPLES].tolist())
                    for kind, found in skipped.items()
                    if len(found)
                },
            },
        )
        self.reports.append(report)
        reverse = None if edges.reverse is None else (edges.type[2], edges.reverse, edges.type[0])
        if added.change.num_added or is_new:
            self._edges[edges.type] = (
                replace(added.change, imported=report.imported()),
                reverse if is_new else self.graph.reverse_type(edges.type),
            )

    def _check_type(self, edges: EdgeSource, where: str) -> bool:
        """Return whether the edge type is new."""
        known_types = {*self.graph.node_types, *self.source.nodes}
        for end in (edges.type[0], edges.type[2]):
            if end not in known_types:
                raise UsageError(
                    f"expected one of the node types {', '.join(sorted(known_types))}, received `{end}`",
                    where=where,
                    hint=did_you_mean(end, known_types),
                )
        if edges.type in (report.type for report in self.reports):
            raise UsageError("expected each edge type once, received it twice", where=where)
        is_new = edges.type not in self.graph.edge_types
        if not is_new and self.graph.is_reverse(edges.type):
            forward = self.graph.reverse_type(edges.type) or edges.type
            raise UsageError(
                "expected an edge type with edges of its own, received a reverse one",
                where=where,
                hint=f"append to {edge_type_text(forward)}, and this one follows",
            )
        return is_new

    def _id_type(self, node_type: str) -> IdType | None:
        if node_type in self._nodes:
            return self._nodes[node_type].kind
        if node_type in self.graph.node_types:
            return self.graph.id_type(node_type)
        return self.source.nodes[node_type].id_type

    def _refuse(self, edges: EdgeSource, rows: EdgeRows, skipped: Mapping[str, Int64Array]) -> None:
        kinds = ["dangling_edges"] if edges.keep_duplicates else list(skipped)
        for kind in kinds:
            if self.strict and len(skipped[kind]):
                raise DataError(
                    f"expected no {kind.replace('_', ' ')}, received {len(skipped[kind]):,}, first "
                    + _in_words(edges, rows, int(skipped[kind][0])),
                    where=f"edge type {edge_type_text(edges.type)}",
                    hint="correct them, or append without strict to skip and count them",
                )

    def node_reports(self) -> dict[str, AddedNodes]:
        """Return what became of the nodes of each type that was touched."""
        reports = {}
        for node_type, nodes in self._nodes.items():
            read = self._read.get(node_type, AddedNodes(0, 0, 0))
            reports[node_type] = replace(read, added=nodes.num_added)
        return reports

    def write(self, writer: FolderWriter, chunk: ChunkLabel | None) -> None:
        """Write the change and put it in place, unless there is none and it is no chunk."""
        node_changes = {name: nodes.change() for name, nodes in self._nodes.items()}
        node_entries = [
            write_node_change(writer, name, change) for name, change in node_changes.items() if change
        ]
        edge_entries = [
            write_edge_change(writer, edge_type, change, reverse)
            for edge_type, (change, reverse) in self._edges.items()
        ]
        if node_entries or edge_entries or chunk is not None:
            stream = None if chunk is None else self._stream_with(chunk, writer.path).document()
            writer.commit({"node_types": node_entries, "edge_types": edge_entries}, stream)

    def _stream_with(self, chunk: ChunkLabel, path: Path) -> StreamRecord:
        nodes = {name: each.num_added for name, each in self._nodes.items()}
        edges = {name: change.num_added for name, (change, _) in self._edges.items()}
        return require_stream(path).with_chunk(ChunkRecord.of(chunk, self.graph, nodes, edges))


def _in_words(edges: EdgeSource, rows: EdgeRows, row: int) -> str:
    ends = (ids[row].as_py() for ids in (rows.source_ids, rows.target_ids))
    source, target = ("(missing)" if end is None else f"`{end}`" for end in ends)
    return f"row {row + 1:,}: {source} {edges.type[1]} {target}"


# Removing


def remove(
    path: Path,
    nodes: Mapping[str, IdsLike] | None = None,
    edges: Mapping[EdgeType | str, tuple[IdsLike, IdsLike]] | None = None,
    *,
    lock_timeout_s: float = LOCK_TIMEOUT_S,
) -> RemoveReport:
    """Remove nodes and edges from a graph on disk.

    A removed node goes with its edges of every edge type. Readers that open the graph from then on do not
    see what was removed, and no kept version stays (:mod:`graphbox.graph.versions`). Its bytes are gone from
    the disk when the graph has been compacted (:func:`graphbox.graph.compact.compact`). What is not there is
    counted and told in the report.

    Args:
        path: the graph's folder.
        nodes: original ids of the nodes, by node type.
        edges: original ids of sources and of targets, by edge type; all edges between the two ends of a pair
            are removed, also where they were kept several times. The reverse edge type means the same edges.
        lock_timeout_s: seconds to wait for another process that writes the same graph.

    Raises:
        NotFoundError: there is no graph, node type or edge type.
        UsageError: ids are of another kind than the graph's, or there are more sources than targets.
        DoesNotFitError: the disk has not enough room.
        TimeLimitError: another process is writing the graph.
    """
    started = time.monotonic()
    with FolderWriter(path, lock_timeout_s, kind="delta", activity="removing from") as writer:
        graph = Graph.open(path)
        removal = _Removal(graph)
        for node_type, ids in (nodes or {}).items():
            removal.remove_nodes(node_type, ids)
        for edge_type, (sources, targets) in (edges or {}).items():
            removal.remove_edges(graph.edge_type(edge_type), sources, targets)
        removal.write(writer)
    return RemoveReport(
        name=graph.name,
        path=path,
        nodes={node_type: len(index) for node_type, index in removal.nodes.items()},
        edges={edge_type: len(ids) for edge_type, ids in removal.edges.items()},
        absent=removal.absent,
        examples=removal.examples,
        seconds=time.monotonic() - started,
    )


class _Removal:
    """Nodes and edges that one removal takes out of a graph."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.nodes: dict[str, Int64Array] = {}
        self.edges: dict[EdgeType, Int64Array] = {}
        self.absent: dict[str, int] = {}
        self.examples: dict[str, tuple[str, ...]] = {}
        self._tables: dict[EdgeType, LiveEdgeTable] = {}

    def remove_nodes(self, node_type: str, ids: IdsLike) -> None:
        """Take out nodes and all their edges."""
        asked = as_arrow(ids, self.graph.id_type(node_type), node_type)
        index = self.graph.index(node_type, asked, missing=-1)
        self._note_absent(node_type, index < 0, lambda row: f"`{asked[row].as_py()}`")
        removed = np.unique(index[index >= 0])
        self.nodes[node_type] = removed
        for edge_type in self.graph.edge_types:
            if not self.graph.is_reverse(edge_type) and node_type in (edge_type[0], edge_type[2]):
                none = removed[:0]
                self._take(
                    edge_type,
                    self._table(edge_type).incident(
                        sources=removed if edge_type[0] == node_type else none,
                        targets=removed if edge_type[2] == node_type else none,
                    ),
                )

    def remove_edges(self, edge_type: EdgeType, sources: IdsLike, targets: IdsLike) -> None:
        """Take out the edges between pairs of nodes."""
        if self.graph.is_reverse(edge_type):
            edge_type = self.graph.reverse_type(edge_type) or edge_type
            sources, targets = targets, sources
        ends = [
            as_arrow(ids, self.graph.id_type(node_type), node_type)
            for ids, node_type in ((sources, edge_type[0]), (targets, edge_type[2]))
        ]
        if len(ends[0]) != len(ends[1]):
            raise UsageError(
                f"expected as many targets as the {len(ends[0]):,} sources, received {len(ends[1]):,}",
                where=f"edge type {edge_type_text(edge_type)}",
            )
        source, target = (
            self.graph.index(node_type, ids, missing=-1)
            for ids, node_type in zip(ends, (edge_type[0], edge_type[2]), strict=True)
        )
        known = np.flatnonzero((source >= 0) & (target >= 0))
        table = self._table(edge_type)
        absent = np.ones(len(source), bool)
        absent[known] = ~table.contains(source[known], target[known])
        self._note_absent(
            edge_type_text(edge_type),
            absent,
            lambda row: f"`{ends[0][row].as_py()}` {edge_type[1]} `{ends[1][row].as_py()}`",
        )
        self._take(edge_type, table.find(source[known], target[known]))

    def _table(self, edge_type: EdgeType) -> LiveEdgeTable:
        if edge_type not in self._tables:
            self._tables[edge_type] = as_live(self.graph.own_edges(edge_type))
        return self._tables[edge_type]

    def _take(self, edge_type: EdgeType, ids: Int64Array) -> None:
        before = self.edges.get(edge_type, ids[:0])
        self.edges[edge_type] = np.union1d(before, ids)

    def _note_absent(self, kind: str, absent: npt.NDArray[np.bool_], in_words: Callable[[int], str]) -> None:
        rows = np.flatnonzero(absent)
        if len(rows):
            self.absent[kind] = len(rows)
            self.examples[kind] = tuple(in_words(row) for row in rows[:_EXAMPLES].tolist())

    def write(self, writer: FolderWriter) -> None:
        """Write the change and put it in place, unless there is none."""
        body = write_removal(writer, self.graph, self.nodes, self.edges)
        if any(body.values()):
            writer.commit(body, removes=True)

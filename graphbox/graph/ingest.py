"""Importing tables of nodes and edges into the on-disk graph format, with a report of what was skipped."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from graphbox.errors import DataError, UsageError, did_you_mean
from graphbox.graph.adjacency import build_csc
from graphbox.graph.columns import (
    FEATURE_KINDS,
    check_ids,
    read_feature,
    read_ids,
    read_timestamp,
    read_weight,
)
from graphbox.graph.format import LOCK_TIMEOUT_S, FolderWriter
from graphbox.graph.ids import make_ids
from graphbox.graph.merge import write_edges, write_nodes
from graphbox.graph.schema import (
    CSC,
    EdgeSource,
    EdgeType,
    FeatureKind,
    GraphSource,
    Int64Array,
    NodeSource,
    check_type_name,
    edge_type_text,
)
from graphbox.graph.source import SourceTable, read_table
from graphbox.graph.tables import EdgeTable, NodeTable

__all__ = ["EdgeTypeReport", "ImportReport", "Progress", "import_graph"]

Progress: TypeAlias = Callable[[str, int, int], None]
"""Called with what is being imported, and how many of how many bytes of input are done."""

_EXAMPLES = 5


@dataclass(frozen=True)
class EdgeTypeReport:
    """What became of the rows of one edge table.

    Attributes:
        type: the edge type.
        rows: rows read.
        edges: edges imported.
        duplicate_edges: repetitions of a (source, target): dropped, or kept where the source says so.
        dangling_edges: edges skipped because an end is missing or no node of its type.
        self_loops: edges from a node to itself; kept.
        examples: the first duplicate and dangling edges in words, by kind.
    """

    type: EdgeType
    rows: int
    edges: int
    duplicate_edges: int
    dangling_edges: int
    self_loops: int
    examples: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    def counts(self) -> dict[str, int]:
        """Return the numbers by name."""
        return {name: value for name, value in asdict(self).items() if isinstance(value, int)}


@dataclass(frozen=True)
class ImportReport:
    """What an import did.

    Attributes:
        name: name of the graph.
        path: its folder.
        nodes: number of nodes by type.
        edges: one report for each edge type.
        size_bytes: bytes written.
        seconds: time taken.
    """

    name: str
    path: Path
    nodes: Mapping[str, int]
    edges: tuple[EdgeTypeReport, ...]
    size_bytes: int
    seconds: float

    def as_dict(self) -> dict[str, Any]:
        """Return plain values for ``--json``."""
        return {
            "name": self.name,
            "path": str(self.path),
            "nodes": dict(self.nodes),
            "edges": [
                {
                    "type": edge_type_text(report.type),
                    **report.counts(),
                    "examples": {kind: list(examples) for kind, examples in report.examples.items()},
                }
                for report in self.edges
            ],
            "size_bytes": self.size_bytes,
            "seconds": self.seconds,
        }


def import_graph(
    source: GraphSource,
    destination: Path,
    progress: Progress | None = None,
    *,
    strict: bool = False,
    lock_timeout_s: float = LOCK_TIMEOUT_S,
) -> ImportReport:
    """Import a graph into a folder, in place of a graph that is there.

    Until the last step the old graph stays; whenever the process dies, a reader sees the old graph or the
    new one. Nodes are numbered in the order of their rows. Edges are sorted by target, then source; of
    repeated ones the first is kept unless the source says otherwise.

    Args:
        source: the tables.
        destination: the graph's folder.
        progress: called as the import goes on.
        strict: refuse edges that would be skipped (dangling, duplicate) instead of counting them.
        lock_timeout_s: seconds to wait for another process that writes the same graph.

    Raises:
        NotFoundError: a file is missing.
        UsageError: the source names an unknown node type, kind or suffix.
        DataError: a table is malformed, a column missing or of the wrong type, a node id missing or there
            twice, a node table empty, no edge left, or ``strict`` refused one.
        DoesNotFitError: the disk has not enough room.
        TimeLimitError: another process is writing the graph.
        ConflictError: the destination holds something else.
    """
    started = time.monotonic()
    _check(source)
    data = [*(each.data for each in source.nodes.values()), *(each.data for each in source.edges)]
    paths = [Path(str(each)) for each in data]
    sizes = [path.stat().st_size if path.is_file() else 0 for path in paths]
    total = sum(sizes)
    done = iter(np.cumsum([0, *sizes]).tolist())

    def report(stage: str) -> None:
        if progress is not None:
            progress(stage, next(done), total)

    nodes: dict[str, NodeTable] = {}
    reports: list[EdgeTypeReport] = []
    with FolderWriter(destination, lock_timeout_s) as writer:
        node_entries, edge_entries = [], []
        for node_type, node_source in source.nodes.items():
            report(f"nodes {node_type}")
            nodes[node_type] = _read_nodes(node_source)
            node_entries.append(write_nodes(writer, node_type, nodes[node_type]))
        for edge_source in source.edges:
            report(f"edges {edge_type_text(edge_source.type)}")
            table, its_report = _read_edges(edge_source, nodes, strict=strict)
            edge_entries.append(write_edges(writer, edge_source.type, table))
            reports.append(its_report)
        if not any(its_report.edges for its_report in reports):
            raise DataError(
                "expected at least one edge, received none",
                where=f"graph `{source.name}`",
                hint="check that the files named under `graph.edges` have rows",
            )
        report("finishing")
        size_bytes = writer.size_bytes
        writer.commit({"name": source.name, "node_types": node_entries, "edge_types": edge_entries})
    return ImportReport(
        name=source.name,
        path=destination,
        nodes={node_type: table.num_nodes for node_type, table in nodes.items()},
        edges=tuple(reports),
        size_bytes=size_bytes,
        seconds=time.monotonic() - started,
    )


# Checks that need no data


def _check(source: GraphSource) -> None:
    if not source.nodes or not source.edges:
        raise UsageError(
            f"expected at least one node type and one edge type, received {len(source.nodes)} and "
            f"{len(source.edges)}",
            where=f"graph `{source.name}`",
        )
    for node_type, nodes in source.nodes.items():
        check_type_name(node_type, "node type")
        _check_kinds(nodes.features, f"node type `{node_type}`")
    seen: set[EdgeType] = set()
    for edges in source.edges:
        where = f"edge type {edge_type_text(edges.type)}"
        _check_kinds(edges.features, where)
        for end in (edges.type[0], edges.type[2]):
            if end not in source.nodes:
                raise UsageError(
                    f"expected one of the node types {', '.join(source.nodes)}, received `{end}`",
                    where=where,
                    hint=did_you_mean(end, source.nodes),
                )
        reverse = [] if edges.reverse is None else [(edges.type[2], edges.reverse, edges.type[0])]
        for edge_type in (edges.type, *reverse):
            check_type_name(edge_type[1], where)
            if edge_type in seen:
                raise UsageError(
                    "expected each edge type once, received it twice", where=edge_type_text(edge_type)
                )
            seen.add(edge_type)


def _check_kinds(features: Mapping[str, FeatureKind], where: str) -> None:
    for name, kind in features.items():
        if kind not in FEATURE_KINDS:
            raise UsageError(
                f"expected one of {', '.join(FEATURE_KINDS)}, received `{kind}`",
                where=f"{where}, feature `{name}`",
                hint=did_you_mean(str(kind), FEATURE_KINDS),
            )


# Nodes


def _read_nodes(nodes: NodeSource) -> NodeTable:
    table = read_table(Path(str(nodes.data)), [nodes.id, *nodes.features])
    ids = read_ids(table, nodes.id, nodes.id_type)
    check_ids(table, nodes.id, ids)
    return NodeTable(
        make_ids(ids, f"{nodes.data}, column `{nodes.id}`", lambda row: table.where(row, nodes.id)),
        {name: read_feature(table, name, kind) for name, kind in nodes.features.items()},
    )


# Edges


def _read_edges(
    edges: EdgeSource, nodes: Mapping[str, NodeTable], *, strict: bool
) -> tuple[EdgeTable, EdgeTypeReport]:
    optional = [column for column in (edges.weight, edges.timestamp) if column is not None]
    table = read_table(Path(str(edges.data)), [edges.source, edges.target, *optional, *edges.features])
    source_nodes, target_nodes = nodes[edges.type[0]], nodes[edges.type[2]]
    source = source_nodes.ids.find(read_ids(table, edges.source, source_nodes.ids.kind))
    target = target_nodes.ids.find(read_ids(table, edges.target, target_nodes.ids.kind))

    found = (source >= 0) & (target >= 0)
    dangling = np.flatnonzero(~found)
    if len(dangling) and (strict or len(dangling) == len(found)):
        raise _dangling_error(edges, table, source, dangling)
    rows = np.flatnonzero(found)
    csc, order = build_csc(
        source[rows], target[rows], source_nodes.num_nodes, target_nodes.num_nodes, drop_duplicates=True
    )
    duplicate = np.delete(rows, order)
    if len(duplicate) and strict and not edges.keep_duplicates:
        raise _duplicate_error(edges, table, duplicate)
    if len(duplicate) and edges.keep_duplicates:
        csc, order = build_csc(source[rows], target[rows], source_nodes.num_nodes, target_nodes.num_nodes)
    rows = rows[order]
    adjacency = CSC(
        csc.indptr,
        csc.indices,
        csc.num_sources,
        weight=None if edges.weight is None else read_weight(table, edges.weight)[rows],
        timestamp=None if edges.timestamp is None else read_timestamp(table, edges.timestamp)[rows],
    )
    features = {name: read_feature(table, name, kind).take(rows) for name, kind in edges.features.items()}
    report = EdgeTypeReport(
        type=edges.type,
        rows=len(found),
        edges=csc.num_edges,
        duplicate_edges=len(duplicate),
        dangling_edges=len(dangling),
        self_loops=int((source[rows] == target[rows]).sum()) if edges.type[0] == edges.type[2] else 0,
        examples={
            kind: tuple(_in_words(edges, table, row) for row in example_rows[:_EXAMPLES].tolist())
            for kind, example_rows in (("duplicate_edges", duplicate), ("dangling_edges", dangling))
            if len(example_rows)
        },
    )
    return EdgeTable(adjacency, features, imported=report.counts(), reverse=_reverse_type(edges)), report


def _reverse_type(edges: EdgeSource) -> EdgeType | None:
    return None if edges.reverse is None else (edges.type[2], edges.reverse, edges.type[0])


def _ends(edges: EdgeSource, table: SourceTable, row: int) -> tuple[Any, Any]:
    """Return the ids at both ends of an edge."""
    columns = (table.table.column(name) for name in (edges.source, edges.target))
    source, target = (column[row].as_py() for column in columns)
    return source, target


def _in_words(edges: EdgeSource, table: SourceTable, row: int) -> str:
    source, target = ("(missing)" if end is None else f"`{end}`" for end in _ends(edges, table, row))
    return f"row {row + 1:,}: {source} {edges.type[1]} {target}"


def _dangling_error(
    edges: EdgeSource, table: SourceTable, source: Int64Array, dangling: Int64Array
) -> DataError:
    row = int(dangling[0])
    end = 0 if source[row] < 0 else 1
    column, node_type = (edges.source, edges.type[0]) if end == 0 else (edges.target, edges.type[2])
    received = _ends(edges, table, row)[end]
    return DataError(
        f"expected the id of a node of type `{node_type}`, received "
        + ("an empty cell" if received is None else f"`{received}`")
        + f" ({len(dangling):,} of {table.table.num_rows:,} edges have an end that is no node)",
        where=table.where(row, column),
        hint="check that the columns hold these ids, and that source and target are the right way round"
        if len(dangling) == table.table.num_rows
        else "add the nodes, or import without strict to skip and count such edges",
    )


def _duplicate_error(edges: EdgeSource, table: SourceTable, duplicate: Int64Array) -> DataError:
    row = int(duplicate[0])
    source, target = _ends(edges, table, row)
    return DataError(
        f"expected each edge once, received `{source}` to `{target}` again "
        f"({len(duplicate):,} of {table.table.num_rows:,} edges are repetitions)",
        where=table.where(row, edges.source),
        hint="remove them, keep them with keep_duplicates, or import without strict to drop and count them",
    )

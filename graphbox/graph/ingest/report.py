"""Report of an import: rows read, kept and skipped by kind, degrees, time, memory and bytes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from graphbox.graph.ingest.skipped import DANGLING, DUPLICATE
from graphbox.graph.schema import EdgeType, IdType, Int64Array, edge_type_text


@dataclass(frozen=True)
class DegreeReport:
    """Degree statistics of nodes, those without edges included.

    Attributes:
        mean: mean degree.
        p50: degree that half of the nodes do not exceed.
        p90: degree that 90 % of the nodes do not exceed.
        p99: degree that 99 % of the nodes do not exceed.
        max: the largest degree.
    """

    mean: float
    p50: int
    p90: int
    p99: int
    max: int

    @classmethod
    def of(cls, degrees: Int64Array, nodes: Int64Array) -> DegreeReport:
        """Return the report of a histogram: distinct degrees, ascending, and how many nodes have each."""
        total = int(nodes.sum())
        if not total:
            return cls(0.0, 0, 0, 0, 0)
        reached = np.cumsum(nodes)
        p50, p90, p99 = (
            int(degrees[np.searchsorted(reached, -(-total * percent // 100))]) for percent in (50, 90, 99)
        )
        return cls(int((degrees * nodes).sum()) / total, p50, p90, p99, int(degrees[-1]))

    def as_dict(self) -> dict[str, float]:
        """Return plain values by name."""
        return {"mean": self.mean, "p50": self.p50, "p90": self.p90, "p99": self.p99, "max": self.max}


@dataclass(frozen=True)
class NodeTypeReport:
    """Counts of the rows of one node table, by outcome.

    Attributes:
        type: the node type.
        id_type: type of its ids.
        nodes: number of nodes.
        isolated: nodes without any edge.
        rows: rows read; 0 for nodes that were found at the ends of edges.
        skipped: rows that could not be used, by kind.
        examples: the first of them, by kind.
        empty_values: number of empty values left out of slot lists, by feature.
    """

    type: str
    id_type: IdType
    nodes: int
    isolated: int
    rows: int = 0
    skipped: Mapping[str, int] = field(default_factory=dict)
    examples: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    empty_values: Mapping[str, int] = field(default_factory=dict)

    def imported(self) -> dict[str, Any]:
        """Return what the manifest says of the import."""
        return {
            "rows": self.rows,
            "nodes": self.nodes,
            "skipped": dict(self.skipped),
            "examples": {kind: list(examples) for kind, examples in self.examples.items()},
        }

    def as_dict(self) -> dict[str, Any]:
        """Return plain values for ``--json``."""
        return {
            "type": self.type,
            "id_type": self.id_type,
            "isolated": self.isolated,
            **self.imported(),
            "empty_values": dict(self.empty_values),
        }


@dataclass(frozen=True)
class EdgeTypeReport:
    """Counts of the rows of one edge table, by outcome.

    Attributes:
        type: the edge type.
        rows: rows read.
        edges: edges imported.
        duplicate_edges: repetitions of a (source, target): dropped, or kept where the source says so.
        dangling_edges: edges skipped because an end is no node of its type.
        self_loops: edges from a node to itself; kept.
        skipped: rows that could not be used for another reason, by kind.
        examples: the first rows of each kind, ``duplicate_edges`` and ``dangling_edges`` among them.
        in_degree: edges into the target nodes; None of a change, which only adds some.
        out_degree: edges out of the source nodes; None of a change.
    """

    type: EdgeType
    rows: int
    edges: int
    duplicate_edges: int
    dangling_edges: int
    self_loops: int
    in_degree: DegreeReport | None = None
    out_degree: DegreeReport | None = None
    skipped: Mapping[str, int] = field(default_factory=dict)
    examples: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    def counts(self) -> dict[str, int]:
        """Return the numbers by name."""
        return {
            "rows": self.rows,
            "edges": self.edges,
            DUPLICATE: self.duplicate_edges,
            DANGLING: self.dangling_edges,
            "self_loops": self.self_loops,
        }

    def imported(self) -> dict[str, Any]:
        """Return what the manifest says of the import."""
        return {
            **self.counts(),
            "skipped": dict(self.skipped),
            "examples": {kind: list(examples) for kind, examples in self.examples.items()},
        }

    def as_dict(self) -> dict[str, Any]:
        """Return plain values for ``--json``."""
        return {
            "type": edge_type_text(self.type),
            **self.imported(),
            "in_degree": None if self.in_degree is None else self.in_degree.as_dict(),
            "out_degree": None if self.out_degree is None else self.out_degree.as_dict(),
        }


@dataclass(frozen=True)
class ImportReport:
    """Result of an import.

    Attributes:
        name: name of the graph.
        path: its folder.
        node_types: one report for each node type.
        edge_types: one report for each edge type.
        seconds: time taken.
        memory_bytes: memory budget of the import.
        peak_memory_bytes: peak resident memory of the process, less what it held before the import beyond the
            192 MiB that the budget has for the program.
        written_bytes: bytes written to disk, temporary files among them; None where the system does not say.
        size_bytes: bytes of the graph.
    """

    name: str
    path: Path
    node_types: tuple[NodeTypeReport, ...]
    edge_types: tuple[EdgeTypeReport, ...]
    seconds: float
    memory_bytes: int
    peak_memory_bytes: int
    written_bytes: int | None
    size_bytes: int

    @property
    def nodes(self) -> dict[str, int]:
        """Number of nodes by type."""
        return {report.type: report.nodes for report in self.node_types}

    @property
    def edges(self) -> tuple[EdgeTypeReport, ...]:
        """The reports of the edge types."""
        return self.edge_types

    @property
    def rows(self) -> int:
        """Rows read from all tables."""
        return sum(each.rows for each in self.node_types) + sum(each.rows for each in self.edge_types)

    @property
    def rows_per_second(self) -> float:
        """Rows read in a second, over the whole import."""
        return self.rows / max(self.seconds, 1e-9)

    def as_dict(self) -> dict[str, Any]:
        """Return plain values for ``--json``."""
        return {
            "name": self.name,
            "path": str(self.path),
            "nodes": [report.as_dict() for report in self.node_types],
            "edges": [report.as_dict() for report in self.edge_types],
            "seconds": self.seconds,
            "rows_per_second": self.rows_per_second,
            "memory_bytes": self.memory_bytes,
            "peak_memory_bytes": self.peak_memory_bytes,
            "written_bytes": self.written_bytes,
            "size_bytes": self.size_bytes,
        }

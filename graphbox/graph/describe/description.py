"""What there is to say about a graph: plain records, and the faces that terminals and notebooks show."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from graphbox.graph.describe.histogram import DegreeBin
from graphbox.graph.schema import EdgeType, FeatureKind, IdType, edge_type_text

__all__ = [
    "Degrees",
    "Description",
    "EdgeTypeDescription",
    "FeatureDescription",
    "Hub",
    "NodeTypeDescription",
    "Problem",
]


@dataclass(frozen=True)
class Hub:
    """One of the nodes with the most edges.

    Attributes:
        id: its original id.
        degree: its number of edges.
    """

    id: str | int
    degree: int


@dataclass(frozen=True)
class Degrees:
    """How the edges of one type spread over the nodes at one of their ends; removed nodes do not count.

    Attributes:
        mean: edges per node.
        p50: the degree that half of the nodes do not exceed; ``p90`` and ``p99`` likewise.
        max: the largest degree.
        bins: nodes by degree 0, 1, 2 to 3, 4 to 7 and so on.
        hubs: the nodes with the most edges, largest first.
    """

    mean: float
    p50: int
    p90: int
    p99: int
    max: int
    bins: tuple[DegreeBin, ...] = ()
    hubs: tuple[Hub, ...] = ()

    def as_dict(self) -> dict[str, Any]:
        """Return plain values."""
        return {
            "mean": self.mean,
            "p50": self.p50,
            "p90": self.p90,
            "p99": self.p99,
            "max": self.max,
            "histogram": [{"low": each.low, "high": each.high, "nodes": each.nodes} for each in self.bins],
            "hubs": [{"id": hub.id, "degree": hub.degree} for hub in self.hubs],
        }


@dataclass(frozen=True)
class FeatureDescription:
    """One feature of the nodes or edges of a type; what does not apply to its kind is None.

    Attributes:
        name: its name.
        kind: how it is kept.
        rows: nodes or edges looked at.
        missing: rows without a value (``slots``: with an empty list; ``vector``: with NaN anywhere).
        min: smallest value.
        p50: the value that half of the present ones do not exceed.
        max: largest value.
        categories: number of categories.
        true: number of true values.
        dim: length of the vectors.
        constant_dims: positions of the vectors that hold one value everywhere.
        values: number of values in all lists.
        longest: number of values of the longest list.
        constant: whether every row that is not missing has the same value.
    """

    name: str
    kind: FeatureKind
    rows: int
    missing: int | None = None
    min: float | None = None
    p50: float | None = None
    max: float | None = None
    categories: int | None = None
    true: int | None = None
    dim: int | None = None
    constant_dims: int | None = None
    values: int | None = None
    longest: int | None = None
    constant: bool = False

    def as_dict(self) -> dict[str, Any]:
        """Return plain values, without those that do not apply."""
        return {name: value for name, value in vars(self).items() if value is not None}


@dataclass(frozen=True)
class NodeTypeDescription:
    """The nodes of one type.

    Attributes:
        name: the node type.
        nodes: nodes that are there.
        removed: nodes that were removed from a live graph; their numbers are not used again.
        isolated: nodes without an edge of any type; None when edges were not looked at.
        id_type: what the original ids are.
        features: their features.
        imported: what the import read, kept and skipped, by kind; empty without a table of nodes.
    """

    name: str
    nodes: int
    removed: int
    isolated: int | None
    id_type: IdType
    features: tuple[FeatureDescription, ...]
    imported: Mapping[str, Any] = field(default_factory=dict)

    def as_dict(self) -> dict[str, Any]:
        """Return plain values."""
        features = [feature.as_dict() for feature in self.features]
        return {**vars(self), "features": features, "imported": dict(self.imported)}


@dataclass(frozen=True)
class EdgeTypeDescription:
    """The edges of one type.

    Attributes:
        type: the edge type.
        edges: number of edges.
        reverse_of: the edge type of which this one holds the edges backwards; then the rest is empty.
        has_weight: whether edges have weights.
        has_timestamp: whether edges have timestamps.
        self_loops: edges from a node to itself.
        duplicate_edges: edges whose source and target an edge before has as well.
        in_degree: how they spread over the target nodes.
        out_degree: how they spread over the source nodes.
        features: further features.
        imported: what the import read, kept and skipped, by kind.
    """

    type: EdgeType
    edges: int
    reverse_of: EdgeType | None = None
    has_weight: bool = False
    has_timestamp: bool = False
    self_loops: int = 0
    duplicate_edges: int = 0
    in_degree: Degrees | None = None
    out_degree: Degrees | None = None
    features: tuple[FeatureDescription, ...] = ()
    imported: Mapping[str, Any] = field(default_factory=dict)

    def as_dict(self) -> dict[str, Any]:
        """Return plain values."""
        source, relation, target = self.type
        entry: dict[str, Any] = {"source": source, "relation": relation, "target": target}
        entry["edges"] = self.edges
        entry["reverse_of"] = None if self.reverse_of is None else edge_type_text(self.reverse_of)
        if self.in_degree is None or self.out_degree is None:
            return entry
        return {
            **entry,
            "weight": self.has_weight,
            "timestamp": self.has_timestamp,
            "self_loops": self.self_loops,
            "duplicate_edges": self.duplicate_edges,
            "in_degree": self.in_degree.as_dict(),
            "out_degree": self.out_degree.as_dict(),
            "features": [feature.as_dict() for feature in self.features],
            "imported": dict(self.imported),
        }


@dataclass(frozen=True)
class Problem:
    """Something in the data that may not be as its owner thinks.

    Attributes:
        kind: stable name: ``dangling_edges``, ``isolated_nodes`` and so on.
        where: the node type, edge type or feature.
        count: how many nodes, edges or lines.
        total: of how many; None where that is not known.
        message: what was found, one sentence.
        hint: what to do about it.
        examples: the first few, in words.
    """

    kind: str
    where: str
    count: int
    total: int | None
    message: str
    hint: str
    examples: tuple[str, ...] = ()

    def as_dict(self) -> dict[str, Any]:
        """Return plain values."""
        return {**vars(self), "examples": list(self.examples)}


@dataclass(frozen=True)
class Description:
    """What :meth:`graphbox.graph.Graph.describe` found; prints as text and shows itself in notebooks.

    Attributes:
        name: name of the graph.
        path: its folder, or None when it is in memory.
        size_bytes: its size on disk, or None when it is in memory.
        node_types: the node types.
        edge_types: the edge types, each followed by its reverse where it has one.
        problems: what may be wrong with the data.
    """

    name: str
    path: str | None
    size_bytes: int | None
    node_types: tuple[NodeTypeDescription, ...]
    edge_types: tuple[EdgeTypeDescription, ...]
    problems: tuple[Problem, ...] = ()

    @property
    def nodes(self) -> int:
        """Number of nodes that are there."""
        return sum(entry.nodes for entry in self.node_types)

    @property
    def edges(self) -> int:
        """Number of edges; those of reverse edge types are not counted again."""
        return sum(entry.edges for entry in self.edge_types if entry.reverse_of is None)

    def as_dict(self) -> dict[str, Any]:
        """Return plain values, as ``graphbox describe --json`` prints them."""
        return {
            "name": self.name,
            "path": self.path,
            "size_bytes": self.size_bytes,
            "nodes": self.nodes,
            "edges": self.edges,
            "node_types": [entry.as_dict() for entry in self.node_types],
            "edge_types": [entry.as_dict() for entry in self.edge_types],
            "problems": [problem.as_dict() for problem in self.problems],
        }

    def __str__(self) -> str:
        from graphbox.graph.describe.terminal import as_text

        return as_text(self)

    __repr__ = __str__

    def _repr_html_(self) -> str:
        from graphbox.graph.describe.notebook import description_html

        return description_html(self)

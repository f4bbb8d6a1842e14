"""Records of a graph description: counts, degrees, features and problems; as text and as plain values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, is_dataclass
from typing import Any

from graphbox.graph.describe.histogram import DegreeBin
from graphbox.graph.ingest.report import DegreeReport
from graphbox.graph.schema import EdgeType, FeatureKind, IdType, edge_type_text


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
class Degrees(DegreeReport):
    """Degrees of the nodes at one end of the edges of a type; removed nodes do not count.

    Attributes:
        histogram: nodes by degree 0, 1, 2 to 3, 4 to 7 and so on.
        hubs: the nodes with the most edges, largest first.
    """

    histogram: tuple[DegreeBin, ...] = ()
    hubs: tuple[Hub, ...] = ()


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


@dataclass(frozen=True)
class NodeTypeDescription:
    """The nodes of one type.

    Attributes:
        name: the node type.
        nodes: nodes that are there.
        removed: nodes that were removed from a live graph; their numbers are not used again.
        isolated: nodes without an edge of any type.
        id_type: what the original ids are.
        features: their features.
        imported: what the import read, kept and skipped, by kind; empty without a table of nodes.
    """

    name: str
    nodes: int
    removed: int
    isolated: int
    id_type: IdType
    features: tuple[FeatureDescription, ...]
    imported: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class EdgeTypeDescription:
    """The edges of one type.

    Attributes:
        type: the edge type.
        edges: number of edges.
        reverse_of: the edge type of which this one holds the edges backwards; then the rest is empty.
        weight: whether edges have weights.
        timestamp: whether edges have timestamps.
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
    weight: bool = False
    timestamp: bool = False
    self_loops: int = 0
    duplicate_edges: int = 0
    in_degree: Degrees | None = None
    out_degree: Degrees | None = None
    features: tuple[FeatureDescription, ...] = ()
    imported: Mapping[str, Any] = field(default_factory=dict)


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


@dataclass(frozen=True)
class Description:
    """Result of :meth:`graphbox.graph.Graph.describe`; its text form is what terminals show.

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
            "node_types": _plain(self.node_types),
            "edge_types": [_plain_edges(entry) for entry in self.edge_types],
            "problems": _plain(self.problems),
        }

    def __str__(self) -> str:
        from graphbox.graph.describe.terminal import as_text

        return as_text(self)

    __repr__ = __str__


def _plain(record: Any) -> Any:
    """Return dataclasses as dicts and tuples as lists; values of features that do not apply are left out."""
    if isinstance(record, tuple):
        return [_plain(each) for each in record]
    if isinstance(record, Mapping):
        return dict(record)
    if is_dataclass(record):
        optional = isinstance(record, FeatureDescription)
        return {
            name: _plain(value) for name, value in vars(record).items() if not (optional and value is None)
        }
    return record


def _plain_edges(entry: EdgeTypeDescription) -> dict[str, Any]:
    source, relation, target = entry.type
    plain = {"source": source, "relation": relation, "target": target, **_plain(entry)}
    del plain["type"]
    plain["reverse_of"] = None if entry.reverse_of is None else edge_type_text(entry.reverse_of)
    if entry.in_degree is None:
        return {name: plain[name] for name in ("source", "relation", "target", "edges", "reverse_of")}
    return plain

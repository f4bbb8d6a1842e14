"""Results of neighbour sampling: sampled subgraphs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, NamedTuple, TypeVar

from graphbox.sample.adjacency import EdgeType

Array = TypeVar("Array")


@dataclass(frozen=True, slots=True)
class NeighborSample(Generic[Array]):
    """A sampled subgraph with one node and one edge type.

    Edge ``i`` leads from ``nodes[row[i]]`` to ``nodes[col[i]]``, and is edge ``edge_ids[i]`` of the graph:
    ``csc.indices[edge_ids[i]] == nodes[row[i]]``.

    Attributes:
        nodes: int64 [n], node indices: the seeds in their order, then the others by first appearance.
        row: int64 [e], positions of the neighbours in ``nodes``.
        col: int64 [e], positions of the expanded nodes in ``nodes``.
        edge_ids: int64 [e], positions in the CSC.
        num_sampled_nodes: hops + 1 numbers: the seeds, then the nodes that each hop added.
        num_sampled_edges: number of edges of each hop.
        weight: float32 [e] if asked for, else None.
        timestamp: int64 [e] if asked for, else None.
        trees: int64 [n], which seed's tree a node is in, if the sample is disjoint, else None.
    """

    nodes: Array
    row: Array
    col: Array
    edge_ids: Array
    num_sampled_nodes: list[int]
    num_sampled_edges: list[int]
    weight: Any = None
    timestamp: Any = None
    trees: Any = None


@dataclass(frozen=True, slots=True)
class HeteroSample(Generic[Array]):
    """A sampled subgraph with several types: as :class:`NeighborSample`, by node type and by edge type.

    ``row[t]`` are positions in ``nodes`` of the source type of ``t``, ``col[t]`` in those of its target
    type. ``weight`` and ``timestamp`` have the edge types whose edges have them, if they were asked for.
    ``trees`` is empty unless the sample is disjoint; trees are numbered over all node types with seeds.
    """

    nodes: dict[str, Array]
    row: dict[EdgeType, Array]
    col: dict[EdgeType, Array]
    edge_ids: dict[EdgeType, Array]
    num_sampled_nodes: dict[str, list[int]]
    num_sampled_edges: dict[EdgeType, list[int]]
    weight: dict[EdgeType, Any] = field(default_factory=dict)
    timestamp: dict[EdgeType, Any] = field(default_factory=dict)
    trees: dict[str, Any] = field(default_factory=dict)


class SampledNodes(NamedTuple):
    """The nodes of one type in a sample, in the order in which the native core returns them.

    Attributes:
        nodes: int64 [n], node indices.
        per_hop: hops + 1 numbers: the seeds, then the nodes that each hop added.
        trees: int64 [n], the tree of each node; None: the sample is not disjoint.
    """

    nodes: Any
    per_hop: list[int]
    trees: Any = None


class SampledEdges(NamedTuple):
    """The edges of one edge type in a sample, in the order in which the native core returns them.

    Attributes:
        row: int64 [e], positions of the neighbours in the sample.
        col: int64 [e], positions of the expanded nodes.
        edge_ids: int64 [e].
        per_hop: number of edges of each hop.
        weight: float32 [e]; None: not asked for, or there are none.
        timestamp: int64 [e]; None: not asked for, or there are none.
    """

    row: Any
    col: Any
    edge_ids: Any
    per_hop: list[int]
    weight: Any = None
    timestamp: Any = None


def hetero_sample(
    node_types: Iterable[str],
    edge_types: Iterable[EdgeType],
    nodes: Sequence[SampledNodes],
    edges: Sequence[SampledEdges],
    convert: Callable[[Any], Any] = lambda array: array,
) -> HeteroSample[Any]:
    """Return a sample by node type and edge type.

    Args:
        node_types: of ``nodes``, in order.
        edge_types: of ``edges``, in order.
        nodes: of each node type.
        edges: of each edge type.
        convert: applied to each array.
    """
    by_node_type = list(zip(node_types, nodes, strict=True))
    by_edge_type = list(zip(edge_types, edges, strict=True))
    return HeteroSample(
        nodes={name: convert(each.nodes) for name, each in by_node_type},
        row={name: convert(each.row) for name, each in by_edge_type},
        col={name: convert(each.col) for name, each in by_edge_type},
        edge_ids={name: convert(each.edge_ids) for name, each in by_edge_type},
        num_sampled_nodes={name: each.per_hop for name, each in by_node_type},
        num_sampled_edges={name: each.per_hop for name, each in by_edge_type},
        weight={name: convert(each.weight) for name, each in by_edge_type if each.weight is not None},
        timestamp={
            name: convert(each.timestamp) for name, each in by_edge_type if each.timestamp is not None
        },
        trees={name: convert(each.trees) for name, each in by_node_type if each.trees is not None},
    )

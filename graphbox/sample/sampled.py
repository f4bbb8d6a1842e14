"""Results of neighbour sampling: sampled subgraphs."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

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

"""What neighbour sampling gives: sampled subgraphs."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from graphbox.sample.adjacency import EdgeType

__all__ = ["HeteroSample", "NeighborSample"]

Array = TypeVar("Array")


@dataclass(frozen=True, slots=True)
class NeighborSample(Generic[Array]):
    """A sampled subgraph with one node and one edge type.

    Edge ``i`` leads from ``nodes[rows[i]]`` to ``nodes[cols[i]]``, and is edge ``edge_ids[i]`` of the graph:
    ``csc.indices[edge_ids[i]] == nodes[rows[i]]``.

    Attributes:
        nodes: int64 [n], node indices: the seeds in their order, then the others by first appearance.
        rows: int64 [e], positions of the neighbours in ``nodes``.
        cols: int64 [e], positions of the expanded nodes in ``nodes``.
        edge_ids: int64 [e], positions in the CSC.
        nodes_per_hop: hops + 1 numbers: the seeds, then the nodes that each hop added.
        edges_per_hop: number of edges of each hop.
        weight: float32 [e] if asked for, else None.
        timestamp: int64 [e] if asked for, else None.
        trees: int64 [n], which seed's tree a node is in, if the sample is disjoint, else None.
    """

    nodes: Array
    rows: Array
    cols: Array
    edge_ids: Array
    nodes_per_hop: list[int]
    edges_per_hop: list[int]
    weight: Any = None
    timestamp: Any = None
    trees: Any = None


@dataclass(frozen=True, slots=True)
class HeteroSample(Generic[Array]):
    """A sampled subgraph with several types: as :class:`NeighborSample`, by node type and by edge type.

    ``rows[t]`` are positions in ``nodes`` of the source type of ``t``, ``cols[t]`` in those of its target
    type. ``weight`` and ``timestamp`` have the edge types whose edges have them, if they were asked for.
    ``trees`` is empty unless the sample is disjoint; trees are numbered over all node types with seeds.
    """

    nodes: dict[str, Array]
    rows: dict[EdgeType, Array]
    cols: dict[EdgeType, Array]
    edge_ids: dict[EdgeType, Array]
    nodes_per_hop: dict[str, list[int]]
    edges_per_hop: dict[EdgeType, list[int]]
    weight: dict[EdgeType, Any] = field(default_factory=dict)
    timestamp: dict[EdgeType, Any] = field(default_factory=dict)
    trees: dict[str, Any] = field(default_factory=dict)

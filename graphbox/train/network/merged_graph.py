"""A graph in which all edge types between two node types are one, and so are all edges of a pair of nodes."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from graphbox.graph.schema import CSC, CSR, EdgeType
from graphbox.train.view import GraphView

_MERGED = "edges"


class MergedGraph:
    """A graph in memory, with the faces that samplers need.

    Args:
        nodes: number of nodes by type.
        edges: the in-neighbours of each edge type.
    """

    def __init__(self, nodes: dict[str, int], edges: dict[EdgeType, CSC]) -> None:
        self._nodes = nodes
        self._edges = edges

    @property
    def node_types(self) -> list[str]:
        """Names of the node types."""
        return list(self._nodes)

    @property
    def edge_types(self) -> list[EdgeType]:
        """The edge types."""
        return list(self._edges)

    def num_nodes(self, node_type: str) -> int:
        """Return the number of nodes of a type."""
        return self._nodes[node_type]

    def has_weights(self, edge_type: EdgeType) -> bool:
        """Return whether the edges of a type have weights."""
        return self._edges[edge_type].weight is not None

    def csc(self, edge_type: EdgeType) -> CSC:
        """Return the in-neighbours of every target."""
        return self._edges[edge_type]

    def csr(self, edge_type: EdgeType) -> CSR:
        """Return the out-neighbours of every source."""
        csc = self._edges[edge_type]
        source, target = csc.coo()
        order = np.lexsort((target, source))
        indptr = np.concatenate([[0], np.cumsum(np.bincount(source, minlength=csc.num_sources))])
        weight = None if csc.weight is None else csc.weight[order]
        return CSR(indptr.astype(np.int64), target[order], order, csc.num_targets, weight)


def merged_types(edge_types: Sequence[EdgeType]) -> dict[EdgeType, list[EdgeType]]:
    """Return the edge types that consist of those between two node types, with these."""
    members: dict[EdgeType, list[EdgeType]] = {}
    for edge_type in edge_types:
        members.setdefault((edge_type[0], _MERGED, edge_type[2]), []).append(edge_type)
    return members


def merged_graph(view: GraphView, edge_types: Sequence[EdgeType], *, weights: bool) -> MergedGraph:
    """Return a graph whose edge types are those between two node types taken together.

    An edge that another edge type has as well, for instance as its own reverse, is one edge.

    Args:
        view: the graph.
        edge_types: which of its edge types.
        weights: give an edge the sum of the weights of all edges of its pair, where any has a weight (the
            others weigh 1); without it none has a weight.
    """
    edges = {
        relation: _together(view, each, weights=weights)
        for relation, each in merged_types(edge_types).items()
    }
    return MergedGraph({name: view.num_nodes(name) for name in view.node_types}, edges)


def _together(view: GraphView, edge_types: Sequence[EdgeType], *, weights: bool) -> CSC:
    found = [view.csc(edge_type) for edge_type in edge_types]
    weighted = weights and any(csc.weight is not None for csc in found)
    shape = (len(found[0].indptr) - 1, view.num_nodes(edge_types[0][0]))
    total = sp.csr_array(shape, dtype=np.float32)
    for csc in found:
        own = csc.weight if weighted and csc.weight is not None else np.ones(len(csc.indices), np.float32)
        matrix = sp.csr_array((own, csc.indices, csc.indptr), shape=shape, copy=True)
        matrix.sum_duplicates()
        total = total + matrix
    total.sort_indices()
    weight: NDArray[np.float32] | None = total.data.astype(np.float32) if weighted else None
    return CSC(total.indptr.astype(np.int64), total.indices, shape[1], weight)

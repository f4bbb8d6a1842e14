"""Groups of nodes that are never split."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from graphbox.errors import DataError
from graphbox.graph import Graph
from graphbox.graph.schema import EdgeType, edge_type_text


@dataclass(frozen=True, eq=False)
class Groups:
    """Groups of the nodes of a type.

    Attributes:
        of_nodes: int64 [nodes], the group of each.
        count: how many there are.
        texts: returns the texts by which some groups, int64 [n], are hashed.
    """

    of_nodes: NDArray[np.int64]
    count: int
    texts: Callable[[NDArray[np.int64]], list[str]]


def node_groups(graph: Graph, node_type: str, edge_type: EdgeType | None) -> Groups:
    """Return the groups of a type's nodes: the targets of their edges, or each node for itself.

    A node without a group is one of its own. The texts of the two kinds cannot be equal.
    """
    num_nodes = graph.num_nodes(node_type)
    if edge_type is None:
        return Groups(np.arange(num_nodes), num_nodes, lambda nodes: _node_texts(graph, node_type, nodes))
    csr = graph.csr(edge_type)
    degree = np.diff(csr.indptr)
    if (degree > 1).any():
        node = int(np.flatnonzero(degree > 1)[0])
        raise DataError(
            f"expected at most one group for each {node_type}, received {int(degree[node])}",
            where=f"{node_type} {graph.ids(node_type, [node])[0]}, edge type {edge_type_text(edge_type)}",
            hint="group by an edge type with one target for each node, or leave `group` out",
        )
    group = np.full(num_nodes, -1, dtype=np.int64)
    group[degree == 1] = csr.indices
    used, group[degree == 1] = np.unique(csr.indices, return_inverse=True)
    alone = np.flatnonzero(group < 0)
    group[alone] = len(used) + np.arange(len(alone))
    named = [f"group {name}" for name in graph.ids(edge_type[2], used.astype(np.int64)).tolist()]
    named += _node_texts(graph, node_type, alone)
    return Groups(group, len(named), lambda groups: [named[each] for each in groups.tolist()])


def _node_texts(graph: Graph, node_type: str, nodes: NDArray[np.int64]) -> list[str]:
    return [f"node {name}" for name in graph.ids(node_type, nodes).tolist()]

"""Groups of nodes that are never split."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from graphbox.errors import DataError
from graphbox.graph import Graph
from graphbox.graph.schema import EdgeType, edge_type_text


def node_groups(
    graph: Graph, node_type: str, edge_type: EdgeType | None
) -> tuple[NDArray[np.int64], list[str]]:
    """Return the group of each node and the text by which each group is hashed.

    A node without a group is one of its own. The texts of the two kinds cannot be equal.
    """
    num_nodes = graph.num_nodes(node_type)
    if edge_type is None:
        return np.arange(num_nodes), [f"node {node}" for node in graph.ids(node_type).tolist()]
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
    texts = [f"group {name}" for name in graph.ids(edge_type[2], used.astype(np.int64)).tolist()]
    return group, texts + [f"node {name}" for name in graph.ids(node_type, alone).tolist()]

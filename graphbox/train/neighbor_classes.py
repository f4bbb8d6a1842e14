"""The known classes around nodes as columns for a classifier; none sees its own, or those of its group."""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from graphbox.train.recommendation.queries import adjacency
from graphbox.train.tasks import ClassifySplit
from graphbox.train.view import GraphView


def shares_of_known_classes(
    view: GraphView, split: ClassifySplit, known: NDArray[np.int64], group: NDArray[np.int64]
) -> list[NDArray[np.float32]]:
    """Return the shares of the classes among the nodes around each node whose class is known.

    There is a block of columns for each way to a node of the task's type: an edge towards the node, an edge
    from it, and a neighbour in common, by each of these two directions and by each further node type. A node
    counts once for each edge type that joins it, or, with a neighbour in common, by one over the number of
    edges of that neighbour. Never counted are the node itself and the nodes of its group, so that what a
    classifier learns of the columns of a known node holds for one whose whole group is unknown. A node with
    nothing known around it gets zeros.

    Args:
        view: the graph.
        split: the split of the task; only labels of ``known`` are read.
        known: int64, the nodes whose class is known.
        group: int64 [nodes], the group of each node; a number of its own each where nothing is grouped.

    Returns:
        float32 [nodes, classes] each.
    """
    classes = sp.csr_array(split.members(known), dtype=np.float64)
    within, through = _links(view, split.node_type)
    over_edges = [_shares(_over_edges(links, classes, group)) for links in within]
    return over_edges + [_shares(_over_common(links, classes, group)) for links in (*within, *through)]


def _links(view: GraphView, node_type: str) -> tuple[list[sp.csr_array], list[sp.csr_array]]:
    """Return float64 [nodes, neighbours]: edges to and from nodes of the type, and to each further type."""
    within: list[sp.csr_array] = []
    through: dict[str, sp.csr_array] = {}
    for source, relation, target in view.edge_types:
        if node_type not in (source, target) or view.is_reverse((source, relation, target)):
            continue
        incoming = sp.csr_array(adjacency(view.csc((source, relation, target))), dtype=np.float64)
        outgoing = sp.csr_array(incoming.T)
        if source == target:
            both = [incoming, outgoing]
            within = [sp.csr_array(a + b) for a, b in zip(within, both, strict=True)] if within else both
            continue
        other, links = (source, incoming) if target == node_type else (target, outgoing)
        through[other] = sp.csr_array(through[other] + links) if other in through else links
    return within, [through[name] for name in view.node_types if name in through]


def _over_edges(links: sp.csr_array, classes: sp.csr_array, group: NDArray[np.int64]) -> NDArray[np.float64]:
    entries = links.tocoo()
    apart = group[entries.row] != group[entries.col]
    kept = (entries.data[apart], (entries.row[apart], entries.col[apart]))
    return np.asarray((sp.csr_array(kept, shape=links.shape) @ classes).toarray())


def _over_common(links: sp.csr_array, classes: sp.csr_array, group: NDArray[np.int64]) -> NDArray[np.float64]:
    """Count over neighbours in common: what each neighbour joins, less what it joins of the node's group."""
    edges = np.asarray(links.sum(axis=0)).ravel()
    weight = 1.0 / np.maximum(edges, 1.0)
    everything = (links @ sp.diags_array(weight) @ (links.T @ classes)).toarray()
    entries = links.tocoo()
    pairs, pair = np.unique(
        group[entries.row] * links.shape[1] + entries.col.astype(np.int64), return_inverse=True
    )
    of_group = sp.csr_array((entries.data, (entries.row, pair)), shape=(links.shape[0], len(pairs)))
    weight_of_pair = weight[pairs % links.shape[1]]
    own = (of_group @ sp.diags_array(weight_of_pair) @ (of_group.T @ classes)).toarray()
    difference = everything - own
    # What remains where nothing is known but the own group's is rounding; the least true count is one edge's.
    return np.asarray(np.where(difference > 0.5 * weight.min(initial=1.0), difference, 0.0))


def _shares(counts: NDArray[np.float64]) -> NDArray[np.float32]:
    total = counts.sum(axis=1, keepdims=True)
    return np.asarray(counts / np.where(total > 0, total, 1.0), dtype=np.float32)

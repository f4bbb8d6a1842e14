"""Ranks of the targets of a chunk's new edges among a sample of candidates: for HR@k and MRR."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from graphbox.graph.live_rows import LiveRows
from graphbox.graph.schema import EdgeType
from graphbox.train.view import GraphView

MOST_RANKED_EDGES = 500
"""New edges of a chunk that are ranked; of more, a sample."""
RANKED_CANDIDATES = 1_000
"""Targets, drawn once for the chunk, that each of them is ranked among."""

Vectors = Callable[[NDArray[np.int64]], NDArray[np.float32]]
"""Maps nodes, int64 [n], to vectors, float32 [n, dim]."""


def target_ranks(
    view: GraphView,
    edge_type: EdgeType,
    joined_by: list[EdgeType],
    pairs: NDArray[np.int64],
    vectors: tuple[Vectors, Vectors],
    generator: np.random.Generator,
) -> NDArray[np.float64]:
    """Return the rank of the target of each edge among drawn candidates: float64 [n], 1 is the first.

    No candidate is a node that an edge joins to the source already, nor the source itself. A tie takes the
    middle of its ranks. Work is bounded by :data:`MOST_RANKED_EDGES` and :data:`RANKED_CANDIDATES`: metrics
    over a sample flatter, and say the same of two models only where both rank among as many (Krichene and
    Rendle, "On sampled metrics for item recommendation", KDD 2020).

    Args:
        view: the graph, the new edges in it.
        edge_type: of the edges.
        joined_by: edge types between the same node types whose edges exclude candidates.
        pairs: int64 [edges, 2], source and target.
        vectors: of sources and of targets; products are scores.
        generator: draws.

    Returns:
        The ranks of at most 500 of the edges.
    """
    source_type, _, target_type = edge_type
    if len(pairs) > MOST_RANKED_EDGES:
        pairs = pairs[np.sort(generator.permutation(len(pairs))[:MOST_RANKED_EDGES])]
    live = LiveRows.of_graph(view, target_type)
    candidates = live.nodes(np.sort(generator.permutation(len(live))[:RANKED_CANDIDATES]))
    sources = vectors[0](pairs[:, 0])
    own = np.einsum("nd,nd->n", sources, vectors[1](pairs[:, 1]))
    scores = sources @ vectors[1](candidates).T
    source = np.repeat(pairs[:, 0], len(candidates))
    target = np.tile(candidates, len(pairs))
    excluded = source == target if source_type == target_type else np.zeros(len(source), bool)
    for each in joined_by:
        excluded |= view.contains(each, source, target)
    scores[excluded.reshape(scores.shape)] = -np.inf
    above, ties = ((scores > own[:, None]).sum(axis=1), (scores == own[:, None]).sum(axis=1))
    return np.asarray(1.0 + above + ties / 2.0, np.float64)

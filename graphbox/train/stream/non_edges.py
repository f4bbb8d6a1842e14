"""Pairs that no edge joins, to score new edges beside."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from graphbox.graph.live_rows import LiveRows
from graphbox.graph.schema import EdgeType
from graphbox.train.view import GraphView

_DRAWS = 8
"""Number of times that a pair joined by an edge is drawn again; one that still is joined is left out."""


def draw_non_edges(
    view: GraphView,
    edge_types: list[EdgeType],
    sources: NDArray[np.int64],
    generator: np.random.Generator,
) -> NDArray[np.int64]:
    """Return a pair for each source with a target drawn from all live ones, which no edge of the types joins.

    Sources that are joined to nearly all targets may be left out. No node is paired with itself.

    Args:
        view: the graph, the new edges in it.
        edge_types: of one source and one target type.
        sources: int64 [n], indices of nodes.
        generator: draws.

    Returns:
        int64 [m, 2], m at most n.
    """
    source_type, _, target_type = edge_types[0]
    live = LiveRows.of_graph(view, target_type)

    def drawn(count: int) -> NDArray[np.int64]:
        return live.nodes(generator.integers(0, len(live), count))

    def is_joined(pairs: NDArray[np.int64]) -> NDArray[np.bool_]:
        joined = pairs[:, 0] == pairs[:, 1] if source_type == target_type else np.zeros(len(pairs), bool)
        for edge_type in edge_types:
            joined |= view.contains(edge_type, pairs[:, 0], pairs[:, 1])
        return joined

    pairs = np.stack([sources, drawn(len(sources))], axis=1)
    wrong = np.flatnonzero(is_joined(pairs))
    for _ in range(_DRAWS):
        if not len(wrong):
            break
        pairs[wrong, 1] = drawn(len(wrong))
        wrong = wrong[is_joined(pairs[wrong])]
    return np.delete(pairs, wrong, axis=0)

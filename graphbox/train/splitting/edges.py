"""Parts of edges: their times and columns, and what pairs are hashed by."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from graphbox.errors import UsageError
from graphbox.graph import Graph
from graphbox.graph.schema import CSC, EdgeType, edge_type_text

__all__ = ["edge_column", "pair_texts", "timestamps", "why_empty"]


def timestamps(csc: CSC, edge_type: EdgeType, kind: str) -> NDArray[np.int64]:
    """Return the times of edges: int64 [edges].

    Raises:
        UsageError: they have none.
    """
    if csc.timestamp is None:
        raise UsageError(
            f"expected edges with a timestamp for a split of kind {kind}, received none",
            where=f"edge type {edge_type_text(edge_type)}",
            hint="name the column: `timestamp: ...` at the edge type under graph.edges",
        )
    return csc.timestamp


def edge_column(graph: Graph, edge_type: EdgeType, name: str) -> NDArray[np.int64]:
    """Return an edge feature in the order of the CSC."""
    csc = graph.csc(edge_type)
    column = np.asarray(graph.edge_feature(edge_type, name)).astype(np.int64)
    return column[csc.ids_at(np.arange(csc.num_edges))]


def pair_texts(
    pairs: NDArray[np.uint64], first_texts: Sequence[str], second_texts: Sequence[str], *, ordered: bool
) -> Iterable[str]:
    """Yield the text by which each pair is hashed.

    Args:
        pairs: uint64, keys by :func:`graphbox.train.tasks.pair_keys`.
        first_texts: texts of first ends.
        second_texts: texts of second ends.
        ordered: as the keys were made.
    """
    low = (pairs >> np.uint64(32)).astype(np.int64).tolist()
    high = (pairs & np.uint64(0xFFFFFFFF)).astype(np.int64).tolist()
    for first, second in zip(low, high, strict=True):
        both = (first_texts[first], second_texts[second])
        # Group numbers depend on the order of the nodes, the names do not.
        yield "\0".join(both if ordered else sorted(both))


def why_empty(kind: str) -> str:
    """Return the hint for a part without edges, by the kind of split."""
    match kind:
        case "time":
            return "edges of one time fall into one part: use larger fractions, or another split"
        case "leave_last_out":
            return "only what has three or more edges is tested"
        case "given":
            return "the task's `split` says which edges are in which part"
    return "only pairs without an excluded relation are held out: use larger fractions"

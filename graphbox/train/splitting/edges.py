"""Parts of edges: their times and columns, and what pairs are hashed by."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from graphbox.errors import UsageError
from graphbox.graph import Graph
from graphbox.graph.schema import CSC, EdgeType, edge_type_text
from graphbox.train.tasks import distinct_keys, ends_of_keys, pair_keys

Texts: TypeAlias = Callable[[NDArray[np.int64]], list[str]]

_BLOCK_PAIRS = 1 << 16
"""Pairs whose numbers are Python's at a time."""


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


def single_alternatives(
    graph: Graph, edge_type: EdgeType, alternative: str, source: NDArray[np.int64]
) -> NDArray[np.bool_]:
    """Return which edges are alone, of their source, in the value of an edge feature: bool [e]."""
    clause = edge_column(graph, edge_type, alternative)
    _, position, count = np.unique(
        np.stack([source, clause], axis=1), axis=0, return_inverse=True, return_counts=True
    )
    return np.asarray(count[position] == 1)


def pair_texts(
    pairs: NDArray[np.uint64], first_texts: Texts, second_texts: Texts, *, ordered: bool
) -> Iterable[str]:
    """Yield the text by which each pair is hashed.

    Args:
        pairs: uint64, keys by :func:`graphbox.train.tasks.pair_keys`.
        first_texts: returns the texts of first ends.
        second_texts: returns the texts of second ends.
        ordered: as the keys were made.
    """
    for begin in range(0, len(pairs), _BLOCK_PAIRS):
        ends = ends_of_keys(pairs[begin : begin + _BLOCK_PAIRS])
        for both in zip(first_texts(ends[:, 0]), second_texts(ends[:, 1]), strict=True):
            # Group numbers depend on the order of the nodes, the names do not.
            yield "\0".join(both if ordered else sorted(both))


def ends_of(csc: CSC) -> NDArray[np.int64]:
    """Return source and target of each edge, in the order of the CSC: int64 [edges, 2]."""
    ends = np.empty((csc.num_edges, 2), np.int64)
    ends[:, 0] = csc.indices
    ends[:, 1] = np.repeat(np.arange(csc.num_targets), np.diff(csc.indptr))
    return ends


def together(parts: Sequence[NDArray[Any]]) -> NDArray[Any]:
    """Return arrays one after the other; a single one as it is."""
    return parts[0] if len(parts) == 1 else np.concatenate(parts)


def distinct(ends: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the distinct (source, target), numbers below 2^32, ascending: int64 [n, 2]."""
    return ends_of_keys(distinct_keys(pair_keys(ends[:, 0], ends[:, 1], ordered=True)))


def distinct_pairs(keys: NDArray[np.uint64]) -> tuple[NDArray[np.uint64], NDArray[np.int64]]:
    """Return the distinct keys, ascending, and which of them each key is: int64 [n].

    In less memory than :func:`numpy.unique` with its inverse takes.
    """
    pairs = distinct_keys(keys)
    return pairs, np.searchsorted(pairs, keys)


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

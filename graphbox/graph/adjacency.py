"""Building compressed adjacency from lists of edges, and turning it around."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from graphbox.graph.schema import CSC, CSR, IndexArray, Int64Array


def index_dtype(num_nodes: int) -> type[np.int32 | np.int64]:
    """Return the dtype of indices into ``num_nodes`` nodes."""
    return np.int32 if num_nodes <= 2**31 else np.int64


def stable_order(keys: npt.NDArray[np.integer[Any]], num_keys: int) -> Int64Array:
    """Return the order that sorts ``keys`` (each in [0, num_keys)), equal ones by position: int64 [n].

    Key and position are packed into one number, which makes NumPy's vectorised sort, an unstable one and many
    times faster than its stable one, give the stable order.
    """
    position_bits = max(len(keys) - 1, 0).bit_length()
    if num_keys.bit_length() + position_bits > 63:
        return np.argsort(keys, kind="stable").astype(np.int64, copy=False)
    packed = keys.astype(np.int64) << position_bits
    packed |= np.arange(len(keys))
    packed.sort()
    packed &= (1 << position_bits) - 1
    return packed


def sort_edges(source: Int64Array, target: Int64Array, num_sources: int, num_targets: int) -> Int64Array:
    """Return the order that sorts edges by target, then source, then position: int64 [num_edges]."""
    by_source = stable_order(source, num_sources)
    return by_source[stable_order(target[by_source], num_targets)]


def indptr_of(sorted_nodes: npt.NDArray[np.integer[Any]], num_nodes: int) -> Int64Array:
    """Return where each node's run starts in ``sorted_nodes``: int64 [num_nodes + 1]."""
    indptr = np.zeros(num_nodes + 1, np.int64)
    np.cumsum(np.bincount(sorted_nodes, minlength=num_nodes), out=indptr[1:])
    return indptr


def build_csc(
    source: Int64Array,
    target: Int64Array,
    num_sources: int,
    num_targets: int,
) -> tuple[CSC, Int64Array]:
    """Return the CSC of a list of edges, and the position in the list of each of its edges.

    Args:
        source: int64 [num_edges], each in [0, num_sources).
        target: int64 [num_edges], each in [0, num_targets).
        num_sources: number of source nodes.
        num_targets: number of target nodes.

    Returns:
        The CSC (without weight and timestamp) and int64 [edges of the CSC].
    """
    order = sort_edges(source, target, num_sources, num_targets)
    indices: IndexArray = source[order].astype(index_dtype(num_sources))
    return CSC(indptr_of(target[order], num_targets), indices, num_sources), order


def ragged(starts: Int64Array, lengths: Int64Array) -> Int64Array:
    """Return ``lengths[i]`` numbers from ``starts[i]`` on for each ``i``, one after the other."""
    ends = np.cumsum(lengths)
    total = int(ends[-1]) if len(ends) else 0
    numbers: Int64Array = np.arange(total) + np.repeat(starts - (ends - lengths), lengths)
    return numbers


def search_rows(
    indptr: Int64Array, indices: IndexArray, rows: Int64Array, values: Int64Array, *, side: str
) -> Int64Array:
    """Return where each value belongs in its row of ascending ``indices``, as ``np.searchsorted`` would say.

    All rows are halved at once, so few pages of a mapped array are read for each of them.

    Args:
        indptr: int64 [num_rows + 1].
        indices: integers [num_edges], ascending within each row.
        rows: int64 [n], the row to search for each value; one beyond the last row counts as an empty one.
        values: int64 [n].
        side: ``left`` for the first position that is not less, ``right`` for the first that is greater.

    Returns:
        int64 [n], positions in ``indices``.
    """
    num_rows = len(indptr) - 1
    low, high = indptr[np.minimum(rows, num_rows)], indptr[np.minimum(rows + 1, num_rows)]
    return search_between(indices, low, high, values, side=side)


def search_between(
    ascending: IndexArray, low: Int64Array, high: Int64Array, values: Int64Array, *, side: str
) -> Int64Array:
    """Return where each value belongs in its own part, ``low`` to ``high - 1``, of an array.

    Args:
        ascending: integers, ascending within each part.
        low: int64 [n], where the part of each value starts ...
        high: int64 [n], ... and where it ends.
        values: int64 [n].
        side: as for :func:`search_rows`.

    Returns:
        int64 [n], positions in ``ascending``.
    """
    low, high = low.copy(), high.copy()
    open_ = np.flatnonzero(low < high)
    while len(open_):
        middle = (low[open_] + high[open_]) // 2
        found = ascending[middle]
        before = found < values[open_] if side == "left" else found <= values[open_]
        low[open_] = np.where(before, middle + 1, low[open_])
        high[open_] = np.where(before, high[open_], middle)
        open_ = open_[low[open_] < high[open_]]
    return low


def csr_of(csc: CSC) -> CSR:
    """Return the out-neighbours of every source."""
    # Within one source the stable order keeps the CSC's, which is by target.
    order = stable_order(csc.indices, csc.num_sources)
    numbers: IndexArray = np.arange(csc.num_targets).astype(index_dtype(csc.num_targets))
    targets = np.repeat(numbers, csc.in_degree())
    return CSR(
        indptr=indptr_of(csc.indices, csc.num_sources),
        indices=targets[order],
        edge_ids=csc.ids_at(order),
        num_targets=csc.num_targets,
        weight=None if csc.weight is None else csc.weight[order],
        timestamp=None if csc.timestamp is None else csc.timestamp[order],
    )


def without_edges(csc: CSC, keep: npt.NDArray[np.bool_]) -> CSC:
    """Return the CSC of the edges where ``keep`` (bool [num_edges]) is true, in the same order."""
    kept_before = np.concatenate([np.zeros(1, np.int64), np.cumsum(keep, dtype=np.int64)])
    return CSC(
        indptr=kept_before[csc.indptr],
        indices=csc.indices[keep],
        num_sources=csc.num_sources,
        weight=None if csc.weight is None else csc.weight[keep],
        timestamp=None if csc.timestamp is None else csc.timestamp[keep],
    )

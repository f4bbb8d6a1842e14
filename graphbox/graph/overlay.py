"""Changed neighbour lists of one direction: the rows that changes touched, and their new lists."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from graphbox.errors import FormatError
from graphbox.graph.adjacency import ragged
from graphbox.graph.array_file import release_pages
from graphbox.graph.schema import IndexArray, Int64Array

if TYPE_CHECKING:
    from graphbox.graph.snapshot import LiveEdgeTable
    from graphbox.graph.tables import Direction


@dataclass(frozen=True, eq=False)
class Overlay:
    """The new lists of the rows that changes touched; all other rows are the base's.

    Attributes:
        rows: int64 [m], ascending: the touched rows.
        indptr: int64 [m + 1]: the list of ``rows[i]`` is ``indices[indptr[i]:indptr[i + 1]]``, ascending.
        indices: integers, the neighbours.
        edge_ids: int64, the id of each edge.
        positions: int64, the position of each edge in the base's lists of this direction; the id of an edge
            that a change added. This is the edge's id in the reverse edge type, if the direction is ``out``.
    """

    rows: Int64Array
    indptr: Int64Array
    indices: IndexArray
    edge_ids: Int64Array
    positions: Int64Array


@dataclass(frozen=True, eq=False)
class TouchedRows:
    """Edges that changes added to the rows of one direction, and rows that lost edges.

    Attributes:
        rows: int64 [n], ascending: the row of each added edge ...
        columns: int64 [n], ... its neighbour, ascending within a row ...
        edge_ids: int64 [n], ... and its id.
        removed_from: int64, ascending: the rows that lost an edge.
    """

    rows: Int64Array
    columns: Int64Array
    edge_ids: Int64Array
    removed_from: Int64Array

    def between(self, start: int, stop: int) -> TouchedRows:
        """Return what was done to the rows ``start`` to ``stop - 1``."""
        added = slice(*np.searchsorted(self.rows, [start, stop]).tolist())
        removed = slice(*np.searchsorted(self.removed_from, [start, stop]).tolist())
        return TouchedRows(
            self.rows[added], self.columns[added], self.edge_ids[added], self.removed_from[removed]
        )


@dataclass(frozen=True, eq=False)
class MergedLists:
    """The lists of some consecutive rows, the base's and the new ones as one.

    Attributes:
        first_row: the first of the rows.
        lengths: int64 [rows], length of each list.
        indices: the neighbours.
        edge_ids: int64, ids of the edges.
        is_base: whether changes touched none of the rows.
    """

    first_row: int
    lengths: Int64Array
    indices: IndexArray
    edge_ids: Int64Array
    is_base: bool


def merged_lists(table: LiveEdgeTable, direction: Direction, block_edges: int) -> Iterator[MergedLists]:
    """Yield the lists of all rows of one direction, in order, giving pages of mapped arrays back.

    Args:
        table: the edges.
        direction: which lists.
        block_edges: about the most edges to give at a time; a list is never divided.

    Raises:
        FormatError: offsets do not rise: a file is damaged.
    """
    indptr, indices, base_ids = table.base_adjacency(direction)
    touched = table.touched(direction)
    num_rows = table.num_targets if direction == "in" else table.num_sources
    start = 0
    while start < num_rows:
        stop = _block_end(indptr, touched, start, num_rows, block_edges)
        overlay = table.overlay(direction, touched.between(start, stop))
        yield _block(indptr, indices, base_ids, overlay, start, stop)
        for array in (indptr, indices, base_ids):
            if array is not None:
                release_pages(array)
        start = stop


def _block_end(indptr: Int64Array, touched: TouchedRows, start: int, num_rows: int, block_edges: int) -> int:
    """Return the row after a block from ``start`` that has about ``block_edges`` edges, at least one row."""
    last = len(indptr) - 1
    stop = min(start + block_edges, num_rows)  # empty rows count too
    if start < last:
        by_base = int(np.searchsorted(indptr, indptr[start] + block_edges, side="right")) - 1
        stop = min(stop, by_base) if by_base < last else stop
    too_many = int(np.searchsorted(touched.rows, start)) + block_edges
    if too_many < len(touched.rows):
        stop = min(stop, int(touched.rows[too_many]))
    return max(stop, start + 1)


def _block(
    indptr: Int64Array,
    indices: IndexArray,
    base_ids: Int64Array | None,
    overlay: Overlay,
    start: int,
    stop: int,
) -> MergedLists:
    last = len(indptr) - 1
    bounds = indptr[np.minimum(np.arange(start, stop + 1), last)]
    low, high = int(bounds[0]), int(bounds[-1])
    starts, lengths = bounds[:-1] - low, np.diff(bounds)
    if (lengths < 0).any() or low < 0 or high > len(indices):
        raise FormatError(
            "expected rising offsets, received others: a file is damaged",
            hint="`graphbox describe NAME --verify` tells which; import the graph again",
        )
    ids = np.arange(low, high) if base_ids is None else base_ids[low:high]
    if not len(overlay.rows):
        return MergedLists(start, lengths, indices[low:high], ids, is_base=True)
    touched = overlay.rows - start
    starts[touched] = overlay.indptr[:-1] + (high - low)
    lengths[touched] = np.diff(overlay.indptr)
    pool = ragged(starts, lengths)
    both: IndexArray = np.concatenate([indices[low:high], overlay.indices])
    return MergedLists(
        first_row=start,
        lengths=lengths,
        indices=both[pool],
        edge_ids=np.concatenate([ids, overlay.edge_ids])[pool],
        is_base=False,
    )

"""What changes did to the lists of one direction: rows that they touched, and the new lists of these."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from graphbox.graph.schema import IndexArray, Int64Array


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
    """What changes did to the rows of one direction.

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

"""Rows of numbers, one after the other: the neighbours, links or answers of each node."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, eq=False)
class CompressedRows:
    """Numbers of row i at ``values[offsets[i]:offsets[i + 1]]``.

    Attributes:
        offsets: int64 [rows + 1].
        values: int64 [numbers].
    """

    offsets: NDArray[np.int64]
    values: NDArray[np.int64]

    @staticmethod
    def build(pairs: NDArray[np.int64], rows: int) -> CompressedRows:
        """Return the rows of pairs (row, number), int64 [n, 2]; numbers of one row keep their order."""
        order = np.argsort(pairs[:, 0], kind="stable")
        offsets = np.concatenate([[0], np.cumsum(np.bincount(pairs[:, 0], minlength=rows))])
        return CompressedRows(offsets, pairs[order, 1])

    def take(self, rows: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return the numbers of some rows, and for each its position in ``rows``: int64 [m] twice."""
        start = self.offsets[rows]
        count = self.offsets[rows + 1] - start
        position = np.repeat(np.arange(len(rows)), count)
        within = np.arange(len(position)) - np.repeat(np.cumsum(count) - count, count)
        return position, self.values[start[position] + within]

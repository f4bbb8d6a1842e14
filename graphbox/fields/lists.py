"""Lists of numbers, one for each row."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt


@dataclass(frozen=True, eq=False)
class Lists:
    """Any number of int64 values for each row.

    Attributes:
        offsets: int64 [n + 1], where the values of each row begin and end.
        values: int64, the values of all rows one after the other.
    """

    offsets: npt.NDArray[np.int64]
    values: npt.NDArray[np.int64]

    def last(self, count: int) -> Lists:
        """Return the last ``count`` values of each row, of a shorter list all."""
        lengths = np.diff(self.offsets)
        kept = np.minimum(lengths, count)
        # How many values of its own row come after each value.
        after = np.repeat(self.offsets[1:], lengths) - 1 - np.arange(self.offsets[0], self.offsets[-1])
        offsets = np.concatenate([np.zeros(1, np.int64), np.cumsum(kept)])
        return Lists(offsets, self.values[self.offsets[0] : self.offsets[-1]][after < count])

    def take(self, index: npt.NDArray[np.int64] | npt.NDArray[np.bool_]) -> Lists:
        """Return the lists of the rows ``index``."""
        rows = np.flatnonzero(index) if index.dtype == bool else index
        lengths = self.offsets[rows + 1] - self.offsets[rows]
        offsets = np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths)])
        # The position in `values` of each value taken: its row's start, and its rank within the row.
        positions = np.arange(offsets[-1]) + np.repeat(self.offsets[rows] - offsets[:-1], lengths)
        return Lists(offsets, self.values[positions])

"""Tables of rows of a model version."""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt

from graphbox.artifact.ids import Ids
from graphbox.rows import StoredRows

_BLOCK_ROWS: Final = 65_536


class RowTable(StoredRows):
    """Rows and the original ids they belong to; see `StoredRows`.

    Args:
        stored: the rows.
        ids: of the rows.
    """

    def __init__(self, stored: StoredRows, ids: Ids) -> None:
        super().__init__(stored.native, stored.codec, ids.node_type, stored._float32)
        self.ids = ids


def mean_row(rows: StoredRows) -> npt.NDArray[np.float32]:
    """Return the mean of all rows, float32 [dim], summed in float64 a block at a time; zeros without rows."""
    total = np.zeros(rows.dim, np.float64)
    for start in range(0, len(rows), _BLOCK_ROWS):
        total += rows.block(start, start + _BLOCK_ROWS).sum(axis=0, dtype=np.float64)
    return (total / max(1, len(rows))).astype(np.float32)

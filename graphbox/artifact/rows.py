"""Tables of rows of a model version, and the files that hold them."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from graphbox.artifact.ids import Ids
from graphbox.rows import StoredRows

ROWS_FILE = "rows.npy"
CODES_FILE = "codes.npy"
SCALE_BIAS_FILE = "scale_bias.npy"
_BLOCK_ROWS = 65_536


class RowTable(StoredRows):
    """Rows and the original ids they belong to; see `StoredRows`.

    Args:
        values: float32 or float16 [n, dim], or codes uint8 [n, dim].
        ids: of the rows.
        scale_bias: of codes, float16 [n, 2].
    """

    def __init__(
        self, values: npt.NDArray[Any], ids: Ids, scale_bias: npt.NDArray[np.float16] | None = None
    ) -> None:
        super().__init__(values, scale_bias, ids.node_type)
        self.ids = ids


def mean_row(rows: StoredRows) -> npt.NDArray[np.float32]:
    """Return the mean of all rows, float32 [dim], summed in float64 a block at a time; zeros without rows."""
    total = np.zeros(rows.dim, np.float64)
    for start in range(0, len(rows), _BLOCK_ROWS):
        total += rows.block(start, start + _BLOCK_ROWS).sum(axis=0, dtype=np.float64)
    return (total / max(1, len(rows))).astype(np.float32)

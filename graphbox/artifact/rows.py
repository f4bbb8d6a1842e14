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

"""Codec ``mean``: rows without codes of their own, which all read as their mean.

For rows that are read least, behind tiers and clusters: ``clustered(mean)`` keeps the cluster of a row alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from graphbox.errors import FormatError
from graphbox.row_codecs.codec import (
    ArrayPart,
    Arrays,
    ArraySpec,
    RowSource,
    TableShape,
    check_range,
    row_blocks,
)
from graphbox.rows import Int64, StoredRows

__all__ = ["MeanCodec"]

_MEAN_FILE = "mean.npy"


@dataclass(frozen=True)
class MeanCodec:
    """All rows as one row."""

    @property
    def name(self) -> str:
        """Name in a manifest."""
        return "mean"

    def files(self, rows: int, dim: int) -> dict[str, ArraySpec]:
        """Return type and shape of the file, which does not depend on the number of rows."""
        del rows
        return {_MEAN_FILE: ArraySpec("<f2", (dim,))}

    def bytes_of(self, rows: int, dim: int) -> int:
        """Return the bytes of a table."""
        del rows
        return 2 * dim

    def encode(self, source: RowSource) -> Arrays:
        """Return the mean of the rows, summed in float64; zeros where there are none.

        Raises:
            DataError: an element is beyond float16, or NaN.
        """
        total = np.zeros(source.dim)
        for _, block in row_blocks(source):
            check_range(block)
            total += block.sum(axis=0, dtype=np.float64)
        return {_MEAN_FILE: (total / max(1, len(source))).astype("<f2")}

    def open(self, arrays: Mapping[str, npt.NDArray[Any]], table: TableShape) -> StoredRows:
        """Return the rows of arrays.

        Raises:
            FormatError: an element is not finite.
        """
        from graphbox import _core

        mean = np.ascontiguousarray(arrays[_MEAN_FILE], np.float32)
        if not np.isfinite(mean).all():
            raise FormatError("expected a finite row, received infinity or NaN", where=_MEAN_FILE)
        return StoredRows(_core.StoredRows.of_same(mean, table.rows), self.name, table.noun)

    def select(self, arrays: Mapping[str, npt.NDArray[Any]], rows: Int64) -> dict[str, ArrayPart]:
        """Return the arrays of some rows, which read as they did."""
        del rows
        return {_MEAN_FILE: ArrayPart(arrays[_MEAN_FILE])}

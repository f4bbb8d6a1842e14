"""Codec ``float32``: the rows as they are."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy.typing as npt

from graphbox.row_codecs.codec import (
    ArrayPart,
    Arrays,
    ArraySpec,
    RowSource,
    TableShape,
    check_finite,
    row_blocks,
    select_rows,
)
from graphbox.rows import Int64, StoredRows

__all__ = ["Float32Codec"]

_ROWS_FILE = "rows.npy"


@dataclass(frozen=True)
class Float32Codec:
    """Rows as float32."""

    @property
    def name(self) -> str:
        """Name in a manifest."""
        return "float32"

    def files(self, rows: int, dim: int) -> dict[str, ArraySpec]:
        """Return type and shape of each file."""
        return {_ROWS_FILE: ArraySpec("<f4", (rows, dim))}

    def bytes_of(self, rows: int, dim: int) -> int:
        """Return the bytes of a table."""
        return 4 * rows * dim

    def encode(self, source: RowSource) -> Arrays:
        """Return the rows, without a copy where they lie in memory as float32."""
        for _, block in row_blocks(source):
            check_finite(block)
        return {_ROWS_FILE: source.block(0, len(source))}

    def open(self, arrays: Mapping[str, npt.NDArray[Any]], table: TableShape) -> StoredRows:
        """Return the rows of an array."""
        return StoredRows.of_float32(arrays[_ROWS_FILE], table.noun)

    def select(self, arrays: Mapping[str, npt.NDArray[Any]], rows: Int64) -> dict[str, ArrayPart]:
        """Return the arrays of some rows."""
        return select_rows(arrays, rows)

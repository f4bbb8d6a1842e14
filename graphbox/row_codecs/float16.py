"""Codec ``float16``: each element rounded to the nearest float16."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from graphbox.row_codecs.codec import (
    ArrayPart,
    Arrays,
    ArraySpec,
    RowSource,
    TableShape,
    check_range,
    row_blocks,
    select_rows,
)
from graphbox.rows import Int64, StoredRows

__all__ = ["Float16Codec"]

_ROWS_FILE = "rows.npy"


@dataclass(frozen=True)
class Float16Codec:
    """Rows as float16."""

    @property
    def name(self) -> str:
        """Name in a manifest."""
        return "float16"

    def files(self, rows: int, dim: int) -> dict[str, ArraySpec]:
        """Return type and shape of each file."""
        return {_ROWS_FILE: ArraySpec("<f2", (rows, dim))}

    def bytes_of(self, rows: int, dim: int) -> int:
        """Return the bytes of a table."""
        return 2 * rows * dim

    def encode(self, source: RowSource) -> Arrays:
        """Return the rounded rows."""
        halves = np.empty((len(source), source.dim), np.float16)
        for place, block in row_blocks(source):
            check_range(block)
            halves[place] = block
        return {_ROWS_FILE: halves}

    def open(self, arrays: Mapping[str, npt.NDArray[Any]], table: TableShape) -> StoredRows:
        """Return the rows of an array."""
        from graphbox import _core

        halves = np.ascontiguousarray(arrays[_ROWS_FILE]).view(np.uint16)
        return StoredRows(_core.StoredRows.of_float16(halves), self.name, table.noun)

    def select(self, arrays: Mapping[str, npt.NDArray[Any]], rows: Int64) -> dict[str, ArrayPart]:
        """Return the arrays of some rows."""
        return select_rows(arrays, rows)

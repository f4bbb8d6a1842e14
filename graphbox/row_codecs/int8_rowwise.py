"""Codec ``int8_rowwise``: codes of 8 bits, with a float16 scale and bias for each row.

Guan et al., "Post-Training 4-bit Quantization on Embedding Tables" (arXiv:1911.02079), section 2, at 8 bits:
``value = code * scale + bias``. A row of ``d`` elements takes ``d + 4`` bytes.
"""

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
    row_blocks,
    select_rows,
)
from graphbox.row_codecs.levels import quantize_rows
from graphbox.rows import Int64, StoredRows

__all__ = ["CODES_FILE", "SCALE_BIAS_FILE", "Int8RowwiseCodec"]

CODES_FILE = "codes.npy"
SCALE_BIAS_FILE = "scale_bias.npy"
_TOP_CODE = 255


@dataclass(frozen=True)
class Int8RowwiseCodec:
    """Rows as 256 levels between the least and the largest element of each."""

    @property
    def name(self) -> str:
        """Name in a manifest."""
        return "int8_rowwise"

    def files(self, rows: int, dim: int) -> dict[str, ArraySpec]:
        """Return type and shape of each file."""
        return {CODES_FILE: ArraySpec("|u1", (rows, dim)), SCALE_BIAS_FILE: ArraySpec("<f2", (rows, 2))}

    def bytes_of(self, rows: int, dim: int) -> int:
        """Return the bytes of a table."""
        return rows * (dim + 4)

    def encode(self, source: RowSource) -> Arrays:
        """Return codes, and scale and bias of each row."""
        codes = np.empty((len(source), source.dim), np.uint8)
        scale_bias = np.empty((len(source), 2), np.float16)
        for place, block in row_blocks(source):
            codes[place], scale_bias[place] = quantize_rows(block, _TOP_CODE)
        return {CODES_FILE: codes, SCALE_BIAS_FILE: scale_bias}

    def open(self, arrays: Mapping[str, npt.NDArray[Any]], table: TableShape) -> StoredRows:
        """Return the rows of arrays."""
        from graphbox import _core

        codes = np.ascontiguousarray(arrays[CODES_FILE])
        factors = np.ascontiguousarray(arrays[SCALE_BIAS_FILE]).view(np.uint16)
        return StoredRows(_core.StoredRows.of_int8(codes, factors), self.name, table.noun)

    def select(self, arrays: Mapping[str, npt.NDArray[Any]], rows: Int64) -> dict[str, ArrayPart]:
        """Return the arrays of some rows."""
        return select_rows(arrays, rows)

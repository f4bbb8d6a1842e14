"""Smaller embedding rows: the codec of each precision, and the error that a codec makes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np

from graphbox.row_codecs import RowCodec, RowSource, row_codec

__all__ = ["CODEC_OF_PRECISION", "TableError", "table_error"]

CODEC_OF_PRECISION: Final[Mapping[str, RowCodec]] = {
    "float32": row_codec("float32"),
    "float16": row_codec("float16"),
    "int8": row_codec("int8_rowwise"),
    "int4": row_codec("int4_rotated"),
    "int3": row_codec("int3_rotated"),
    "int2": row_codec("int2_rotated"),
}

_BLOCK_ROWS: Final = 65_536


@dataclass(frozen=True)
class TableError:
    """How far decoded rows are from the original ones.

    Attributes:
        max_absolute: largest difference of an element.
        relative: root mean square difference over the root mean square of the rows.
    """

    max_absolute: float
    relative: float


def table_error(original: RowSource, decoded: RowSource) -> TableError:
    """Compare two tables of the same rows, block by block.

    Args:
        original: the rows before compression.
        decoded: the rows as they are served.
    """
    largest = squares = total = 0.0
    for start in range(0, len(original), _BLOCK_ROWS):
        rows = original.block(start, start + _BLOCK_ROWS)
        difference = decoded.block(start, start + _BLOCK_ROWS) - rows
        largest = max(largest, float(np.abs(difference).max(initial=0)))
        squares += float(np.square(difference, dtype=np.float64).sum())
        total += float(np.square(rows, dtype=np.float64).sum())
    return TableError(largest, float(np.sqrt(squares / total)) if total else 0.0)

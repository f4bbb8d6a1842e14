"""Smaller embedding rows: float16, or row-wise int8, where each row has its own float16 scale and bias.

Int8 is the codec of Guan et al., "Post-Training 4-bit Quantization on Embedding Tables" (arXiv:1911.02079),
section 2, at 8 bits: ``value = code * scale + bias``. A row of ``d`` floats takes ``d + 4`` bytes, and
``2 d`` in float16.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from graphbox.artifact import RowTable
from graphbox.errors import DataError

__all__ = ["HalfRows", "QuantizedRows", "TableError", "halve_table", "quantize_rows", "quantize_table"]

_LEVELS = 255
_LARGEST_FLOAT16 = float(np.finfo(np.float16).max)
_BLOCK_ROWS = 65_536


@dataclass(frozen=True)
class TableError:
    """How far decoded rows are from the original ones.

    Attributes:
        max_absolute: largest difference of an element.
        relative: root mean square difference over the root mean square of the rows.
    """

    max_absolute: float
    relative: float


@dataclass(frozen=True, eq=False)
class QuantizedRows:
    """Codes uint8 [n, dim], (scale, bias) float16 [n, 2], and the error they make."""

    codes: npt.NDArray[np.uint8]
    scale_bias: npt.NDArray[np.float16]
    error: TableError


@dataclass(frozen=True, eq=False)
class HalfRows:
    """Rows float16 [n, dim], and the rounding error."""

    rows: npt.NDArray[np.float16]
    error: TableError


class _ErrorSum:
    """Adds up the error of decoded rows, block by block."""

    def __init__(self) -> None:
        self._largest = self._squares = self._total = 0.0

    def add(self, decoded: npt.NDArray[np.float32], rows: npt.NDArray[np.float32]) -> None:
        difference = decoded - rows
        self._largest = max(self._largest, float(np.abs(difference).max(initial=0)))
        self._squares += float(np.square(difference, dtype=np.float64).sum())
        self._total += float(np.square(rows, dtype=np.float64).sum())

    def error(self) -> TableError:
        relative = float(np.sqrt(self._squares / self._total)) if self._total else 0.0
        return TableError(self._largest, relative)


def quantize_rows(
    rows: npt.NDArray[np.float32],
) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.float16]]:
    """Quantize each row to 256 levels between its least and its largest element.

    The levels are laid from the bias and scale as they are stored, rounded to float16, so that rounding
    them costs no more than the levels themselves do.

    Args:
        rows: finite float32 [n, dim].

    Returns:
        Codes uint8 [n, dim], and scale and bias float16 [n, 2].

    Raises:
        DataError: when an element is beyond float16.
    """
    _check_range(rows)
    lowest = rows.min(axis=1, keepdims=True, initial=np.inf)
    highest = rows.max(axis=1, keepdims=True, initial=-np.inf)
    bias = _round_down(lowest)
    scale = _round_up((highest - bias.astype(np.float32)) / _LEVELS)
    step = scale.astype(np.float32)
    offset = rows - bias.astype(np.float32)
    codes = np.divide(offset, step, out=np.zeros_like(rows), where=step > 0)
    return np.rint(codes).clip(0, _LEVELS).astype(np.uint8), np.concatenate([scale, bias], axis=1)


def quantize_table(table: RowTable) -> QuantizedRows:
    """Quantize a table of an artifact, block by block, and measure the error."""
    codes = np.empty((len(table), table.dim), np.uint8)
    scale_bias = np.empty((len(table), 2), np.float16)
    error = _ErrorSum()
    for start in range(0, len(table), _BLOCK_ROWS):
        part = slice(start, start + _BLOCK_ROWS)
        rows = table.block(start, start + _BLOCK_ROWS)
        codes[part], scale_bias[part] = quantize_rows(rows)
        factors = scale_bias[part].astype(np.float32)
        error.add(codes[part] * factors[:, :1] + factors[:, 1:], rows)
    return QuantizedRows(codes, scale_bias, error.error())


def halve_table(table: RowTable) -> HalfRows:
    """Round a table of an artifact to float16, to the nearest, block by block, and measure the error.

    Raises:
        DataError: an element is beyond float16.
    """
    halves = np.empty((len(table), table.dim), np.float16)
    error = _ErrorSum()
    for start in range(0, len(table), _BLOCK_ROWS):
        part = slice(start, start + _BLOCK_ROWS)
        rows = table.block(start, start + _BLOCK_ROWS)
        _check_range(rows)
        halves[part] = rows
        error.add(halves[part].astype(np.float32), rows)
    return HalfRows(halves, error.error())


def _check_range(rows: npt.NDArray[np.float32]) -> None:
    largest = float(np.abs(rows).max(initial=0))
    if largest > _LARGEST_FLOAT16:
        raise DataError(
            f"expected elements within {_LARGEST_FLOAT16:g}, received {largest:g}",
            hint="set `tables: float32` for this model",
        )


def _round_down(values: npt.NDArray[np.float32]) -> npt.NDArray[np.float16]:
    """Round to float16, never above the value."""
    rounded = values.astype(np.float16)
    np.nextafter(rounded, np.float16(-np.inf), out=rounded, where=rounded > values)
    return rounded


def _round_up(values: npt.NDArray[np.float32]) -> npt.NDArray[np.float16]:
    """Round to float16, never below the value."""
    rounded = values.astype(np.float16)
    np.nextafter(rounded, np.float16(np.inf), out=rounded, where=rounded < values)
    return rounded

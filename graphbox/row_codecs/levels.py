"""Quantization of each row to evenly spaced levels, ``value = code * scale + bias`` with float16 factors."""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt

from graphbox.row_codecs.codec import check_range
from graphbox.rows import Float32

__all__ = ["quantize_clipped_rows", "quantize_rows"]

UInt8 = npt.NDArray[np.uint8]
Float16 = npt.NDArray[np.float16]

_CLIPPED_SHARES: Final = (0.95, 0.9, 0.85, 0.8, 0.75, 0.7, 0.65, 0.6, 0.55, 0.5)
_CLIPPED_TOGETHER: Final = 4_096
"""Rows whose temporary arrays stay in the second cache."""


def quantize_rows(rows: Float32, top_code: int) -> tuple[UInt8, Float16]:
    """Quantize each row to ``top_code + 1`` levels between its least and its largest element.

    The levels are laid from the bias and scale as they are stored, rounded to float16, so that rounding
    them costs no more than the levels themselves do.

    Args:
        rows: finite float32 [n, dim].
        top_code: the largest code.

    Returns:
        Codes uint8 [n, dim], and scale and bias float16 [n, 2].

    Raises:
        DataError: an element is beyond float16, or NaN.
    """
    check_range(rows)
    lowest = rows.min(axis=1, keepdims=True, initial=np.inf)
    highest = rows.max(axis=1, keepdims=True, initial=-np.inf)
    bias = _round_down(lowest)
    scale = _round_up((highest - bias.astype(np.float32)) / top_code)
    return _codes(rows, scale, bias, top_code), np.concatenate([scale, bias], axis=1)


def quantize_clipped_rows(rows: Float32, top_code: int) -> tuple[UInt8, Float16]:
    """Quantize each row to the levels of the least squared error: elements beyond the levels are clipped.

    The range of the row is narrowed about its middle in steps; the best step counts. With few levels the
    outermost elements cost less than coarse levels for all (Guan et al., section 3.2, have a similar search).

    Args:
        rows: finite float32 [n, dim].
        top_code: the largest code.

    Returns:
        As `quantize_rows`.

    Raises:
        DataError: an element is beyond float16, or NaN.
    """
    codes = np.empty(rows.shape, np.uint8)
    scale_bias = np.empty((len(rows), 2), np.float16)
    for start in range(0, len(rows), _CLIPPED_TOGETHER):
        part = slice(start, start + _CLIPPED_TOGETHER)
        codes[part], scale_bias[part] = _best_clipped(rows[part], top_code)
    return codes, scale_bias


def _best_clipped(rows: Float32, top_code: int) -> tuple[UInt8, Float16]:
    codes, scale_bias = quantize_rows(rows, top_code)
    least_error = _squared_errors(rows, codes, scale_bias)
    lowest = rows.min(axis=1, keepdims=True)
    half_range = (rows.max(axis=1, keepdims=True) - lowest) / 2
    middle = lowest + half_range
    for share in _CLIPPED_SHARES:
        bias = (middle - share * half_range).astype(np.float16)
        scale = (share * 2 / top_code * half_range).astype(np.float16)
        tried_codes = _codes(rows, scale, bias, top_code)
        tried = np.concatenate([scale, bias], axis=1)
        error = _squared_errors(rows, tried_codes, tried)
        is_better = error < least_error
        codes[is_better], scale_bias[is_better] = tried_codes[is_better], tried[is_better]
        least_error = np.minimum(error, least_error)
    return codes, scale_bias


def _codes(rows: Float32, scale: Float16, bias: Float16, top_code: int) -> UInt8:
    step = scale.astype(np.float32)
    offset = rows - bias.astype(np.float32)
    codes = np.divide(offset, step, out=np.zeros_like(offset), where=step > 0)
    return np.rint(codes, out=codes).clip(0, top_code, out=codes).astype(np.uint8)


def _squared_errors(rows: Float32, codes: UInt8, scale_bias: Float16) -> Float32:
    factors = scale_bias.astype(np.float32)
    difference = codes * factors[:, :1] + factors[:, 1:] - rows
    errors: Float32 = np.einsum("ij,ij->i", difference, difference)
    return errors


def _round_down(values: Float32) -> Float16:
    """Round to float16, never above the value."""
    rounded = values.astype(np.float16)
    np.nextafter(rounded, np.float16(-np.inf), out=rounded, where=rounded > values)
    return rounded


def _round_up(values: Float32) -> Float16:
    """Round to float16, never below the value."""
    rounded = values.astype(np.float16)
    np.nextafter(rounded, np.float16(np.inf), out=rounded, where=rounded < values)
    return rounded

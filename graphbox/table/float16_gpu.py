"""Stochastic rounding to float16 in kernels: the twin of ``csrc/table/float16.cpp``, bit for bit."""

from __future__ import annotations

import triton
import triton.language as tl

from graphbox.philox_gpu import draw_words

_DROPPED_BITS = tl.constexpr(13)  # of a float's mantissa
_RANDOM_MASK = tl.constexpr((1 << 13) - 1)
_LARGEST = tl.constexpr(0x7BFF)  # 65,504
_NAN = tl.constexpr(0x7E00)
_INFINITY = tl.constexpr(255 << 23)
_SMALLEST_NORMAL_BITS = tl.constexpr(113 << 23)
_SMALLEST_NORMAL = tl.constexpr(2.0**-14)
_BIAS = tl.constexpr((127 - 15) << 10)  # between the exponents, at the place of those of 16 bits
_SMALL_BIAS = tl.constexpr(((127 - 15) << 10) + (1 << 10))


@triton.jit
def _rounded_by(value, random):
    """Return float16 after random bits were added below those that it keeps: see ``rounded_by`` there."""
    bits = value.to(tl.uint32, bitcast=True)
    magnitude = bits & 0x7FFFFFFF
    raised = magnitude.to(tl.float32, bitcast=True) + _SMALLEST_NORMAL
    is_small = magnitude < _SMALLEST_NORMAL_BITS
    kept = tl.where(is_small, raised.to(tl.uint32, bitcast=True), magnitude)
    offset = tl.where(is_small, _SMALL_BIAS, _BIAS).to(tl.uint32)
    rounded = ((kept + (random & _RANDOM_MASK)) >> _DROPPED_BITS) - offset
    bounded = tl.where(rounded < _LARGEST, rounded, _LARGEST).to(tl.uint32)
    bounded = tl.where(magnitude > _INFINITY, _NAN, bounded).to(tl.uint32)
    return (((bits >> 16) & 0x8000) | bounded).to(tl.uint16).to(tl.float16, bitcast=True)


@triton.jit
def rounded_stochastically(values, rounding_key, steps, key, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    """Return rows as float16, rounded up or down by draws that their keys and steps number.

    Args:
        values: float32 [ROWS, COLUMNS].
        rounding_key: uint64, of :func:`graphbox._core.philox_key`.
        steps: uint32 [ROWS].
        key: int64 [ROWS].
        ROWS: a power of two.
        COLUMNS: a power of two, 8 or more.
    """
    words = draw_words(rounding_key, steps[:, None], 0, key, 0, COLUMNS // 2)
    return _rounded_by(values, tl.reshape(tl.join(words, words >> 16), (ROWS, COLUMNS)))

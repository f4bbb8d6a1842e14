"""Exponentially distributed numbers in kernels: the twin of ``csrc/random/exponential.h``, bit for bit.

Kernels that call it are launched with ``enable_fp_fusion=False``: a multiplication and an addition that are
rounded once give other bits.
"""

from __future__ import annotations

import math

import triton
import triton.language as tl

_SQRT_HALF_BITS = tl.constexpr(0x3FE6A09E667F3BCD)
_LOG_2 = tl.constexpr(math.log(2))
_THIRD = tl.constexpr(1 / 3)
_FIFTH = tl.constexpr(1 / 5)
_SEVENTH = tl.constexpr(1 / 7)
_NINTH = tl.constexpr(1 / 9)
_ELEVENTH = tl.constexpr(1 / 11)
_THIRTEENTH = tl.constexpr(1 / 13)


@triton.jit
def _constant(value):
    return tl.full((), value, tl.float64)


@triton.jit
def exponential(u):
    """Return -log(u) for float64 ``u`` in (0, 1), by nothing but exactly rounded operations."""
    bits = u.to(tl.int64, bitcast=True)
    exponent = (bits - _SQRT_HALF_BITS) >> 52
    mantissa = (bits - (exponent << 52)).to(tl.float64, bitcast=True)
    s = (mantissa - 1.0) / (mantissa + 1.0)
    z = s * s
    series = _constant(_ELEVENTH) + z * _constant(_THIRTEENTH)
    series = _constant(_NINTH) + z * series
    series = _constant(_SEVENTH) + z * series
    series = _constant(_FIFTH) + z * series
    series = _constant(_THIRD) + z * series
    series = 1.0 + z * series
    return -(2.0 * s * series + exponent.to(tl.float64) * _constant(_LOG_2))

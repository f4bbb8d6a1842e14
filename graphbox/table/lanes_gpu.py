"""Sums over rows in kernels, in the order of ``csrc/table/optimizer.cpp``: lanes side by side, then pairwise.

A reduction of Triton adds in an order of its own, so the halves of a tile are taken apart by ``split``.
"""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def _halves(tile, ROWS: tl.constexpr, WIDTH: tl.constexpr):
    """Return the left and the right half of each row of ``tile`` [ROWS, WIDTH]."""
    return tl.split(tl.permute(tl.reshape(tile, (ROWS, 2, WIDTH // 2)), (0, 2, 1)))


@triton.jit
def _added_in_order(lanes, tile, LANES: tl.constexpr, ROWS: tl.constexpr, WIDTH: tl.constexpr):
    """Add each ``LANES`` values of a row to the lanes, from left to right."""
    if WIDTH == LANES:
        lanes = lanes + tile
    else:
        left, right = _halves(tile, ROWS, WIDTH)
        lanes = _added_in_order(lanes, left, LANES, ROWS, WIDTH // 2)
        lanes = _added_in_order(lanes, right, LANES, ROWS, WIDTH // 2)
    return lanes


@triton.jit
def _added_pairwise(lanes, ROWS: tl.constexpr, LANES: tl.constexpr):
    if LANES == 1:
        total = tl.reshape(lanes, (ROWS,))
    else:
        left, right = _halves(lanes, ROWS, LANES)
        total = _added_pairwise(left + right, ROWS, LANES // 2)
    return total


@triton.jit
def lane_sum(tile, LANES: tl.constexpr, ROWS: tl.constexpr, WIDTH: tl.constexpr):
    """Return the sum of each row of ``tile`` [ROWS, WIDTH], none of whose values is -0.

    Args:
        tile: what is added; 0 behind the end of rows.
        LANES: a power of two, up to ``WIDTH``.
        ROWS: a power of two.
        WIDTH: a power of two.
    """
    lanes = tl.zeros((ROWS, LANES), tile.dtype)
    return _added_pairwise(_added_in_order(lanes, tile, LANES, ROWS, WIDTH), ROWS, LANES)

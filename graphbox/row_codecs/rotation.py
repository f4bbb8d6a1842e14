"""Randomized Walsh-Hadamard rotation of rows: ``q = H S x``.

``S`` is a diagonal of random signs. ``H`` is the orthonormal transform of blocks of a power of two of
elements: a row is cut into the largest blocks first, of at most 256 elements. The elements of a rotated row
are alike in size whatever the row was, so that a few evenly spaced levels fit all of them.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt

from graphbox.rows import Float32

__all__ = ["block_sizes", "random_signs", "rotate"]

Signs = npt.NDArray[np.int8]

LARGEST_BLOCK: Final = 256
_SEED: Final = 20_240_206


def block_sizes(dim: int) -> list[int]:
    """Return the sizes of the blocks of a row: powers of two of at most 256, largest first."""
    sizes = [LARGEST_BLOCK] * (dim // LARGEST_BLOCK)
    rest = dim % LARGEST_BLOCK
    return sizes + [1 << bit for bit in reversed(range(rest.bit_length())) if rest >> bit & 1]


def random_signs(dim: int) -> Signs:
    """Return the signs of a new table, int8 [dim]: the same for all tables of one length."""
    bits = np.random.Generator(np.random.Philox(_SEED)).integers(0, 2, dim, dtype=np.int8)
    return (2 * bits - 1).astype(np.int8)


def rotate(rows: Float32, signs: Signs) -> Float32:
    """Return ``H S x`` of each row.

    Args:
        rows: float32 [n, dim].
        signs: int8 [dim], 1 or -1.
    """
    rotated = rows * signs.astype(np.float32)
    start = 0
    for size in block_sizes(rows.shape[1]):
        block = rotated[:, start : start + size]
        block[...] = _transformed(block) * np.float32(1 / np.sqrt(size))
        start += size
    return rotated


def _transformed(block: Float32) -> Float32:
    """Return the Walsh-Hadamard transform of each row of a block, not normalized."""
    count, size = block.shape
    distance = 1
    while distance < size:
        pairs = block.reshape(count, -1, 2, distance)
        first, second = pairs[:, :, 0], pairs[:, :, 1]
        block = np.stack([first + second, first - second], axis=2).reshape(count, size)
        distance *= 2
    return block

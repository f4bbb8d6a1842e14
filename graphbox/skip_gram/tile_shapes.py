"""Tile sizes of skip-gram's kernels; needs no Triton."""

from __future__ import annotations

from typing import NamedTuple

from graphbox.errors import UnsupportedError

MOST_VALUES = 512
"""The longest rows that kernels have room for."""

_LEAST_VALUES = 16
_SHAPES = (  # rows of so many values at most, parts, warps, and the shared memory they take as compiled
    (64, 32, 64, 32, 4, 90_112),
    (128, 32, 64, 32, 8, 180_224),
    (128, 32, 32, 32, 8, 82_688),
    (256, 16, 32, 16, 8, 147_456),
    (256, 16, 16, 16, 8, 82_304),
    (512, 16, 16, 16, 16, 164_224),
)


class TileShape(NamedTuple):
    """Tile sizes of a kernel's programs.

    Attributes:
        values: values of a row, padded to a power of two.
        places: places of a program that has walks.
        centers: places of a program that has negatives.
        others: contexts or negatives at a time.
        warps: warps of a program.
    """

    values: int
    places: int
    centers: int
    others: int
    warps: int


def tile_shape(dim: int, shared_bytes: int | None = None) -> TileShape:
    """Return the shape for rows of ``dim`` values.

    Args:
        dim: 1 to :data:`MOST_VALUES`.
        shared_bytes: shared memory that the device gives a program; None: enough.

    Raises:
        UnsupportedError: rows are too long for that.
    """
    values = max(_LEAST_VALUES, 1 << (dim - 1).bit_length())
    for most_values, places, centers, others, warps, needed in _SHAPES:
        if values <= most_values and (shared_bytes is None or needed <= shared_bytes):
            return TileShape(values, places, centers, others, warps)
    raise UnsupportedError(
        f"expected rows of at most {MOST_VALUES} values"
        + ("" if shared_bytes is None else f", and as {shared_bytes:,} bytes of shared memory allow")
        + f", received dim {dim}",
        where="dim",
        hint="train on the CPU with `device: cpu`",
    )

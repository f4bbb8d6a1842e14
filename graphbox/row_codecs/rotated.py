"""Codecs ``int4_rotated``, ``int3_rotated`` and ``int2_rotated``: few bits an element, after a rotation.

A row is rotated (`graphbox.row_codecs.rotation`) and quantized with a float16 scale and bias of its own. The
core rotates it back when it decodes it: models, row updates and rankings see rows in their original space.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from graphbox.errors import FormatError
from graphbox.row_codecs.codec import ArrayPart, Arrays, ArraySpec, RowSource, TableShape, row_blocks
from graphbox.row_codecs.levels import quantize_clipped_rows
from graphbox.row_codecs.rotation import random_signs, rotate
from graphbox.rows import Int64, StoredRows

__all__ = ["RotatedCodec"]

_PACKED_FILE = "packed.npy"
_SIGNS_FILE = "signs.npy"
_FACTOR_BYTES: Final = 4
_ROTATED_TOGETHER: Final = 8_192

UInt8 = npt.NDArray[np.uint8]


@dataclass(frozen=True)
class RotatedCodec:
    """Rows of ``bits`` bits an element, and 4 bytes a row.

    Attributes:
        bits: 2, 3 or 4.
    """

    bits: int

    @property
    def name(self) -> str:
        """Name in a manifest."""
        return f"int{self.bits}_rotated"

    def files(self, rows: int, dim: int) -> dict[str, ArraySpec]:
        """Return type and shape of each file."""
        return {
            _PACKED_FILE: ArraySpec("|u1", (rows, self._row_bytes(dim))),
            _SIGNS_FILE: ArraySpec("|i1", (dim,)),
        }

    def bytes_of(self, rows: int, dim: int) -> int:
        """Return the bytes of a table."""
        return rows * self._row_bytes(dim) + dim

    def encode(self, source: RowSource) -> Arrays:
        """Return packed rows and the signs of the rotation."""
        signs = random_signs(source.dim)
        packed = np.empty((len(source), self._row_bytes(source.dim)), np.uint8)
        for place, block in row_blocks(source):
            for start in range(0, len(block), _ROTATED_TOGETHER):
                rows = block[start : start + _ROTATED_TOGETHER]
                codes, scale_bias = quantize_clipped_rows(rotate(rows, signs), (1 << self.bits) - 1)
                first = place.start + start
                part = packed[first : first + len(rows)]
                part[:, :_FACTOR_BYTES] = scale_bias.astype("<f2").view(np.uint8)
                part[:, _FACTOR_BYTES:] = _packed_codes(codes, self.bits)
        return {_PACKED_FILE: packed, _SIGNS_FILE: signs}

    def open(self, arrays: Mapping[str, npt.NDArray[Any]], table: TableShape) -> StoredRows:
        """Return the rows of arrays."""
        from graphbox import _core

        signs = np.ascontiguousarray(arrays[_SIGNS_FILE])
        if not (np.abs(signs) == 1).all():
            raise FormatError("expected signs of 1 and -1, received others", where=_SIGNS_FILE)
        packed = np.ascontiguousarray(arrays[_PACKED_FILE])
        return StoredRows(_core.StoredRows.of_rotated(self.bits, packed, signs), self.name, table.noun)

    def select(self, arrays: Mapping[str, npt.NDArray[Any]], rows: Int64) -> dict[str, ArrayPart]:
        """Return the arrays of some rows."""
        return {
            _PACKED_FILE: ArrayPart(arrays[_PACKED_FILE], rows),
            _SIGNS_FILE: ArrayPart(arrays[_SIGNS_FILE]),
        }

    def _row_bytes(self, dim: int) -> int:
        return _FACTOR_BYTES + (-(-dim // 4) - (-dim // 8) if self.bits == 3 else -(-dim * self.bits // 8))


def _packed_codes(codes: UInt8, bits: int) -> UInt8:
    """Return codes uint8 [n, dim] as bytes: of 3 bits all low pairs of bits, and then all high bits."""
    if bits == 3:
        high = np.packbits(codes >> 2, axis=1, bitorder="little")
        return np.concatenate([_packed_codes(codes & np.uint8(3), 2), high], axis=1)
    each = 8 // bits
    padded = np.zeros((len(codes), -(-codes.shape[1] // each), each), np.uint8)
    padded.reshape(len(codes), -1)[:, : codes.shape[1]] = codes
    packed: UInt8 = np.bitwise_or.reduce(padded << np.arange(0, 8, bits, dtype=np.uint8), axis=2)
    return packed

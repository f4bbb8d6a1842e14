"""Signed int8 codes of weight matrices, one scale for each column, exact on every processor.

Processors without VNNI multiply unsigned by signed bytes in pairs of neighbouring rows and add both products
in 16 bits, which saturates: ``255 * 127 + 255 * 127`` is beyond 32,767, and the same file would silently give
other answers there. Unsigned weights avoid that, but ONNX Runtime has no VNNI kernel for them: a tower of
512-1024-512-256-64 took 2.2 times as long. Codes of 7 bits avoid it, too, at twice the step.

Here the scale of a column is such that two neighbouring codes of one sign add up to at most 128, so that
``255 * 128`` fits. The step of normally distributed weights grows by two fifths.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

__all__ = ["WeightCodes", "weight_codes"]

_LARGEST_CODE = 127
_LARGEST_PAIR = 128


@dataclass(frozen=True, eq=False)
class WeightCodes:
    """Codes int8 [rows, columns] and scales float32 [columns]: ``weight = codes * scale``."""

    codes: npt.NDArray[np.int8]
    scale: npt.NDArray[np.float32]

    def values(self) -> npt.NDArray[np.float32]:
        """Return the matrix float32 [rows, columns] that the codes stand for."""
        return self.codes * self.scale


def weight_codes(
    matrix: npt.NDArray[np.float32], smallest_scale: npt.NDArray[np.float32] | float = 0.0
) -> WeightCodes:
    """Quantize a matrix symmetrically, each column with its own scale.

    Args:
        matrix: finite float32 [rows, columns].
        smallest_scale: of each column.
    """
    largest = np.abs(matrix).max(axis=0, initial=0) / _LARGEST_CODE
    pairs = np.abs(matrix[1:] + matrix[:-1]).max(axis=0, initial=0) / _LARGEST_PAIR
    scale = np.maximum(np.maximum(largest, pairs), smallest_scale).astype(np.float32)
    # Columns of zeros, and those so small that their scale is no float32, have codes of 0.
    scale = np.where(scale > np.finfo(np.float32).tiny, scale, np.float32(1))
    exact = np.divide(matrix, scale, dtype=np.float32)
    codes = np.rint(exact).clip(-_LARGEST_CODE, _LARGEST_CODE).astype(np.int16)
    return WeightCodes(_within_pairs(codes, exact).astype(np.int8), scale)


def _within_pairs(codes: npt.NDArray[np.int16], exact: npt.NDArray[np.float32]) -> npt.NDArray[np.int16]:
    """Undo roundings away from zero by which a pair exceeds its bound by one."""
    for start in range(len(codes) - 1):
        pair = codes[start] + codes[start + 1]
        exceeded = np.abs(pair) > _LARGEST_PAIR
        if exceeded.any():
            grew = np.abs(codes[start : start + 2]) - np.abs(exact[start : start + 2])
            row = start + grew.argmax(axis=0)
            columns = np.nonzero(exceeded)[0]
            codes[row[columns], columns] -= np.sign(pair[columns]).astype(np.int16)
    return codes

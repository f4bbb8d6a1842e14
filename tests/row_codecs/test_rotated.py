"""The rotation of low-bit codecs, and the error that it saves."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from graphbox.row_codecs import ArrayRows, RotatedCodec, TableShape, open_rows
from graphbox.row_codecs.levels import quantize_clipped_rows
from graphbox.row_codecs.rotation import block_sizes, random_signs, rotate
from tests.row_codecs.reference import DIMS, hadamard, unpacked

RANDOM = np.random.default_rng(0)


def test_rows_are_cut_into_powers_of_two_largest_first() -> None:
    assert block_sizes(1) == [1]
    assert block_sizes(7) == [4, 2, 1]
    assert block_sizes(100) == [64, 32, 4]
    assert block_sizes(256) == [256]
    assert block_sizes(777) == [256, 256, 256, 8, 1]
    assert all(sum(block_sizes(dim)) == dim for dim in range(1, 700))


@pytest.mark.parametrize("dim", DIMS)
def test_the_rotation_is_that_of_the_matrix_and_keeps_products(dim: int) -> None:
    rows = RANDOM.standard_normal((5, dim), np.float32)
    signs = random_signs(dim)
    rotated = rotate(rows, signs)
    start = 0
    for size in block_sizes(dim):
        part = slice(start, start + size)
        plain = (rows[:, part] * signs[part]) @ hadamard(size) / np.sqrt(size)
        np.testing.assert_allclose(rotated[:, part], plain, atol=1e-5)
        start += size
    np.testing.assert_allclose(rotated @ rotated.T, rows @ rows.T, rtol=1e-4, atol=1e-4)
    assert set(signs.tolist()) <= {1, -1}
    np.testing.assert_array_equal(signs, random_signs(dim))


def _relative(found: Any, rows: Any) -> float:
    return float(np.linalg.norm(found - rows) / np.linalg.norm(rows))


@pytest.mark.parametrize("bits", [2, 3, 4])
def test_errors_do_not_depend_on_the_spectrum_of_the_rows(bits: int) -> None:
    random = np.random.default_rng(1)
    even = random.standard_normal((2000, 64), np.float32)
    spectrum = np.exp(-np.arange(64) / 4).astype(
        np.float32
    )  # a few large elements in each row, as of SVD factors
    errors = {}
    for name, rows in (("even", even), ("steep", even * spectrum)):
        codec = RotatedCodec(bits)
        stored = open_rows(codec, codec.encode(ArrayRows(rows)), TableShape(2000, 64))
        errors[name] = _relative(stored.block(0, 2000), rows)
    codes, scale_bias = quantize_clipped_rows(even * spectrum, (1 << bits) - 1)
    factors = scale_bias.astype(np.float32)
    unrotated = _relative(codes * factors[:, :1] + factors[:, 1:], even * spectrum)
    assert errors["steep"] < 1.1 * errors["even"]
    assert unrotated > 1.25 * errors["steep"]


@pytest.mark.parametrize("bits", [2, 3, 4])
def test_codes_are_packed_as_the_format_says(bits: int) -> None:
    codec = RotatedCodec(bits)
    rows = RANDOM.standard_normal((9, 37), np.float32)
    arrays = codec.encode(ArrayRows(rows))
    codes, scale_bias = quantize_clipped_rows(rotate(rows, arrays["signs.npy"]), (1 << bits) - 1)
    packed = arrays["packed.npy"]
    np.testing.assert_array_equal(packed[:, :4].copy().view(np.float16), scale_bias)
    np.testing.assert_array_equal(unpacked(bits, packed[:, 4:], 37), codes)
    assert codec.bytes_of(1000, 64) == 1000 * (4 + 8 * bits) + 64

"""Evenly spaced levels against the codec written out one element at a time."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays

from graphbox.row_codecs.levels import quantize_clipped_rows, quantize_rows

FLOATS = st.floats(-65504, 65504, width=32)
ROWS = arrays(np.float32, array_shapes(min_dims=2, max_dims=2, max_side=9), elements=FLOATS)


def _plain(row: Any, top_code: int) -> tuple[list[int], np.float16, np.float16]:
    """Return codes, scale and bias of one row: the largest float16 below the least element, and so on."""
    bias = np.float16(min(row))
    if float(bias) > min(row):
        bias = np.nextafter(bias, np.float16(-np.inf))
    wanted = (np.float32(max(row)) - np.float32(bias)) / np.float32(top_code)
    scale = np.float16(wanted)
    if float(scale) < wanted:
        scale = np.nextafter(scale, np.float16(np.inf))
    step = np.float32(scale)
    codes = [0 if step == 0 else round(float((np.float32(x) - np.float32(bias)) / step)) for x in row]
    return [min(top_code, max(0, code)) for code in codes], scale, bias


@pytest.mark.parametrize("top_code", [255, 15, 3])
@settings(deadline=None, max_examples=100)
@given(rows=ROWS)
def test_codes_are_those_of_the_plain_codec(rows: Any, top_code: int) -> None:
    if top_code < 255:
        rows = rows / 8  # a range of 131,008 in few steps is a scale beyond float16
    codes, scale_bias = quantize_rows(rows, top_code)
    assert codes.dtype == np.uint8
    assert scale_bias.dtype == np.float16
    for number, row in enumerate(rows):
        expected, scale, bias = _plain(row, top_code)
        assert (scale_bias[number, 0], scale_bias[number, 1]) == (scale, bias)
        assert codes[number].tolist() == expected


@settings(deadline=None, max_examples=150)
@given(ROWS)
def test_no_element_is_further_off_than_half_a_step(rows: Any) -> None:
    codes, scale_bias = quantize_rows(rows, 255)
    factors = scale_bias.astype(np.float64)
    decoded = codes * factors[:, :1] + factors[:, 1:]
    slack = 1e-3 * factors[:, :1] + 1e-6 * np.abs(rows).max(axis=1, keepdims=True)
    slack += np.finfo(np.float32).tiny  # a range of subnormal numbers divided by 255 levels is no range
    assert (np.abs(decoded - rows) <= 0.5 * factors[:, :1] + slack).all()


@pytest.mark.parametrize("top_code", [3, 7, 15])
def test_clipped_levels_are_no_worse_than_those_of_the_whole_range(top_code: int) -> None:
    rows = np.random.default_rng(0).standard_normal((500, 64), np.float32)

    def errors(found: Any) -> Any:
        codes, scale_bias = found
        factors = scale_bias.astype(np.float64)
        return np.square(codes * factors[:, :1] + factors[:, 1:] - rows).sum(axis=1)

    whole, clipped = errors(quantize_rows(rows, top_code)), errors(quantize_clipped_rows(rows, top_code))
    assert (clipped <= whole * (1 + 1e-6)).all()
    assert clipped.mean() < {3: 0.65, 7: 0.85, 15: 0.96}[top_code] * whole.mean()


def test_clipped_levels_of_extremes_and_of_zeros() -> None:
    rows = np.array([[0, 0, 0], [65504, -65504, 0], [-65504, -65504, -65504]], np.float32)
    codes, scale_bias = quantize_clipped_rows(rows, 15)
    factors = scale_bias.astype(np.float64)
    assert np.isfinite(factors).all()
    np.testing.assert_allclose(codes * factors[:, :1] + factors[:, 1:], rows, atol=65504 / 15)

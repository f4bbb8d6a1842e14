"""Row-wise int8 against the codec written out one element at a time, and float16."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays

from graphbox.artifact import Ids, RowTable
from graphbox.compress import halve_table, quantize_rows, quantize_table
from graphbox.compress import tables as tables_module
from graphbox.errors import DataError

FLOATS = st.floats(-65504, 65504, width=32)


def _plain(row: Any) -> tuple[list[int], np.float16, np.float16]:
    """Return codes, scale and bias of one row: the largest float16 below the least element, and so on."""
    bias = np.float16(min(row))
    if float(bias) > min(row):
        bias = np.nextafter(bias, np.float16(-np.inf))
    wanted = (np.float32(max(row)) - np.float32(bias)) / np.float32(255)
    scale = np.float16(wanted)
    if float(scale) < wanted:
        scale = np.nextafter(scale, np.float16(np.inf))
    step = np.float32(scale)
    codes = [0 if step == 0 else round(float((np.float32(x) - np.float32(bias)) / step)) for x in row]
    return [min(255, max(0, code)) for code in codes], scale, bias


@settings(deadline=None, max_examples=150)
@given(arrays(np.float32, array_shapes(min_dims=2, max_dims=2, max_side=9), elements=FLOATS))
def test_codes_are_those_of_the_plain_codec(rows: Any) -> None:
    codes, scale_bias = quantize_rows(rows)
    assert codes.dtype == np.uint8
    assert scale_bias.dtype == np.float16
    for number, row in enumerate(rows):
        expected, scale, bias = _plain(row)
        assert (scale_bias[number, 0], scale_bias[number, 1]) == (scale, bias)
        assert codes[number].tolist() == expected


@settings(deadline=None, max_examples=150)
@given(arrays(np.float32, array_shapes(min_dims=2, max_dims=2, max_side=9), elements=FLOATS))
def test_no_element_is_further_off_than_half_a_step(rows: Any) -> None:
    codes, scale_bias = quantize_rows(rows)
    factors = scale_bias.astype(np.float64)
    decoded = codes * factors[:, :1] + factors[:, 1:]
    slack = 1e-3 * factors[:, :1] + 1e-6 * np.abs(rows).max(axis=1, keepdims=True)
    slack += np.finfo(np.float32).tiny  # a range of subnormal numbers divided by 255 levels is no range
    assert (np.abs(decoded - rows) <= 0.5 * factors[:, :1] + slack).all()


@pytest.mark.parametrize("value", [0.0, 3.3, -65504.0, 65504.0, 1e-8, -1e-8])
def test_rows_of_one_value_come_back(value: float) -> None:
    codes, scale_bias = quantize_rows(np.full((2, 5), value, np.float32))
    decoded = codes * scale_bias[:, :1].astype(np.float32) + scale_bias[:, 1:].astype(np.float32)
    np.testing.assert_allclose(decoded, np.full((2, 5), value), rtol=1e-4, atol=6e-8)


def test_no_rows() -> None:
    codes, scale_bias = quantize_rows(np.empty((0, 4), np.float32))
    assert (codes.shape, scale_bias.shape) == ((0, 4), (0, 2))


def test_what_float16_cannot_hold_is_refused() -> None:
    with pytest.raises(DataError, match="expected elements within 65504, received 70000") as caught:
        quantize_rows(np.array([[70_000, 0]], np.float32))
    assert caught.value.hint is not None
    assert "tables: float32" in caught.value.hint


def test_a_table_is_quantized_in_parts_and_its_error_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = np.random.default_rng(0).standard_normal((100, 16), np.float32)
    table = RowTable(rows, Ids(pa.array(range(100), pa.int64()), "node"))
    whole = quantize_table(table)
    monkeypatch.setattr(tables_module, "_BLOCK_ROWS", 7)
    parts = quantize_table(table)
    np.testing.assert_array_equal(whole.codes, parts.codes)
    np.testing.assert_array_equal(whole.scale_bias, parts.scale_bias)
    factors = whole.scale_bias.astype(np.float32)
    difference = whole.codes * factors[:, :1] + factors[:, 1:] - rows
    for error in (whole.error, parts.error):
        assert error.max_absolute == pytest.approx(np.abs(difference).max())
        assert error.relative == pytest.approx(np.sqrt((difference**2).sum() / (rows**2).sum()), rel=1e-4)
    assert whole.error.relative < 0.01


def test_a_table_is_halved_in_parts_and_its_error_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = np.random.default_rng(0).standard_normal((100, 16), np.float32)
    table = RowTable(rows, Ids(pa.array(range(100), pa.int64()), "node"))
    monkeypatch.setattr(tables_module, "_BLOCK_ROWS", 7)
    halved = halve_table(table)
    np.testing.assert_array_equal(halved.rows, rows.astype(np.float16))
    difference = rows.astype(np.float16).astype(np.float32) - rows
    assert halved.error.max_absolute == pytest.approx(np.abs(difference).max())
    assert halved.error.relative == pytest.approx(np.sqrt((difference**2).sum() / (rows**2).sum()), rel=1e-4)
    assert halved.error.relative < 2**-11
    with pytest.raises(DataError, match="expected elements within 65504"):
        halve_table(RowTable(rows * 1e6, table.ids))


def test_the_size_is_a_quarter_and_four_bytes_a_row(tmp_path: Path) -> None:
    codes, scale_bias = quantize_rows(np.ones((10, 64), np.float32))
    assert codes.nbytes + scale_bias.nbytes == 10 * (64 + 4)

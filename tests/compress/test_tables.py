"""Codecs of the precisions that users name, and the error of a table."""

from __future__ import annotations

from typing import get_args

import numpy as np
import pytest

from graphbox.compress import CODEC_OF_PRECISION, table_error
from graphbox.compress import tables as tables_module
from graphbox.compress.tables import TRAINED_PRECISIONS, codec_of, suited_precision, worth_trying
from graphbox.config import RowPrecision
from graphbox.row_codecs import ArrayRows, TableShape, open_rows


def test_every_precision_has_a_codec() -> None:
    assert tuple(CODEC_OF_PRECISION) == get_args(RowPrecision)
    assert [codec.name for codec in CODEC_OF_PRECISION.values()] == [
        "float32",
        "float16",
        "int8_rowwise",
        "clustered(int4_rotated)",
        "int4_rotated",
        "clustered(tiered(int4_rotated,int3_rotated))",
        "clustered(int3_rotated)",
        "int3_rotated",
        "clustered(tiered(int3_rotated,int2_rotated))",
        "clustered(int2_rotated)",
        "int2_rotated",
        "residual(16)",
        "tiered(int4_rotated,clustered(mean))",
        "residual(8)",
    ]
    sizes = [codec.bytes_of(1_000_000, 64) for codec in CODEC_OF_PRECISION.values()]
    assert sizes == sorted(sizes, reverse=True)
    assert sizes[2:5] == [68_000_000, 37_032_832, 36_000_064]
    assert sizes[-3:] == [16_000_000 + 16 * 256 * 64 * 4, 9_907_960, 8_000_000 + 8 * 256 * 64 * 4]


def test_codebooks_suit_a_table_that_they_make_smaller() -> None:
    for precision, least in (("residual16", 262_129), ("residual8", 43_686)):
        assert suited_precision(precision, least, 64) == precision
        assert suited_precision(precision, least - 1, 64) == "int2"
    assert suited_precision("residual16", 10**9, 48) == "int2"
    assert suited_precision("int2_clustered", 10, 64) == "int2_clustered"


@pytest.mark.parametrize("precision", get_args(RowPrecision))
def test_the_error_of_a_table_is_measured_in_blocks(
    precision: RowPrecision, monkeypatch: pytest.MonkeyPatch
) -> None:
    if precision in TRAINED_PRECISIONS:
        pytest.importorskip("faiss")
    rows = np.random.default_rng(0).standard_normal((300, 16), np.float32)
    codec = codec_of(precision, np.arange(300))
    stored = open_rows(codec, codec.encode(ArrayRows(rows)), TableShape(300, 16))
    whole = table_error(ArrayRows(rows), stored)
    monkeypatch.setattr(tables_module, "_BLOCK_ROWS", 7)
    difference = stored.block(0, 300) - rows
    for error in (whole, table_error(ArrayRows(rows), stored)):
        assert error.max_absolute == pytest.approx(np.abs(difference).max())
        assert error.relative == pytest.approx(
            np.sqrt((difference.astype(np.float64) ** 2).sum() / (rows.astype(np.float64) ** 2).sum()),
            rel=1e-4,
        )


def test_tables_without_rows_have_no_error() -> None:
    none = ArrayRows(np.empty((0, 3), np.float32))
    error = table_error(none, none)
    assert (error.max_absolute, error.relative) == (0, 0)


def test_codecs_that_others_beat_are_not_worth_trying() -> None:
    known = tuple(each for each in CODEC_OF_PRECISION if each not in TRAINED_PRECISIONS)
    errors = dict.fromkeys(known, 1.0) | {
        "float32": 0.0,
        "float16": 0.001,
        "int8": 0.01,
        "int4": 0.1,
        "int2": 0.5,
    }
    assert worth_trying(known, 100_000, 64, errors) == (
        "float32",
        "float16",
        "int8",
        "int4",
        "int2",
        "int4_pruned",
    )
    clustered = errors | {"int4_clustered": 0.05, "int3": 0.2}
    kept = worth_trying(known, 100_000, 64, clustered)
    assert kept == ("float32", "float16", "int8", "int4_clustered", "int4", "int3", "int2", "int4_pruned")


def test_with_a_limit_of_latency_plain_codecs_are_beaten_by_plain_ones_alone() -> None:
    known = ("float32", "int8", "int4_clustered", "int4", "int4_int3_tiers", "int3", "int2")
    errors = dict(zip(known, (0.0, 0.01, 0.05, 0.2, 0.1, 0.2, 0.2), strict=True))
    assert worth_trying(known, 100_000, 64, errors) == (
        "float32",
        "int8",
        "int4_clustered",
        "int4_int3_tiers",
        "int2",
    )
    errors |= {"int4": 0.15, "int3": 0.18}
    kept = worth_trying(known, 100_000, 64, errors, is_latency_limited=True)
    assert kept == known


def test_the_most_precise_codec_and_unmeasured_ones_stay() -> None:
    known = ("float32", "int8", "int4", "int2")
    assert worth_trying(known, 10, 8, dict.fromkeys(known, 0.0)) == ("float32", "int2")
    assert worth_trying(known, 10, 8, {"int8": 0.1, "int2": 0.1}) == ("float32", "int4", "int2")
    assert worth_trying(("int8",), 10, 8, {}) == ("int8",)

"""All codecs: encoding and decoding, sizes, refused rows, selections of rows, and damaged arrays."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from graphbox.errors import DataError, FormatError, UsageError
from graphbox.row_codecs import (
    CODEC_NAMES,
    ArrayRows,
    Arrays,
    ClusteredCodec,
    ResidualCodec,
    RowCodec,
    TableShape,
    TieredCodec,
    open_rows,
    row_codec,
)
from graphbox.row_codecs import (
    codec as codec_module,
)
from tests.row_codecs.reference import CODECS, DIMS, decoded, random_arrays

RANDOM = np.random.default_rng(0)
WITHOUT_TRAINING = [name for name in CODECS if "residual" not in name]
LARGEST_ERROR = {
    "float32": 0,
    "float16": 3e-4,
    "int8_rowwise": 8e-3,
    "int4_rotated": 0.13,
    "int3_rotated": 0.22,
    "int2_rotated": 0.4,
    "tiered(int4_rotated,int2_rotated)": 0.4,
    "clustered(int3_rotated)": 0.22,
    "clustered(tiered(int4_rotated,int2_rotated))": 0.4,
    "mean": 1.0,
    "tiered(int4_rotated,clustered(mean))": 1.0,
    "clustered(tiered(int3_rotated,mean))": 1.0,
    "clustered(tiered(clustered(int2_rotated),mean))": 1.0,
}
"""Relative to the rows, of normally distributed ones."""


def _encoder(name: str, rows: int) -> RowCodec:
    codec = row_codec(name)
    if isinstance(codec, TieredCodec):
        return TieredCodec(codec.hot, codec.cold, np.arange(rows))
    if isinstance(codec, ClusteredCodec):
        return ClusteredCodec(_encoder(codec.rest.name, rows))
    return codec


def _encoded(name: str, rows: Any) -> Arrays:
    return _encoder(name, len(rows)).encode(ArrayRows(rows))


@pytest.mark.parametrize("dim", DIMS)
@pytest.mark.parametrize("name", WITHOUT_TRAINING)
def test_encoded_rows_are_near_the_original_ones(name: str, dim: int) -> None:
    rows = 3 * RANDOM.standard_normal((41, dim), np.float32)
    arrays = _encoded(name, rows)
    stored = open_rows(row_codec(name), arrays, TableShape(*rows.shape))
    found = stored.block(0, 41)
    np.testing.assert_array_equal(found, decoded(name, arrays, 41, dim))
    error = np.linalg.norm(found - rows) / np.linalg.norm(rows)
    assert error <= LARGEST_ERROR[name]
    assert stored.codec == name
    assert sum(array.nbytes for array in arrays.values()) == _encoder(name, 41).bytes_of(41, dim)


@pytest.mark.parametrize("name", WITHOUT_TRAINING)
def test_rows_are_encoded_in_blocks(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = RANDOM.standard_normal((100, 12), np.float32)
    whole = _encoded(name, rows)
    monkeypatch.setattr(codec_module, "BLOCK_ROWS", 7)
    parts = _encoded(name, rows)
    for file, array in whole.items():
        np.testing.assert_array_equal(array, parts[file])
    halves = _encoded(name, rows.astype(np.float16))
    same = _encoded(name, rows.astype(np.float16).astype(np.float32))
    for file, array in halves.items():
        np.testing.assert_array_equal(array, same[file])


@pytest.mark.parametrize("value", [0.0, 3.3, -4000.0, 4000.0, 1e-8, -1e-8])
@pytest.mark.parametrize("dim", [1, 5, 64])
@pytest.mark.parametrize("name", WITHOUT_TRAINING)
def test_rows_of_one_value_come_back(name: str, dim: int, value: float) -> None:
    rows = np.full((2, dim), value, np.float32)
    found = open_rows(row_codec(name), _encoded(name, rows), TableShape(*rows.shape)).block(0, 2)
    # A rotated row of one value is like any other row.
    share = 0.45 if "int2" in name else 0.2 if "int3" in name else 0.1 if "rotated" in name else 1e-3
    assert np.linalg.norm(found - rows) <= share * np.linalg.norm(rows) + 2e-7 * np.sqrt(dim)


@pytest.mark.parametrize("name", WITHOUT_TRAINING)
def test_no_rows(name: str) -> None:
    arrays = _encoded(name, np.empty((0, 5), np.float32))
    stored = open_rows(row_codec(name), arrays, TableShape(0, 5))
    assert stored.block(0, 10).shape == (0, 5)


@pytest.mark.parametrize("wrong", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("name", CODECS)
def test_numbers_that_are_not_finite_are_refused(name: str, wrong: float) -> None:
    rows = RANDOM.standard_normal((600, 5), np.float32)
    rows[500, 3] = wrong
    with pytest.raises(DataError, match="expected"):
        _encoded(name, rows)


@pytest.mark.parametrize("name", [name for name in WITHOUT_TRAINING if name != "float32"])
def test_numbers_beyond_float16_are_refused(name: str) -> None:
    rows = np.zeros((3, 4), np.float32)
    rows[1] = [65504, 0, 0, 0]
    found = open_rows(row_codec(name), _encoded(name, rows), TableShape(3, 4)).block(0, 3)
    np.testing.assert_allclose(found, rows, atol=(1 if "mean" in name else 0.3) * 65504)
    rows[1] = 70_000
    with pytest.raises(DataError, match="expected elements within 65504, received") as caught:
        _encoded(name, rows)
    assert caught.value.hint is not None
    assert "tables: float32" in caught.value.hint


@pytest.mark.parametrize("name", CODECS)
def test_selected_rows_are_those_of_the_table(name: str) -> None:
    codec = row_codec(name)
    arrays = random_arrays(name, 100, 9, RANDOM)
    expected = decoded(name, arrays, 100, 9)
    for rows in (np.arange(100), np.arange(3, 97, 2), np.array([99, 0, 5]), np.array([], np.int64)):
        parts = codec.select(arrays, rows)
        selected = {
            file: part.array if part.rows is None else part.array[part.rows] for file, part in parts.items()
        }
        stored = open_rows(codec, selected, TableShape(len(rows), 9))
        np.testing.assert_array_equal(stored.block(0, len(rows)), expected[rows])


def _damaged(arrays: Arrays) -> list[tuple[str, Arrays]]:
    """Return copies of arrays, each with one of another type or shape, or missing, or with one more."""
    found: list[tuple[str, Arrays]] = [("files", {**arrays, "other.npy": np.zeros(3)})]
    for name, array in arrays.items():
        others = [
            array[..., None],
            array.astype(np.float64),
            array.view(">u1" if array.itemsize == 1 else ">u2"),
        ]
        if not name.endswith("centroids.npy"):  # of which there are any number
            others += [array[:-1], np.concatenate([array, array[:1]])]
        if array.ndim > 1:
            others += [array[:, :-1], np.repeat(array, 2, axis=-1)]
        found += [("expected", {**arrays, name: other}) for other in others if _differs(other, array)]
        found.append(("files", {file: other for file, other in arrays.items() if file != name}))
    return found


def _differs(other: Any, array: Any) -> bool:
    return bool(other.dtype != array.dtype or other.shape != array.shape)


@pytest.mark.parametrize("name", CODECS)
def test_arrays_of_other_types_and_shapes_are_refused(name: str) -> None:
    arrays = random_arrays(name, 21, 9, RANDOM)
    for message, others in _damaged(arrays):
        with pytest.raises(FormatError, match=message):
            open_rows(row_codec(name), others, TableShape(21, 9))


@pytest.mark.parametrize("name", [name for name in CODECS if "rotated" in name])
def test_signs_that_are_none_are_refused(name: str) -> None:
    arrays = random_arrays(name, 21, 9, RANDOM)
    for wrong in (0, 2, -128):
        for file in [file for file in arrays if "signs" in file]:
            signs = arrays[file].copy()
            signs[4] = wrong
            with pytest.raises(FormatError, match="expected signs of 1 and -1"):
                open_rows(row_codec(name), {**arrays, file: signs}, TableShape(21, 9))


def test_names_are_those_of_the_codecs() -> None:
    for name in CODECS:
        assert row_codec(name).name == name
    assert CODEC_NAMES[:3] == ("float32", "float16", "int8_rowwise")
    assert isinstance(row_codec("residual(16)"), ResidualCodec)
    wrong = [
        "int5_rotated",
        "",
        "float32 ",
        "residual",
        "residual()",
        "residual(0)",
        "residual(65)",
        "residual(a)",
    ]
    wrong += ["residual(016)", "residual(1,2)", "tiered(float32)", "tiered(float32,int9)", "float32(1)"]
    wrong += ["tiered(tiered(float32,float32),float32)", "tiered(float32,float32,float32)", "(" * 9999]
    for name in wrong:
        with pytest.raises(UsageError, match="expected"):
            row_codec(name)


def test_importing_loads_neither_torch_nor_the_core() -> None:
    code = (
        "import sys, graphbox.row_codecs; "
        "print([name for name in ('torch', 'faiss', 'graphbox._core') if name in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        check=True,
        capture_output=True,
        text=True,
        cwd=Path(__file__).parents[2],
    )
    assert done.stdout.strip() == "[]"

"""Tables of rows, against plain NumPy."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from graphbox.artifact import Ids, RowTable
from graphbox.errors import InvalidRequestError, UsageError
from graphbox.row_codecs import TableShape, open_rows, row_codec
from graphbox.rows import StoredRows
from tests.row_codecs.reference import CODECS, decoded, random_arrays

KINDS = CODECS
RANDOM = np.random.default_rng(0)
ROWS, DIM = 50, 7


def _ids(count: int = ROWS) -> Ids:
    return Ids(pa.array([f"n{number}" for number in range(count)], pa.string()), "node")


def _example(kind: str, rows: int, dim: int) -> tuple[StoredRows, Any]:
    """Return a table of random rows, and the rows as float32 by NumPy."""
    arrays = random_arrays(kind, rows, dim, RANDOM)
    return open_rows(row_codec(kind), arrays, TableShape(rows, dim)), decoded(kind, arrays, rows, dim)


def _table(kind: str) -> tuple[RowTable, Any]:
    stored, expected = _example(kind, ROWS, DIM)
    return RowTable(stored, _ids()), expected


@pytest.mark.parametrize("kind", KINDS)
def test_rows_and_blocks_are_the_decoded_rows(kind: str) -> None:
    table, expected = _table(kind)
    assert (len(table), table.dim, table.codec, len(table.ids)) == (ROWS, DIM, kind, ROWS)
    indices = RANDOM.integers(0, ROWS, 200)
    np.testing.assert_array_equal(table.rows(indices), expected[indices])
    np.testing.assert_array_equal(table.rows([3, 3, 0]), expected[[3, 3, 0]])
    np.testing.assert_array_equal(table.block(10, 30), expected[10:30])
    np.testing.assert_array_equal(table.block(40, 1000), expected[40:])
    assert table.block(ROWS, ROWS + 5).shape == (0, DIM)
    scratch = np.zeros((40, DIM), np.float32)
    np.testing.assert_array_equal(table.block(10, 30, scratch), expected[10:30])
    out = np.zeros((3, DIM), np.float32)
    assert table.rows(np.array([4, 0, 9], np.int32), out=out) is out
    np.testing.assert_array_equal(out, expected[[4, 0, 9]])
    empty = table.rows(np.array([], np.int64))
    assert empty.shape == (0, DIM)
    assert empty.dtype == np.float32


@pytest.mark.parametrize("kind", KINDS)
def test_rows_of_any_length_have_the_bits_of_numpy(kind: str) -> None:
    for dim in range(1, 258):
        table, expected = _example(kind, 23, dim)
        indices = RANDOM.integers(0, 23, 40)
        np.testing.assert_array_equal(table.rows(indices), expected[indices])
        np.testing.assert_array_equal(table.block(3, 20), expected[3:20])


@pytest.mark.parametrize("kind", KINDS)
def test_rows_go_into_a_part_of_the_columns_and_nowhere_else(kind: str) -> None:
    table, expected = _table(kind)
    out = np.full((5, DIM + 4), -1, np.float32)
    table.rows([4, 0, 9, 9], out=out[1:, 2 : DIM + 2])
    np.testing.assert_array_equal(out[1:, 2 : DIM + 2], expected[[4, 0, 9, 9]])
    out[1:, 2 : DIM + 2] = -1
    assert (out == -1).all()


@pytest.mark.parametrize("kind", KINDS)
def test_memory_that_does_not_fit_the_rows_is_refused(kind: str) -> None:
    table, _ = _table(kind)
    for shape in ((2, DIM), (3, DIM + 1), (4, DIM)):
        with pytest.raises(UsageError, match="expected out of shape"):
            table.rows([0, 1, 2], out=np.zeros(shape, np.float32))
    overlapping = np.lib.stride_tricks.as_strided(np.zeros(DIM + 2, np.float32), (3, DIM), (4, 4))
    for out in (np.zeros((DIM, 3), np.float32).T, np.zeros((3, DIM), np.float32)[::-1], overlapping):
        with pytest.raises(UsageError, match="contiguous rows"):
            table.rows([0, 1, 2], out=out)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    "wrong",
    [
        [-1],
        [0, ROWS],
        [2**40],
        np.array([1 << 63], np.uint64),
        np.array([0.5]),
        np.array([[0]]),
        np.array([True]),
    ],
)
def test_positions_outside_are_refused_and_never_wrap(kind: str, wrong: Any) -> None:
    table, _ = _table(kind)
    out = np.full((len(wrong), DIM), 7, np.float32)
    with pytest.raises(InvalidRequestError, match="indices"):
        table.rows(wrong, out=out)
    assert (out == 7).all()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dim", [1, 7, 64, 257])
@pytest.mark.parametrize("share", [0.0, 0.1, 0.9, 1.0])
def test_indices_of_minus_one_have_the_default_row(kind: str, dim: int, share: float) -> None:
    table, expected = _example(kind, 40, dim)
    default_row = RANDOM.standard_normal(dim).astype(np.float32)
    indices = np.where(RANDOM.random(300) < share, -1, RANDOM.integers(0, 40, 300))
    plain = np.where(indices[:, None] < 0, default_row, expected[indices])
    np.testing.assert_array_equal(table.rows(indices, default_row=default_row), plain)
    out = np.full((300, dim + 2), -5, np.float32)
    assert table.rows(indices, out[:, 1:-1], default_row) is not None
    np.testing.assert_array_equal(out[:, 1:-1], plain)
    assert (out[:, [0, -1]] == -5).all()


@pytest.mark.parametrize("kind", KINDS)
def test_default_rows_are_checked(kind: str) -> None:
    table, expected = _table(kind)
    default_row: Any = np.arange(DIM)  # of any type of number
    np.testing.assert_array_equal(table.rows([1, -1], default_row=default_row), [expected[1], default_row])
    assert table.rows([], default_row=default_row).shape == (0, DIM)
    for length in (DIM - 1, DIM + 1, 0):
        with pytest.raises(UsageError, match=f"a default row of {DIM} numbers, received {length}"):
            table.rows([0], default_row=np.zeros(length, np.float32))
    out = np.full((3, DIM), 7, np.float32)
    for wrong in (-2, ROWS, -(2**63)):
        with pytest.raises(InvalidRequestError, match=f"received {wrong}"):
            table.rows([0, -1, wrong], out, default_row)
    assert (out == 7).all()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dim", [1, 7, 64, 257])
def test_sums_are_those_of_numpy(kind: str, dim: int) -> None:
    table, expected = _example(kind, 40, dim)
    lengths = RANDOM.integers(0, 9, 30)
    offsets = np.append(0, np.cumsum(lengths))
    indices = RANDOM.integers(-1, 40, offsets[-1])
    weights = RANDOM.standard_normal(offsets[-1]).astype(np.float32)
    plain = np.zeros((30, dim), np.float32)
    for bag, (start, stop) in enumerate(itertools.pairwise(offsets)):
        for entry in range(start, stop):
            if indices[entry] >= 0:
                plain[bag] += expected[indices[entry]] * weights[entry]
    np.testing.assert_array_equal(table.sums(indices, offsets, weights), plain)
    nothing = table.sums(np.empty(0, np.int64), np.zeros(3, np.int64), np.empty(0, np.float32))
    np.testing.assert_array_equal(nothing, np.zeros((2, dim)))


def test_sums_of_wrong_bags_are_refused() -> None:
    table, _ = _table("float32")
    index, weights = np.zeros(3, np.int64), np.ones(3, np.float32)
    for offsets in ([], [0], [1, 3], [0, 2], [0, 2, 1, 3], [0, 4]):
        with pytest.raises(UsageError, match="offsets"):
            table.sums(index, np.array(offsets, np.int64), weights)
    with pytest.raises(UsageError, match="weights"):
        table.sums(index, np.array([0, 3]), weights[:2])
    for wrong in (-2, ROWS, 1 << 40):
        with pytest.raises(InvalidRequestError, match=f"received {wrong}"):
            table.sums(np.array([0, -1, wrong]), np.array([0, 3]), weights)


@pytest.mark.parametrize("kind", KINDS)
def test_empty_tables(kind: str) -> None:
    table, _ = _example(kind, 0, 4)
    assert table.rows([]).shape == (0, 4)
    assert table.rows([-1], default_row=np.ones(4, np.float32)).tolist() == [[1, 1, 1, 1]]
    assert table.block(0, 10).shape == (0, 4)
    assert table.best(np.ones((2, 4), np.float32), 0)[0].shape == (2, 0)
    with pytest.raises(InvalidRequestError, match=r"of a row in \[0, 0\), received 0"):
        table.rows([0])


def test_arrays_that_are_no_float32_rows_are_refused() -> None:
    for array in (np.zeros(3, np.float32), np.zeros((3, 4)), np.zeros((3, 4), np.uint8)):
        with pytest.raises(UsageError, match="expected float32"):
            StoredRows.of_float32(array)  # type: ignore[arg-type]


@pytest.mark.parametrize("kind", KINDS)
def test_the_best_rows_are_those_of_the_decoded_ones(kind: str) -> None:
    for dim in (1, 7, 64, 100):
        table, expected = _example(kind, 300, dim)
        queries = RANDOM.standard_normal((3, dim), np.float32)
        products = queries.astype(np.float64) @ expected.T.astype(np.float64)
        index, scores = table.best(queries, 9)
        largest = np.abs(expected).max() * np.abs(queries).max() * dim
        np.testing.assert_allclose(scores, -np.sort(-products, axis=1)[:, :9], atol=1e-6 * largest)
        np.testing.assert_allclose(np.take_along_axis(products, index, 1), scores, atol=1e-6 * largest)


@pytest.mark.parametrize("kind", KINDS)
def test_many_rows_in_one_call_are_those_of_calls_of_one(kind: str) -> None:
    table, expected = _example(kind, 2000, 65)
    indices = RANDOM.integers(0, 2000, 5000)
    np.testing.assert_array_equal(table.rows(indices), expected[indices])
    np.testing.assert_array_equal(np.concatenate([table.rows([index]) for index in range(50)]), expected[:50])
    np.testing.assert_array_equal(table.block(1, 1999), expected[1:1999])


def test_best_rows_of_wrong_sizes_are_refused() -> None:
    table, expected = _table("float32")
    queries = expected[:3]
    index, scores = table.best(queries, 4)
    plain = np.argsort(-(queries @ expected.T), axis=1)[:, :4]
    np.testing.assert_array_equal(index, plain)
    np.testing.assert_allclose(scores, np.take_along_axis(queries @ expected.T, plain, 1), atol=1e-5)
    for wrong in (-1, ROWS + 1):
        with pytest.raises(UsageError, match=f"received {wrong}"):
            table.best(queries, wrong)
    with pytest.raises(UsageError, match="queries of shape"):
        table.best(queries[:, :-1], 1)
    with pytest.raises(UsageError, match="lengths"):
        table.best(queries, 1, np.ones(ROWS - 1, np.float32))

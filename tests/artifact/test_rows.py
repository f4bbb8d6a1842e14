"""Tables of rows, against plain NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from graphbox.artifact import Float32Rows, Ids, Int8Rows, RowTable
from graphbox.errors import InvalidRequestError

ROWS, DIM = 50, 7
RANDOM = np.random.default_rng(0)
VALUES = RANDOM.standard_normal((ROWS, DIM), np.float32)
CODES = RANDOM.integers(0, 256, (ROWS, DIM), dtype=np.uint8)
SCALE_BIAS = RANDOM.standard_normal((ROWS, 2)).astype(np.float16)


def _ids(count: int = ROWS) -> Ids:
    return Ids(pa.array([f"n{number}" for number in range(count)], pa.string()), "node")


def _decoded() -> np.ndarray[Any, np.dtype[np.float32]]:
    """Return the codes decoded one element at a time."""
    decoded = np.empty((ROWS, DIM), np.float32)
    for row in range(ROWS):
        scale, bias = np.float32(SCALE_BIAS[row, 0]), np.float32(SCALE_BIAS[row, 1])
        for column in range(DIM):
            decoded[row, column] = np.float32(CODES[row, column]) * scale + bias
    return decoded


TABLES: list[tuple[RowTable, Any]] = [
    (Float32Rows(VALUES, _ids()), VALUES),
    (Int8Rows(CODES, SCALE_BIAS, _ids()), _decoded()),
]


@pytest.mark.parametrize(("table", "expected"), TABLES)
def test_rows_and_blocks_are_the_decoded_rows(table: RowTable, expected: Any) -> None:
    assert isinstance(table, RowTable)
    assert (len(table), table.dim) == (ROWS, DIM)
    indices = RANDOM.integers(0, ROWS, 200)
    np.testing.assert_array_equal(table.rows(indices), expected[indices])
    np.testing.assert_array_equal(table.rows([3, 3, 0]), expected[[3, 3, 0]])
    np.testing.assert_array_equal(table.block(10, 30), expected[10:30])
    out = np.zeros((3, DIM), np.float32)
    assert table.rows(np.array([4, 0, 9], np.int32), out=out) is out
    np.testing.assert_array_equal(out, expected[[4, 0, 9]])
    empty = table.rows(np.array([], np.int64))
    assert empty.shape == (0, DIM)
    assert empty.dtype == np.float32


@pytest.mark.parametrize("table", [table for table, _ in TABLES])
@pytest.mark.parametrize(
    "wrong", [[-1], [0, ROWS], [2**40], np.array([0.5]), np.array([[0]]), np.array([True])]
)
def test_positions_outside_are_refused_and_never_wrap(table: RowTable, wrong: Any) -> None:
    with pytest.raises(InvalidRequestError, match="indices"):
        table.rows(wrong)


def test_sizes_are_those_of_the_files() -> None:
    assert TABLES[0][0].nbytes == ROWS * DIM * 4
    assert TABLES[1][0].nbytes == ROWS * (DIM + 4)

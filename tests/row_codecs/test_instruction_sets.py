"""Rows have the same bits whichever instruction set decodes them."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from graphbox import _core
from graphbox.errors import UsageError
from graphbox.row_codecs import TableShape, open_rows, row_codec
from tests.row_codecs.reference import CODECS, DIMS, decoded, random_arrays

ROWS = 41


@pytest.fixture(params=_core.instruction_sets())
def instruction_set(request: pytest.FixtureRequest) -> Iterator[str]:
    """Have rows decoded with one of the instruction sets of this processor."""
    name: str = request.param
    _core.use_instruction_set(name)
    yield name
    _core.use_instruction_set(_core.instruction_sets()[-1])


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.usefixtures("instruction_set")
def test_lookups_are_those_of_the_definition(codec: str) -> None:
    random = np.random.default_rng(3)
    for dim in DIMS:
        arrays = random_arrays(codec, ROWS, dim, random)
        stored = open_rows(row_codec(codec), arrays, TableShape(ROWS, dim))
        expected = decoded(codec, arrays, ROWS, dim).view(np.int32)
        index = random.integers(0, ROWS, 70)
        np.testing.assert_array_equal(stored.rows(index).view(np.int32), expected[index])
        np.testing.assert_array_equal(stored.block(0, ROWS).view(np.int32), expected)
        default_row = np.full(dim, 0.5, np.float32)
        index[5] = -1
        found = stored.rows(index, default_row=default_row)
        np.testing.assert_array_equal(found[5], default_row)
        np.testing.assert_array_equal(found[6:].view(np.int32), expected[index[6:]])


@pytest.mark.parametrize("codec", [name for name in CODECS if "(" in name])
@pytest.mark.usefixtures("instruction_set")
def test_lookups_of_any_number_of_rows_are_those_of_the_definition(codec: str) -> None:
    random = np.random.default_rng(5)
    arrays = random_arrays(codec, 700, 24, random)
    stored = open_rows(row_codec(codec), arrays, TableShape(700, 24))
    expected = decoded(codec, arrays, 700, 24).view(np.int32)
    for count in (0, 1, 3, 15, 16, 17, 31, 32, 33, 47, 64, 65, 1500):
        index = random.integers(0, 700, count)
        out = np.full((count, 26), np.nan, np.float32)
        stored.rows(index, out[:, :24])
        np.testing.assert_array_equal(out[:, :24].view(np.int32), expected[index])
        assert np.isnan(out[:, 24:]).all()


def test_other_instruction_sets_are_refused() -> None:
    with pytest.raises(UsageError, match=r"expected one of instruction_sets\(\), received avx9"):
        _core.use_instruction_set("avx9")
    assert _core.instruction_sets()[0] == "baseline"

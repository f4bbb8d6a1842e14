"""Rows in two codecs by popularity."""

from __future__ import annotations

import numpy as np
import pytest

from graphbox.errors import FormatError, UsageError
from graphbox.row_codecs import ArrayRows, TableShape, TieredCodec, open_rows, row_codec
from tests.row_codecs.reference import random_arrays

RANDOM = np.random.default_rng(0)
FLOAT32, INT2 = row_codec("float32"), row_codec("int2_rotated")


@pytest.mark.parametrize("hot_share", [0.0, 0.25, 0.5, 1.0])
def test_the_most_popular_rows_are_hot(hot_share: float) -> None:
    rows = RANDOM.standard_normal((1003, 20), np.float32)
    popularity = RANDOM.integers(0, 40, 1003)
    codec = TieredCodec(FLOAT32, INT2, popularity, hot_share)
    arrays = codec.encode(ArrayRows(rows))
    stored = open_rows(row_codec(codec.name), arrays, TableShape(1003, 20))
    found = stored.block(0, 1003)
    is_hot = (found == rows).all(axis=1)
    hot = round(hot_share * 1003)
    assert is_hot.sum() == hot
    assert popularity[is_hot].min(initial=99) >= popularity[~is_hot].max(initial=-1)
    assert sum(array.nbytes for array in arrays.values()) == codec.bytes_of(1003, 20)
    assert stored.nbytes >= codec.bytes_of(1003, 20)
    first = np.flatnonzero(is_hot & (popularity == popularity[is_hot].min(initial=99)))
    equal = np.flatnonzero(popularity == popularity[is_hot].min(initial=99))
    np.testing.assert_array_equal(first, equal[: len(first)])


def test_popularity_of_other_rows_is_refused() -> None:
    rows = ArrayRows(np.ones((4, 3), np.float32))
    with pytest.raises(UsageError, match="the popularity of each of 4 rows, received none"):
        TieredCodec(FLOAT32, INT2).encode(rows)
    with pytest.raises(UsageError, match=r"received \[3\]"):
        TieredCodec(FLOAT32, INT2, np.ones(3)).encode(rows)
    with pytest.raises(UsageError, match=r"share of hot rows in \[0, 1\], received 1.5"):
        TieredCodec(FLOAT32, INT2, hot_share=1.5)
    with pytest.raises(UsageError, match="not tiered themselves"):
        TieredCodec(FLOAT32, TieredCodec(FLOAT32, INT2))


def test_bitmaps_that_do_not_fit_the_tiers_are_refused() -> None:
    name = "tiered(float32,int2_rotated)"
    arrays = random_arrays(name, 21, 9, RANDOM)
    for byte, change in ((0, 1), (2, 0b1000_0000), (2, 0b0010_0000)):
        bitmap = arrays["is_hot.npy"].copy()
        bitmap[byte] ^= change
        with pytest.raises(FormatError, match="expected"):
            open_rows(row_codec(name), {**arrays, "is_hot.npy": bitmap}, TableShape(21, 9))

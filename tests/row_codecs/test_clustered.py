"""Rows as centroids and what is left."""

from __future__ import annotations

import numpy as np
import pytest

from graphbox.errors import DataError, FormatError, UsageError
from graphbox.row_codecs import ArrayRows, ClusteredCodec, TableShape, open_rows, row_codec
from graphbox.row_codecs import clustered as clustered_module
from tests.row_codecs.reference import random_arrays

RANDOM = np.random.default_rng(0)
INT3 = row_codec("int3_rotated")


def _in_clusters(rows: int, clusters: int, dim: int) -> np.ndarray:
    centers = 5 * RANDOM.standard_normal((clusters, dim), np.float32)
    return centers[RANDOM.integers(0, clusters, rows)] + RANDOM.standard_normal((rows, dim), np.float32)


def _error(codec: object, rows: np.ndarray) -> float:
    arrays = codec.encode(ArrayRows(rows))  # type: ignore[attr-defined]
    found = open_rows(codec, arrays, TableShape(*rows.shape)).block(0, len(rows))  # type: ignore[arg-type]
    return float(np.linalg.norm(found - rows) / np.linalg.norm(rows))


def test_rows_in_clusters_have_less_than_half_the_error() -> None:
    rows = _in_clusters(6000, 40, 32)
    assert _error(ClusteredCodec(INT3), rows) < 0.5 * _error(INT3, rows)


def test_the_nearest_centroid_is_that_of_all_distances() -> None:
    rows, centroids = _in_clusters(5000, 9, 7), _in_clusters(60, 9, 7)
    expected = np.square(rows[:, None] - centroids).sum(axis=2).argmin(axis=1)
    assert (clustered_module._nearest(rows, centroids) == expected).mean() > 0.999


def test_a_sample_is_spread_over_all_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = np.arange(1000, dtype=np.float32)[:, None]
    monkeypatch.setattr(clustered_module, "_MOST_TRAINED", 300)
    np.testing.assert_array_equal(clustered_module._sample(ArrayRows(rows)), rows[::4])


def test_the_same_rows_have_the_same_arrays() -> None:
    rows = _in_clusters(3000, 5, 16)
    first, second = (ClusteredCodec(INT3).encode(ArrayRows(rows)) for _ in range(2))
    for name, array in first.items():
        np.testing.assert_array_equal(array, second[name])


def test_small_and_empty_tables_have_few_centroids() -> None:
    for count, expected in ((0, 0), (1, 1), (40, 2)):
        arrays = ClusteredCodec(INT3).encode(ArrayRows(np.ones((count, 8), np.float32)))
        assert arrays["centroids.npy"].shape == (expected, 8)
        found = open_rows(ClusteredCodec(INT3), arrays, TableShape(count, 8)).block(0, count)
        np.testing.assert_allclose(found, np.ones((count, 8)), rtol=1e-3)


def test_clusters_in_clusters_and_large_values_are_refused() -> None:
    with pytest.raises(UsageError, match="without clusters of its own"):
        ClusteredCodec(ClusteredCodec(INT3))
    with pytest.raises(DataError, match="expected elements within 65504"):
        ClusteredCodec(INT3).encode(ArrayRows(np.full((3, 4), 1e6, np.float32)))


def test_damaged_clusters_and_centroids_are_refused() -> None:
    name = "clustered(int3_rotated)"
    arrays = random_arrays(name, 21, 9, RANDOM)
    beyond = arrays["clusters.npy"].copy()
    beyond[4] = 5
    endless = arrays["centroids.npy"].copy()
    endless[1, 1] = np.inf
    for change, message in (
        ({"clusters.npy": beyond}, "expected clusters below 5, the number of centroids, received 5"),
        ({"centroids.npy": np.zeros((257, 9), np.float16)}, "expected at most 256 centroids"),
        ({"centroids.npy": endless}, "expected finite centroids"),
    ):
        with pytest.raises(FormatError, match=message):
            open_rows(row_codec(name), {**arrays, **change}, TableShape(21, 9))

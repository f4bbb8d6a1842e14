"""Latency histogram: percentiles beside NumPy's exact ones."""

from __future__ import annotations

import math
import pickle

import numpy as np
import pytest

from graphbox.server.load import LatencyHistogram
from graphbox.server.load.histogram import PERCENTILES

RELATIVE_ERROR = 1 / 128


def histogram_of(durations: list[int]) -> LatencyHistogram:
    found = LatencyHistogram()
    for each in durations:
        found.record(each)
    return found


@pytest.mark.parametrize("scale", [50, 10_000, 2_000_000, 5_000_000_000])
def test_percentiles_are_at_most_one_bucket_too_high(scale: int) -> None:
    durations = np.random.default_rng(scale).exponential(scale, 100_000).astype(np.int64)
    found = histogram_of(durations.tolist())
    assert found.count == len(durations)
    assert found.max_ms == durations.max() / 1e6
    assert found.mean_ms == pytest.approx(durations.mean() / 1e6)
    for percent in PERCENTILES.values():
        exact = np.sort(durations)[math.ceil(len(durations) * percent / 100) - 1] / 1e6
        assert exact <= found.percentile_ms(percent) <= exact * (1 + RELATIVE_ERROR) + 1e-9


def test_durations_below_256_ns_have_a_bucket_each() -> None:
    buckets = histogram_of(list(range(300))).buckets()
    assert [bound for bound, _ in buckets] == [each / 1e6 for each in (*range(256), *range(257, 300, 2))]


def test_buckets_hold_every_duration() -> None:
    edges = sorted({each for power in range(42) for each in (2**power - 1, 2**power, 2**power + 1)})
    buckets = histogram_of(edges).buckets()
    assert sum(count for _, count in buckets) == len(edges)
    bounds = np.array([bound for bound, _ in buckets]) * 1e6
    assert (np.diff(bounds) > 0).all()
    assert bounds[-1] >= edges[-1]


def test_durations_beyond_the_range_share_the_last_bucket() -> None:
    found = histogram_of([2**50, 2**60, -5])
    assert found.count == 3
    assert found.max_ms == 2**60 / 1e6
    assert found.percentile_ms(1) == 0


def test_an_empty_histogram() -> None:
    found = LatencyHistogram()
    assert found.count == found.max_ms == found.mean_ms == found.percentile_ms(99) == 0
    assert found.buckets() == []


def test_added_histograms_count_as_one() -> None:
    durations = list(range(1, 70_000, 7))
    first, second = histogram_of(durations[::2]), histogram_of(durations[1::2])
    first.add(pickle.loads(pickle.dumps(second)))  # noqa: S301 - as processes send it
    whole = histogram_of(durations)
    assert first.buckets() == whole.buckets()
    assert first.summary() == whole.summary()

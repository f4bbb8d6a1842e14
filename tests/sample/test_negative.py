"""Negative sampling against the distribution it promises."""

from typing import Any

import numpy as np
import pytest
from scipy import stats

from graphbox.errors import DataError, UsageError
from graphbox.sample import NegativeSampler


@pytest.mark.parametrize("alpha", [0.0, 0.5, 0.75, 1.0, 2.0])
def test_draws_by_weight(alpha: float) -> None:
    degree = np.random.default_rng(0).integers(1, 50, 200)
    drawn = NegativeSampler(degree, alpha).sample(200_000)
    weight = degree.astype(float) ** alpha
    expected = weight / weight.sum() * len(drawn)
    assert 1e-4 < stats.chisquare(np.bincount(drawn, minlength=200), expected).pvalue < 1 - 1e-4


def test_items_of_weight_zero() -> None:
    sampler = NegativeSampler([0, 5, 0, 1], 0.75)
    assert set(sampler.sample(10_000).tolist()) == {1, 3}
    assert set(NegativeSampler([0, 5, 0, 1], alpha=0).sample(1000).tolist()) == {0, 1, 2, 3}
    assert NegativeSampler([7]).sample(3).tolist() == [0, 0, 0]


def test_same_for_any_number_of_threads() -> None:
    sampler = NegativeSampler(np.arange(1, 1000), seed=3)
    one = sampler.sample(100_001, num_threads=1)
    np.testing.assert_array_equal(one, sampler.sample(100_001, num_threads=2))
    np.testing.assert_array_equal(one[:1000], sampler.sample(1000))
    assert (one != sampler.sample(100_001, epoch=1)).mean() > 0.9
    assert (one != sampler.sample(100_001, batch=1)).mean() > 0.9


def test_neighbouring_draws_are_independent() -> None:
    drawn = NegativeSampler([1, 1, 1, 1]).sample((50_000, 2))
    codes = drawn[:, 0] * 4 + drawn[:, 1]
    assert stats.chisquare(np.bincount(codes, minlength=16)).pvalue > 1e-4


def test_shapes_and_faces() -> None:
    sampler = NegativeSampler([1, 2, 3])
    assert len(sampler) == 3
    assert sampler.nbytes == 3 * (8 + 8)  # table and weights
    assert NegativeSampler.uniform(3).nbytes == 0
    assert sampler.sample((4, 5)).shape == (4, 5)
    assert sampler.sample(0).shape == (0,)


@pytest.mark.parametrize(
    ("weights", "alpha", "error", "message"),
    [
        ([], 1.0, UsageError, "1 to 2\\^32 - 1 entries, received 0"),
        ([[1]], 1.0, UsageError, "one dimension"),
        (["a"], 1.0, UsageError, "expected numbers"),
        ([1], -1.0, UsageError, "alpha"),
        ([1], float("nan"), UsageError, "alpha"),
        ([0, 0], 1.0, DataError, "sum above 0"),
        ([1, -2], 1.0, DataError, "-2.* at position 1"),
        ([1, -2], 0.5, DataError, "nan at position 1"),
        ([1, float("inf")], 1.0, DataError, "inf at position 1"),
        ([1e308, 1e308], 1.0, DataError, "finite sum"),
    ],
)
def test_wrong_arguments(weights: Any, alpha: float, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        NegativeSampler(weights, alpha)

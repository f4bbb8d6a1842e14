"""The order in which many rows are added: that of pushes, bags and sums of torch, bit for bit."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
import torch

from graphbox import EmbeddingTable
from graphbox.table import TableEmbeddingBag
from graphbox.table.key_bags import KeyBags
from graphbox.table.lookup import Lookup
from graphbox.table.ordered_sum import sum_of_equal, sums_of_ranges
from tests.table.summed_rows import PART, added_in_parts, summed

COUNTS = np.array([1, 0, PART - 1, PART, PART + 1, 11 * PART + 5, 2, 2 * PART])
DIM = 6


def many(seed: int, count: int, dim: int = DIM) -> np.ndarray:
    """Return rows whose sum is another one in each order."""
    rng = np.random.default_rng(seed)
    values = rng.normal(0, 1, (count, dim)) * 10.0 ** rng.integers(-6, 6, (count, dim))
    return values.astype(np.float32)


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("is_mean", [False, True])
def test_pushes(threads: int, is_mean: bool) -> None:
    """Of enough gradients for several threads, some rows with very many."""
    rng = np.random.default_rng(1)
    keys = rng.permutation(np.concatenate([np.repeat(np.arange(len(COUNTS)), COUNTS), np.arange(100, 9000)]))
    gradients = many(2, len(keys))
    shows = rng.random(len(keys)).astype(np.float32)
    table = EmbeddingTable(DIM, "sgd", lr=1.0, init_scale=0.0, mean_gradient=is_mean, threads=threads)
    table.push(keys, gradients, shows=shows if is_mean else None)
    for key in (0, *range(2, len(COUNTS))):
        own = np.flatnonzero(keys == key)
        expected = added_in_parts(gradients[own])
        if is_mean:
            expected *= np.float32(1) / added_in_parts(shows[own, None])
        np.testing.assert_array_equal(table.pull([key])[0], -expected)


def test_gradients_that_are_skipped() -> None:
    """Gradients that are not finite count for nothing: the parts are those of the others."""
    keys = np.zeros(3 * PART, np.int64)
    gradients = many(3, len(keys))
    gradients[[0, 5, PART, 2 * PART + 1], 3] = np.nan, np.inf, -np.inf, np.nan
    table = EmbeddingTable(DIM, "sgd", lr=1.0, init_scale=0.0, nonfinite="skip")
    table.push(keys, gradients)
    np.testing.assert_array_equal(
        table.pull([0])[0], -added_in_parts(gradients[np.isfinite(gradients).all(1)])
    )


@pytest.mark.parametrize("is_weighted", [False, True])
def test_bags(is_weighted: bool) -> None:
    keys = np.random.default_rng(4).integers(0, 5000, COUNTS.sum())
    offsets = np.concatenate([[0], np.cumsum(COUNTS)])
    weights = many(5, len(keys), 1)[:, 0] if is_weighted else None
    divisors = np.arange(1, len(COUNTS) + 1, dtype=np.float32)
    for dtype in ("float32", "float16"):
        table = EmbeddingTable(DIM, "sgd", dtype=dtype, threads=2)
        rows = table.pull(keys) if weights is None else weights[:, None] * table.pull(keys)
        bags = KeyBags(
            torch.from_numpy(offsets),
            *(None if each is None else torch.from_numpy(each) for each in (weights, divisors)),
        )
        values = Lookup(table, torch.from_numpy(keys), bags).pull().values
        for bag, (begin, end) in enumerate(pairwise(offsets)):
            expected = added_in_parts(rows[begin:end]) / divisors[bag] if end > begin else np.zeros(DIM)
            np.testing.assert_array_equal(values[bag], expected)


def test_bags_whose_weights_learn_have_the_same_sums() -> None:
    keys = torch.from_numpy(np.random.default_rng(6).integers(0, 50, COUNTS.sum()))
    offsets = torch.from_numpy(np.cumsum(COUNTS) - COUNTS)
    weights = torch.from_numpy(many(7, len(keys), 1)[:, 0])
    module = TableEmbeddingBag(EmbeddingTable(DIM, "sgd"), "sum")
    sums = module(keys, offsets, per_sample_weights=weights)
    of_rows = module.table.pull(keys).sum(1)
    learning = weights.clone().requires_grad_()
    again = module(keys, offsets, per_sample_weights=learning)
    assert torch.equal(sums, again)
    again.sum().backward()
    torch.testing.assert_close(learning.grad, of_rows)


def test_sums_of_equal_places() -> None:
    rng = np.random.default_rng(8)
    places = rng.permutation(np.repeat(np.arange(len(COUNTS)), COUNTS))
    values = many(9, len(places))
    sums = sum_of_equal(torch.from_numpy(places), torch.from_numpy(values), len(COUNTS) + 1).numpy()
    distinct, expected, _ = summed(places, values)
    np.testing.assert_array_equal(sums[distinct], expected)
    assert not sums[[1, len(COUNTS)]].any()
    nothing = torch.empty(0, dtype=torch.int64)
    assert sum_of_equal(nothing, torch.empty(0, 3), 2).tolist() == [[0] * 3] * 2
    assert sum_of_equal(nothing, torch.empty(0, 3), 0).shape == (0, 3)
    assert sums_of_ranges(torch.empty(0, 3), nothing).shape == (0, 3)

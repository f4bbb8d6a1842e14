"""In-batch negatives against plain loops, and the correction against counting."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from graphbox.errors import DataError, UsageError
from graphbox.sample import NegativeSampler, in_batch_negatives
from tests.sample.test_live import ALONE, alone, live_table
from tests.sample.test_negative_queries import rows_of


def collisions(items: Any, candidates: Any, queries: Any, known: Any) -> np.ndarray:
    """Return the reference, pair by pair; ``known`` gives the known positives of a query."""
    found = np.zeros((len(items), len(candidates)), bool)
    for row in range(len(items)):
        positives = {items[row]}
        if queries is not None:
            positives |= {item for item, query in zip(items, queries, strict=True) if query == queries[row]}
            positives |= set(known(queries[row]))
        for column, candidate in enumerate(candidates):
            found[row, column] = column != row and candidate in positives
    return found


@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 1000),
    pairs=st.sampled_from([0, 1, 5, 60]),
    extra=st.sampled_from([0, 1, 300]),
    asked=st.booleans(),
    known=st.booleans(),
    base=st.sampled_from([0, 400, 3000]),
)
def test_collisions(seed: int, pairs: int, extra: int, asked: bool, known: bool, base: int) -> None:
    graph = alone(live_table(seed, base=base))
    csr = graph.csr()
    rng = np.random.default_rng(seed)
    items, queries = rng.integers(0, graph.num_nodes(), (2, pairs))
    known = known and asked
    negatives = in_batch_negatives(
        items,
        queries if asked else None,
        known_positives=graph.lists(ALONE, "out") if known else None,
        extra=NegativeSampler.uniform(graph.num_nodes(), seed) if extra else None,
        num_extra=extra,
    )
    np.testing.assert_array_equal(negatives.candidates[:pairs], items)
    assert len(negatives.candidates) == pairs + extra
    expected = collisions(
        items.tolist(),
        negatives.candidates.tolist(),
        queries.tolist() if asked else None,
        lambda query: csr.indices[csr.indptr[query] : csr.indptr[query + 1]].tolist() if known else [],
    )
    np.testing.assert_array_equal(negatives.collisions, expected)


def test_any_number_of_threads() -> None:
    rng = np.random.default_rng(0)
    items, queries = rng.integers(0, 200, (2, 500))
    one, two = (in_batch_negatives(items, queries, threads=threads).collisions for threads in (1, 3))
    np.testing.assert_array_equal(one, two)


def test_the_correction_counts_how_often_a_candidate_is_expected() -> None:
    """Batches of edges drawn alike, with uniform items beside: counted over many batches."""
    rng = np.random.default_rng(3)
    edges = rng.zipf(1.5, 400) % 20
    degree = np.bincount(edges, minlength=20)
    popularity, uniform = NegativeSampler(degree, 1), NegativeSampler.uniform(20)
    counts = np.zeros(20)
    for batch in range(3000):
        items = edges[rng.integers(0, len(edges), 16)]
        negatives = in_batch_negatives(items, popularity=popularity, extra=uniform, num_extra=8, batch=batch)
        counts += np.bincount(negatives.candidates, minlength=20)
    expected = np.full(20, np.nan)
    expected[negatives.candidates] = np.exp(negatives.log_expected_count)
    seen = ~np.isnan(expected)
    np.testing.assert_allclose(counts[seen] / 3000, expected[seen], rtol=0.05)
    assert negatives.log_expected_count.dtype == np.float32


def test_the_corrected_gradient_is_that_of_the_softmax_over_all_items() -> None:
    """The mean over batches of softmax minus positives."""
    rng = np.random.default_rng(4)
    edges = np.repeat(np.arange(8), [64, 32, 16, 8, 4, 2, 1, 1])
    share = np.bincount(edges) / len(edges)
    popularity = NegativeSampler(np.bincount(edges), 1)
    score = np.linspace(-1, 1, 8)
    gradient = np.zeros(8)
    for _ in range(100):
        negatives = in_batch_negatives(edges[rng.integers(0, 128, 512)], popularity=popularity)
        weight = np.exp(score[negatives.candidates] - negatives.log_expected_count)
        gradient += np.bincount(negatives.candidates, weight / weight.sum(), minlength=8) / 100
    gradient -= share
    np.testing.assert_allclose(gradient, np.exp(score) / np.exp(score).sum() - share, atol=0.02)


def test_faces() -> None:
    items, queries = [5, 5, 7], [0, 1, 2]
    negatives = in_batch_negatives(
        torch.tensor(items), torch.tensor(queries), known_positives=rows_of([[7], [], [5]])
    )
    assert negatives.candidates.tolist() == items
    assert negatives.collisions.dtype == torch.bool
    assert negatives.collisions.tolist() == [[False, True, True], [True, False, False], [True, True, False]]
    assert negatives.log_expected_count is None


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"queries": [1]}, UsageError, "the query of each of 2 items, received 1"),
        ({"known_positives": rows_of([[1]])}, UsageError, "the query of each of 2 items, received 0"),
        ({"queries": [0, 9], "known_positives": rows_of([[1]])}, UsageError, "received 9 at position 1"),
        ({"num_extra": 3}, UsageError, "received none and 3"),
        ({"extra": NegativeSampler([1])}, UsageError, "received one and 0"),
        ({"popularity": NegativeSampler([1, 1])}, UsageError, r"\[0, 2\), received 3"),
        ({"popularity": NegativeSampler([1, 1, 1, 0])}, DataError, "item 3 at position 1 is in the batch"),
    ],
)
def test_wrong_arguments(arguments: dict[str, Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        in_batch_negatives([0, 3], **arguments)

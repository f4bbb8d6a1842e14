"""The probability with which candidates are in a batch: beside every batch there can be, and every draw."""

from __future__ import annotations

import math
from fractions import Fraction
from itertools import combinations, product

import numpy as np
import pytest
import torch

from graphbox.graph.live_rows import LiveRows
from graphbox.train.recommendation.candidates import (
    Candidates,
    columns_among,
    log_probability_in_batch,
    no_negatives,
)
from tests.train.pretended_gpu import pretended_gpu

NONE = np.empty(0, np.int64)


@pytest.mark.parametrize("exponent", [0.0, 0.5, 1.0])
def test_removed_nodes_are_never_drawn(exponent: float) -> None:
    alone = Candidates(np.array([2, 5, 1]), LiveRows(3, NONE), 4, exponent, seed=0)
    among = Candidates(np.array([0, 2, 5, 0, 1]), LiveRows(5, np.array([0, 3])), 4, exponent, seed=0)
    live = np.array([1, 2, 4])
    for batch in range(50):
        np.testing.assert_array_equal(among.draw(0, batch, 1), live[alone.draw(0, batch, 1)])
    for name in ("log_probability", "log_noise"):
        found = getattr(among, name).numpy()
        np.testing.assert_array_equal(found[live], getattr(alone, name).numpy())
        assert (found[[0, 3]] == -np.inf).all()


@pytest.mark.parametrize("exponent", [0.0, 0.5, 1.0])
def test_a_candidate_is_drawn_with_its_probability(exponent: float) -> None:
    degree, count = np.array([0, 1, 4, 9]), 3
    candidates = Candidates(degree, LiveRows(4, NONE), count, exponent, seed=0)
    share = (degree + 0.1) ** exponent
    share /= share.sum()
    among = np.zeros(4)
    for draws in product(range(4), repeat=count):
        among[list(set(draws))] += share[list(draws)].prod()
    np.testing.assert_allclose(candidates.log_probability.exp().numpy(), among, rtol=1e-5)
    np.testing.assert_allclose(candidates.log_noise.exp().numpy(), share, rtol=1e-5)
    found = np.mean(
        [np.isin(np.arange(4), candidates.draw(0, batch, 1)) for batch in range(4000)], axis=0, dtype=float
    )
    np.testing.assert_allclose(found, among, atol=0.03)


def test_one_candidate_alone_is_always_drawn() -> None:
    alone = Candidates(np.array([3]), LiveRows(1, NONE), 5, 0.75, seed=0)
    assert alone.draw(0, 0, 1).tolist() == [0]
    assert alone.log_probability.item() == pytest.approx(0.0, abs=1e-6)


@pytest.mark.parametrize(("others", "drawn"), [(0, 0), (1, 0), (1, 1), (5, 2), (6, 5), (6, 6)])
def test_positives_of_other_queries_count(others: int, drawn: int) -> None:
    queries = np.arange(others + 1)  # the candidate of column c is a positive of the first c other queries
    by_draw = np.linspace(0.05, 0.9, others + 1)
    batches = list(combinations(range(others), drawn))
    met = np.array([[any(query < count for query in batch) for count in queries] for batch in batches])
    expected = 1.0 - (1.0 - by_draw) * (1.0 - met.mean(axis=0))
    found = log_probability_in_batch(
        torch.from_numpy(np.log(by_draw).astype(np.float32)), queries, others, drawn
    )
    np.testing.assert_allclose(found.exp().numpy(), expected, rtol=1e-5)
    assert found.dtype == torch.float32


@pytest.mark.parametrize("others", [10**6, 10**9, 4 * 10**9])
def test_positives_among_very_many_queries_keep_their_digits(others: int) -> None:
    queries, drawn = np.array([1, 2, 100, 10_000]), 256
    found = log_probability_in_batch(torch.full((4,), -torch.inf), queries, others, drawn)
    expected = [
        1 - math.prod(1 - Fraction(drawn, others - number) for number in range(min(count, 300)))
        for count in queries[:3].tolist()
    ]
    np.testing.assert_allclose(found[:3].numpy(), np.log([float(each) for each in expected]), rtol=1e-5)
    assert found[3] > found[2]


def test_what_is_always_drawn_stays_so() -> None:
    found = log_probability_in_batch(torch.zeros(2), np.array([0, 2]), 4, 2)
    np.testing.assert_allclose(found.numpy(), 0.0, atol=1e-6)


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("with_groups", [False, True])
def test_no_negatives_are_the_answers_of_a_query_and_its_group(seed: int, with_groups: bool) -> None:
    generator, nodes = np.random.default_rng(seed), 30
    for queries in (0, 1, 7):  # one after another: nothing is left of the batch before
        candidates = np.unique(generator.integers(0, nodes, [0, 1, 12][seed % 3]))
        row = np.sort(generator.integers(0, max(queries, 1), 20 if queries else 0))
        answers = generator.integers(0, nodes, len(row))
        of_query, of_node = generator.integers(0, 4, queries), generator.integers(0, 4, nodes)
        expected = np.zeros((queries, len(candidates)), bool)
        for query, column in product(range(queries), range(len(candidates))):
            is_answer = candidates[column] in answers[row == query]
            expected[query, column] = is_answer or (
                with_groups and of_query[query] == of_node[candidates[column]]
            )
        cells = columns_among(candidates, row, answers)
        groups = (of_query, of_node[candidates]) if with_groups else None
        found = no_negatives(expected.shape, cells, torch.device("cpu"), groups)
        np.testing.assert_array_equal(found.numpy(), expected)
        with pretended_gpu() as gpu:
            there = no_negatives(expected.shape, cells, gpu, groups)
            np.testing.assert_array_equal(there.cpu().numpy(), expected)

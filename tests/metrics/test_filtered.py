"""Filtered ranking against a loop over candidates."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from numpy.typing import NDArray

from graphbox.errors import UsageError
from graphbox.metrics import FilteredQueries, filtered_ranks, rank_report


def problem(seed: int) -> tuple[NDArray[np.float32], FilteredQueries]:
    random = np.random.default_rng(seed)
    scores = random.integers(0, 9, (31, 40)).astype(np.float32)
    known = [np.unique(random.integers(0, 40, random.integers(0, 12))) for _ in scores]
    indptr = np.cumsum([0, *map(len, known)])
    queries = FilteredQueries(random.integers(0, 40, 31), indptr, np.concatenate(known))
    return scores, queries


def rank_by_loop(scores: NDArray[np.float32], target: int, known: set[int]) -> float:
    others = [score for node, score in enumerate(scores) if node == target or node not in known]
    above = sum(score > scores[target] for score in others)
    ties = sum(score == scores[target] for score in others)
    return float(above + (ties + 1) / 2)


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize(("block_rows", "threads"), [(1, 1), (7, 1), (512, 1), (8, 4)])
def test_equals_the_definition(seed: int, block_rows: int, threads: int) -> None:
    scores, queries = problem(seed)
    ranks = np.array(
        [
            rank_by_loop(
                scores[i],
                int(queries.targets[i]),
                set(queries.known[queries.known_indptr[i] : queries.known_indptr[i + 1]].tolist()),
            )
            for i in range(len(scores))
        ]
    )
    found = filtered_ranks(
        lambda numbers: scores[numbers], queries, 40, block_rows=block_rows, threads=threads
    )
    np.testing.assert_array_equal(found, ranks)
    report = rank_report(found)
    assert report["mrr"] == pytest.approx(np.mean(1 / ranks), abs=1e-12)
    assert report["mean_rank"] == pytest.approx(ranks.mean(), abs=1e-12)
    for k in (1, 3, 10):
        assert report[f"hits@{k}"] == pytest.approx(np.mean(ranks <= k), abs=1e-12)
    assert report["queries"] == len(scores)


def test_excluded_candidates_are_not_there() -> None:
    scores, queries = problem(0)
    more = np.insert(scores, [0, 17, 40], 100.0, axis=1)
    excluded, left = np.array([0, 18, 42]), np.delete(np.arange(43), [0, 18, 42])
    among = replace(queries, targets=left[queries.targets], known=left[queries.known], excluded=excluded)
    expected = filtered_ranks(lambda numbers: scores[numbers], queries, 40)
    np.testing.assert_array_equal(filtered_ranks(lambda numbers: more[numbers], among, 43), expected)


def test_scores_that_are_all_alike_gain_nothing() -> None:
    queries = FilteredQueries(np.zeros(5, np.int64), np.zeros(6, np.int64), np.zeros(0, np.int64))
    report = rank_report(
        filtered_ranks(lambda numbers: np.zeros((len(numbers), 101), np.float32), queries, 101)
    )
    assert report["mean_rank"] == 51
    assert report["hits@10"] == 0


def test_what_is_scored_together_depends_on_no_number_of_threads() -> None:
    count = 270
    queries = FilteredQueries(np.zeros(count, np.int64), np.zeros(count + 1, np.int64), np.zeros(0, np.int64))

    def blocks(threads: int, candidates: int) -> list[list[int]]:
        found: list[list[int]] = []

        def score(numbers: NDArray[np.int64]) -> NDArray[np.float32]:
            found.append(numbers.tolist())
            return np.zeros((len(numbers), candidates), np.float32)

        filtered_ranks(score, queries, candidates, threads=threads)
        return sorted(found)

    for candidates in (3, 300_000):
        assert blocks(1, candidates) == blocks(3, candidates) == blocks(8, candidates)


def test_mistakes() -> None:
    queries = FilteredQueries(np.array([0, 7]), np.zeros(3, np.int64), np.zeros(0, np.int64))
    with pytest.raises(UsageError, match="from 0 to 6, received 7"):
        filtered_ranks(lambda numbers: np.zeros((len(numbers), 7), np.float32), queries, 7)
    with pytest.raises(UsageError, match=r"shape \(2, 8\)"):
        filtered_ranks(lambda numbers: np.zeros((1, 8), np.float32), queries, 8, threads=1)
    with pytest.raises(UsageError, match="NaN"):
        filtered_ranks(lambda numbers: np.full((len(numbers), 8), np.nan, np.float32), queries, 8)
    empty = FilteredQueries(np.zeros(0, np.int64), np.zeros(1, np.int64), np.zeros(0, np.int64))
    with pytest.raises(UsageError, match="at least one link"):
        rank_report(filtered_ranks(lambda numbers: np.zeros((0, 8), np.float32), empty, 8))

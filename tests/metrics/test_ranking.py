"""Ranking metrics against naive loops that follow their definitions."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from graphbox.errors import UsageError
from graphbox.metrics import (
    POPULARITY_BUCKETS,
    PopularityBucket,
    RankingQueries,
    evaluate_ranking,
    top_k,
)

Scores = NDArray[np.float32]


def problem(
    seed: int, queries: int = 23, candidates: int = 40, levels: int = 12
) -> tuple[Scores, list[set[int]], list[set[int]]]:
    """Return scores with many ties, positives and masked candidates of each query."""
    generator = np.random.default_rng(seed)
    scores = generator.integers(0, levels, (queries, candidates)).astype(np.float32)
    positives, masked = [], []
    for _ in range(queries):
        order = generator.permutation(candidates)
        count = int(generator.integers(1, 6))
        positives.append(set(order[:count].tolist()))
        masked.append(set(order[count : count + int(generator.integers(0, 10))].tolist()))
    return scores, positives, masked


def compressed(sets: list[set[int]]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    indptr = np.cumsum([0, *map(len, sets)])
    return indptr, np.array([value for each in sets for value in sorted(each)], dtype=np.int64)


def as_queries(positives: list[set[int]], masked: list[set[int]]) -> RankingQueries:
    return RankingQueries(np.arange(len(positives)), *compressed(positives), *compressed(masked))


def block_of(scores: Scores) -> Callable[[NDArray[np.int64]], Scores]:
    return lambda queries: scores[queries]


def ranked_by_loop(scores: Scores, query: int, masked: set[int]) -> list[int]:
    candidates = [node for node in range(scores.shape[1]) if node not in masked]
    return sorted(candidates, key=lambda node: (-scores[query, node], node))


def report_by_loop(
    scores: Scores, positives: list[set[int]], masked: list[set[int]], in_degree: NDArray[np.int64], k: int
) -> dict[str, float]:
    recall, ndcg, hit, reciprocal, popularity = [], [], [], [], []
    shown: set[int] = set()
    found: dict[str, list[bool]] = {bucket.name: [] for bucket in POPULARITY_BUCKETS}
    for query, answers in enumerate(positives):
        ranked = ranked_by_loop(scores, query, masked[query])
        first = ranked[:k]
        shown.update(first)
        popularity.append(float(np.mean(in_degree[first])) if first else 0.0)
        hit.append(any(node in answers for node in first))
        recall.append(sum(node in answers for node in first) / len(answers))
        gain = sum(1 / math.log2(place + 2) for place, node in enumerate(first) if node in answers)
        ideal = sum(1 / math.log2(place + 2) for place in range(min(k, len(answers))))
        ndcg.append(gain / ideal)
        best = max(scores[query, node] for node in answers)
        above = sum(scores[query, node] > best for node in ranked)
        ties = sum(scores[query, node] == best for node in ranked)
        reciprocal.append(1 / (above + (ties + 1) / 2))
        for node in answers:
            bucket = next(b for b in POPULARITY_BUCKETS if b.holds(in_degree[[node]])[0])
            found[bucket.name].append(node in first)
    report: dict[str, float] = {f"recall@{k}": float(np.mean(recall)), f"ndcg@{k}": float(np.mean(ndcg))}
    report[f"hit@{k}"] = float(np.mean(hit))
    report[f"arp@{k}"] = float(np.mean(popularity))
    report |= {f"coverage@{k}": len(shown) / scores.shape[1], "mrr": float(np.mean(reciprocal))}
    for name, hits in found.items():
        if hits:
            report[f"recall@{k}_{name}"] = float(np.mean(hits))
        report[f"positives_{name}"] = len(hits)
    return report


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("block_rows", [1, 7, 512])
def test_equals_the_definition(seed: int, block_rows: int) -> None:
    scores, positives, masked = problem(seed)
    in_degree = np.random.default_rng(seed).choice([0, 1, 4, 5, 50, 51, 900], scores.shape[1])
    report = evaluate_ranking(
        block_of(scores), as_queries(positives, masked), in_degree, k=5, block_rows=block_rows
    )
    expected = report_by_loop(scores, positives, masked, in_degree, 5)
    assert report["queries"] == len(positives)
    assert report["positives"] == sum(map(len, positives))
    assert {name: report[name] for name in expected} == pytest.approx(expected, abs=1e-12)


def test_blocks_do_not_change_a_bit_and_scores_are_not_written_to() -> None:
    scores, positives, masked = problem(3)
    queries, in_degree = as_queries(positives, masked), np.arange(scores.shape[1]) ** 3
    before = scores.copy()
    reports = [
        evaluate_ranking(block_of(scores), queries, in_degree, k=5, block_rows=rows, threads=threads)
        for rows, threads in ((1, 1), (4, 1), (99, 1), (9, 4), (2, 4))
    ]
    assert all(report == reports[0] for report in reports)
    np.testing.assert_array_equal(scores, before)


@pytest.mark.parametrize("threads", [2, 3, 5, 16])
def test_the_number_of_threads_changes_no_bit(threads: int) -> None:
    """Scores whose rounding depends on how many are made at once, as those of a matrix product may."""
    queries, candidates, dim = 700, 300, 61
    generator = np.random.default_rng(11)
    left = generator.normal(size=(queries, dim)).astype(np.float32)
    right = generator.normal(size=(candidates, dim)).astype(np.float32)
    answers = generator.integers(0, candidates, queries)
    asked = as_queries([{int(answer)} for answer in answers], [set() for _ in answers])
    sizes: dict[int, set[int]] = {1: set(), threads: set()}

    def report(number: int) -> dict[str, float | int]:
        def score(rows: NDArray[np.int64]) -> Scores:
            sizes[number].add(len(rows))
            shift = np.float32(len(rows)) * np.float32(1e-3)
            return np.round(left[rows] @ right.T + shift, 2)

        return evaluate_ranking(score, asked, np.zeros(candidates, np.int64), k=5, threads=number)

    assert report(threads) == report(1)
    assert sizes[threads] == sizes[1]


def test_groups_of_positives_are_told_apart() -> None:
    scores, positives, masked = problem(8)
    in_degree = np.zeros(scores.shape[1], np.int64)
    queries = as_queries(positives, masked)
    inside = np.arange(len(queries.positives)) % 3 == 0
    groups = {"third": inside, "none": np.zeros(len(inside), bool)}
    report = evaluate_ranking(block_of(scores), queries, in_degree, k=5, positive_groups=groups)
    row = np.repeat(np.arange(len(positives)), np.diff(queries.positive_indptr))
    found = [
        node in ranked_by_loop(scores, query, masked[query])[:5]
        for query, node in zip(row.tolist(), queries.positives.tolist(), strict=True)
    ]
    assert report["recall@5_third"] == pytest.approx(np.mean(np.array(found)[inside]))
    assert (report["positives_third"], report["positives_none"]) == (inside.sum(), 0)
    assert "recall@5_none" not in report
    with pytest.raises(UsageError, match="a value for each positive"):
        evaluate_ranking(block_of(scores), queries, in_degree, positive_groups={"short": inside[1:]})


def test_several_lengths_are_those_of_one_after_another() -> None:
    scores, positives, masked = problem(5)
    queries, in_degree = as_queries(positives, masked), np.zeros(scores.shape[1], np.int64)
    both = evaluate_ranking(block_of(scores), queries, in_degree, k=[20, 3])
    for k in (3, 20):
        alone = evaluate_ranking(block_of(scores), queries, in_degree, k=k)
        assert {name: both[name] for name in alone} == alone
    for wrong in ([], 0, [3, 0]):
        with pytest.raises(UsageError, match="lengths of ranked lists"):
            evaluate_ranking(block_of(scores), queries, in_degree, k=wrong)


def test_masked_candidates_take_no_place() -> None:
    scores = np.array([[9.0, 8.0, 7.0, 1.0]], np.float32)
    report = evaluate_ranking(block_of(scores), as_queries([{3}], [{0, 1, 2}]), np.zeros(4, np.int64), k=1)
    assert report["recall@1"] == 1.0
    assert report["mrr"] == 1.0


def test_excluded_candidates_are_not_there() -> None:
    random = np.random.default_rng(3)
    scores = random.integers(0, 5, (6, 9)).astype(np.float32)
    excluded, left = np.array([0, 4, 8]), np.array([1, 2, 3, 5, 6, 7])
    positives: list[set[int]] = [{row % 6, (row + 2) % 6} for row in range(6)]
    masked: list[set[int]] = [{(row + 1) % 6} for row in range(6)]
    alone = evaluate_ranking(
        block_of(scores[:, left]), as_queries(positives, masked), np.arange(6), k=[1, 3, 20]
    )
    among = as_queries(*([{int(left[each]) for each in row} for row in rows] for rows in (positives, masked)))
    degree = np.zeros(9, np.int64)
    degree[left] = np.arange(6)
    assert (
        evaluate_ranking(block_of(scores), replace(among, excluded=excluded), degree, k=[1, 3, 20]) == alone
    )


def test_buckets_partition_every_degree() -> None:
    degree = np.arange(200)
    holding = np.stack([bucket.holds(degree) for bucket in POPULARITY_BUCKETS])
    assert holding.sum(axis=0).tolist() == [1] * 200
    assert PopularityBucket("some", 2, 3).holds(np.array([1, 2, 3, 4])).tolist() == [False, True, True, False]


@settings(deadline=None, max_examples=60)
@given(st.integers(0, 10_000), st.integers(1, 9), st.integers(1, 30), st.integers(1, 8))
def test_top_k_is_a_stable_sort(seed: int, rows: int, columns: int, levels: int) -> None:
    scores = np.random.default_rng(seed).integers(0, levels, (rows, columns)).astype(np.float32)
    k = 1 + seed % columns
    expected = np.argsort(-scores, axis=1, kind="stable")[:, :k]
    np.testing.assert_array_equal(top_k(scores, k), expected)


def test_top_k_of_no_rows_and_with_too_large_k() -> None:
    assert top_k(np.empty((0, 4), np.float32), 2).shape == (0, 2)
    with pytest.raises(UsageError, match="k between 1 and 4, received 5"):
        top_k(np.zeros((1, 4), np.float32), 5)


def test_nothing_to_rank_is_said() -> None:
    with pytest.raises(UsageError, match="at least one query"):
        evaluate_ranking(block_of(np.zeros((0, 3), np.float32)), as_queries([], []), np.zeros(3, np.int64))


def test_scores_of_another_shape_and_nan_are_refused() -> None:
    queries, in_degree = as_queries([{0}], [set()]), np.zeros(3, np.int64)
    with pytest.raises(UsageError, match=r"shape \(1, 3\)"):
        evaluate_ranking(block_of(np.zeros((1, 4), np.float32)), queries, in_degree, k=2)
    with pytest.raises(UsageError, match="NaN"):
        evaluate_ranking(block_of(np.array([[0, np.nan, 1]], np.float32)), queries, in_degree, k=2)

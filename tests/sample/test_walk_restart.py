"""Walks that return to their start: personalised PageRank, by power iteration."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest
from scipy import stats

from graphbox.errors import UsageError
from graphbox.graph import Graph
from graphbox.sample import random_walk


@dataclass
class Csr:
    indptr: np.ndarray
    indices: np.ndarray


def graph_with_dead_ends() -> Csr:
    rng = np.random.default_rng(4)
    degree = rng.integers(0, 5, 12)
    degree[[0, 3]] = 4, 0
    indptr = np.concatenate([[0], np.cumsum(degree)]).astype(np.int64)
    return Csr(indptr, rng.integers(0, 12, indptr[-1]).astype(np.int32))


def personalised_page_rank(csr: Csr, start: int, restart: float) -> np.ndarray:
    n = len(csr.indptr) - 1
    transition = np.zeros((n, n))
    for node in range(n):
        row = csr.indices[csr.indptr[node] : csr.indptr[node + 1]]
        np.add.at(transition[node], row, 1 / max(len(row), 1))
        if not len(row):
            transition[node, start] = 1
    rank = np.eye(n)[start]
    while True:
        following: np.ndarray = (1 - restart) * rank @ transition + restart * np.eye(n)[start]
        if np.abs(following - rank).sum() < 1e-14:
            return following
        rank = following


def p_value(csr: Csr, restart: float, seed: int, walkers: int) -> float:
    walks = random_walk(csr, np.zeros(walkers, np.int64), 60, restart_probability=restart, seed=seed)
    rank = personalised_page_rank(csr, 0, restart)
    observed = np.bincount(walks[:, -1], minlength=len(rank))
    assert not observed[rank == 0].any()
    visited = rank > 0
    return float(stats.chisquare(observed[visited], rank[visited] * walkers).pvalue)


@pytest.mark.parametrize("restart", [0.15, 0.5, 0.9])
def test_long_walks_are_distributed_as_personalised_page_rank(restart: float) -> None:
    assert p_value(graph_with_dead_ends(), restart, 1, 100_000) > 1e-5


def test_p_values_are_uniform_over_seeds() -> None:
    p_values = [p_value(graph_with_dead_ends(), 0.3, seed, 5000) for seed in range(50)]
    assert stats.kstest(p_values, "uniform").pvalue > 1e-3


def test_how_often_and_where_to() -> None:
    # On a path nothing else leads back, so that the lengths of the runs show how often walkers restart.
    graph = Graph.from_coo(np.arange(999), np.arange(1, 1000), num_nodes=1000)
    start = np.arange(100, 150).repeat(100)
    walks = random_walk(graph, start, 40, restart_probability=0.25)
    went_back = walks[:, 1:] == start[:, None]
    assert ((walks[:, 1:] == walks[:, :-1] + 1) | went_back).all()
    assert stats.binomtest(int(went_back.sum()), went_back.size, 0.25).pvalue > 1e-5


def test_dead_ends_lead_back_to_the_start() -> None:
    graph = Graph.from_coo([0, 1], [1, 2], num_nodes=4)
    walks = random_walk(graph, [0, 1, 3], 6, restart_probability=1e-12)
    assert walks.tolist() == [[0, 1, 2, 0, 1, 2, 0], [1, 2, 1, 2, 1, 2, 1], [3] * 7]


def test_same_for_any_number_of_threads() -> None:
    csr = graph_with_dead_ends()
    start = np.arange(12).repeat(1000)
    one = random_walk(csr, start, 20, restart_probability=0.2, num_threads=1)
    for threads in (2, 4):
        more = random_walk(csr, start, 20, restart_probability=0.2, num_threads=threads)
        np.testing.assert_array_equal(one, more)


def test_wrong_probabilities() -> None:
    for wrong in (-0.1, 1, 1.5, float("nan"), "0.5", True):
        with pytest.raises(UsageError, match="restart_probability: expected a probability"):
            random_walk(graph_with_dead_ends(), [0], 3, restart_probability=wrong)  # type: ignore[arg-type]

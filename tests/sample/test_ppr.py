"""Neighbours by personalised PageRank: as counting the visits of walks, and near power iteration."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest
import torch
from scipy import stats

from graphbox.errors import DataError, UsageError
from graphbox.graph import Graph
from graphbox.sample import ppr_neighbors, random_walk
from tests.sample.test_live import alone, live_table
from tests.sample.test_walk_metapaths import BY, TOGETHER, WRITES, papers
from tests.sample.test_walk_node2vec import Csr
from tests.sample.test_walk_weighted import with_weights


def directed(num_nodes: int = 14) -> Csr:
    """Return a graph with dead ends and parallel edges; the last node has no edges."""
    rng = np.random.default_rng(4)
    lists = [
        sorted(rng.integers(0, num_nodes - 1, rng.integers(0, 6)).tolist()) for _ in range(num_nodes - 1)
    ]
    return Csr([[1, 1, 2], *lists[1:], []])


def mean_visits(csr: Csr, start: int, restart: float, rounds: int) -> np.ndarray:
    """Return how often one walk visits each node in the mean."""
    n = len(csr.indptr) - 1
    transition, dead = np.zeros((n, n)), np.zeros(n)
    for node in range(n):
        weight = np.array(csr.row_weight(node))
        np.add.at(transition[node], csr.row(node), weight / max(weight.sum(), 1e-300))
        dead[node] = not csr.row(node)
    at, total = np.eye(n)[start], np.zeros(n)
    for number in range(rounds):
        if number:
            stay = (1 - restart) * at
            at = stay + np.eye(n)[start] * (1 - stay.sum())  # restarts, and walks that met a dead end
        at = at @ transition
        total += at
    return total


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("restart", [0.0, 0.15, 0.6])
def test_visits_against_power_iteration(weighted: bool, restart: float) -> None:
    csr = with_weights(directed(), 2)
    walks = 40_000
    found = ppr_neighbors(
        csr if weighted else directed(), [0], 14, num_walks=walks, walk_length=8, restart_probability=restart,
        weighted=weighted,
    )  # fmt: skip
    expected = mean_visits(csr if weighted else directed(), 0, restart, 8)
    expected[0] = 0
    visits = dict(zip(found.neighbors[0].tolist(), found.visits[0].tolist(), strict=True))
    assert set(visits) - {-1} == set(np.flatnonzero(expected).tolist())
    for node in np.flatnonzero(expected).tolist():
        np.testing.assert_allclose(visits[node], expected[node] * walks, rtol=0.05, atol=40)


def counted(walks: np.ndarray, node: int, k: int) -> list[tuple[int, int]]:
    visits = Counter(walks[walks >= 0].tolist())
    visits.pop(node, None)
    order = sorted(visits.items(), key=lambda item: (-item[1], item[0]))[:k]
    return order + [(-1, 0)] * (k - len(order))


@pytest.mark.parametrize("k", [1, 4, 50])
def test_counts_what_walks_visit(k: int) -> None:
    # Without restarts and dead ends the walks are those of random_walk.
    csr = Csr([[1, 2, 3], [0, 2], [0, 3, 3], [1]])
    nodes = np.array([2, 0, 3, 2])
    found = ppr_neighbors(
        csr, nodes, k, num_walks=30, walk_length=5, restart_probability=0, seed=4, epoch=1, batch=2
    )
    walks = random_walk(csr, nodes.repeat(30), 5, seed=4, epoch=1, batch=2)
    for number, node in enumerate(nodes.tolist()):
        its = list(zip(found.neighbors[number].tolist(), found.visits[number].tolist(), strict=True))
        assert its == counted(walks[number * 30 : number * 30 + 30, 1:], node, k)


def test_rounds_along_a_metapath() -> None:
    graph = papers()
    found = ppr_neighbors(graph, np.arange(40), 5, num_walks=200, walk_length=1, metapath=TOGETHER)
    walks = random_walk(graph, np.arange(40).repeat(200), 2, metapath=TOGETHER)
    for node in range(40):
        its = list(zip(found.neighbors[node].tolist(), found.visits[node].tolist(), strict=True))
        assert its == counted(walks[node * 200 : node * 200 + 200, 2:], node, 5)
    far = ppr_neighbors(graph, np.arange(40), 40, walk_length=9, metapath=TOGETHER)
    assert (far.neighbors >= 0).sum() > (found.neighbors >= 0).sum()
    assert not far.visits[39].any()  # an author without papers
    backward = ppr_neighbors(graph, np.arange(90), 5, metapath=(BY, WRITES))
    assert backward.neighbors.max() >= 40


def test_restarts_keep_walks_near() -> None:
    graph = Graph.from_coo(np.arange(999), np.arange(1, 1000), num_nodes=1000)
    visits = ppr_neighbors(graph, [100], 10, num_walks=2000, walk_length=50, restart_probability=0.5)
    assert visits.neighbors.tolist() == [list(range(101, 111))]
    # Node 100 + k is reached where the last k rounds did not restart: half as often as the one before.
    share = visits.visits[0] / (2000 * 50)
    np.testing.assert_allclose(share[:4], [0.5 + 0.01, 0.25, 0.125, 0.0625], atol=0.01)
    line = Graph.from_coo([0, 1], [1, 2], num_nodes=4)
    dead_end = ppr_neighbors(line, [0, 2, 3], 3, num_walks=3, walk_length=6, restart_probability=0)
    assert dead_end.neighbors.tolist() == [[1, 2, -1], [-1, -1, -1], [-1, -1, -1]]
    assert dead_end.visits.tolist() == [
        [6, 6, 0],
        [0, 0, 0],
        [0, 0, 0],
    ]  # at 1, at 2, and again from the start


@pytest.mark.parametrize("num_walks", [3, 2000])
def test_threads_and_changed_graphs(num_walks: int) -> None:
    graph = alone(live_table(4, columns=True))
    nodes = np.arange(graph.num_nodes())
    options: dict[str, Any] = {"num_walks": num_walks, "walk_length": 4, "weighted": True}
    one = ppr_neighbors(graph, nodes, 6, num_threads=1, **options)
    for threads in (2, 4):
        more = ppr_neighbors(graph, nodes, 6, num_threads=threads, **options)
        np.testing.assert_array_equal(one, more)
    merged = ppr_neighbors(graph.csr(), nodes, 6, **options)
    np.testing.assert_array_equal(one, merged)


def test_p_values_are_uniform_over_seeds() -> None:
    csr = directed()
    expected = mean_visits(csr, 0, 0.3, 1)
    p_values = []
    for seed in range(50):
        found = ppr_neighbors(csr, [0], 2, num_walks=4000, walk_length=1, restart_probability=0.3, seed=seed)
        counts = dict(zip(found.neighbors[0].tolist(), found.visits[0].tolist(), strict=True))
        below, at = (f(counts[1], 4000, expected[1]) for f in (stats.binom.cdf, stats.binom.pmf))
        p_values.append(below - at * np.random.default_rng(seed).random())
    assert stats.kstest(p_values, "uniform").pvalue > 1e-3


def test_torch_and_nothing() -> None:
    found = ppr_neighbors(directed(), torch.tensor([0, 13]), 3)
    assert isinstance(found.neighbors, torch.Tensor)
    assert found.neighbors[1].tolist() == [-1, -1, -1]
    assert ppr_neighbors(directed(), [], 3).visits.shape == (0, 3)


def test_errors() -> None:
    for name in ("num_neighbors", "num_walks", "walk_length"):
        for wrong in (0, -1, 1.5, True, 2**24 + 1):
            options: dict[str, Any] = {"num_neighbors": 3, name: wrong}
            with pytest.raises(UsageError, match=f"{name}: expected a number from 1"):
                ppr_neighbors(directed(), [0], **options)
    with pytest.raises(UsageError, match=r"at most 2\^24 visits"):
        ppr_neighbors(directed(), [0], 3, num_walks=2**20, walk_length=17)
    with pytest.raises(UsageError, match="restart_probability: expected a probability"):
        ppr_neighbors(directed(), [0], 3, restart_probability=1)
    with pytest.raises(
        UsageError, match=r"nodes must hold node indices in \[0, 14\), received 14 at position 1"
    ):
        ppr_neighbors(directed(), [0, 14], 3)
    with pytest.raises(UsageError, match=r"metapath\[0\]: .*`author writes paper` ends at `paper`"):
        ppr_neighbors(papers(), [0], 3, metapath=[WRITES])
    with pytest.raises(UsageError, match="expected a metapath"):
        ppr_neighbors(papers(), [0], 3)


def test_edges_that_lead_nowhere_are_refused() -> None:
    damaged = Csr([list(range(64))])
    with pytest.raises(DataError, match=r"indices must be in \[0, 1\)"):
        ppr_neighbors(damaged, [0], 4, walk_length=1)

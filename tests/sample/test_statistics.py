"""The samplers' distributions over 50 seeds: p-values of exact tests must themselves be uniform.

A test at one seed passes a sampler that is slightly wrong, or whose draws depend on each other; 50 p-values
show both: wrong draws crowd them near 0, draws that are more even than chance near 1.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import combinations
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from scipy import stats

from graphbox.graph.schema import CSC, CSR
from graphbox.sample import NegativeSampler, NonEdgeSampler, random_walk, sample_neighbors
from tests.sample.test_negative_queries import rows_of

Floats = npt.NDArray[np.float64]
SEEDS = range(50)
NODES = 1500


def assert_uniform_over_seeds(p_value: Callable[[int], float]) -> None:
    """Compare the p-values with the uniform distribution by Kolmogorov and Smirnov's test."""
    values = [p_value(seed) for seed in SEEDS]
    assert stats.kstest(values, "uniform").pvalue > 1e-3, np.sort(values)


def chi_square(counts: npt.NDArray[np.int64], probability: Floats) -> float:
    expected = probability / probability.sum() * counts.sum()
    possible = expected > 0
    assert not counts[~possible].any()
    return float(stats.chisquare(counts[possible], expected[possible]).pvalue)


def lists_apart(degree: int, weight: Floats | None = None) -> CSC:
    """Return nodes that have ``degree`` neighbours each and none in common, with the same weights each."""
    edges = NODES * degree
    weights = None if weight is None else np.tile(weight, NODES).astype(np.float32)
    indptr = np.minimum(np.arange(edges + 1), NODES) * degree
    return CSC(indptr, np.arange(edges, dtype=np.int32), edges, weights, np.tile(np.arange(degree), NODES))


def inclusion_p_value(offsets: npt.NDArray[np.int64], degree: int, wanted: int) -> float:
    """Return the p-value of equal inclusion; without replacement counts are more even than with."""
    counts = np.bincount(offsets, minlength=degree)
    expected = NODES * wanted / degree
    statistic = ((counts - expected) ** 2 / expected).sum() * (degree - 1) / (degree - wanted)
    return float(stats.chi2.sf(statistic, degree - 1))


@pytest.mark.parametrize(("degree", "wanted"), [(7, 3), (64, 10), (65, 10), (300, 80)])
def test_uniform_without_replacement(degree: int, wanted: int) -> None:
    csc = lists_apart(degree)

    def p_value(seed: int) -> float:
        sample = sample_neighbors(csc, np.arange(NODES), [wanted], seed=seed)
        return inclusion_p_value(sample.edge_ids % degree, degree, wanted)

    assert_uniform_over_seeds(p_value)


@pytest.mark.parametrize("degree", [5, 70])
def test_uniform_with_replacement(degree: int) -> None:
    csc = lists_apart(degree)

    def p_value(seed: int) -> float:
        sample = sample_neighbors(csc, np.arange(NODES), [6], replace=True, seed=seed)
        return chi_square(np.bincount(sample.edge_ids % degree, minlength=degree), np.ones(degree))

    assert_uniform_over_seeds(p_value)


@pytest.mark.parametrize("strategy_time", [2, 40])
def test_uniform_until_a_time(strategy_time: int) -> None:
    csc = lists_apart(50)

    def p_value(seed: int) -> float:
        times = np.full(NODES, strategy_time)
        sample = sample_neighbors(csc, np.arange(NODES), [2], input_time=times, seed=seed)
        return inclusion_p_value(sample.edge_ids % 50, strategy_time + 1, 2)

    assert_uniform_over_seeds(p_value)


@pytest.mark.parametrize("degree", [9, 100])
def test_weighted_with_replacement(degree: int) -> None:
    weight = np.random.default_rng(degree).exponential(1, degree) + 0.05
    csc = lists_apart(degree, weight)

    def p_value(seed: int) -> float:
        sample = sample_neighbors(csc, np.arange(NODES), [4], replace=True, weight_attr="weight", seed=seed)
        return chi_square(np.bincount(sample.edge_ids % degree, minlength=degree), weight)

    assert_uniform_over_seeds(p_value)


@pytest.mark.parametrize("degree", [6, 70])
def test_weighted_pairs_without_replacement(degree: int) -> None:
    """Of successive sampling the probability of each pair is known."""
    weight = (
        np.linspace(1, 4, degree) if degree == 6 else np.repeat([9.0, 6.0, 4.0, 2.0, 0.05], [1, 1, 1, 1, 66])
    )
    csc = lists_apart(degree, weight)
    share = weight / weight.sum()
    names = np.arange(degree) if degree == 6 else np.minimum(np.arange(degree), 4)  # light ones are one kind
    kinds = names.max() + 1
    probability = np.zeros((kinds, kinds))
    for one, other in combinations(range(degree), 2):
        pair = share[one] * share[other] * (1 / (1 - share[one]) + 1 / (1 - share[other]))
        probability[names[one], names[other]] += pair

    def p_value(seed: int) -> float:
        sample = sample_neighbors(csc, np.arange(NODES), [2], weight_attr="weight", seed=seed)
        chosen = names[np.sort(sample.edge_ids.reshape(-1, 2) % degree, axis=1)]
        counts = np.bincount(chosen[:, 0] * kinds + chosen[:, 1], minlength=kinds * kinds)
        return chi_square(counts, probability.ravel())

    assert_uniform_over_seeds(p_value)


@pytest.mark.parametrize(("p", "q"), [(0.25, 4.0), (4.0, 0.25), (1.0, 2.0), (0.5, 0.5)])
def test_node2vec(p: float, q: float) -> None:
    """The two steps from one node, each path with its probability."""
    lists = [[1, 2, 3], [0, 2, 4, 5], [0, 1], [0, 5], [1], [1, 3]]
    csr = rows_of(lists)
    probability = np.zeros((6, 6))
    for first in lists[0]:
        weights = [1 / p if back == 0 else 1.0 if back in lists[0] else 1 / q for back in lists[first]]
        probability[first, lists[first]] = np.array(weights) / sum(weights) / len(lists[0])

    def p_value(seed: int) -> float:
        walks = random_walk(csr, np.zeros(4000, np.int64), 2, p=p, q=q, seed=seed)
        return chi_square(np.bincount(walks[:, 1] * 6 + walks[:, 2], minlength=36), probability.ravel())

    assert_uniform_over_seeds(p_value)


@pytest.mark.parametrize("alpha", [0.0, 0.75])
def test_negatives(alpha: float) -> None:
    weight = np.random.default_rng(0).integers(1, 60, 40).astype(float)
    known = [1, 2, 3, 20, 21, 39]
    left = weight**alpha
    left[known] = 0

    def p_value(seed: int) -> float:
        sampler = NegativeSampler(weight, alpha, seed, known_positives=rows_of([known]))
        return chi_square(np.bincount(sampler.sample_for([0], 4000)[0], minlength=40), left)

    assert_uniform_over_seeds(p_value)
    sampler = [NegativeSampler(weight, alpha, seed) for seed in SEEDS]
    assert_uniform_over_seeds(
        lambda seed: chi_square(np.bincount(sampler[seed].sample(4000), minlength=40), weight**alpha)
    )


def test_pairs_that_no_edge_joins() -> None:
    lists = [[0, 1, 4], [], [1, 2, 3], [2], [0, 1, 2, 3, 4]]
    left = np.ones((5, 5))
    for node, known in enumerate(lists):
        left[node, [*known, node]] = 0

    class Graph:
        node_types = ("node",)
        edge_types = (("node", "to", "node"),)

        def num_nodes(self, _: str) -> int:
            return 5

        def csr(self, _: object) -> CSR:
            return rows_of(lists)

        csc = csr

    def p_value(seed: int) -> float:
        pairs = NonEdgeSampler(Graph(), seed=seed).sample(3000)
        return chi_square(np.bincount(pairs[0] * 5 + pairs[1], minlength=25), left.ravel())

    assert_uniform_over_seeds(p_value)


def pair_p_value(drawn: npt.NDArray[Any], kinds: int) -> float:
    """Return the p-value of equal counts of all pairs of neighbouring draws."""
    codes = drawn[0::2] * kinds + drawn[1::2]
    return chi_square(np.bincount(codes, minlength=kinds * kinds), np.ones(kinds * kinds))


def test_trees_of_a_disjoint_sample_are_independent() -> None:
    """Trees of one seed, and of two seeds whose trees meet in one node."""
    hub = CSC(np.array([0, 1, 2, 10, *[10] * 8]), np.array([2, 2, *range(3, 11)], np.int32), 11)

    def of_one_seed(seed: int) -> float:
        sample = sample_neighbors(hub, np.full(2000, 2), [1], disjoint=True, seed=seed)
        return pair_p_value(hub.indices[sample.edge_ids] - 3, 8)

    def after_meeting(seed: int) -> float:
        sample = sample_neighbors(hub, np.tile([0, 1], 1000), [1, 1], disjoint=True, seed=seed)
        second = sample.edge_ids[sample.num_sampled_edges[0] :]
        return pair_p_value(hub.indices[second] - 3, 8)

    assert_uniform_over_seeds(of_one_seed)
    assert_uniform_over_seeds(after_meeting)


@pytest.mark.parametrize(("p", "q"), [(1.0, 1.0), (4.0, 0.5)])
def test_walkers_that_meet_do_not_coalesce(p: float, q: float) -> None:
    """All walkers are at node 8 after every second step, so at each they meet, and go on independently."""
    csr = rows_of([*([8] for _ in range(8)), list(range(8))])

    def p_value(seed: int) -> float:
        walks = random_walk(csr, np.full(2000, 8), 4, p=p, q=q, seed=seed)
        assert (walks[:, 2] == 8).all()
        if p == 1:
            return pair_p_value(walks[:, 3], 8)
        back = (walks[:, 3] == walks[:, 1]).astype(np.int64)  # with another probability than the others
        share = 1 / p / (1 / p + 7 / q)
        both = np.array([(1 - share) ** 2, share * (1 - share), share * (1 - share), share**2])
        return chi_square(np.bincount(back[0::2] * 2 + back[1::2], minlength=4), both)

    assert_uniform_over_seeds(p_value)


@pytest.mark.parametrize("part", ["seed", "epoch", "batch"])
def test_parts_of_the_key_are_independent(part: str) -> None:
    csc = lists_apart(8)

    def p_value(seed: int) -> float:
        keys: list[dict[str, Any]] = [{"seed": seed, part: 1000 * number + seed} for number in (1, 2)]
        drawn = [sample_neighbors(csc, np.arange(NODES), [1], **key).edge_ids % 8 for key in keys]
        return pair_p_value(np.stack(drawn, axis=1).ravel(), 8)

    assert_uniform_over_seeds(p_value)


def test_hops_are_independent() -> None:
    """Compare the draws of a seed and of the one node that it finds, both with eight neighbours."""
    roots = np.arange(NODES)
    to_eight = np.repeat(roots + NODES, 8)
    csc = CSC(
        np.minimum(np.arange(3 * NODES + 1), 2 * NODES) * 8,
        np.concatenate([to_eight, np.repeat(roots + 2 * NODES, 8)]).astype(np.int32),
        3 * NODES,
    )

    def p_value(seed: int) -> float:
        sample = sample_neighbors(csc, roots, [1, 1], seed=seed)
        pairs = sample.edge_ids.reshape(2, NODES) % 8
        return pair_p_value(pairs.T.ravel(), 8)

    assert_uniform_over_seeds(p_value)

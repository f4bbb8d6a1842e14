"""Negatives of queries: never a known positive, and distributed as promised among the rest."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from graphbox.errors import DataError, UsageError
from graphbox.graph import Graph
from graphbox.graph.schema import CSR
from graphbox.sample import NegativeSampler, NonEdgeSampler
from tests.sample.test_live import ALONE, FORWARD, alone, graph_of, live_table


def rows_of(lists: list[list[int]], dtype: Any = np.int32) -> CSR:
    """Return an adjacency with these rows."""
    indptr = np.cumsum([0, *map(len, lists)])
    indices = np.array([item for row in lists for item in row], dtype)
    return CSR(indptr, indices, np.arange(len(indices)), 1 << 20)


def remaining_probability(weights: np.ndarray, known: list[int]) -> np.ndarray:
    """Return the reference: the weights with those of known positives struck out, scaled to 1."""
    left = weights.astype(float).copy()
    left[np.array(known, dtype=np.int64)] = 0
    probability: np.ndarray = left / left.sum()
    return probability


def assert_drawn_by(drawn: np.ndarray, probability: np.ndarray) -> None:
    counts = np.bincount(drawn, minlength=len(probability))
    possible = probability > 0
    assert not counts[~possible].any()
    if possible.sum() > 1:
        expected = probability[possible] * len(drawn)
        assert 1e-4 < stats.chisquare(counts[possible], expected).pvalue < 1 - 1e-6


@pytest.mark.parametrize("alpha", [0.0, 0.75, 1.0])
@pytest.mark.parametrize("dtype", [np.int32, np.int64])
def test_the_distribution_of_the_rest(alpha: float, dtype: Any) -> None:
    rng = np.random.default_rng(1)
    weights = rng.integers(0 if alpha else 1, 40, 60)
    lists = [
        [],
        [3],
        sorted(rng.choice(60, 20, replace=False).tolist()),
        [
            int(i) for i in range(60) if i not in (7, 31, 44)
        ],  # nearly all: mostly drawn from the enumerated rest
        [0, 0, 5, 5, 5, 59],
    ]
    sampler = NegativeSampler(weights, alpha, seed=2, known_positives=rows_of(lists, dtype))
    drawn = sampler.sample_for(np.arange(len(lists)), 20_000)
    for query, known in enumerate(lists):
        power = weights.astype(float) ** alpha
        assert_drawn_by(drawn[query], remaining_probability(power, known))


@pytest.mark.parametrize("alpha", [0.0, 1.0])
def test_the_enumerated_rest_alone(alpha: float) -> None:
    """The known positives have nearly all of the weight, so hardly any try succeeds."""
    weights = np.ones(5000)
    weights[:2000] = 1e12
    known = list(range(2000)) if alpha else [item for item in range(5000) if item % 100 != 99]
    sampler = NegativeSampler(weights, alpha, known_positives=rows_of([known]))
    drawn = sampler.sample_for([0], 60_000)[0]
    assert_drawn_by(drawn, remaining_probability(weights**alpha, known))


@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 1000),
    alpha=st.sampled_from([0.0, 0.5, 1.0]),
    exclude=st.booleans(),
    changes=st.integers(0, 4),
    base=st.sampled_from([0, 30, 2000]),
)
def test_never_a_known_positive(seed: int, alpha: float, exclude: bool, changes: int, base: int) -> None:
    """On changed graphs alike, up to dense ones."""
    graph = alone(live_table(seed, base=base, changes=changes))
    sampler = NegativeSampler(np.ones(graph.num_nodes()), alpha, known_positives=graph.lists(ALONE, "out"))
    csr = graph.csr()
    queries = np.random.default_rng(seed).integers(0, graph.num_nodes(), 30)
    drawn = sampler.sample_for(queries, 8, exclude_query=exclude, exhausted="fill")
    for query, negatives in zip(queries, drawn, strict=True):
        known = set(csr.indices[csr.indptr[query] : csr.indptr[query + 1]].tolist())
        known |= {int(query)} if exclude else set()
        if len(known) == graph.num_nodes():
            assert set(negatives.tolist()) == {-1}
        else:
            assert not known & set(negatives.tolist())
            assert negatives.min() >= 0
            assert negatives.max() < graph.num_nodes()


def test_by_node_type() -> None:
    graph = graph_of(live_table(3))
    in_degree = np.diff(graph.csc(FORWARD).indptr)
    out_degree = np.diff(graph.csr(FORWARD).indptr)
    targets = NegativeSampler.from_graph(graph, FORWARD, 1.0)
    sources = NegativeSampler.from_graph(graph, FORWARD, 1.0, end="source")
    np.testing.assert_allclose(
        targets.probability(np.arange(graph.num_nodes("b"))), in_degree / in_degree.sum()
    )
    np.testing.assert_allclose(
        sources.probability(np.arange(graph.num_nodes("a"))), out_degree / out_degree.sum()
    )
    with_known = NegativeSampler.from_graph(graph, FORWARD, 0.75, end="source", known_positives=True)
    csc = graph.csc(FORWARD)
    queries = np.flatnonzero(in_degree)
    for query, drawn in zip(queries, with_known.sample_for(queries, 50), strict=True):
        assert not set(drawn.tolist()) & set(csc.indices[csc.indptr[query] : csc.indptr[query + 1]].tolist())
    assert len(NegativeSampler.from_graph(graph, FORWARD, 0)) == graph.num_nodes("b")


def test_same_for_any_number_of_threads() -> None:
    rng = np.random.default_rng(0)
    lists = [sorted(rng.choice(300, rng.integers(0, 299), replace=False).tolist()) for _ in range(500)]
    sampler = NegativeSampler(rng.integers(1, 50, 300), seed=4, known_positives=rows_of(lists))
    queries = rng.integers(0, 500, 3000)
    one = sampler.sample_for(queries, 7, num_threads=1)
    for threads in (2, 4):
        np.testing.assert_array_equal(one, sampler.sample_for(queries, 7, num_threads=threads))
    assert (one != sampler.sample_for(queries, 7, epoch=1)).mean() > 0.8
    assert (one != sampler.sample_for(queries, 7, batch=1)).mean() > 0.8


def test_negatives_of_one_query_are_independent() -> None:
    sampler = NegativeSampler.uniform(5, known_positives=rows_of([[2]]))
    drawn = sampler.sample_for(np.zeros(30_000, np.int64), 2)
    codes = drawn[:, 0] * 5 + drawn[:, 1]
    counts = np.bincount(codes, minlength=25).reshape(5, 5)
    rest = [0, 1, 3, 4]
    assert stats.chisquare(counts[np.ix_(rest, rest)].ravel()).pvalue > 1e-4


def test_a_query_with_no_item_left() -> None:
    sampler = NegativeSampler([1, 0, 2], 1, known_positives=rows_of([[0, 2], [0], [0, 1, 2]]))
    assert sampler.sample_for([1, 1], 2).tolist() == [[2, 2], [2, 2]]
    drawn = sampler.sample_for([0, 1, 2], 3, exhausted="fill")
    assert drawn.tolist() == [[-1] * 3, [2] * 3, [-1] * 3]
    with pytest.raises(DataError, match=r"query 0 at position 1.*\n.*exhausted='fill'"):
        sampler.sample_for([1, 0, 2], 3)


def test_faces() -> None:
    sampler = NegativeSampler([1, 2, 3], known_positives=rows_of([[0], [1]]))
    tensor = sampler.sample_for(torch.tensor([0, 1]), 4)
    assert tensor.dtype == torch.int64
    np.testing.assert_array_equal(tensor.numpy(), sampler.sample_for([0, 1], 4))
    assert sampler.sample_for([], 4).shape == (0, 4)
    assert NegativeSampler.uniform(9).sample_for([100, -5], 2).shape == (2, 2)
    assert torch.allclose(
        sampler.probability(torch.tensor([1])), torch.tensor([2**0.75 / (1 + 2**0.75 + 3**0.75)]).double()
    )


def test_probabilities() -> None:
    weights = np.array([1.0, 2.0, 5.0])
    sampler = NegativeSampler(weights, 1)
    np.testing.assert_allclose(sampler.probability([[0, 1], [2, 2]]), [[0.125, 0.25], [0.625, 0.625]])
    np.testing.assert_allclose(NegativeSampler.uniform(4).probability([3]), [0.25])
    with pytest.raises(UsageError, match=r"\[0, 3\), received 3"):
        sampler.probability([0, 3])


def test_equal_likelihood_draws_what_equal_weights_would() -> None:
    np.testing.assert_array_equal(
        NegativeSampler.uniform(77, seed=5).sample(1000), NegativeSampler([2] * 77, 1, seed=5).sample(1000)
    )


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"queries": [0, 2]}, UsageError, r"\[0, 2\), received 2 at position 1"),
        ({"queries": [-1]}, UsageError, "received -1 at position 0"),
        ({"queries": [0.5]}, UsageError, "integers"),
        ({"queries": [0], "num_negatives": 0}, UsageError, "received 0"),
        ({"queries": [0], "num_negatives": 1.5}, UsageError, "received 1.5"),
        ({"queries": [0], "exhausted": "skip"}, UsageError, "error or fill"),
    ],
)
def test_wrong_arguments(arguments: dict[str, Any], error: type[Exception], message: str) -> None:
    sampler = NegativeSampler.uniform(4, known_positives=rows_of([[0], [1]]))
    with pytest.raises(error, match=message):
        sampler.sample_for(**{"num_negatives": 1, **arguments})


def test_wrong_known_positives() -> None:
    with pytest.raises(UsageError, match="ascend"):
        NegativeSampler.uniform(4, known_positives=rows_of([[2, 1]]))
    damaged = CSR(np.array([0, 9]), np.array([1], np.int32), np.arange(1), 4)
    with pytest.raises(DataError, match="indptr"):
        NegativeSampler.uniform(4, known_positives=damaged)
    with pytest.raises(UsageError, match="1 to 2"):
        NegativeSampler.uniform(0)
    graph = graph_of(live_table(1))
    with pytest.raises(UsageError, match="a to b, b from a; received None"):
        NegativeSampler.from_graph(graph)
    with pytest.raises(UsageError, match="source or target"):
        NegativeSampler.from_graph(graph, FORWARD, end="middle")  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="expected a graph"):
        NegativeSampler.from_graph(rows_of([[0]]))  # type: ignore[arg-type]


@pytest.mark.parametrize("loops", [False, True])
def test_pairs_that_no_edge_joins(loops: bool) -> None:
    rng = np.random.default_rng(7)
    source, target = rng.integers(0, 12, 150), rng.integers(0, 12, 150)
    source, target = source[source != 5], target[source != 5]
    source, target = np.append(source, np.full(12, 3)), np.append(target, np.arange(12))  # 3 has all
    graph = Graph.from_coo(source, target, num_nodes=12)
    left = np.ones((12, 12))
    left[source, target] = 0
    if not loops:
        np.fill_diagonal(left, 0)
    pairs = NonEdgeSampler(graph, seed=1, loops=loops).sample(40_000)
    assert_drawn_by(pairs[0] * 12 + pairs[1], left.ravel() / left.sum())


def test_pairs_of_two_node_types() -> None:
    graph = graph_of(live_table(0))
    csc = graph.csc(FORWARD)
    edges = set(zip(*(ends.tolist() for ends in csc.coo()), strict=True))
    sampler = NonEdgeSampler(graph, FORWARD)
    pairs = sampler.sample(20_000)
    assert not edges & set(zip(*pairs.tolist(), strict=True))
    complete = Graph.from_coo([0, 1], [1, 0], num_nodes=2)
    with pytest.raises(DataError, match="edges join all"):
        NonEdgeSampler(complete)

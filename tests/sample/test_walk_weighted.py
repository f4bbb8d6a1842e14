"""Walks by the weights of edges, looking back or not: as a plain implementation, and by chances."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from graphbox import _core
from graphbox.errors import DataError, UsageError
from graphbox.graph import Graph
from graphbox.sample import ppr_neighbors, random_walk, walk_pairs
from tests.sample.test_live import alone, live_table
from tests.sample.test_walk_node2vec import (
    GRAPHS,
    MOST_DARTS,
    PARAMETERS,
    WALK_STREAM,
    Csr,
    block,
    chi_square,
    weights,
)
from tests.sample.test_walk_node2vec import HOP as DART_HOP
from tests.sample.test_walk_node2vec import bounded as dart_bounded
from tests.sample.test_weighted import plain_table

RESTART_HOP, PAIR_HOP, ALIAS_HOP = 2, 3, 4


def with_weights(csr: Csr, seed: int, skew: float = 1.0) -> Csr:
    weighted = copy.copy(csr)
    draws = np.random.default_rng(seed).normal(0, skew, len(csr.indices))
    weighted.weight = np.exp(draws).astype(np.float32)
    return weighted


WEIGHTED = {name: with_weights(csr, 3) for name, csr in GRAPHS.items()}


# ------------------------------------------------------------------ bit for bit


def pair_word(key: int, walker: int, draw: int, attempt: int = 0) -> int:
    return block(key, draw // 4, PAIR_HOP, 0, walker, attempt)[draw % 4]


def pair_bounded(key: int, walker: int, draw: int, range_: int) -> int:
    for attempt in range(256):
        product = pair_word(key, walker, draw, attempt) * range_
        if product % 2**32 >= 2**32 % range_:
            return product >> 32
    raise AssertionError("256 rejections")


def plain_steps(csr: Csr, start: list[int], length: int, restart: float, key: int) -> list[list[int]]:
    """Walk by weight alone, with restarts."""
    tables = [plain_table(np.array(csr.row_weight(node))) for node in range(len(csr.indptr) - 1)]
    threshold = int(restart * 2**32 + 0.5)
    walks = []
    for walker, first in enumerate(start):
        walk = [first]
        for step in range(length):
            node = walk[-1]
            row = csr.row(node) if node >= 0 else []
            coin = block(key, step // 4, RESTART_HOP, 0, walker)[step % 4] < threshold
            if restart and (coin or not row):
                walk.append(first)
            elif not row:
                walk.append(-1)
            else:
                column = pair_bounded(key, walker, 2 * step, len(row))
                limit, alias = tables[node][column]
                walk.append(row[column if pair_word(key, walker, 2 * step + 1) < limit else alias])
        walks.append(walk)
    return walks


def plain_look_back(
    csr: Csr, table: list[tuple[int, int]], previous: int | None, node: int, p: float, q: float, draw: Any
) -> int:
    """Choose the next node of a weighted walk that looks back as the native walker does."""
    key, step, walker = draw
    row = csr.row(node)
    bias = [1.0] * len(row)
    if previous is not None:
        near = set(csr.row(previous))
        bias = [1 / p if x == previous else 1.0 if x in near else 1 / q for x in row]
    height = max(1.0, 1 / p, 1 / q)
    for dart in range(MOST_DARTS):
        words = block(key, step, DART_HOP, dart, walker)
        column = dart_bounded(key, step, dart, walker, len(row))
        limit, alias = table[column]
        edge = column if block(key, step, ALIAS_HOP, dart, walker)[0] < limit else alias
        unit = ((words[2] << 32 | words[1]) >> 11) * 2.0**-53
        if previous is None or unit * (len(row) * height) / len(row) < bias[edge]:
            return row[edge]
    words = block(key, step, DART_HOP, MOST_DARTS, walker)
    total = 0.0
    for weight, factor in zip(csr.row_weight(node), bias, strict=True):
        total += weight * factor
    left, chosen = ((words[2] << 32 | words[1]) >> 11) * 2.0**-53 * total, row[0]
    for x, weight, factor in zip(row, csr.row_weight(node), bias, strict=True):
        chosen = x if left >= 0 else chosen
        left -= weight * factor
    return chosen


def plain_node2vec(csr: Csr, start: list[int], length: int, p: float, q: float, key: int) -> list[list[int]]:
    tables = [plain_table(np.array(csr.row_weight(node))) for node in range(len(csr.indptr) - 1)]
    walks = []
    for walker, first in enumerate(start):
        walk, previous = [first], None
        for step in range(length):
            node = walk[-1]
            if node < 0 or not csr.row(node):
                walk.append(-1)
                continue
            walk.append(plain_look_back(csr, tables[node], previous, node, p, q, (key, step, walker)))
            previous = node
        walks.append(walk)
    return walks


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_agrees_with_the_plain_implementation(data: st.DataObject) -> None:
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32)))
    n = data.draw(st.integers(1, 30))
    most = data.draw(st.sampled_from([2, 8, 50]))
    lists = [sorted(rng.integers(0, n, rng.integers(0, most + 1)).tolist()) for _ in range(n)]
    csr = with_weights(Csr(lists, data.draw(st.sampled_from([np.int32, np.int64]))), 1, skew=2)
    start = rng.integers(0, n, data.draw(st.integers(0, 80))).tolist()
    seed, epoch, batch = (data.draw(st.integers(0, 2**bits - 1)) for bits in (64, 32, 64))
    key = _core.philox_key(WALK_STREAM, seed, epoch, batch)
    keys: dict[str, Any] = {"weighted": True, "seed": seed, "epoch": epoch, "batch": batch, "num_threads": 2}
    restart = data.draw(st.sampled_from([0.0, 0.3]))
    walks = random_walk(csr, start, 7, restart_probability=restart, **keys)
    assert walks.tolist() == plain_steps(csr, start, 7, restart, key)
    p, q = (data.draw(st.sampled_from([1e-30, 0.3, 0.5, 2.0, 7.0, 1e30])) for _ in range(2))
    assert random_walk(csr, start[:20], 4, p, q, **keys).tolist() == plain_node2vec(
        csr, start[:20], 4, p, q, key
    )


# ------------------------------------------------------------------ chances


@pytest.mark.parametrize("name", GRAPHS)
@pytest.mark.parametrize("q", PARAMETERS)
def test_steps_have_the_exact_probabilities(name: str, q: float) -> None:
    csr = WEIGHTED[name]
    start = np.arange(len(csr.indptr) - 1).repeat(24_000 // (len(csr.indptr) - 1))
    for p in PARAMETERS:
        walks = random_walk(csr, start, 8, p, q, weighted=True, seed=11)
        assert chi_square(csr, walks, p, q) > 1e-6


def test_every_edge_as_often_as_its_weight_says() -> None:
    rng = np.random.default_rng(1)
    for degree in (2, 65, 1000):
        csr = Csr([list(range(degree))] * degree)
        csr.weight = np.exp(rng.normal(0, 1, degree)).astype(np.float32)
        csr.weight = np.tile(csr.weight, degree)
        walks = random_walk(csr, np.zeros(100 * degree, np.int64), 2, weighted=True)
        share = csr.weight[:degree].astype(float) / csr.weight[:degree].sum(dtype=float)
        for column in (1, 2):
            counts = np.bincount(walks[:, column], minlength=degree)
            common = share * len(walks) >= 5
            observed = np.append(counts[common], counts[~common].sum() + 5)
            expected = np.append(share[common], 0) * len(walks)
            expected[-1] = len(walks) + 5 - expected.sum()
            assert stats.chisquare(observed, expected).pvalue > 1e-5


def test_p_values_are_uniform_over_seeds() -> None:
    csr = WEIGHTED["triangle with a tail and leaves"]
    start = np.arange(6).repeat(500)
    for p, q in ((1.0, 1.0), (0.5, 2.0)):
        p_values = [
            chi_square(csr, random_walk(csr, start, 8, p, q, weighted=True, seed=s), p, q) for s in range(50)
        ]
        assert stats.kstest(p_values, "uniform").pvalue > 1e-3


def test_the_first_step_is_by_weight() -> None:
    csr = WEIGHTED["hub"]
    walks = random_walk(csr, np.zeros(40_000, np.int64), 1, 0.25, 4.0, weighted=True)
    expected = np.bincount(csr.row(0), csr.row_weight(0), minlength=40)
    observed = np.bincount(walks[:, 1], minlength=40)
    assert stats.chisquare(observed[1:], expected[1:] / expected.sum() * 40_000).pvalue > 1e-5


def test_equal_weights_walk_as_none() -> None:
    csr = copy.copy(GRAPHS["parallel edges"])
    csr.weight = np.full(len(csr.indices), 0.7, np.float32)
    start = np.arange(5).repeat(5000)
    for p, q in ((1.0, 1.0), (0.25, 0.5), (4.0, 2.0)):
        walks = random_walk(csr, start, 8, p, q, weighted=True)
        assert chi_square(GRAPHS["parallel edges"], walks, p, q) > 1e-6


# ------------------------------------------------------------------ threads, changed graphs, errors


@pytest.mark.parametrize("walk", [{}, {"p": 0.5, "q": 2.0}, {"restart_probability": 0.2}])
def test_same_for_any_number_of_threads(walk: dict[str, Any]) -> None:
    csr = WEIGHTED["hub"]
    start = np.arange(40).repeat(300)
    one = random_walk(csr, start, 12, weighted=True, num_threads=1, **walk)
    for threads in (2, 4):
        np.testing.assert_array_equal(
            one, random_walk(csr, start, 12, weighted=True, num_threads=threads, **walk)
        )
    assert len({tuple(row) for row in one[:300].tolist()}) > 290  # walkers of one start part


@pytest.mark.parametrize("walk", [{}, {"p": 0.5, "q": 2.0}, {"restart_probability": 0.2}])
@pytest.mark.parametrize("base", [0, 400])
def test_changed_graphs(walk: dict[str, Any], base: int) -> None:
    graph = alone(live_table(4, base=base, columns=True))
    start = np.arange(graph.num_nodes()).repeat(9)
    live = random_walk(graph, start, 8, weighted=True, **walk)
    merged = graph.csr()
    np.testing.assert_array_equal(live, random_walk(merged, start, 8, weighted=True, **walk))
    assert (live[:, 1] >= 0).any()
    pairs = list(walk_pairs(graph, start, 8, 2, weighted=True, **walk))
    np.testing.assert_array_equal(pairs, list(walk_pairs(merged, start, 8, 2, weighted=True, **walk)))


def test_where_walkers_go_first() -> None:
    csr = WEIGHTED["hub"]
    start, second = np.zeros(2000, np.int64), np.arange(1, 40).repeat(52)[:2000]
    for p, q in ((1.0, 1.0), (0.25, 2.0)):
        for weighted in (False, True):
            walks = random_walk(csr, start, 6, p, q, weighted=weighted, second=second)
            np.testing.assert_array_equal(walks[:, :2], np.stack([start, second], 1))
            plain = csr if weighted else GRAPHS["hub"]
            assert chi_square(plain, walks, p, q) > 1e-6
            assert random_walk(csr, [0], 1, p, q, weighted=weighted, second=[7]).tolist() == [[0, 7]]


def test_the_weights_of_some_edge_types() -> None:
    graph = Graph.from_coo([0, 0, 1, 2], [1, 2, 0, 0], num_nodes=3, weight=[1e-30, 1.0, 1.0, 1.0])
    edge = graph.edge_types[0]
    start = np.zeros(2000, np.int64)
    by_weight = random_walk(graph, start, 1, metapath=[edge], weighted=[edge])
    assert (by_weight[:, 1] == 2).all()
    assert (
        stats.binomtest(int(random_walk(graph, start, 1, weighted=False)[:, 1].sum()) - 2000, 2000).pvalue
        > 1e-5
    )


def test_errors() -> None:
    graph = Graph.from_coo([0, 1], [1, 0], num_nodes=2)
    with pytest.raises(UsageError, match="expected edges with a weight, these have none"):
        random_walk(graph, [0], 3, weighted=True)
    csr = copy.copy(GRAPHS["directed"])
    csr.weight = np.ones(3, np.float32)
    with pytest.raises(DataError, match="number of weights, 3"):
        random_walk(csr, [0], 3, weighted=True)
    csr.weight = np.zeros(len(csr.indices), np.float32)
    with pytest.raises(DataError, match="positive finite"):
        random_walk(csr, [0], 3, weighted=True)
    weighted = WEIGHTED["directed"]
    with pytest.raises(
        UsageError, match=r"second must hold node indices in \[0, 5\), received 5 at position 1"
    ):
        random_walk(weighted, [0, 1], 3, second=[0, 5])
    with pytest.raises(UsageError, match=r"second must hold .* received -1"):
        random_walk(weighted, [0, 1], 3, 2.0, second=[0, -1])
    with pytest.raises(UsageError, match="second: expected one for each of 2 walkers, received 1"):
        random_walk(weighted, [0, 1], 3, second=[0])
    with pytest.raises(UsageError, match="length: walks that are told where to go first"):
        random_walk(weighted, [0], 0, second=[0])
    assert weights(weighted, 0, 1, 1, 1) == weighted.row_weight(1)
    assert random_walk(weighted, [], 3, weighted=True).shape == (0, 4)


@pytest.mark.parametrize("wrong", [[("a", "to", "b")], ["node"], "node", None, 3, [3]])
def test_edge_types_that_are_not_walked_along_have_no_say(wrong: Any) -> None:
    graph = Graph.from_coo([0, 1], [1, 0], weight=[1.0, 2.0])
    with pytest.raises(UsageError, match=r"weighted: expected True, False or edge types .* node to node"):
        random_walk(graph, [0], 2, weighted=wrong)
    with pytest.raises(UsageError, match=r"weighted: expected True, False or edge types .* node to node"):
        ppr_neighbors(graph, [0], 2, weighted=wrong)
    right: Any
    for right in (graph.edge_types, [list(graph.edge_types[0])], ()):
        assert random_walk(graph, [0], 2, weighted=right).tolist() == [[0, 1, 0]]

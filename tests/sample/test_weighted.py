"""Weighted neighbour sampling against a plain implementation, against NumPy, and against what it promises."""

from __future__ import annotations

import gc
import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from graphbox import _core
from graphbox.errors import DataError, UsageError
from graphbox.graph import Graph
from graphbox.sample import NeighborLoader, sample_heterogeneous, sample_neighbors
from graphbox.sample.adjacency import EdgeType
from graphbox.sample.derived import derived_table_bytes, weights_of
from tests.sample.test_live import alone, live_table

NEIGHBOR_STREAM = 1
ONE_ROW: EdgeType = ("a", "r", "b")


@dataclass(eq=False)
class Csc:
    indptr: np.ndarray
    indices: np.ndarray
    weight: Any


def rows_of(weight: np.ndarray, rows: int) -> Csc:
    """Return ``rows`` nodes whose edges have these weights each."""
    degree = len(weight)
    indptr = np.arange(rows + 1, dtype=np.int64) * degree
    return Csc(indptr, np.zeros(rows * degree, np.int32), np.tile(weight.astype(np.float32), rows))


def random_csc(
    rng: np.random.Generator, nodes: int, degrees: list[int], dtype: Any = np.int64, skew: float = 1.0
) -> Csc:
    indptr = np.concatenate([[0], np.cumsum(rng.choice(degrees, nodes))]).astype(np.int64)
    weight = np.exp(rng.normal(0, skew, indptr[-1])).astype(np.float32)
    return Csc(indptr, rng.integers(0, nodes, indptr[-1]).astype(dtype), weight)


# ------------------------------------------------------------------ the plain implementation


def plain_table(weight: np.ndarray) -> list[tuple[int, int]]:
    """Vose's alias table: threshold of 32 bits and alias of each column."""
    total = 0.0
    for value in weight:
        total += float(value)
    share = [float(value) / total * len(weight) for value in weight]
    small = [column for column in range(len(weight)) if share[column] < 1]
    large = [column for column in range(len(weight)) if share[column] >= 1]
    table = [(2**32 - 1, column) for column in range(len(weight))]
    while small and large:
        column, full = small.pop(), large[-1]
        table[column] = (int(min(max(share[column] * 2.0**32, 1), 2**32 - 1)), full)
        share[full] = share[full] + share[column] - 1
        if share[full] < 1:
            small.append(large.pop())
    return table


def plain_choice(
    key: int, place: int, node: int, weight: np.ndarray, wanted: int, replace: bool
) -> list[int]:
    """Offsets of the chosen edges of one node."""
    degree = len(weight)
    if wanted == -1 or (not replace and degree <= wanted):
        return list(range(degree))
    table = plain_table(weight)

    def words(number: int, attempt: int) -> list[int]:
        counter = np.array([[number, place | attempt << 24, node & 0xFFFFFFFF, node >> 32]], np.uint32)
        return [int(word) for word in _core.philox(counter, key)[0]]

    def draw(number: int) -> int:
        high, low = words(number // 2, 0)[number % 2 * 2 :][:2]
        product = (high << 32 | low) * degree
        column, fraction = product >> 64, product >> 32 & 0xFFFFFFFF
        threshold, alias = table[column]
        return column if fraction < threshold else alias

    if replace:
        return [draw(number) for number in range(wanted if degree else 0)]
    limit = 0 if degree <= 2 * wanted else 4 * wanted + degree // 4
    chosen: list[int] = []
    for number in range(limit):
        if len(chosen) < wanted and (drawn := draw(number)) not in chosen:
            chosen.append(drawn)
    rest = [offset for offset in range(degree) if offset not in chosen]

    def exponential(offset: int) -> float:
        if degree <= 64:
            return -math.log((words(offset // 4, 1)[offset % 4] + 0.5) * 2.0**-32)
        high, low = words(offset // 2, 2)[offset % 2 * 2 :][:2]
        return -math.log(((high << 20 | low >> 12) + 0.5) * 2.0**-52)

    if len(chosen) < wanted:
        rest.sort(key=lambda offset: exponential(offset) / float(weight[offset]))
        chosen += sorted(rest[: wanted - len(chosen)])
    return chosen


@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 2**32),
    degrees=st.sampled_from([[0, 1, 2], [3, 10], [0, 60, 64, 65, 130]]),
    skew=st.sampled_from([0.0, 0.3, 2.0, 8.0]),
    wanted=st.sampled_from([-1, 0, 1, 2, 5, 15, 40, 63, 65, 100]),
    replace=st.booleans(),
    narrow=st.booleans(),
)
def test_agrees_with_the_plain_implementation(
    seed: int, degrees: list[int], skew: float, wanted: int, replace: bool, narrow: bool
) -> None:
    rng = np.random.default_rng(seed)
    csc = random_csc(rng, 12, degrees, np.int32 if narrow else np.int64, skew)
    nodes = rng.permutation(12)
    sample = sample_neighbors(
        csc, nodes, [wanted], replace=replace, weight_attr="weight", seed=seed, epoch=3, batch=9
    )
    key = _core.philox_key(NEIGHBOR_STREAM, seed, 3, 9)
    expected = []
    for node in nodes:
        begin, end = csc.indptr[node], csc.indptr[node + 1]
        chosen = plain_choice(key, 0, int(node), csc.weight[begin:end], wanted, replace)
        expected += [int(begin) + offset for offset in chosen]
    assert sample.edge_ids.tolist() == expected
    np.testing.assert_array_equal(csc.indices[sample.edge_ids], sample.nodes[sample.row])


def test_later_hops_and_several_types() -> None:
    rng = np.random.default_rng(1)
    cscs = {("a", "x", "a"): random_csc(rng, 50, [0, 5, 80]), ("a", "y", "a"): random_csc(rng, 50, [3, 30])}
    cscs["a", "x", "a"].weight = None  # its edges are equally likely
    sample = sample_heterogeneous(cscs, {"a": [4, 7]}, [6, 3], weight_attr="weight", seed=2)
    uniform = sample_heterogeneous(cscs, {"a": [4, 7]}, [6], seed=2)
    key = _core.philox_key(NEIGHBOR_STREAM, 2, 0, 0)
    first = sample.num_sampled_edges["a", "x", "a"][0]
    np.testing.assert_array_equal(sample.edge_ids["a", "x", "a"][:first], uniform.edge_ids["a", "x", "a"])
    weighted, csc, at = ("a", "y", "a"), cscs["a", "y", "a"], 0
    hop_ends = np.cumsum(sample.num_sampled_nodes["a"])
    for hop, wanted in enumerate([6, 3]):
        for node in sample.nodes["a"][0 if hop == 0 else hop_ends[hop - 1] : hop_ends[hop]].tolist():
            begin, end = int(csc.indptr[node]), int(csc.indptr[node + 1])
            chosen = plain_choice(key, hop | 1 << 8, node, csc.weight[begin:end], wanted, False)
            assert (sample.edge_ids[weighted][at : at + len(chosen)] - begin).tolist() == chosen
            at += len(chosen)
    assert at == len(sample.edge_ids[weighted])


# ------------------------------------------------------------------ probabilities


def offsets(
    weight: np.ndarray, rows: int, wanted: int, replace: bool, batches: int, seed: int = 0
) -> np.ndarray:
    """Chosen edges of ``rows`` equal nodes, as offsets: [batches * rows, wanted]."""
    cscs = {ONE_ROW: rows_of(weight, rows)}
    seeds = {"b": np.arange(rows)}
    chosen = [
        sample_heterogeneous(
            cscs, seeds, [wanted], replace=replace, weight_attr="weight", seed=seed, batch=batch
        ).edge_ids[ONE_ROW]
        for batch in range(batches)
    ]
    return np.concatenate(chosen).reshape(batches * rows, wanted) % len(weight)


def skewed(degree: int, skew: float = 1.0) -> np.ndarray:
    return np.exp(np.random.default_rng(degree).normal(0, skew, degree)).astype(np.float32)


@pytest.mark.parametrize("degree", [*range(1, 71, 3), 1000, 100_000])
def test_with_replacement(degree: int) -> None:
    weight = skewed(degree)
    rows = 2000 if degree < 1000 else 20
    chosen = offsets(weight, rows, 10, True, 5 if degree < 1000 else max(20, degree // 40))
    counts = np.bincount(chosen.ravel(), minlength=degree)
    expected = weight.astype(np.float64) / weight.sum(dtype=np.float64) * chosen.size
    rare = expected < 5  # together they are one bin
    observed = np.append(counts[~rare], counts[rare].sum())
    bins = np.append(expected[~rare], expected[rare].sum())
    keep = bins > 0
    statistic = ((observed - bins)[keep] ** 2 / bins[keep]).sum()
    if keep.sum() > 1:
        assert 1e-4 < stats.chi2.sf(statistic, keep.sum() - 1) < 1 - 1e-4
    assert observed[~keep].sum() == 0


def inclusion_of_numpy(weight: np.ndarray, wanted: int, repeats: int) -> np.ndarray:
    """Return how often NumPy's successive sampling takes each edge, as a share of ``repeats``."""
    rng = np.random.default_rng(7)
    share = weight.astype(np.float64) / weight.sum(dtype=np.float64)
    counts = np.zeros(len(weight))
    for _ in range(repeats):
        counts[rng.choice(len(weight), wanted, replace=False, p=share)] += 1
    return counts / repeats


# Degrees and numbers on all ways to choose: keys at once, draws, draws with keys after them; mask, list, set.
@pytest.mark.parametrize(
    ("degree", "wanted", "skew"),
    [
        (6, 3, 1.0),
        (6, 5, 2.0),
        (20, 4, 1.0),
        (20, 4, 4.0),
        (64, 10, 3.0),
        (65, 10, 1.0),
        (65, 10, 4.0),
        (65, 40, 1.0),
        (200, 5, 6.0),
        (200, 70, 1.0),
        (300, 70, 4.0),
    ],
)
def test_inclusion_without_replacement(degree: int, wanted: int, skew: float) -> None:
    weight = skewed(degree, skew)
    repeats = 20_000
    chosen = offsets(weight, 1000, wanted, False, repeats // 1000)
    assert (np.diff(np.sort(chosen, axis=1), axis=1) > 0).all()
    ours = np.bincount(chosen.ravel(), minlength=degree) / repeats
    theirs = inclusion_of_numpy(weight, wanted, repeats)
    mean = (ours + theirs) / 2
    deviation = np.sqrt(2 * mean * (1 - mean) / repeats)
    z = (ours - theirs) / np.maximum(deviation, 1 / repeats)
    assert np.abs(z).max() < 4.5
    assert np.mean(z**2) < 1.8


def test_order_of_successive_draws() -> None:
    """Pairs without replacement have the probability that the definition gives them."""
    weight = np.array([1, 2, 3, 4, 0.5], np.float32)
    chosen = np.sort(offsets(weight, 1000, 2, False, 40), axis=1)  # degree > 4: from draws
    counts = np.zeros((5, 5))
    np.add.at(counts, (chosen[:, 0], chosen[:, 1]), 1)
    share = weight / weight.sum()
    pairs = [(i, j) for i in range(5) for j in range(i + 1, 5)]
    expected = [share[i] * share[j] * (1 / (1 - share[i]) + 1 / (1 - share[j])) for i, j in pairs]
    observed = [counts[pair] for pair in pairs]
    assert (
        1e-4 < stats.chisquare(observed, np.array(expected) / sum(expected) * sum(observed)).pvalue < 1 - 1e-4
    )


@pytest.mark.parametrize("wanted", [10, 100])
def test_hubs(wanted: int) -> None:
    """A fifth of the edges of a hub has three quarters of its weight, and one edge half of the rest."""
    degree = 100_000
    weight = np.ones(degree, np.float32)
    weight[: degree // 5] = 12
    weight[-1] = 40_000
    chosen = offsets(weight, 10, wanted, False, 60)
    assert all(len(set(row)) == wanted for row in chosen.tolist())
    heavy = (chosen < degree // 5).sum() / (chosen != degree - 1).sum()
    share = 240_000 / 320_000
    assert abs(heavy - share) < 4 * math.sqrt(share * (1 - share) / chosen.size)
    if wanted == 100:
        assert (chosen == degree - 1).any(axis=1).mean() > 0.99


@pytest.mark.parametrize("replace", [False, True])
def test_p_values_are_uniform_over_seeds(replace: bool) -> None:
    weight = skewed(40)
    expected = weight.astype(np.float64) / weight.sum(dtype=np.float64)
    p_values = []
    for seed in range(50):
        chosen = offsets(weight, 3000, 20 if replace else 1, replace, 1, seed)
        counts = np.bincount(chosen.ravel(), minlength=40)
        p_values.append(stats.chisquare(counts, expected / expected.sum() * chosen.size).pvalue)
    assert stats.kstest(p_values, "uniform").pvalue > 1e-3


# ------------------------------------------------------------------ threads, changes, memory, errors


@pytest.mark.parametrize("dtype", [np.int32, np.int64])
@pytest.mark.parametrize("replace", [False, True])
def test_same_for_any_number_of_threads(dtype: Any, replace: bool) -> None:
    rng = np.random.default_rng(1)
    csc = random_csc(rng, 40_000, [0, 3, 50, 500], dtype, 2.0)
    seeds = rng.choice(40_000, 9000, replace=False)
    samples = []
    for threads in (1, 2, 4):
        same = Csc(csc.indptr, csc.indices, csc.weight)  # with tables of its own
        samples.append(
            sample_neighbors(
                same, seeds, [5, 4], replace=replace, weight_attr="weight", seed=9, num_threads=threads
            )
        )
    for other in samples[1:]:
        for name in ("nodes", "row", "col", "edge_ids"):
            np.testing.assert_array_equal(getattr(samples[0], name), getattr(other, name))


def test_equal_weights_are_uniform() -> None:
    chosen = offsets(np.full(50, 0.1, np.float32), 1000, 10, False, 5)
    counts = np.bincount(chosen.ravel(), minlength=50)
    statistic = ((counts - 1000) ** 2).sum() / (5000 * 0.2 * 0.8) * 49 / 50
    assert 1e-4 < stats.chi2.sf(statistic, 49) < 1 - 1e-4


@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize("replace", [False, True])
def test_changed_graphs(seed: int, replace: bool) -> None:
    graph = alone(live_table(seed, base=0 if seed == 9 else 400, columns=True))
    csc = graph.csc()
    live = sample_neighbors(
        graph, np.arange(50), [5, -1, 2], replace=replace, weight_attr="weight", seed=seed
    )
    merged = sample_neighbors(
        csc, np.arange(50), [5, -1, 2], replace=replace, weight_attr="weight", seed=seed
    )
    np.testing.assert_array_equal(live.nodes, merged.nodes)
    np.testing.assert_array_equal(live.row, merged.row)
    assert csc.edge_ids is not None
    np.testing.assert_array_equal(live.edge_ids, csc.edge_ids[merged.edge_ids])


def test_reverse_edge_types_of_changed_graphs() -> None:
    from tests.sample.test_live import BACKWARD, graph_of

    graph = graph_of(live_table(3, columns=True))
    live = sample_heterogeneous(
        graph, {"a": np.arange(30)}, [4], weight_attr="weight" if [BACKWARD] else None, seed=3
    )
    merged = sample_heterogeneous(
        {BACKWARD: graph.csc(BACKWARD)}, {"a": np.arange(30)}, {BACKWARD: [4]}, weight_attr="weight", seed=3
    )
    assert live.num_sampled_edges[BACKWARD] == merged.num_sampled_edges[BACKWARD]


def test_tables_are_kept_with_the_adjacency_and_go_with_it() -> None:
    gc.collect()
    before = derived_table_bytes()
    graph = Graph.from_coo([0, 1, 2, 2], [1, 2, 0, 1], weight=[1, 2, 3, 4])
    first = weights_of(graph.csc(), "csc").base
    assert weights_of(graph.csc(), "csc").base is first
    assert derived_table_bytes() - before == first.bytes == 64  # 4 edges of 8 bytes, in whole cache lines
    del graph
    gc.collect()
    assert derived_table_bytes() == before
    assert first.bytes == 64


def test_new_weights_get_new_tables() -> None:
    csc = rows_of(np.array([1e-9, 1], np.float32), 100)
    assert set(sample_neighbors(csc, [0], [50], replace=True, weight_attr="weight").edge_ids.tolist()) == {1}
    csc.weight = np.tile(np.array([1, 1e-9], np.float32), 100)
    assert set(sample_neighbors(csc, [0], [50], replace=True, weight_attr="weight").edge_ids.tolist()) == {0}


def test_edge_cases() -> None:
    empty = Csc(np.zeros(6, np.int64), np.zeros(0, np.int32), np.zeros(0, np.float32))
    sample = sample_neighbors(empty, [4, 0], [3, 3], replace=True, weight_attr="weight")
    assert sample.num_sampled_nodes == [2, 0, 0]
    one = rows_of(np.array([0.3], np.float32), 2)
    assert sample_neighbors(one, [1], [3], replace=True, weight_attr="weight").edge_ids.tolist() == [1, 1, 1]
    assert sample_neighbors(one, [1], [3], replace=False, weight_attr="weight").edge_ids.tolist() == [1]
    assert sample_neighbors(one, [1], [-1], replace=True, weight_attr="weight").edge_ids.tolist() == [1]
    assert sample_neighbors(one, [], [3], replace=True, weight_attr="weight").nodes.shape == (0,)


@pytest.mark.parametrize("bad", [0, -1, np.nan, np.inf])
def test_bad_weights(bad: float) -> None:
    csc = rows_of(np.array([1, bad], np.float32), 2)
    with pytest.raises(DataError, match="positive finite numbers; edge 1 of node 0 has"):
        sample_neighbors(csc, [1], [1], weight_attr="weight")


@pytest.mark.parametrize(
    ("weight", "message"),
    [
        (None, "no sampled edges have a weight: csc"),
        (np.ones(4), "weight must be float32 with one dimension, received float64"),
        (np.ones((2, 2), np.float32), r"received float32 \(2, 2\)"),
    ],
)
def test_weights_of_another_form(weight: Any, message: str) -> None:
    csc = Csc(np.array([0, 2, 4]), np.zeros(4, np.int32), weight)
    with pytest.raises(UsageError, match=message):
        sample_neighbors(csc, [1], [1], weight_attr="weight")


def test_too_few_weights() -> None:
    csc = Csc(np.array([0, 2, 4]), np.zeros(4, np.int32), np.ones(3, np.float32))
    with pytest.raises(DataError, match="number of weights, 3; it goes from 2 to 4 at node 1"):
        sample_neighbors(csc, [1], [1], weight_attr="weight")
    csc.weight = np.ones(5, np.float32)
    with pytest.raises(UsageError, match="a weight for each of 4 edges, received 5"):
        sample_neighbors(csc, [1], [1], weight_attr="weight")


def test_loader() -> None:
    rng = np.random.default_rng(0)
    source, target = rng.integers(0, 30, 600), rng.integers(0, 30, 600)
    graph = Graph.from_coo(source, target, num_nodes=30, weight=rng.random(600) + 0.01)
    (batch,) = NeighborLoader(graph, [5], batch_size=30, weight_attr="weight", seed=4)
    expected = sample_neighbors(graph, np.arange(30), [5], weight_attr="weight", seed=4)
    assert batch.e_id.tolist() == expected.edge_ids.tolist()
    assert batch.e_id.tolist() != sample_neighbors(graph, np.arange(30), [5], seed=4).edge_ids.tolist()

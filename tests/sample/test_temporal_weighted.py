"""Sampling by weight among the edges that are not later than the seed's time."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from graphbox import _core
from graphbox.errors import DataError, UsageError
from graphbox.sample import sample_heterogeneous, sample_neighbors
from graphbox.sample.derived import weight_sums_of
from graphbox.sample.excluded import ExcludedEdges
from tests.sample.test_live import FORWARD, alone, graph_of, live_table

NEIGHBOR_STREAM = 1


@dataclass(eq=False)
class Csc:
    indptr: np.ndarray
    indices: np.ndarray
    timestamp: np.ndarray
    weight: Any


def random_csc(rng: np.random.Generator, nodes: int, degrees: list[int], dtype: Any = np.int64) -> Csc:
    indptr = np.concatenate([[0], np.cumsum(rng.choice(degrees, nodes))]).astype(np.int64)
    edges = int(indptr[-1])
    weight = np.exp(rng.normal(0, 2, edges)).astype(np.float32)
    return Csc(indptr, rng.integers(0, nodes, edges).astype(dtype), rng.integers(-20, 20, edges), weight)


# ------------------------------------------------------------------ the plain implementation


def uniform(key: int, tree: int, number: int, attempt: int) -> float:
    """Return draw ``number`` of the seed of a tree: a number in (0, 1)."""
    counter = np.array([[number // 2, attempt << 24, 0, tree]], dtype=np.uint32)
    words = _core.philox(counter, key)[0, number % 2 * 2 :]
    return float(((int(words[0]) << 32 | int(words[1])) >> 12) + 0.5) * 2.0**-52


def plain_choice(
    csc: Csc, node: int, time: int, wanted: int, replace: bool, key: int, tree: int, excluded: list[int]
) -> list[int]:
    """Return the edge ids that a seed draws."""
    in_order = sorted(range(csc.indptr[node], csc.indptr[node + 1]), key=lambda e: (csc.timestamp[e], e))
    allowed = [edge for edge in in_order if csc.timestamp[edge] <= time]
    kept = [edge for edge in allowed if edge not in excluded]
    if not kept or wanted < 0 or (not replace and len(kept) <= wanted):
        return kept
    sums = np.cumsum([0.0 if edge in excluded else float(csc.weight[edge]) for edge in allowed])

    def draw(number: int) -> int:
        return int(np.searchsorted(sums[:-1], uniform(key, tree, number, 0) * sums[-1], side="right"))

    if replace:
        return [allowed[draw(number)] for number in range(wanted)]
    limit = 0 if len(kept) <= 2 * wanted else 4 * wanted + len(allowed) // 4
    chosen: list[int] = []
    for number in range(limit):
        place = draw(number)
        if len(chosen) < wanted and place not in chosen:
            chosen.append(place)
    rest = [
        (-math.log(uniform(key, tree, place, 2)) / float(csc.weight[edge]), place)
        for place, edge in enumerate(allowed)
        if place not in chosen and edge not in excluded
    ]
    smallest = sorted(rest)[: wanted - len(chosen)]
    return [allowed[place] for place in chosen + sorted(place for _, place in smallest)]


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_agrees_with_the_plain_implementation(data: st.DataObject) -> None:
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32)))
    dtype = data.draw(st.sampled_from([np.int32, np.int64]))
    csc = random_csc(rng, 12, data.draw(st.sampled_from([[0, 1, 4, 9], [3, 70]])), dtype)
    wanted, replace = data.draw(st.sampled_from([-1, 1, 2, 5, 20])), data.draw(st.booleans())
    seeds, times = rng.integers(0, 12, 8), rng.integers(-22, 22, 8)
    excluded: list[int] = []
    edges = None
    if data.draw(st.booleans()) and len(csc.indices):
        excluded = rng.choice(len(csc.indices), len(csc.indices) // 4, replace=False).tolist()
        target = np.searchsorted(csc.indptr, excluded, side="right") - 1
        edges = ExcludedEdges(np.stack([csc.indices[excluded].astype(np.int64), target]))
        pairs = set(zip(csc.indices[excluded].tolist(), target.tolist(), strict=True))
        of_edge = np.repeat(np.arange(12), np.diff(csc.indptr))
        excluded = [e for e, node in enumerate(csc.indices.tolist()) if (node, int(of_edge[e])) in pairs]
    sample = sample_neighbors(
        csc,
        seeds,
        [wanted],
        replace=replace,
        weight_attr="weight",
        seed=5,
        input_time=times,
        excluded_edges=edges,
    )
    key = _core.philox_key(NEIGHBOR_STREAM, 5, 0, 0)
    expected = [
        edge
        for tree, (node, time) in enumerate(zip(seeds.tolist(), times.tolist(), strict=True))
        for edge in plain_choice(csc, node, time, wanted, replace, key, tree, excluded)
    ]
    assert sample.edge_ids.tolist() == expected
    np.testing.assert_array_equal(csc.indices[sample.edge_ids], sample.nodes[sample.row])


# ------------------------------------------------------------------ what it promises


@pytest.mark.parametrize(("degree", "wanted"), [(12, 3), (12, 7), (100, 5)])
def test_inclusion_as_numpy_draws_it(degree: int, wanted: int) -> None:
    rng = np.random.default_rng(1)
    weight = np.exp(rng.normal(0, 1, degree)).astype(np.float32)
    csc = Csc(np.array([0, degree]), np.zeros(degree, np.int64), rng.permutation(degree), weight)
    time = degree * 3 // 4
    trials = 20_000
    sample = sample_neighbors(
        csc, np.zeros(trials, int), [wanted], weight_attr="weight", input_time=np.full(trials, time)
    )
    ours = np.bincount(sample.edge_ids, minlength=degree) / trials
    allowed = np.flatnonzero(csc.timestamp <= time)
    probability = weight[allowed].astype(np.float64) / weight[allowed].sum(dtype=np.float64)
    keys = rng.exponential(size=(200_000, len(allowed))) / probability
    drawn = np.argpartition(keys, wanted, axis=1)[:, :wanted]
    expected = np.bincount(drawn.ravel(), minlength=len(allowed)) / len(keys)
    assert (ours[csc.timestamp > time] == 0).all()
    deviation = np.sqrt(expected * (1 - expected) * (1 / trials + 1 / len(keys)))
    assert (np.abs(ours[allowed] - expected) < 4.5 * deviation).all()


def test_with_replacement_in_proportion_to_the_weights() -> None:
    rng = np.random.default_rng(2)
    weight = rng.random(40).astype(np.float32) + np.float32(0.01)
    csc = Csc(np.array([0, 40]), np.zeros(40, np.int64), rng.permutation(40), weight)
    sample = sample_neighbors(
        csc, np.zeros(2000, int), [50], replace=True, weight_attr="weight", input_time=np.full(2000, 24)
    )
    observed = np.bincount(sample.edge_ids, minlength=40)[csc.timestamp <= 24]
    share = weight[csc.timestamp <= 24].astype(np.float64)
    expected = observed.sum() * share / share.sum()
    assert observed.sum() == 100_000
    assert ((observed - expected) ** 2 / expected).sum() < 51.2  # chi-square of 24 degrees of freedom, 0.1 %


def test_same_for_any_number_of_threads_and_never_later() -> None:
    rng = np.random.default_rng(3)
    csc = random_csc(rng, 30_000, [0, 3, 50])
    seeds, times = rng.integers(0, 30_000, 6000), rng.integers(-20, 20, 6000)
    samples = [
        sample_neighbors(
            Csc(csc.indptr, csc.indices, csc.timestamp, csc.weight),  # with sums of its own
            seeds,
            [5, 4],
            weight_attr="weight",
            num_threads=threads,
            input_time=times,
        )
        for threads in (1, 2, 4)
    ]
    assert (csc.timestamp[samples[0].edge_ids] <= times[samples[0].trees[samples[0].col]]).all()
    for other in samples[1:]:
        for name in ("nodes", "row", "col", "edge_ids", "trees"):
            np.testing.assert_array_equal(getattr(samples[0], name), getattr(other, name))


@pytest.mark.parametrize("seed", range(6))
def test_changed_graphs(seed: int) -> None:
    graph = alone(live_table(seed, base=0 if seed == 5 else 400, columns=True))
    csc = graph.csc()
    times = np.random.default_rng(seed).integers(0, 50, 50)
    live, merged = (
        sample_neighbors(what, np.arange(50), [5, 2], weight_attr="weight", seed=seed, input_time=times)
        for what in (graph, csc)
    )
    np.testing.assert_array_equal(live.nodes, merged.nodes)
    assert csc.edge_ids is not None
    np.testing.assert_array_equal(live.edge_ids, csc.edge_ids[merged.edge_ids])


def test_some_types_by_weight() -> None:
    graph = graph_of(live_table(2, columns=True))
    times = {"a": np.arange(20), "b": np.arange(10) + 30}
    sample = sample_heterogeneous(
        graph,
        {"a": np.arange(20), "b": np.arange(10)},
        [4, 3],
        weight_attr="weight" if [FORWARD] else None,
        input_time=times,
        edge_attributes=["timestamp"],
    )
    trees = sample.trees[FORWARD[2]][sample.col[FORWARD]]
    assert len(trees) > 0
    assert (sample.timestamp[FORWARD] <= np.concatenate([times["a"], times["b"]])[trees]).all()


def test_sums_are_kept_until_weights_or_times_are_others() -> None:
    csc = random_csc(np.random.default_rng(4), 10, [5])
    first = weight_sums_of(csc, "csc").base
    assert weight_sums_of(csc, "csc").base is first
    csc.timestamp = csc.timestamp[::-1].copy()
    assert weight_sums_of(csc, "csc").base is not first


def test_wrong_weights() -> None:
    csc = random_csc(np.random.default_rng(5), 10, [5])
    csc.weight = None
    with pytest.raises(UsageError, match="no sampled edges have a weight: csc"):
        sample_neighbors(csc, [1], [2], weight_attr="weight", input_time=[1])
    csc.weight = np.zeros(50, np.float32)
    with pytest.raises(DataError, match="positive finite numbers; edge"):
        sample_neighbors(csc, [1], [2], weight_attr="weight", input_time=[1])
    csc.weight = np.ones(49, np.float32)
    with pytest.raises(UsageError, match="a weight and a timestamp for each edge, received 49 and 50"):
        sample_neighbors(csc, [1], [2], weight_attr="weight", input_time=[1])

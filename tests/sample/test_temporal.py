"""Sampling by time: nothing later than the seed's time, against a plain implementation."""

from __future__ import annotations

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
from graphbox.sample.derived import times_of
from tests.sample.test_live import BACKWARD, FORWARD, alone, graph_of, live_table
from tests.sample.test_neighbor import NEIGHBOR_STREAM, Draws, choose


@dataclass(eq=False)
class Csc:
    indptr: np.ndarray
    indices: np.ndarray
    timestamp: Any


def random_csc(rng: np.random.Generator, nodes: int, degrees: list[int], dtype: Any = np.int64) -> Csc:
    indptr = np.concatenate([[0], np.cumsum(rng.choice(degrees, nodes))]).astype(np.int64)
    edges = int(indptr[-1])
    return Csc(indptr, rng.integers(0, nodes, edges).astype(dtype), rng.integers(-20, 20, edges))


def plain_edges(
    csc: Csc,
    seeds: list[int],
    times: list[int],
    num_neighbors: list[int],
    last: bool,
    replace: bool,
    key: int,
) -> list[int]:
    """Return the sampled edge ids."""
    nodes = list(enumerate(seeds))
    frontier = range(len(seeds))
    edge_ids: list[int] = []
    for hop, wanted in enumerate(num_neighbors):
        before = len(nodes)
        for col in frontier:
            tree, node = nodes[col]
            within = sum(other == tree for other, _ in nodes[:col])
            edges = range(int(csc.indptr[node]), int(csc.indptr[node + 1]))
            allowed = sorted((int(csc.timestamp[e]), e) for e in edges if csc.timestamp[e] <= times[tree])
            if last and wanted >= 0:
                chosen = list(range(max(len(allowed) - wanted, 0), len(allowed)))
            else:
                draws = Draws(key, hop, 0, tree << 32 | within)
                chosen = choose(draws, 0, len(allowed), wanted, replace)
            for place in chosen:
                edge_ids.append(allowed[place][1])
                neighbor = (tree, int(csc.indices[edge_ids[-1]]))
                if neighbor not in nodes:
                    nodes.append(neighbor)
        frontier = range(before, len(nodes))
    return edge_ids


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_agrees_with_the_plain_implementation(data: st.DataObject) -> None:
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32)))
    dtype = data.draw(st.sampled_from([np.int32, np.int64]))
    csc = random_csc(rng, 15, data.draw(st.sampled_from([[0, 1, 4, 9], [3, 70]])), dtype)
    num_neighbors = data.draw(st.lists(st.sampled_from([-1, 0, 1, 2, 4, 20]), min_size=1, max_size=3))
    seeds, times = rng.integers(0, 15, 6).tolist(), rng.integers(-22, 22, 6).tolist()
    last = data.draw(st.booleans())
    replace = not last and data.draw(st.booleans())
    sample = sample_neighbors(
        csc,
        seeds,
        num_neighbors,
        replace=replace,
        seed=5,
        input_time=times,
        temporal_strategy="last" if last else "uniform",
        edge_attributes=["timestamp"],
    )
    key = _core.philox_key(NEIGHBOR_STREAM, 5, 0, 0)
    expected = plain_edges(csc, seeds, times, num_neighbors, last, replace, key)
    assert sample.edge_ids.tolist() == expected
    np.testing.assert_array_equal(csc.indices[sample.edge_ids], sample.nodes[sample.row])
    assert (sample.timestamp <= np.array(times)[sample.trees[sample.col]]).all()


def test_every_allowed_edge_is_equally_likely() -> None:
    times = np.random.default_rng(0).permutation(50)
    csc = Csc(np.array([0, 50]), np.zeros(50, np.int64), times)
    counts = np.zeros(50)
    for batch in range(50):
        sample = sample_neighbors(csc, np.zeros(100, int), [5], batch=batch, input_time=np.full(100, 29))
        np.add.at(counts, sample.edge_ids, 1)
    assert (counts[times > 29] == 0).all()
    observed = counts[times <= 29]
    share = 5 / 30
    statistic = ((observed - 5000 * share) ** 2).sum() / (5000 * share * (1 - share)) * 29 / 30
    assert 1e-4 < stats.chi2.sf(statistic, 29) < 1 - 1e-4


@pytest.mark.parametrize("strategy", ["uniform", "last"])
def test_same_for_any_number_of_threads(strategy: Any) -> None:
    rng = np.random.default_rng(1)
    csc = random_csc(rng, 40_000, [0, 3, 50])
    seeds, times = rng.integers(0, 40_000, 9000), rng.integers(-20, 20, 9000)
    samples = []
    for threads in (1, 2, 4):
        same = Csc(csc.indptr, csc.indices, csc.timestamp)  # with an order of its own
        samples.append(
            sample_neighbors(
                same, seeds, [5, 4], num_threads=threads, input_time=times, temporal_strategy=strategy
            )
        )
    assert (csc.timestamp[samples[0].edge_ids] <= times[samples[0].trees[samples[0].col]]).all()
    for other in samples[1:]:
        for name in ("nodes", "row", "col", "edge_ids", "trees"):
            np.testing.assert_array_equal(getattr(samples[0], name), getattr(other, name))


@pytest.mark.parametrize("strategy", ["uniform", "last"])
@pytest.mark.parametrize("seed", range(6))
def test_changed_graphs(seed: int, strategy: Any) -> None:
    graph = alone(live_table(seed, base=0 if seed == 5 else 400, columns=True))
    csc = graph.csc()
    seeds = np.arange(50)
    times = np.random.default_rng(seed).integers(0, 50, 50)
    live, merged = (
        sample_neighbors(what, seeds, [5, 2], seed=seed, input_time=times, temporal_strategy=strategy)
        for what in (graph, csc)
    )
    np.testing.assert_array_equal(live.nodes, merged.nodes)
    assert csc.edge_ids is not None
    np.testing.assert_array_equal(live.edge_ids, csc.edge_ids[merged.edge_ids])


def test_several_types() -> None:
    graph = graph_of(live_table(2, columns=True))
    seeds = {"a": np.arange(20), "b": np.arange(10)}
    times = {"a": np.arange(20), "b": np.arange(10) + 30}
    sample = sample_heterogeneous(graph, seeds, [4, 3], input_time=times, edge_attributes=["timestamp"])
    of_tree = np.concatenate([times["a"], times["b"]])
    for edge_type, target in ((FORWARD, "b"), (BACKWARD, "a")):
        trees = sample.trees[target][sample.col[edge_type]]
        assert len(trees) > 0
        assert (sample.timestamp[edge_type] <= of_tree[trees]).all()


def test_hub_and_tables() -> None:
    hub = Csc(np.array([0, 10**5]), np.zeros(10**5, np.int64), np.arange(10**5)[::-1].copy())
    last = sample_neighbors(hub, [0, 0], [3], input_time=[10**5, 7], temporal_strategy="last")
    assert last.edge_ids.tolist() == [2, 1, 0, 99_994, 99_993, 99_992]
    assert times_of(hub, "hub").base is times_of(hub, "hub").base
    assert sample_neighbors(hub, [0], [3], input_time=[-1]).edge_ids.tolist() == []


def test_loader() -> None:
    rng = np.random.default_rng(0)
    graph = Graph.from_coo(*rng.integers(0, 30, (2, 600)), num_nodes=30, timestamp=rng.integers(0, 99, 600))
    times = rng.integers(0, 99, 30)
    for batch in NeighborLoader(
        graph,
        [5, 2],
        batch_size=8,
        shuffle=True,
        input_time=times,
        time_attr="timestamp",
        temporal_strategy="last",
        edge_attributes=["timestamp"],
    ):
        assert batch.seed_time.tolist() == times[batch.n_id[: batch.batch_size]].tolist()
        assert (batch.edge_time <= batch.seed_time[batch.batch[batch.edge_index[1]]]).all()
    for wrong in (
        {"input_time": times},
        {"time_attr": "timestamp"},
        {"input_time": times, "time_attr": "time"},
    ):
        with pytest.raises(UsageError, match="expected both input_time and time_attr='timestamp'"):
            NeighborLoader(graph, [5], **wrong)
    with pytest.raises(UsageError, match="a time for each of 30 seeds, received 3"):
        NeighborLoader(graph, [5], input_time=[1, 2, 3], time_attr="timestamp")


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"input_time": [1, 2]}, UsageError, "a time for each of 1 seeds, received 2"),
        ({"input_time": [1], "temporal_strategy": "first"}, UsageError, "uniform or last, received 'first'"),
        ({"input_time": [1], "temporal_strategy": "last", "replace": True}, UsageError, "with replacement"),
        (
            {"input_time": [1], "temporal_strategy": "last", "weight_attr": "weight"},
            UsageError,
            "so their weights cannot count",
        ),
    ],
)
def test_wrong_arguments(arguments: dict[str, Any], error: type[Exception], message: str) -> None:
    graph = Graph.from_coo([0, 1], [1, 2], timestamp=[1, 2], weight=[1, 1])
    with pytest.raises(error, match=message):
        sample_neighbors(graph, [1], [2], **arguments)


def test_edges_without_times() -> None:
    with pytest.raises(UsageError, match="no sampled edges have a timestamp"):
        sample_neighbors(Graph.from_coo([0], [1]), [1], [2], input_time=[1])
    damaged = Csc(np.array([0, 2, 4]), np.zeros(4, np.int64), np.ones(3, np.int64))
    with pytest.raises(DataError, match="number of timestamps, 3; it goes from 2 to 4 at node 1"):
        sample_neighbors(damaged, [1], [2], input_time=[1])
    graph = graph_of(live_table(0, columns=True))
    with pytest.raises(UsageError, match="expected times for the node types with seeds: a; received b"):
        sample_heterogeneous(graph, {"a": [0]}, [2], input_time={"b": [0]})

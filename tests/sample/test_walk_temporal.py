"""Walks along which time does not go back: bit for bit as a plain implementation, and what they promise."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from graphbox import _core
from graphbox.errors import UnsupportedError, UsageError
from graphbox.graph import Graph
from graphbox.sample import random_walk, walk_pairs
from tests.sample.test_live import FORWARD, alone, graph_of, live_table
from tests.sample.test_walk import WALK_STREAM, bounded
from tests.sample.test_walk_weighted import pair_bounded

LEAST, MOST = -(2**63), 2**63 - 1


@dataclass(eq=False)
class Csr:
    indptr: np.ndarray
    indices: np.ndarray
    timestamp: np.ndarray


def random_csr(rng: np.random.Generator, nodes: int, most: int, dtype: Any = np.int64) -> Csr:
    indptr = np.concatenate([[0], np.cumsum(rng.integers(0, most + 1, nodes))]).astype(np.int64)
    edges = int(indptr[-1])
    return Csr(indptr, rng.integers(0, nodes, edges).astype(dtype), rng.integers(-9, 30, edges))


def plain_walk(
    csr: Csr, start: list[int], times: list[int | None], length: int, rule: dict[str, Any], key: int
) -> list[list[int]]:
    strict, window = rule["strictly_later"], rule["time_window"]
    walks = []
    for walker, (first, begin) in enumerate(zip(start, times, strict=True)):
        walk, now = [first], begin
        for step in range(length):
            node = walk[-1]
            edges = range(csr.indptr[node], csr.indptr[node + 1]) if node >= 0 else range(0)
            late = sorted(
                (int(csr.timestamp[edge]), edge)
                for edge in edges
                if now is None
                or (
                    (csr.timestamp[edge] > now if strict else csr.timestamp[edge] >= now)
                    and (window is None or int(csr.timestamp[edge]) <= now + window)
                )
            )
            if not late:
                walk.append(-1)
                continue
            if rule["temporal_strategy"] == "linear":
                one = pair_bounded(key, walker, 2 * step, len(late) + 1)
                other = pair_bounded(key, walker, 2 * step + 1, len(late))
                place = min(one, other + (other >= one))
            else:
                place = bounded(key, walker, step, len(late))
            now, edge = late[place]
            walk.append(int(csr.indices[edge]))
        walks.append(walk)
    return walks


@settings(max_examples=80, deadline=None)
@given(st.data())
def test_agrees_with_the_plain_implementation(data: st.DataObject) -> None:
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32)))
    nodes = data.draw(st.integers(1, 20))
    csr = random_csr(
        rng, nodes, data.draw(st.sampled_from([3, 20])), data.draw(st.sampled_from([np.int32, np.int64]))
    )
    if len(csr.timestamp) > 4:
        csr.timestamp[:2] = LEAST + 1, MOST
    start = rng.integers(0, nodes, data.draw(st.integers(0, 80))).tolist()
    times = data.draw(st.sampled_from(["none", "one", "each"]))
    rule: dict[str, Any] = {
        "strictly_later": data.draw(st.booleans()),
        "time_window": data.draw(st.sampled_from([None, 0, 5, MOST])),
        "temporal_strategy": data.draw(st.sampled_from(["uniform", "linear"])),
    }
    each: list[Any] = {
        "none": [None] * len(start),
        "one": [4] * len(start),
        "each": rng.integers(-12, 32, len(start)).tolist(),
    }[times]
    start_time = {"none": None, "one": 4, "each": each}[times]
    walks = random_walk(csr, start, 6, temporal=True, start_time=start_time, seed=9, **rule)
    assert walks.tolist() == plain_walk(csr, start, each, 6, rule, _core.philox_key(WALK_STREAM, 9, 0, 0))


def test_times_never_decrease() -> None:
    # Each edge leads to a node of its own, whose number tells when it was.
    times = np.random.default_rng(0).permutation(4000)
    graph = Graph.from_coo(np.arange(4000) // 200, np.arange(4000) % 20, num_nodes=20, timestamp=times)
    csr = graph.csr()
    at = {
        (s, t): times[(np.arange(4000) // 200 == s) & (np.arange(4000) % 20 == t)]
        for s, t in np.ndindex(20, 20)
    }
    for strict in (False, True):
        walks = random_walk(
            csr, np.arange(20).repeat(20), 12, temporal=True, strictly_later=strict, start_time=100
        )
        for walk in walks.tolist():
            now = 100
            for source, target in pairwise(walk):
                later = at[source, target] if target >= 0 else np.zeros(0)
                assert target < 0 or (later > now if strict else later >= now).any()
                now = int(later[later >= now].min()) if target >= 0 else now


def test_strictly_later_and_windows() -> None:
    graph = Graph.from_coo([0, 1, 2, 3], [1, 2, 3, 4], num_nodes=5, timestamp=[5, 5, 8, 20])
    assert random_walk(graph, [0], 4, temporal=True).tolist() == [[0, 1, 2, 3, 4]]
    assert random_walk(graph, [0], 4, temporal=True, strictly_later=True).tolist() == [[0, 1, -1, -1, -1]]
    assert random_walk(graph, [0], 4, temporal=True, time_window=10).tolist() == [[0, 1, 2, 3, -1]]
    for start_time, strict, first in ((5, False, 1), (5, True, -1), (6, False, -1), (-9, True, 1)):
        walk = random_walk(graph, [0], 1, temporal=True, start_time=start_time, strictly_later=strict)
        assert walk.tolist() == [[0, first]]
    assert random_walk(graph, [0], 1, temporal=True, start_time=3, time_window=1).tolist() == [[0, -1]]
    assert random_walk(graph, [0, 0], 1, temporal=True, start_time=[5, 6]).tolist() == [[0, 1], [0, -1]]


def test_walks_that_begin_with_edges_that_came_in() -> None:
    graph = Graph.from_coo([0, 1, 1], [1, 2, 3], num_nodes=5, timestamp=[1, 2, 9])
    walks = random_walk(graph, [4, 4, 4], 2, temporal=True, second=[1, 1, 1], start_time=[3, 9, 10])
    assert walks.tolist() == [[4, 1, 3], [4, 1, 3], [4, 1, -1]]
    ((centers, contexts),) = walk_pairs(
        graph, [4], 2, 2, temporal=True, second=[1], start_time=[3], strictly_later=True
    )
    assert sorted(zip(centers.tolist(), contexts.tolist(), strict=True)) == [
        (1, 3), (1, 4), (3, 1), (3, 4), (4, 1), (4, 3),
    ]  # fmt: skip


@pytest.mark.parametrize("strategy", ["uniform", "linear"])
def test_chances(strategy: Any) -> None:
    degree = 50
    times = np.random.default_rng(2).permutation(degree)
    csr = Csr(np.arange(degree + 1) * degree, np.tile(np.arange(degree), degree), np.tile(times, degree))
    p_values = []
    for seed in range(50):
        walks = random_walk(
            csr, np.zeros(4000, int), 1, temporal=True, start_time=20, temporal_strategy=strategy, seed=seed
        )
        counts = np.bincount(walks[:, 1], minlength=degree)
        assert (counts[times < 20] == 0).all()
        weight = np.where(times >= 20, degree - times if strategy == "linear" else 1.0, 0.0)
        late = times >= 20
        p_values.append(stats.chisquare(counts[late], weight[late] / weight.sum() * 4000).pvalue)
    assert stats.kstest(p_values, "uniform").pvalue > 1e-3


@pytest.mark.parametrize(
    "rule", [{}, {"strictly_later": True, "temporal_strategy": "linear", "time_window": 15}]
)
def test_threads_and_chunks(rule: dict[str, Any]) -> None:
    csr = random_csr(np.random.default_rng(5), 3000, 30, np.int32)
    start, times = np.arange(3000), np.random.default_rng(6).integers(-9, 20, 3000)
    one = random_walk(csr, start, 8, temporal=True, start_time=times, num_threads=1, **rule)
    for threads in (2, 4):
        more = random_walk(csr, start, 8, temporal=True, start_time=times, num_threads=threads, **rule)
        np.testing.assert_array_equal(one, more)
    whole = list(walk_pairs(csr, start, 8, 3, temporal=True, start_time=times, **rule))
    parts = list(walk_pairs(csr, start, 8, 3, temporal=True, start_time=times, chunk_pairs=500, **rule))
    assert len(parts) > len(whole)
    np.testing.assert_array_equal(np.concatenate(whole, 1), np.concatenate(parts, 1))


@pytest.mark.parametrize("base", [0, 400])
def test_changed_graphs(base: int) -> None:
    graph = alone(live_table(4, base=base, columns=True))
    start = np.arange(graph.num_nodes()).repeat(9)
    rules: list[dict[str, Any]] = [{}, {"temporal_strategy": "linear", "time_window": 20}]
    for rule in rules:
        live = random_walk(graph, start, 8, temporal=True, start_time=10, **rule)
        merged = random_walk(graph.csr(), start, 8, temporal=True, start_time=10, **rule)
        np.testing.assert_array_equal(live, merged)
        assert (live[:, 1] >= 0).any()
    both = graph_of(live_table(4, base=base, columns=True))
    back = (FORWARD[2], f"rev_{FORWARD[1]}", FORWARD[0])
    walks = random_walk(both, np.arange(60), 5, metapath=[FORWARD, back], temporal=True)
    assert (walks[:, 2] >= 0).any()


class Mixed:
    """Edges of one type have times, those of the other do not."""

    node_types = ("a",)
    edge_types = (("a", "timed", "a"), ("a", "timeless", "a"))

    def num_nodes(self, _: str) -> int:
        return 3

    def csr(self, edge_type: Any) -> Any:
        csr = Csr(np.array([0, 1, 2, 3]), np.array([1, 2, 0]), np.array([5, 6, 1]))
        if edge_type[1] == "timeless":
            del csr.timestamp
        return csr

    csc = csr


def test_edges_without_times_may_be_taken_at_any_time() -> None:
    timed, timeless = Mixed.edge_types
    walk = random_walk(Mixed(), [0], 4, metapath=[timed, timeless], temporal=True)
    assert walk.tolist() == [[0, 1, 2, -1, -1]]  # at 5, at any time, and then 1 is too early
    with pytest.raises(UsageError, match="no edges of the walk have a timestamp: a timeless a"):
        random_walk(Mixed(), [0], 4, metapath=[timeless], temporal=True)


def test_errors() -> None:
    graph = Graph.from_coo([0, 1], [1, 0], num_nodes=2, timestamp=[1, 2], weight=[1, 1])
    rules: list[dict[str, Any]] = [
        {"start_time": 3},
        {"start_time": np.array([3, 4])},
        {"strictly_later": True},
        {"time_window": 3},
        {"temporal_strategy": "linear"},
    ]
    for rule in rules:
        with pytest.raises(UsageError, match="need temporal=True"):
            random_walk(graph, [0], 3, **rule)
    others: list[tuple[str, dict[str, Any]]] = [
        ("p and q", {"p": 2.0}),
        ("weighted", {"weighted": True}),
        ("restart_probability", {"restart_probability": 0.5}),
    ]
    for name, other in others:
        with pytest.raises(UnsupportedError, match=f"by time alone, not by {name}"):
            random_walk(graph, [0], 3, temporal=True, **other)
    windows: list[Any] = [-1, 1.5, True]
    for window in windows:
        with pytest.raises(UsageError, match="time_window: expected a length of time"):
            random_walk(graph, [0], 3, temporal=True, time_window=window)
    with pytest.raises(UsageError, match="temporal_strategy: expected uniform or linear"):
        random_walk(graph, [0], 3, temporal=True, temporal_strategy="last")  # type: ignore[call-overload]
    with pytest.raises(UsageError, match="strictly_later: expected True or False"):
        random_walk(graph, [0], 3, temporal=True, strictly_later=1)  # type: ignore[call-overload]
    with pytest.raises(UsageError, match="start_time: expected one for each of 1 walkers, received 2"):
        random_walk(graph, [0], 3, temporal=True, start_time=[1, 2])
    with pytest.raises(UsageError, match="start_time: expected integers"):
        random_walk(graph, [0], 3, temporal=True, start_time=1.5)
    assert random_walk(graph, [], 3, temporal=True, start_time=5).shape == (0, 4)

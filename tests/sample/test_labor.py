"""LABOR against a plain implementation, and against the distribution that each node alone must have."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from graphbox import _core
from graphbox.errors import UsageError
from graphbox.graph import Graph
from graphbox.graph.schema import CSC
from graphbox.sample import (
    ExcludedEdges,
    LinkNeighborLoader,
    NeighborLoader,
    NeighborSample,
    sample_heterogeneous,
    sample_neighbors,
)
from tests.sample.test_live import BACKWARD, FORWARD, alone, graph_of, live_table

STREAM = 7
"""Of LABOR's keys."""


def numbers(key: int, hop: int, source_type: int, nodes: np.ndarray) -> np.ndarray:
    """Return the number in [0, 1) of each entry of an ascending list, copies by how many are before them."""
    nodes = nodes.astype(np.int64)
    copy = np.arange(len(nodes)) - np.searchsorted(nodes, nodes)
    place = np.full(len(nodes), hop | source_type << 8)
    counters = np.stack([copy, place, nodes & 0xFFFFFFFF, nodes >> 32], axis=1).astype(np.uint32)
    words = _core.philox(counters, key).astype(np.float64)
    result: np.ndarray = words[:, 0] * 2.0**-32 + words[:, 1] * 2.0**-64
    return result


def chosen(
    csc: Any, node: int, wanted: int, numbers_of: Any, weighted: bool, excluded: frozenset[int] = frozenset()
) -> list[int]:
    """Return the reference: positions of the edges with the smallest numbers."""
    positions = np.arange(csc.indptr[node], csc.indptr[node + 1])
    key = numbers_of(csc.indices[positions])
    if weighted:
        key = -np.log1p(-key) / csc.weight[positions].astype(np.float64)
    left = ~np.isin(csc.indices[positions], list(excluded))
    positions, key = positions[left], key[left]
    if 0 <= wanted < len(positions):
        positions = np.sort(positions[np.argsort(key, kind="stable")[:wanted]])
    return list(positions.tolist())


def assert_as_reference(
    csc: Any, sample: NeighborSample[Any], num_neighbors: list[int], key: int, weighted: bool
) -> None:
    """Check every edge of a sample, hop by hop."""
    ends = np.cumsum([0, *sample.nodes_per_hop])
    edges = np.cumsum([0, *sample.edges_per_hop])
    for hop, ((begin, end), (first, last)) in enumerate(zip(pairwise(ends), pairwise(edges), strict=False)):
        expected: list[int] = []
        for node in sample.nodes[begin:end]:
            expected += chosen(
                csc, node, num_neighbors[hop], lambda nodes, hop=hop: numbers(key, hop, 0, nodes), weighted
            )
        ids = getattr(csc, "edge_ids", None)
        named = np.array(expected, np.int64) if ids is None else ids[np.array(expected, np.int64)]
        np.testing.assert_array_equal(sample.edge_ids[first:last], named)
        if len(expected):
            np.testing.assert_array_equal(sample.nodes[sample.rows[first:last]], csc.indices[expected])


@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 10_000),
    base=st.sampled_from([0, 30, 400, 5000]),
    changes=st.integers(0, 3),
    weighted=st.booleans(),
    num_neighbors=st.lists(st.integers(-1, 7), min_size=1, max_size=3),
)
def test_as_the_reference(
    seed: int, base: int, changes: int, weighted: bool, num_neighbors: list[int]
) -> None:
    """On changed graphs with parallel edges."""
    graph = alone(live_table(seed, base=base, changes=changes, columns=True))
    csc = graph.csc()
    weighted = weighted and csc.weight is not None
    seeds = np.random.default_rng(seed).choice(graph.num_nodes(), 12, replace=False)
    sample = sample_neighbors(
        graph,
        seeds,
        num_neighbors,
        weighted=weighted,
        labor=True,
        seed=seed,
        epoch=2,
    )
    key = _core.philox_key(STREAM, seed, 2, 0)
    assert_as_reference(csc, sample, num_neighbors, key, weighted)


@pytest.mark.parametrize("dtype", [np.int32, np.int64])
@pytest.mark.parametrize("degree", [6, 31, 32, 33, 511, 512, 513, 20_000])
@pytest.mark.parametrize("weighted", [False, True])
def test_degrees_around_the_sizes_of_blocks(degree: int, dtype: Any, weighted: bool) -> None:
    rng = np.random.default_rng(degree)
    lists = [np.sort(rng.choice(30_000, degree, replace=False)) for _ in range(3)]
    lists[2][degree // 2 :] = lists[2][degree // 2]  # many copies of one edge, over ends of blocks
    indptr = np.zeros(30_001, np.int64)
    indptr[1:4] = degree
    weight = np.exp(rng.normal(0, 3, 3 * degree)).astype(np.float32)
    csc = CSC(np.cumsum(indptr), np.concatenate(lists).astype(dtype), 30_000, weight)
    key = _core.philox_key(STREAM, 0, 0, 0)
    for wanted in (1, 5, 64, 100):
        sample = sample_neighbors(csc, [0, 1, 2], [wanted], weighted=weighted, labor=True)
        assert_as_reference(csc, sample, [wanted], key, weighted)


def test_several_types() -> None:
    """A source node has one number for all edge types out of it."""
    rng = np.random.default_rng(1)
    types = [("a", "to", "b"), ("b", "like", "b"), ("a", "see", "b")]
    cscs = {}
    for edge_type in types:
        lists = [np.sort(rng.choice(50, 20, replace=False)) for _ in range(50)]
        cscs[edge_type] = CSC(np.arange(51) * 20, np.concatenate(lists).astype(np.int32), 50)
    seeds = np.arange(10)
    sample = sample_heterogeneous(cscs, {"b": seeds}, [4], labor=True, seed=3)
    key = _core.philox_key(STREAM, 3, 0, 0)
    for edge_type, source_type in zip(types, (0, 1, 0), strict=True):
        expected = [
            edge
            for node in seeds.tolist()
            for edge in chosen(
                cscs[edge_type],
                node,
                4,
                lambda nodes, number=source_type: numbers(key, 0, number, nodes),
                False,
            )
        ]
        np.testing.assert_array_equal(sample.edge_ids[edge_type], expected)


@pytest.mark.parametrize("degree", [7, 64, 65, 1000])
def test_each_node_draws_uniformly(degree: int) -> None:
    indptr = np.zeros(degree + 1, np.int64)
    indptr[1:] = degree
    csc = CSC(indptr, np.arange(degree, dtype=np.int32), degree)
    wanted, batches = 5, 3000 if degree < 100 else 20_000
    counts = np.zeros(degree)
    for batch in range(batches):
        counts[sample_neighbors(csc, [0], [wanted], labor=True, batch=batch, threads=1).edge_ids] += 1
    assert counts.sum() == wanted * batches
    expected = np.full(degree, wanted * batches / degree)
    # Drawing without replacement shrinks the sum by (degree - wanted) / (degree - 1).
    statistic = ((counts - expected) ** 2 / expected).sum() * (degree - 1) / (degree - wanted)
    assert 1e-4 < stats.chi2.sf(statistic, degree - 1) < 1 - 1e-4


def test_each_node_draws_by_weight_as_without() -> None:
    weight = np.array([1, 2, 4, 8, 1, 0.5, 30, 3], np.float32)
    csc = CSC(np.array([0, *[8] * 8]), np.arange(8, dtype=np.int32), 8, weight)
    counts = np.zeros((2, 8))
    for labor in (False, True):
        for batch in range(6000):
            sample = sample_neighbors(csc, [0], [3], weighted=True, labor=labor, batch=batch, threads=1)
            counts[int(labor), sample.edge_ids] += 1
    assert stats.chi2_contingency(counts).pvalue > 1e-3


def test_parallel_edges_are_drawn_as_others() -> None:
    csc = CSC(np.array([0, 4, 4, 4]), np.array([1, 1, 1, 2], np.int32), 3)
    counts = np.zeros(4)
    for batch in range(4000):
        counts[sample_neighbors(csc, [0], [1], labor=True, batch=batch, threads=1).edge_ids] += 1
    assert stats.chisquare(counts).pvalue > 1e-4


def random_graph(nodes: int, degree: int) -> CSC:
    rng = np.random.default_rng(0)
    lists = [np.sort(rng.choice(nodes, degree, replace=False)) for _ in range(nodes)]
    weight = rng.exponential(1, nodes * degree).astype(np.float32)
    return CSC(np.arange(nodes + 1) * degree, np.concatenate(lists).astype(np.int32), nodes, weight)


@pytest.mark.parametrize("weighted", [False, True])
def test_nodes_share_neighbors(weighted: bool) -> None:
    csc = random_graph(500, 60)
    csc.indices[60:120] = csc.indices[:60]
    csc.weight[60:120] = csc.weight[:60]  # type: ignore[index]
    alike = sample_neighbors(csc, [0, 1], [5], weighted=weighted, labor=True)
    np.testing.assert_array_equal(alike.edge_ids[:5] + 60, alike.edge_ids[5:])
    few, many = (
        sum(
            len(sample_neighbors(csc, np.arange(50), [5], weighted=weighted, labor=labor, batch=batch).nodes)
            for batch in range(20)
        )
        for labor in (True, False)
    )
    assert few < 0.75 * many


def test_hops_have_numbers_of_their_own() -> None:
    csc = random_graph(500, 60)
    ring = CSC(csc.indptr, np.sort(np.tile(csc.indices[:60], (500, 1))).ravel(), 500)
    sample = sample_neighbors(ring, [0], [5, 5], labor=True)
    first, second = sample.edge_ids[:5] % 60, sample.edge_ids[5:10] % 60
    assert set(first.tolist()) != set(second.tolist())


def test_excluded_edges() -> None:
    csc = random_graph(300, 40)
    seeds = np.arange(30)
    sources = csc.indices[seeds * 40 + 7].astype(np.int64)
    excluded = ExcludedEdges(np.stack([sources, seeds]))
    key = _core.philox_key(STREAM, 0, 0, 0)
    for wanted in (6, -1, 39, 40):
        sample = sample_neighbors(csc, seeds, [wanted], labor=True, excluded_edges=excluded)
        expected = [
            edge
            for node, source in zip(seeds.tolist(), sources.tolist(), strict=True)
            for edge in chosen(
                csc, node, wanted, lambda nodes: numbers(key, 0, 0, nodes), False, frozenset([source])
            )
        ]
        np.testing.assert_array_equal(sample.edge_ids, expected)


def test_any_number_of_threads() -> None:
    csc = random_graph(6000, 30)
    samples = [
        sample_neighbors(csc, np.arange(5000), [4, 3], labor=True, weighted=True, threads=threads)
        for threads in (1, 2, 4)
    ]
    for sample in samples[1:]:
        np.testing.assert_array_equal(sample.nodes, samples[0].nodes)
        np.testing.assert_array_equal(sample.edge_ids, samples[0].edge_ids)


def test_changed_graphs_of_several_types() -> None:
    graph = graph_of(live_table(5))
    seeds = {"a": np.arange(30), "b": np.arange(10, 40)}
    live = sample_heterogeneous(graph, seeds, [5, 4], labor=True)
    cscs = {edge_type: graph.csc(edge_type) for edge_type in graph.edge_types}
    merged = sample_heterogeneous(cscs, seeds, [5, 4], labor=True)
    for edge_type in (FORWARD, BACKWARD):
        np.testing.assert_array_equal(live.rows[edge_type], merged.rows[edge_type])
        np.testing.assert_array_equal(live.cols[edge_type], merged.cols[edge_type])


def test_what_does_not_go_with_it() -> None:
    graph = Graph.from_coo([0, 1], [1, 2], timestamp=[3, 4])
    with pytest.raises(UsageError, match="labor and replace"):
        sample_neighbors(graph, [0], [1], replace=True, labor=True)
    with pytest.raises(UsageError, match="labor and disjoint"):
        sample_neighbors(graph, [0], [1], labor=True, disjoint=True)
    with pytest.raises(UsageError, match="labor and disjoint"):
        sample_neighbors(graph, [0], [1], labor=True, input_time=[9])
    assert sample_neighbors(graph, [], [1], labor=True).nodes.tolist() == []


def test_loaders() -> None:
    graph = alone(live_table(2, base=4000))
    few, many = (
        [
            sum(map(len, batch.sample.nodes.values()))
            for batch in NeighborLoader(graph, [5, 5], batch_size=20, labor=labor, output="numpy")
        ]
        for labor in (True, False)
    )
    assert sum(few) < sum(many)
    sample = sample_neighbors(graph, np.arange(20), [5, 5], labor=True)
    assert few[0] == len(sample.nodes)
    links = LinkNeighborLoader(graph, [5], batch_size=10, labor=True, output="numpy")
    assert len(next(iter(links)).sample.nodes) == 1
    with pytest.raises(UsageError, match="labor and disjoint"):
        next(iter(NeighborLoader(graph, [5], labor=True, disjoint=True, output="numpy")))

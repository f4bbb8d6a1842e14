"""Edges that must not be sampled: a node draws as if it had only its other edges."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from scipy import stats

from graphbox.errors import UsageError
from graphbox.graph import Graph
from graphbox.sample import ExcludedEdges, sample_heterogeneous, sample_neighbors
from tests.sample.test_live import BACKWARD, FORWARD, alone, graph_of, live_table

NODES = 40


@dataclass(eq=False)
class Csc:
    """Compressed rows with what edges can have."""

    indptr: np.ndarray
    indices: np.ndarray
    weight: Any = None
    timestamp: Any = None

    def targets(self) -> np.ndarray:
        return np.repeat(np.arange(len(self.indptr) - 1), np.diff(self.indptr))


def random_csc(seed: int, *, ascending: bool = True, hub: int = 0, dtype: Any = np.int32) -> Csc:
    """Return random edges, many of them parallel; node 0 has ``hub`` in-edges more."""
    rng = np.random.default_rng(seed)
    source, target = rng.integers(0, NODES, (2, 500))
    source = np.concatenate([source, rng.integers(0, NODES, hub)])
    target = np.concatenate([target, np.zeros(hub, np.int64)])
    order = np.lexsort((source, target)) if ascending else np.argsort(target, kind="stable")
    indptr = np.append(0, np.cumsum(np.bincount(target, minlength=NODES))).astype(np.int64)
    edges = len(source)
    weight = np.exp(rng.normal(0, 1, edges)).astype(np.float32)
    return Csc(indptr, source[order].astype(dtype), weight, rng.integers(0, 9, edges))


def without(csc: Any, pairs: np.ndarray) -> Csc:
    """Return the rows without the edges between these pairs: the plain implementation."""
    targets = np.repeat(np.arange(len(csc.indptr) - 1), np.diff(csc.indptr))
    gone = set(zip(*pairs.tolist(), strict=True))
    kept = np.array(
        [(s, t) not in gone for s, t in zip(csc.indices.tolist(), targets.tolist(), strict=True)], bool
    )
    counts = np.bincount(targets[kept], minlength=len(csc.indptr) - 1)
    columns = [None if column is None else column[kept] for column in (csc.weight, csc.timestamp)]
    return Csc(np.append(0, np.cumsum(counts)).astype(np.int64), csc.indices[kept], *columns)


def some_pairs(csc: Any, seed: int, count: int = 30) -> np.ndarray:
    """Return pairs that edges join, some of them twice, and pairs that none joins."""
    rng = np.random.default_rng(seed)
    edges = rng.integers(0, max(len(csc.indices), 1), count if len(csc.indices) else 0)
    targets = np.repeat(np.arange(len(csc.indptr) - 1), np.diff(csc.indptr))
    joined = np.stack([csc.indices[edges].astype(np.int64), targets[edges]])
    return np.concatenate([joined, joined[:, :5], rng.integers(0, NODES, (2, count // 2))], axis=1)


def same(one: Any, other: Any) -> None:
    for name in ("nodes", "row", "col", "trees", "timestamp"):
        np.testing.assert_array_equal(getattr(one, name), getattr(other, name))


@pytest.mark.parametrize("ascending", [True, False])
@pytest.mark.parametrize("dtype", [np.int32, np.int64])
@pytest.mark.parametrize(
    "how",
    [
        {},
        {"replace": True},
        {"disjoint": True},
        {"disjoint": True, "replace": True},
        {"input_time": True},
        {"input_time": True, "replace": True},
        {"input_time": True, "temporal_strategy": "last"},
    ],
)
def test_it_is_as_if_the_edges_were_not_there(how: dict[str, Any], dtype: Any, ascending: bool) -> None:
    for seed in range(10):
        csc = random_csc(seed, ascending=ascending, hub=300 if seed % 2 else 0, dtype=dtype)
        pairs = some_pairs(csc, seed)
        seeds = np.random.default_rng(seed).integers(0, NODES, 12)
        arguments = how | {"seed": seed, "num_threads": 1 + seed % 3}
        if "input_time" in how:
            arguments |= {"input_time": np.arange(12) % 9, "edge_attributes": ["timestamp"]}
        for num_neighbors in ([4, 3], [-1, 2], [1000, 1]):
            got = sample_neighbors(
                csc, seeds, num_neighbors, excluded_edges=ExcludedEdges(pairs), **arguments
            )
            same(got, sample_neighbors(without(csc, pairs), seeds, num_neighbors, **arguments))
            np.testing.assert_array_equal(csc.indices[got.edge_ids], got.nodes[got.row])
            np.testing.assert_array_equal(csc.targets()[got.edge_ids], got.nodes[got.col])


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 10**6), st.integers(0, 400), st.integers(0, 4))
def test_of_a_changed_graph_too(seed: int, base: int, changes: int) -> None:
    graph = alone(live_table(seed, base=base, changes=changes, columns=True))
    assume(graph.csc().weight is not None)  # which a graph without edges has not
    pairs = some_pairs(graph.csc(), seed)
    pairs = pairs[:, pairs.max(axis=0) < graph.num_nodes()]
    seeds = np.random.default_rng(seed).integers(0, graph.num_nodes(), 8)
    plain = without(graph.csc(), pairs)
    excluded = ExcludedEdges(pairs)
    same(
        sample_neighbors(graph, seeds, [5, 3], excluded_edges=excluded, seed=seed),
        sample_neighbors(plain, seeds, [5, 3], seed=seed),
    )
    times: dict[str, Any] = {"input_time": np.arange(8) * 6, "edge_attributes": ["timestamp"], "seed": seed}
    same(
        sample_neighbors(graph, seeds, [5, 3], excluded_edges=excluded, **times),
        sample_neighbors(plain, seeds, [5, 3], **times),
    )
    weighted = sample_neighbors(
        graph, seeds, [5, 3], weight_attr="weight", excluded_edges=excluded, seed=seed
    )
    gone = set(zip(*pairs.tolist(), strict=True))
    sampled = zip(weighted.nodes[weighted.row].tolist(), weighted.nodes[weighted.col].tolist(), strict=True)
    assert not gone & set(sampled)


def test_in_some_trees_only() -> None:
    csc = random_csc(5)
    pairs = some_pairs(csc, 5, 60)
    trees = np.random.default_rng(6).integers(0, 10, pairs.shape[1])
    seeds = np.arange(10)
    got = sample_neighbors(
        csc, seeds, [6, 6], disjoint=True, excluded_edges=ExcludedEdges(pairs, trees, np.arange(10)), seed=9
    )
    for tree in range(10):
        plain = sample_neighbors(without(csc, pairs[:, trees == tree]), seeds, [6, 6], disjoint=True, seed=9)
        for here, there in [(got, plain)]:
            mine, theirs = here.trees[here.row] == tree, there.trees[there.row] == tree
            np.testing.assert_array_equal(here.nodes[here.row][mine], there.nodes[there.row][theirs])


def test_by_edge_type() -> None:
    graph = graph_of(live_table(3))
    csc = graph.csc(FORWARD)
    pairs = some_pairs(csc, 3)
    pairs = pairs[:, pairs.max(axis=0) < graph.num_nodes("a")]
    got = sample_heterogeneous(
        graph, {"b": np.arange(20)}, [-1, -1], excluded_edges={FORWARD: ExcludedEdges(pairs)}
    )
    gone = set(zip(*pairs.tolist(), strict=True))

    def sampled(edge_type: tuple[str, str, str]) -> set[tuple[int, int]]:
        sources, targets = got.nodes[edge_type[0]], got.nodes[edge_type[2]]
        return set(
            zip(sources[got.row[edge_type]].tolist(), targets[got.col[edge_type]].tolist(), strict=True)
        )

    assert not gone & sampled(FORWARD)
    assert {(target, source) for source, target in gone} & sampled(BACKWARD)


# ------------------------------------------------------------------ weighted


def successive(weight: np.ndarray, count: int, draws: int, rng: np.random.Generator) -> np.ndarray:
    """Return how often each edge is in a sample without replacement, by NumPy."""
    keys = rng.exponential(size=(draws, len(weight))) / weight
    taken = np.argpartition(keys, count - 1, axis=1)[:, :count]
    return np.bincount(taken.reshape(-1), minlength=len(weight)) / draws


@pytest.mark.parametrize(
    ("degree", "excluded", "count"),
    [(10, 3, 4), (64, 10, 30), (200, 20, 5), (200, 1, 100), (300, 80, 40), (12, 9, 2)],
)
@pytest.mark.parametrize("heavy", [False, True])
def test_weighted_inclusion_is_that_of_the_others(
    degree: int, excluded: int, count: int, heavy: bool
) -> None:
    """``heavy``: the excluded edges have nearly all the weight, so that draws hit nothing else."""
    rng = np.random.default_rng(degree + count)
    weight = np.exp(rng.normal(0, 1, degree)).astype(np.float32)
    gone = rng.choice(degree, excluded, replace=False)
    if heavy:
        weight[gone] *= np.float32(1e6)
    rows = 8_000 if degree < 100 else 2_000
    csc = Csc(
        np.arange(rows + 1, dtype=np.int64) * degree,
        np.tile(np.arange(degree, dtype=np.int32), rows),
        np.tile(weight, rows),
    )
    targets = np.repeat(np.arange(rows), excluded)
    pairs = ExcludedEdges(np.stack([np.tile(gone, rows), targets]))
    left = np.setdiff1d(np.arange(degree), gone)
    seeds = np.arange(rows)
    got = sample_neighbors(csc, seeds, [count], weight_attr="weight", excluded_edges=pairs, seed=1)
    wanted = min(count, len(left))
    assert len(got.row) == rows * wanted
    often = np.bincount(got.edge_ids % degree, minlength=degree)
    assert not often[gone].any()
    assert len(np.unique(got.edge_ids)) == len(got.edge_ids)
    if wanted < len(left):
        expected = successive(weight[left].astype(float), wanted, 15_000, rng)
        deviation = math.sqrt(1 / rows + 1 / 15_000) * np.sqrt(np.maximum(expected * (1 - expected), 1e-4))
        assert (np.abs(often[left] / rows - expected) < 5 * deviation).all()

    got = sample_neighbors(
        csc, seeds, [count], replace=True, weight_attr="weight", excluded_edges=pairs, seed=2
    )
    assert len(got.row) == rows * count
    often = np.bincount(got.edge_ids % degree, minlength=degree)
    assert not often[gone].any()
    share = weight[left].astype(float) / weight[left].sum(dtype=float)
    assert stats.chisquare(often[left], share * rows * count).pvalue > 1e-4


def test_a_node_all_of_whose_edges_are_excluded_has_none() -> None:
    csc = random_csc(1)
    everything = ExcludedEdges(np.stack([csc.indices, csc.targets()]))
    for how in ({}, {"weight_attr": "weight"}, {"replace": True}, {"replace": True, "weight_attr": "weight"}):
        got = sample_neighbors(csc, np.arange(5), [3, 2], excluded_edges=everything, **how)
        assert got.nodes.tolist() == [0, 1, 2, 3, 4]
        assert len(got.row) == 0


def test_wrong_exclusions_are_refused() -> None:
    graph = Graph.from_coo([0, 1], [1, 2], num_nodes=3)
    for excluded, message in [
        (ExcludedEdges([[0, 1]]), r"expected integers \[2, edges\], received shape \[1, 2\]"),
        (ExcludedEdges([[0], [3]]), r"excluded edges must lead to node indices in \[0, 3\), received 3"),
        (ExcludedEdges([[0], [1]], [0], [0]), "and a sample that is not disjoint"),
    ]:
        with pytest.raises(UsageError, match=message):
            sample_neighbors(graph, [0], [1], excluded_edges=excluded)
    for groups, of_tree, message in [
        ([0, 1], [0], "received 2 and 1, and a sample that is disjoint"),
        ([0], [0, 1], "expected the group of each of 1 trees, received 2"),
    ]:
        excluded = ExcludedEdges([[0], [1]], groups, of_tree)
        with pytest.raises(UsageError, match=message):
            sample_neighbors(graph, [0], [1], disjoint=True, excluded_edges=excluded)

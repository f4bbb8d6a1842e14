"""Disjoint samples: a tree for each seed, as a plain implementation has them, independent of each other."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from graphbox import _core
from graphbox.errors import DataError
from graphbox.graph import Graph
from graphbox.sample import NeighborLoader, sample_heterogeneous, sample_neighbors
from graphbox.sample.adjacency import EdgeType
from tests.sample.test_live import alone, live_table
from tests.sample.test_neighbor import NEIGHBOR_STREAM, Csc, Draws, choose, random_csc
from tests.sample.test_weighted import random_csc as weighted_csc

Tree = list[tuple[int, int]]


def plain_trees(
    cscs: Mapping[EdgeType, Csc],
    seeds: Mapping[str, Sequence[int]],
    num_neighbors: Sequence[int],
    replace: bool,
    key: int,
) -> tuple[dict[str, Tree], dict[EdgeType, list[tuple[int, int, int]]]]:
    """Return (tree, node) by node type and (row, col, edge id) by edge type."""
    types = list(dict.fromkeys(name for source, _, target in cscs for name in (source, target)))
    nodes: dict[str, Tree] = {name: [] for name in types}
    edges: dict[EdgeType, list[tuple[int, int, int]]] = {edge_type: [] for edge_type in cscs}
    tree = 0
    for name in types:
        for seed in seeds.get(name, ()):
            nodes[name].append((tree, seed))
            tree += 1
    frontier = {name: range(len(nodes[name])) for name in types}
    for hop, wanted in enumerate(num_neighbors):
        before = {name: len(nodes[name]) for name in types}
        for number, (edge_type, csc) in enumerate(cscs.items()):
            source, _, target = edge_type
            for col in frontier[target]:
                tree, node = nodes[target][col]
                within = sum(other == tree for other, _ in nodes[target][:col])
                begin, end = int(csc.indptr[node]), int(csc.indptr[node + 1])
                draws = Draws(key, hop, number, tree << 32 | within)
                for edge in choose(draws, begin, end - begin, wanted, replace):
                    neighbor = (tree, int(csc.indices[edge]))
                    if neighbor not in nodes[source]:
                        nodes[source].append(neighbor)
                    edges[edge_type].append((nodes[source].index(neighbor), col, edge))
        frontier = {name: range(before[name], len(nodes[name])) for name in types}
    return nodes, edges


@settings(max_examples=40, deadline=None)
@given(st.data())
def test_agrees_with_the_plain_implementation(data: st.DataObject) -> None:
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32)))
    count = {name: int(rng.integers(1, 20)) for name in "abc"}
    names = data.draw(st.lists(st.tuples(*[st.sampled_from("abc")] * 2), min_size=1, max_size=3))
    dtype = data.draw(st.sampled_from([np.int32, np.int64]))
    cscs: dict[EdgeType, Csc] = {
        (source, f"r{i}", target): random_csc(rng, count[target], count[source], [0, 1, 4, 9], dtype)
        for i, (source, target) in enumerate(names)
    }
    num_neighbors = data.draw(st.lists(st.sampled_from([-1, 0, 1, 2, 4]), min_size=1, max_size=2))
    seeds = {target: rng.integers(0, count[target], 3).tolist() for _, _, target in cscs}
    replace, seed = data.draw(st.booleans()), data.draw(st.integers(0, 2**64 - 1))
    sample = sample_heterogeneous(cscs, seeds, num_neighbors, replace=replace, seed=seed, disjoint=True)
    nodes, edges = plain_trees(
        cscs, seeds, num_neighbors, replace, _core.philox_key(NEIGHBOR_STREAM, seed, 0, 0)
    )
    for name, expected in nodes.items():
        found = zip(sample.trees[name].tolist(), sample.nodes[name].tolist(), strict=True)
        assert list(found) == expected
    for edge_type, triples in edges.items():
        parts = (sample.row, sample.col, sample.edge_ids)
        assert np.stack([part[edge_type] for part in parts], axis=1).tolist() == [list(t) for t in triples]


def tree_of(sample: Any, tree: int) -> tuple[list[int], list[int]]:
    """Return the nodes and the edge ids of one tree."""
    in_tree = sample.trees[sample.col] == tree
    return sample.nodes[sample.trees == tree].tolist(), sample.edge_ids[in_tree].tolist()


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("replace", [False, True])
def test_a_tree_depends_on_no_other(weighted: bool, replace: bool) -> None:
    csc = weighted_csc(np.random.default_rng(0), 200, [5, 30, 100])
    one = sample_neighbors(
        csc, [7, 8, 9], [4, 3, 2], replace=replace, weight_attr="weight" if weighted else None, disjoint=True
    )
    other = sample_neighbors(
        csc,
        [7, 7, 100, 3],
        [4, 3, 2],
        replace=replace,
        weight_attr="weight" if weighted else None,
        disjoint=True,
    )
    assert tree_of(one, 0) == tree_of(other, 0)
    assert tree_of(other, 0) != tree_of(other, 1)
    for sample in (one, other):
        np.testing.assert_array_equal(sample.trees[sample.row], sample.trees[sample.col])
        np.testing.assert_array_equal(csc.indices[sample.edge_ids], sample.nodes[sample.row])
        pairs = list(zip(sample.trees.tolist(), sample.nodes.tolist(), strict=True))
        assert len(set(pairs)) == len(pairs)


@pytest.mark.parametrize("weighted", [False, True])
def test_trees_that_meet_draw_independently(weighted: bool) -> None:
    """Choices of the same node by two trees, as seed and one hop on, are as independent ones."""
    degree = 6
    # Every node but 0 has node 0 as its only neighbour; node 0 has `degree` of them.
    indptr = np.concatenate([[0], degree + np.arange(degree + 1)]).astype(np.int64)
    indices = np.concatenate([np.arange(1, degree + 1), np.zeros(degree)]).astype(np.int64)
    csc = weighted_csc(np.random.default_rng(0), 1, [1])
    csc.indptr, csc.indices, csc.weight = indptr, indices, np.ones(2 * degree, np.float32)
    for seeds, hops in (([0, 0], [1]), ([1, 2], [1, 1])):
        counts = np.zeros((degree, degree))
        for batch in range(4000):
            sample = sample_neighbors(
                csc,
                seeds,
                hops,
                replace=True,
                weight_attr="weight" if weighted else None,
                batch=batch,
                disjoint=True,
            )
            chosen = sample.edge_ids[-2:]
            counts[chosen[0], chosen[1]] += 1
        assert 1e-4 < stats.chisquare(counts.ravel()).pvalue < 1 - 1e-4


@pytest.mark.parametrize("weighted", [False, True])
def test_same_for_any_number_of_threads(weighted: bool) -> None:
    csc = weighted_csc(np.random.default_rng(1), 40_000, [0, 3, 50])
    seeds = np.random.default_rng(2).integers(0, 40_000, 9000)
    samples = [
        sample_neighbors(
            csc,
            seeds,
            [5, 4],
            replace=False,
            weight_attr="weight" if weighted else None,
            num_threads=threads,
            disjoint=True,
        )
        for threads in (1, 2, 4)
    ]
    for other in samples[1:]:
        for name in ("nodes", "row", "col", "edge_ids", "trees"):
            np.testing.assert_array_equal(getattr(samples[0], name), getattr(other, name))


@pytest.mark.parametrize("seed", range(5))
def test_changed_graphs(seed: int) -> None:
    graph = alone(live_table(seed, columns=True))
    csc = graph.csc()
    live = sample_neighbors(graph, np.arange(50), [5, 2], weight_attr="weight", seed=seed, disjoint=True)
    merged = sample_neighbors(csc, np.arange(50), [5, 2], weight_attr="weight", seed=seed, disjoint=True)
    np.testing.assert_array_equal(live.nodes, merged.nodes)
    np.testing.assert_array_equal(live.trees, merged.trees)
    assert csc.edge_ids is not None
    np.testing.assert_array_equal(live.edge_ids, csc.edge_ids[merged.edge_ids])


def test_edge_cases() -> None:
    csc = random_csc(np.random.default_rng(0), 10, 10, [3])
    assert sample_neighbors(csc, [1], [3]).trees is None
    nothing = sample_neighbors(csc, [], [3], disjoint=True)
    assert nothing.trees.shape == (0,)
    tensors = sample_neighbors(csc, torch.tensor([1, 1]), [3], disjoint=True)
    assert tensors.trees[:2].tolist() == [0, 1]
    far: dict[EdgeType, Csc] = {("far", "r", "near"): Csc(np.array([0, 2]), np.array([2**40, 2**62]))}
    one = sample_heterogeneous(far, {"near": [0]}, [-1], disjoint=True)
    assert one.nodes["far"].tolist() == [2**40, 2**62]
    with pytest.raises(DataError, match=r"indices must be in \[0, 3074457345618258602\); edge 1"):
        sample_heterogeneous(far, {"near": [0, 0, 0]}, [-1], disjoint=True)


def test_loader() -> None:
    rng = np.random.default_rng(0)
    graph = Graph.from_coo(*rng.integers(0, 30, (2, 300)), num_nodes=30)
    for batch in NeighborLoader(graph, [5, 2], batch_size=8, disjoint=True):
        assert batch.batch[: batch.batch_size].tolist() == list(range(batch.batch_size))
        source, target = batch.edge_index
        assert torch.equal(batch.batch[source], batch.batch[target])
    assert "batch" not in next(iter(NeighborLoader(graph, [5, 2], batch_size=8)))

"""Edges with at most so many into each node."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from graphbox.export.bounded_edges import bounded_edges
from graphbox.models.graph_layers import Edges

NEAR = ("item", "near", "item")


def _hub() -> Edges:
    """Return ten edges into node 0, two into node 1, and an edge from each of three nodes to itself."""
    source = [*range(1, 11), 5, 6, 0, 1, 2]
    target = [*[0] * 10, 1, 1, 0, 1, 2]
    return Edges(torch.tensor([source, target]), torch.arange(1.0, 16.0))


def _lists(edges: Edges) -> dict[int, list[int]]:
    found: dict[int, list[int]] = {}
    for source, target in edges.index.T.tolist():
        found.setdefault(target, []).append(source)
    return found


def test_a_node_keeps_as_many_as_asked_for_and_those_with_fewer_keep_all() -> None:
    found = bounded_edges({NEAR: _hub()}, 4, 0, normalized=False)[NEAR]
    lists = _lists(found)
    assert (len(lists[0]), len(set(lists[0]))) == (4, 4)
    assert set(lists[0]) <= set(range(11))
    assert (lists[1], lists[2]) == ([5, 6, 1], [2])
    weights = {
        tuple(ends): weight for ends, weight in zip(_hub().index.T.tolist(), range(1, 16), strict=True)
    }
    assert found.weight is not None
    assert found.weight.tolist() == [weights[tuple(ends)] for ends in found.index.T.tolist()]


def test_the_draw_depends_on_the_seed_alone() -> None:
    first, again, other = (
        bounded_edges({NEAR: _hub()}, 4, seed, normalized=False)[NEAR] for seed in (0, 0, 1)
    )
    assert torch.equal(first.index, again.index)
    assert not torch.equal(first.index, other.index)


@pytest.mark.parametrize(("nodes", "count"), [(1, 50), (3, 400), (500, 400), (500, 20_000)])
def test_drawn_edges_are_those_with_the_smallest_numbers_of_each_node(nodes: int, count: int) -> None:
    random = np.random.default_rng(nodes)
    index = np.minimum(random.integers(0, nodes, (2, count)), random.integers(0, nodes, (2, count)))
    numbers = np.random.default_rng([5, 0]).random(count)
    kept = [
        edge
        for node in range(nodes)
        for edge in sorted(np.flatnonzero(index[1] == node), key=lambda edge: numbers[edge])[:7]
    ]
    found = bounded_edges({NEAR: Edges(torch.from_numpy(index))}, 7, 5, normalized=False)[NEAR]
    np.testing.assert_array_equal(found.index.numpy(), index[:, np.sort(kept)])


def test_normalized_weights_stand_for_all_edges_and_loops_stay() -> None:
    """Over many seeds the weights of drawn edges add up to those of all."""
    totals = []
    for seed in range(2000):
        found = bounded_edges({NEAR: _hub()}, 4, seed, normalized=True)[NEAR]
        assert found.weight is not None
        into = found.index[1]
        loops = found.index[0] == into
        assert found.weight[loops].tolist() == [13.0, 14.0, 15.0]
        assert int(((into == 0) & ~loops).sum()) == 4
        assert found.weight[(into == 1) & ~loops].tolist() == [11.0, 12.0]
        totals.append(float(found.weight[(into == 0) & ~loops].sum()))
    assert np.mean(totals) == pytest.approx(55.0, rel=0.02)


def test_relations_without_edges_stay_empty() -> None:
    empty = Edges(torch.zeros(2, 0, dtype=torch.int64))
    assert bounded_edges({NEAR: empty}, 4, 0, normalized=False)[NEAR].index.shape == (2, 0)

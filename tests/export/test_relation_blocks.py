"""Edges of a graph as the neighbour lists of an artifact."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from graphbox.errors import DoesNotFitError
from graphbox.export.padded_block import degrees, group_edges
from graphbox.graph.live_rows import LiveRows
from graphbox.models.graph_layers import Edges

NEAR, AFTER = ("item", "near", "item"), ("item", "after", "item")
NOTHING = np.zeros(0, np.int64)


def test_lists_have_the_edges_of_live_nodes_with_their_weights() -> None:
    """Parallel edges stay, and so does their order; node 1 was removed."""
    near = Edges(torch.tensor([[0, 3, 3, 1, 1, 2], [2, 2, 2, 1, 3, 0]]), torch.arange(6.0))
    after = Edges(torch.tensor([[2], [2]]), torch.tensor([9.0]))
    live = LiveRows(4, np.array([1]))
    block = group_edges((NEAR, AFTER), {NEAR: near, AFTER: after}, live, live)
    assert block.counts.tolist() == [[1, 0], [3, 1], [0, 0]]
    assert block.neighbors.tolist() == [1, 0, 2, 2, 1]
    assert block.weights is not None
    assert block.weights.tolist() == [5.0, 0.0, 1.0, 2.0, 9.0]
    assert degrees([block], 3).tolist() == [1, 4, 0]


@pytest.mark.parametrize("edges_at_once", [1, 7, 100, 1 << 20])
@pytest.mark.parametrize("weighted", [False, True])
def test_lists_are_those_of_plain_loops_however_many_edges_are_read_at_once(
    edges_at_once: int, weighted: bool
) -> None:
    random = np.random.default_rng(edges_at_once)
    source, target = LiveRows(40, np.array([0, 7, 39])), LiveRows(30, np.array([3]))
    group = [("user", name, "item") for name in ("likes", "buys", "owns")]
    edges = {}
    lists: list[list[list[tuple[int, float]]]] = [[[] for _ in group] for _ in range(30)]
    for number, (each, count) in enumerate(zip(group, (300, 0, 150), strict=True)):
        index = np.stack([random.integers(0, 40, count), random.integers(0, 30, count)])
        weights = random.random(count).astype(np.float32)
        edges[each] = Edges(torch.from_numpy(index), torch.from_numpy(weights) if weighted else None)
        for (node, item), weight in zip(index.T.tolist(), weights.tolist(), strict=True):
            if node not in (0, 7, 39):
                lists[item][number].append((node - sum(node > gone for gone in (0, 7, 39)), weight))
    block = group_edges(group, edges, source, target, edges_at_once)
    of_rows = [each for item, each in enumerate(lists) if item != 3]
    plain = [entry for row in of_rows for each in row for entry in each]
    assert block.counts.tolist() == [[len(each) for each in row] for row in of_rows]
    assert block.counts.dtype == np.uint16
    assert block.neighbors.dtype == np.int32
    assert block.neighbors.tolist() == [node for node, _ in plain]
    if not weighted:
        assert block.weights is None
        return
    assert block.weights is not None
    assert block.weights.dtype == np.float32
    assert block.weights.tolist() == [weight for _, weight in plain]


def test_a_list_that_is_too_long_is_refused() -> None:
    many = 1 << 16
    edges = Edges(torch.stack([torch.zeros(many, dtype=torch.int64), torch.ones(many, dtype=torch.int64)]))
    live = LiveRows(2, NOTHING)
    with pytest.raises(DoesNotFitError, match="received 65536 of row 1 in item__near__item") as caught:
        group_edges((NEAR,), {NEAR: edges}, live, live)
    assert caught.value.hint is not None
    assert "form: vectors" in caught.value.hint


def test_relations_without_edges_have_empty_lists() -> None:
    empty = Edges(torch.zeros(2, 0, dtype=torch.int64))
    live = LiveRows(3, NOTHING)
    block = group_edges((NEAR,), {NEAR: empty}, live, live)
    assert block.counts.tolist() == [[0], [0], [0]]
    assert (len(block.neighbors), block.weights) == (0, None)

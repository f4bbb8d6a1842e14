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

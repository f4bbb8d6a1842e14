"""Sums over edges: products and gradients are those of a dense matrix, however edges are ordered."""

from __future__ import annotations

import pytest
import torch

from graphbox.models.edge_sums import EdgeSums
from graphbox.models.graph_layers import Edges


@pytest.mark.parametrize("weighted", [True, False])
@pytest.mark.parametrize(("sources", "targets", "edges"), [(7, 5, 40), (3, 9, 4), (4, 4, 0)])
def test_sums_and_gradients_are_those_of_a_dense_matrix(
    sources: int, targets: int, edges: int, weighted: bool
) -> None:
    generator = torch.Generator().manual_seed(edges)
    index = torch.stack(
        [torch.randint(count, (edges,), generator=generator) for count in (sources, targets)]
    )  # with equal edges, and nodes without any
    weight = torch.rand(edges, generator=generator) if weighted else None
    dense = torch.zeros(targets, sources)
    dense.index_put_((index[1], index[0]), torch.ones(edges) if weight is None else weight, accumulate=True)
    vectors = torch.randn(sources, 3, generator=generator, requires_grad=True)
    of_targets = torch.randn(targets, 3, generator=generator)
    expected = dense @ vectors
    (gradient,) = torch.autograd.grad(expected, vectors, of_targets)
    for found in (
        EdgeSums(index, sources, targets).at_targets(vectors, weight),
        Edges(index, weight).sums(vectors, targets, weight),
    ):
        torch.testing.assert_close(found, expected)
        torch.testing.assert_close(torch.autograd.grad(found, vectors, of_targets)[0], gradient)


def test_other_weights_take_the_same_order() -> None:
    edges = Edges(torch.tensor([[0, 1, 1], [1, 0, 0]]), torch.tensor([1.0, 2.0, 3.0]))
    vectors = torch.tensor([[1.0], [10.0]])
    assert edges.sums(vectors, 2, edges.weight).tolist() == [[50.0], [1.0]]
    assert edges.sums(vectors, 2, torch.tensor([0.0, 1.0, 0.0])).tolist() == [[10.0], [0.0]]
    assert edges.sums(torch.ones(3, 1), 4, None).tolist() == [[2.0], [1.0], [0.0], [0.0]]

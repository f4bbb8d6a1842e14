"""The softmax over shared candidates beside the loss that it is equal to, with its gradients."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from graphbox.train.losses import info_nce
from graphbox.train.shared_softmax import shared_log_sum, shared_softmax

EVENTS, CANDIDATES, DIM = 40, 23, 8


def plain(
    vectors: Tensor, following: Tensor, candidates: Tensor, own: Tensor, log_q: Tensor | None
) -> Tensor:
    logits = (vectors @ candidates.T).masked_fill(own, -torch.inf)
    found = (vectors * following).sum(dim=1)
    return info_nce(found, logits, torch.arange(len(vectors)), log_probability=log_q)


@pytest.mark.parametrize("scale", [0.1, 1.0, 9.0])
@pytest.mark.parametrize("drawn", [False, True])
def test_value_and_gradients_are_those_of_info_nce(scale: float, drawn: bool) -> None:
    torch.manual_seed(2)
    own = torch.rand(EVENTS, CANDIDATES) < 0.05
    log_q = torch.rand(CANDIDATES).log() if drawn else None
    row, column = torch.nonzero(own, as_tuple=True)
    cells, results = (row, column), []
    for dtype, is_plain in ((torch.float64, True), (torch.float32, False)):
        torch.manual_seed(3)
        vectors, following, candidates = (
            (scale * torch.randn(count, DIM, dtype=torch.float64)).to(dtype).requires_grad_()
            for count in (EVENTS, EVENTS, CANDIDATES)
        )
        correction = None if log_q is None else log_q.to(dtype)
        loss = (
            plain(vectors, following, candidates, own, correction)
            if is_plain
            else shared_softmax(vectors, following, candidates, cells, correction)
        )
        results.append([loss.detach(), *torch.autograd.grad(loss, (vectors, following, candidates))])
    for expected, found in zip(*results, strict=True):
        torch.testing.assert_close(found.double(), expected, rtol=2e-5, atol=2e-6)


def test_an_event_without_negatives_learns_nothing() -> None:
    vectors, following = torch.randn(2, DIM, requires_grad=True), torch.randn(2, DIM)
    own = torch.tensor([0]), torch.tensor([0])
    loss = shared_softmax(vectors, following, torch.randn(1, DIM), own)
    (gradient,) = torch.autograd.grad(loss, vectors)
    assert torch.isfinite(loss)
    assert torch.isfinite(gradient).all()
    assert not gradient[0].any()
    assert gradient[1].any()


def test_cells_and_a_mask_exclude_alike() -> None:
    torch.manual_seed(5)
    queries, candidates = torch.randn(EVENTS, DIM, requires_grad=True), torch.randn(CANDIDATES, DIM)
    mask, found = torch.rand(EVENTS, CANDIDATES) < 0.2, []
    row, column = torch.nonzero(mask, as_tuple=True)
    for excluded in (mask, (row, column)):
        logarithm = shared_log_sum(queries, candidates, excluded)
        found.append((logarithm.detach(), *torch.autograd.grad(logarithm.sum(), queries)))
    for of_mask, of_cells in zip(*found, strict=True):
        assert torch.equal(of_mask, of_cells)
    expected = (queries @ candidates.T).masked_fill(mask, -torch.inf).logsumexp(dim=1)
    torch.testing.assert_close(found[0][0], expected.detach())

"""Dropout beside what it says: the share that is left out, the scale of the others, and the gradient."""

from __future__ import annotations

import math

import pytest
import torch

from graphbox.models.dropout import Dropout, dropout

COUNT = 200_003


@pytest.mark.parametrize("share", [0.1, 0.25, 0.9])
def test_a_share_is_zero_and_the_others_are_scaled(share: float) -> None:
    torch.manual_seed(1)
    values = (torch.rand(COUNT) + 0.5).requires_grad_()
    found = dropout(values, share, training=True)
    kept = found != 0
    deviation = math.sqrt(share * (1 - share) / COUNT)
    assert abs(1.0 - kept.double().mean().item() - share) < 5 * deviation
    torch.testing.assert_close(found[kept], values[kept] / (1.0 - share), rtol=2e-4, atol=0.0)
    (gradient,) = torch.autograd.grad(found.sum(), values)
    torch.testing.assert_close(gradient, kept / (1.0 - share), rtol=2e-4, atol=0.0)


def test_values_beside_each_other_are_left_out_independently() -> None:
    torch.manual_seed(2)
    is_kept = (dropout(torch.ones(COUNT), 0.5, training=True) != 0).double()
    for apart in range(1, 9):  # four values share a draw
        both = (is_kept[apart:] * is_kept[:-apart]).mean().item()
        assert abs(both - 0.25) < 5 * math.sqrt(0.25 * 0.75 / COUNT)


def test_the_seed_decides_for_any_number_of_threads() -> None:
    found, before = [], torch.get_num_threads()
    try:
        for threads in (1, 3):
            torch.set_num_threads(threads)
            torch.manual_seed(3)
            found.append(dropout(torch.ones(COUNT), 0.3, training=True))
    finally:
        torch.set_num_threads(before)
    assert torch.equal(*found)
    assert not torch.equal(found[0], dropout(torch.ones(COUNT), 0.3, training=True))


@pytest.mark.parametrize("count", [1, 5, 60_000])
def test_the_number_of_values_does_not_decide_what_is_drawn_next(count: int) -> None:
    torch.manual_seed(4)
    dropout(torch.ones(7), 0.3, training=True)
    expected = torch.rand(3)
    torch.manual_seed(4)
    dropout(torch.ones(count), 0.3, training=True)
    assert torch.equal(torch.rand(3), expected)


def test_nothing_is_left_out_without_a_share_or_a_training() -> None:
    values = torch.rand(7, 3)
    assert dropout(values, 0.0, training=True) is values
    assert Dropout(0.4).eval()(values) is values
    assert not torch.equal(Dropout(0.4)(values), values)

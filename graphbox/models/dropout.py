"""Dropout (Srivastava et al., JMLR 2014) whose draws are cheap on a CPU."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

_LANES, _STEPS = 4, 1 << 16
"""Values that one draw of 64 bits decides for, and the steps in which each can say a share."""


def dropout(values: Tensor, share: float, training: bool) -> Tensor:
    """Return values of which a share is zero, the others scaled so that the expectation is the same.

    On a CPU 16 bits are drawn for a value, where `torch.nn.functional.dropout` draws a number of its own: in
    a small network that was a fifth of a step. The share is rounded to 1/65536, the scale is that of the
    rounded one. Draws do not depend on the number of threads, and each call takes one of torch's default
    generator, as torch's does: what is drawn after it does not depend on how many values there are.

    Args:
        values: floats of any shape.
        share: which is left out, at least 0 and less than 1.
        training: whether any are left out.
    """
    if not training or not share:
        return values
    if is_one_kernel(values):
        return functional.dropout(values, share)
    left_out = min(round(share * _STEPS), _STEPS - 1)
    draws = torch.empty(-(-values.numel() // _LANES), dtype=torch.int64, device=values.device)
    draws.random_(-(2**63), None, generator=_generator_of_a_call())
    lanes = draws.view(torch.int16)[: values.numel()].view(values.shape)
    kept = (lanes >= left_out - _STEPS // 2).to(values.dtype)
    return values * kept.mul_(_STEPS / (_STEPS - left_out))


def _generator_of_a_call() -> torch.Generator:
    """Return a generator that starts with a number of the default one."""
    return torch.Generator().manual_seed(int(torch.empty((), dtype=torch.int64).random_()))


def is_one_kernel(values: Tensor) -> bool:
    """Return whether torch draws and multiplies in one kernel where the values are."""
    return values.is_cuda


class Dropout(nn.Module):
    """Leaves out a share of values in training, see :func:`dropout`.

    Args:
        share: of the values.
    """

    def __init__(self, share: float) -> None:
        super().__init__()
        self.share = share

    def forward(self, values: Tensor) -> Tensor:
        """Return the values, in training some of them zero."""
        return dropout(values, self.share, self.training)

    def extra_repr(self) -> str:
        """Return the share."""
        return f"{self.share}"

"""Softmax against candidates that all queries of a batch share, in one array of logits."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

_LEAST = -60.0
"""Least logit below the largest of its row: exp() of less is nothing beside 1, and of yet less a denormal
number, with which a CPU computes a hundred times slower."""


def shared_softmax(
    vectors: Tensor,
    following: Tensor,
    candidates: Tensor,
    own: tuple[Tensor, Tensor],
    log_probability: Tensor | None = None,
) -> Tensor:
    """Return the mean cross-entropy of the row of the item that follows each event, against candidates.

    Equal to :func:`graphbox.train.losses.info_nce` of the same logits; see :func:`shared_log_sum`.

    Args:
        vectors: float32 [events, dim].
        following: float32 [events, dim], the row of the item after each.
        candidates: float32 [candidates, dim], rows of distinct items.
        own: rows and columns, int64 [n] each, of candidates that are the item after an event: no negatives
            of it.
        log_probability: float32 [candidates], logarithm of the probability that each was drawn; None: they
            are all items.
    """
    positive = (vectors * following).sum(dim=1)
    against = shared_log_sum(vectors, candidates, own, log_probability)
    return functional.softplus(against - positive).mean()


def shared_log_sum(
    queries: Tensor,
    candidates: Tensor,
    excluded: tuple[Tensor, Tensor] | Tensor,
    log_probability: Tensor | None = None,
) -> Tensor:
    """Return the logarithm of the sum of exponents of each query's logits: float32 [queries].

    As a chain of operations the logits of all queries and candidates are several arrays, their masked and
    corrected copies, each with a gradient; here one is overwritten from step to step, which takes a third of
    the time and a sixth of the memory.

    Args:
        queries: float32 [queries, dim].
        candidates: float32 [candidates, dim].
        excluded: which candidates are no negatives of a query: rows and columns, int64 [n] each, or bool
            [queries, candidates]. Without any, the sum of a query is nothing and its logarithm -inf.
        log_probability: see :func:`shared_softmax`.
    """
    found: Tensor = _LogSumExp.apply(queries, candidates, excluded, log_probability)  # type: ignore[no-untyped-call]
    return found


class _LogSumExp(torch.autograd.Function):
    """See :func:`shared_log_sum`."""

    @staticmethod
    def forward(
        ctx: Any,
        queries: Tensor,
        candidates: Tensor,
        excluded: tuple[Tensor, Tensor] | Tensor,
        log_probability: Tensor | None,
    ) -> Tensor:
        if log_probability is None:
            logits = queries @ candidates.T
        else:
            logits = torch.addmm(-log_probability, queries, candidates.T)
        logits[excluded] = -torch.inf
        top = logits.amax(dim=1, keepdim=True).nan_to_num(neginf=0.0)  # a query without negatives
        weight = logits.sub_(top).clamp_(min=_LEAST).exp_()
        weight[excluded] = 0.0
        total = weight.sum(dim=1)
        ctx.queries, ctx.candidates, ctx.weight, ctx.total = queries, candidates, weight, total
        return top.squeeze(1) + total.log()

    @staticmethod
    def backward(ctx: Any, *of_results: Tensor) -> tuple[Tensor, Tensor, None, None]:
        scale = of_results[0] / ctx.total.clamp(min=torch.finfo(ctx.total.dtype).tiny)
        weight = ctx.weight.mul_(scale.unsqueeze(1))
        return weight @ ctx.candidates, weight.T @ ctx.queries, None, None

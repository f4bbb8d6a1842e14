"""Losses, each the mean over its positives."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

__all__ = ["sampled_softmax"]

_NEVER = -1e9


def sampled_softmax(
    logits: Tensor, log_probability: Tensor, excluded: Tensor, positive: tuple[Tensor, Tensor]
) -> Tensor:
    """Return the mean cross-entropy of each positive against the candidates that are no positives.

    The logit of a candidate is corrected by the logarithm of the probability that it is among the candidates
    (Bengio and Senécal, 2008; Yi et al., RecSys 2019), so that popular candidates, which are drawn more
    often, are not pushed down for it. A query's other positives are left out of the sum, not learnt against.

    Args:
        logits: float32 [queries, candidates].
        log_probability: float32 [candidates].
        excluded: bool [queries, candidates], candidates that are no negatives of the query; its positives
            are among them.
        positive: query and candidate of each positive, int64 [positives] each.
    """
    corrected = logits - log_probability
    negatives = torch.logsumexp(corrected.masked_fill(excluded, _NEVER), dim=1)
    return functional.softplus(negatives[positive[0]] - corrected[positive]).mean()

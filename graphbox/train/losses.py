"""Losses, each the mean over its positives.

Logits are what a model gives: inner products, or cosines divided by a temperature. Tests have each beside a
plain loop.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.nn import functional

_NEVER = -1e9


def info_nce(
    positive: Tensor,
    negatives: Tensor,
    query: Tensor,
    *,
    log_probability: Tensor | None = None,
    temperature: float = 1.0,
) -> Tensor:
    """Return the mean cross-entropy of each positive against its query's negatives.

    With cosines for logits and a temperature this is InfoNCE (van den Oord et al., 2018); with the
    probabilities by which negatives were drawn it estimates the softmax over all candidates (Bengio and
    Senécal, 2008), so that popular ones, which are drawn more often, are not pushed down for it. A query's
    other positives are left out of the sum, not learnt against.

    Args:
        positive: float32 [positives], the logit of each positive.
        negatives: float32 [queries, negatives], their logits; -inf for what is no negative of a query.
        query: int64 [positives], row of ``negatives`` of each positive.
        log_probability: float32 [negatives], logarithm of the probability that each was drawn, or None.
        temperature: what logits are divided by.
    """
    scaled = negatives / temperature
    if log_probability is not None:
        scaled = scaled - log_probability
    # -inf all along a row has no gradient that is a number.
    against = torch.logsumexp(scaled.clamp(min=_NEVER), dim=1)
    return functional.softplus(against[query] - positive / temperature).mean()


def bpr(positive: Tensor, negatives: Tensor) -> Tensor:
    """Return the mean -log sigmoid(positive - negative) (Rendle et al., UAI 2009).

    Args:
        positive: float32 [positives].
        negatives: float32 [positives, n] logits of each positive's negatives.
    """
    return functional.softplus(negatives - positive[:, None]).mean()


def nce(positive: Tensor, negatives: Tensor, positive_noise: Tensor, negative_noise: Tensor) -> Tensor:
    """Return the loss of telling positives from noise, by positives (Gutmann and Hyvärinen, AISTATS 2010).

    Args:
        positive: float32 [positives].
        negatives: float32 [positives, n].
        positive_noise: float32 [positives], log probability that the noise draws each positive's candidate.
        negative_noise: float32 [positives, n], the same of the negatives.
    """
    drawn = math.log(negatives.shape[1])
    told = functional.softplus(-(positive - positive_noise - drawn))
    return (told + functional.softplus(negatives - negative_noise - drawn).sum(dim=1)).mean()


def hinge(positive: Tensor, negatives: Tensor, margin: float = 1.0) -> Tensor:
    """Return the mean of what each negative lacks to be ``margin`` below its positive.

    Args:
        positive: float32 [positives].
        negatives: float32 [positives, n].
        margin: the wanted distance.
    """
    return functional.relu(margin - positive[:, None] + negatives).mean()


def sigmoid(positive: Tensor, negatives: Tensor, negative_weight: float = 1.0) -> Tensor:
    """Return the binary cross-entropy of positives and negatives, by positives.

    That of skip-gram with negative samples (Mikolov et al., NeurIPS 2013).

    Args:
        positive: float32 [positives].
        negatives: float32 [positives, n].
        negative_weight: weight of each negative.
    """
    against = functional.softplus(negatives).sum(dim=1)
    return (functional.softplus(-positive) + negative_weight * against).mean()


def self_adversarial(positive: Tensor, negatives: Tensor, query: Tensor, temperature: float = 1.0) -> Tensor:
    """Return the binary cross-entropy of positives and their queries' negatives, half each, by positives.

    Negatives weigh by the softmax of their logits, through which nothing is learnt (Sun et al., ICLR 2019).

    Args:
        positive: float32 [positives].
        negatives: float32 [queries, n]; -inf for what is no negative of a query.
        query: int64 [positives], row of ``negatives`` of each positive.
        temperature: what logits are multiplied by in the softmax; 0: all negatives weigh alike.
    """
    told = negatives.clamp(min=_NEVER)  # -inf all along a row has no gradient that is a number
    weight = torch.softmax((told * temperature).detach().masked_fill(negatives == -torch.inf, _NEVER), dim=1)
    against = (weight * functional.softplus(told)).sum(dim=1)
    return 0.5 * (functional.softplus(-positive) + against[query]).mean()


def perturbed(vectors: Tensor, magnitude: float, drawn: Tensor) -> Tensor:
    """Return vectors with noise of a length, in the orthant of each: a view for :func:`simgcl`.

    Args:
        vectors: float32 [n, dim].
        magnitude: length of the noise.
        drawn: float32 [n, dim], numbers from 0 to 1, which say its direction.
    """
    return vectors + magnitude * functional.normalize(drawn, dim=1) * vectors.detach().sign()


def simgcl(first: Tensor, second: Tensor, temperature: float = 0.2, *, start: int = 0) -> Tensor:
    """Return the mean InfoNCE between two views of the same nodes (Yu et al., SIGIR 2022).

    The vector of a node in the one view is the positive of its vector in the other, those of all other nodes
    are negatives.

    Args:
        first: float32 [n, dim], of some of the nodes, one after the other.
        second: float32 [m, dim], of all.
        temperature: what cosines are divided by.
        start: place of the first of them among all.
    """
    cosines = functional.normalize(first, dim=1) @ functional.normalize(second, dim=1).T
    places = torch.arange(start, start + len(first), device=first.device)
    return functional.cross_entropy(cosines / temperature, places)

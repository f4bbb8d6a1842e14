"""Ranks of scores on the device where they are made: the host gets first places and counts, never scores.

In whole numbers, so that what is ranked the same is ranked the same everywhere: the twin of what
:mod:`graphbox.metrics.ranking` and :mod:`graphbox.metrics.filtered` do in host memory. Only where scores
themselves are rounded otherwise than there, places of candidates that all but tie may differ.
"""

from __future__ import annotations

import math

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

_LOW_BITS = 0xFFFFFFFF


def first_places(
    scores: Tensor,
    masked: tuple[NDArray[np.int64], NDArray[np.int64]],
    excluded: NDArray[np.int64],
    positives: tuple[NDArray[np.int64], NDArray[np.int64]],
    k: int,
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.bool_]]:
    """Rank the candidates of some queries; the host waits once.

    Args:
        scores: float32 [n, candidates]; overwritten.
        masked: int64 [m] each, rows and columns of what is no candidate.
        excluded: int64, columns of what is no candidate in any row.
        positives: int64 [p] each, rows and columns of what is to be found, of every row one at least.
        k: length of the ranked lists, 1 to the number of candidates.

    Returns:
        int64 [n, k], the columns of the highest scores of each row, best first, ties to the lower column, -1
        where none is left; int64 [n, 2], how many scores are above that of the row's best positive, and how
        many tie with it, itself included; bool [n], which rows have a score that is NaN.
    """
    is_nan = torch.isnan(scores).any(dim=1)
    scores[_on(masked[0], scores), _on(masked[1], scores)] = -math.inf
    if len(excluded):
        scores[:, _on(excluded, scores)] = -math.inf
    ranked = _top_k(scores, k)
    ranked.masked_fill_(scores.gather(1, ranked) == -math.inf, -1)
    row, column = (_on(each, scores) for each in positives)
    best = scores.new_full((len(scores),), -math.inf).scatter_reduce_(0, row, scores[row, column], "amax")
    found = torch.cat([ranked, _above_and_ties(scores, best), is_nan[:, None]], dim=1).cpu().numpy()
    return found[:, :k], found[:, k : k + 2], found[:, k + 2].astype(bool)


def filtered_counts(
    scores: Tensor,
    targets: NDArray[np.int64],
    known: tuple[NDArray[np.int64], NDArray[np.int64]],
    excluded: NDArray[np.int64],
) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Count what ranks above the target of each query, and what ties; the host waits once.

    Args:
        scores: float32 [n, candidates].
        targets: int64 [n], the column of each row's target.
        known: int64 [m] each, rows and columns of what takes no place; distinct, without targets.
        excluded: int64, columns of what takes no place in any row; none of them in ``known``.

    Returns:
        int64 [n, 2], how many scores are above the target's, and how many tie with it, itself included; bool
        [n], which rows have a score that is NaN.
    """
    reached = scores.gather(1, _on(targets, scores)[:, None]).squeeze(1)
    counts = _above_and_ties(scores, reached)
    # What is true besides is counted out again: it is little, where a mask would be as large as the scores.
    row, column = (_on(each, scores) for each in known)
    filtered, against = scores[row, column], reached[row]
    counts.index_add_(0, row, torch.stack([filtered > against, filtered == against], dim=1).long(), alpha=-1)
    if len(excluded):
        counts -= _above_and_ties(scores[:, _on(excluded, scores)], reached)
    is_nan = torch.isnan(scores).any(dim=1)
    found = torch.cat([counts, is_nan[:, None]], dim=1).cpu().numpy()
    return found[:, :2], found[:, 2].astype(bool)


def _top_k(scores: Tensor, k: int) -> Tensor:
    """Return the columns of the highest scores, int64 [n, k], best first.

    ``torch.topk`` takes any of those that tie, so it is given numbers that do not: the bits of a score, which
    ascend with it once those of negative ones are turned, above those of the column counted from the last.
    """
    last = scores.shape[1] - 1
    bits = (scores + 0.0).view(torch.int32)  # of -0.0 those of 0.0, which it equals
    keys = (bits ^ ((bits >> 31) & 0x7FFFFFFF)).long()
    keys <<= 32
    keys |= torch.arange(last, -1, -1, device=scores.device)
    return last - (torch.topk(keys, k, dim=1).values & _LOW_BITS)


def _above_and_ties(scores: Tensor, against: Tensor) -> Tensor:
    """Return how many scores of each row are above a number, and equal to it: int64 [n, 2]."""
    column = against[:, None]
    return torch.stack([(scores > column).sum(dim=1), (scores == column).sum(dim=1)], dim=1)


def _on(array: NDArray[np.int64], near: Tensor) -> Tensor:
    """Return an array where a tensor is; the host goes on at once."""
    tensor = torch.from_numpy(np.ascontiguousarray(array))
    if near.device.type != "cuda":
        return tensor.to(near.device)
    return tensor.pin_memory().to(near.device, non_blocking=True)

"""Metrics of scores of links against given or drawn pairs that no edge joins."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from graphbox.errors import UsageError
from graphbox.metrics.binary import binary_report


def link_report(
    positive: NDArray[np.floating],
    negative: NDArray[np.floating],
    query: NDArray[np.integer],
    negative_query: NDArray[np.integer],
    *,
    hits: Sequence[int] = (1, 3, 10),
) -> dict[str, float | int]:
    """Return what is told of predicted links.

    ``auc`` and ``average_precision`` over all pairs (:func:`graphbox.metrics.binary_report`); ``mrr`` and
    ``hits@k`` of each link among the negatives of its query, a tie counting as the middle of its ranks, over
    the ``ranked`` links that have negatives; ``positives`` and ``negatives`` scored. Of ``hits`` those are
    left out that no link can miss.

    Args:
        positive: float [p], scores of links, higher for likelier ones.
        negative: float [n], scores of other pairs.
        query: integer [p], which negatives each link is ranked among: those of equal number.
        negative_query: integer [n].
        hits: the ranks up to which a link counts as found.

    Raises:
        UsageError: wrong shapes, NaN, or no positive or no negative.
    """
    if query.shape != positive.shape or negative_query.shape != negative.shape:
        raise UsageError(
            f"expected a query for each score, received {query.shape} for {positive.shape} and "
            f"{negative_query.shape} for {negative.shape}"
        )
    labels = np.repeat([True, False], [len(positive), len(negative)])
    report = binary_report(labels, np.concatenate([positive, negative]))
    ranks, count = link_ranks(positive, negative, query, negative_query)
    ranked = count > 0
    if ranked.any():
        report["mrr"] = float(np.mean(1 / ranks[ranked]))
        for k in hits:
            if k <= count.max():
                report[f"hits@{k}"] = float(np.mean(ranks[ranked] <= k))
    report["ranked"] = int(ranked.sum())
    return report


def link_ranks(
    positive: NDArray[np.floating],
    negative: NDArray[np.floating],
    query: NDArray[np.integer],
    negative_query: NDArray[np.integer],
) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Return the rank of each link among the negatives of its query, and how many these are.

    A tie counts as the middle of its ranks.

    Returns:
        float64 [p], from 1; int64 [p].
    """
    values, place = np.unique(np.concatenate([positive, negative]), return_inverse=True)
    _, number = np.unique(np.concatenate([query, negative_query]), return_inverse=True)
    # Query and place of the score in one number, so that one search finds both.
    key = number.astype(np.int64) * len(values) + place
    mine, others = key[: len(positive)], np.sort(key[len(positive) :])
    begin = np.searchsorted(others, number[: len(positive)] * len(values))
    end = np.searchsorted(others, (number[: len(positive)] + 1) * len(values))
    below, not_above = np.searchsorted(others, mine), np.searchsorted(others, mine, side="right")
    return 1.0 + (end - not_above) + (not_above - below) / 2, (end - begin).astype(np.int64)

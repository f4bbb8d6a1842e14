"""Progressive measures: how well each chunk was predicted before it was learnt, alone and with all before."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from torch import Tensor, from_numpy

from graphbox.metrics.binary import binary_report, grouped_roc_auc
from graphbox.train.stream.trainer import ChunkScores

_HITS_AT = 10
_KEPT_BITS = 21
"""Scores are compared over chunks by this many of their leading bits as float32: 12 of the mantissa."""


def chunk_figures(scores: ChunkScores) -> dict[str, float]:
    """Return ``auc`` and ``average_precision`` of one chunk, and ``gauc`` where there are groups.

    Where targets were ranked also ``hr@10``, the share of them among the first 10, and ``mrr``, the mean of
    1 / rank: both among the sample of candidates of
    :func:`graphbox.train.stream.target_ranks.target_ranks`.

    A figure that cannot be had, as there are no positives or no negatives, is left out.
    """
    labels = scores.labels
    figures: dict[str, float] = {}
    if labels.any() and not labels.all():
        report = binary_report(labels, scores.scores)
        figures = {name: float(report[name]) for name in ("auc", "average_precision")}
        if scores.groups is not None and _any_mixed(labels, scores.groups):
            figures["gauc"] = grouped_roc_auc(labels, scores.scores, scores.groups)[0]
    if scores.ranks is not None and len(scores.ranks):
        figures[f"hr@{_HITS_AT}"] = float((scores.ranks <= _HITS_AT).mean())
        figures["mrr"] = float((1.0 / scores.ranks).mean())
    return figures


def _any_mixed(labels: NDArray[np.bool_], groups: NDArray[np.int64]) -> bool:
    _, group = np.unique(groups, return_inverse=True)
    positives, size = np.bincount(group, weights=labels), np.bincount(group)
    return bool(((positives > 0) & (positives < size)).any())


@dataclass(frozen=True, eq=False)
class RunningScores:
    """Histograms of the scores of positives and negatives, over all chunks so far.

    Scores are counted in bins: those that agree in the leading 21 bits of their float32, which is to one part
    in 4,096, count as equal. So the size is bounded, however long a stream is.

    Attributes:
        bins: int64 [m], ascending: the bins that are not empty.
        negatives: int64 [m].
        positives: int64 [m].
    """

    bins: NDArray[np.int64]
    negatives: NDArray[np.int64]
    positives: NDArray[np.int64]

    @classmethod
    def empty(cls) -> RunningScores:
        """Return that of no scores."""
        return cls(*(np.zeros(0, np.int64) for _ in range(3)))

    def with_scores(self, scores: ChunkScores) -> RunningScores:
        """Return that of these scores as well."""
        new = _bins_of(scores.scores)
        labels = np.asarray(scores.labels, bool)
        bins, place = np.unique(np.concatenate([self.bins, new]), return_inverse=True)
        weights = (
            np.concatenate([self.negatives, ~labels]).astype(np.int64),
            np.concatenate([self.positives, labels]).astype(np.int64),
        )
        counts = []
        for weight in weights:
            count = np.zeros(len(bins), np.int64)
            np.add.at(count, place, weight)
            counts.append(count)
        return RunningScores(bins, *counts)

    def figures(self) -> dict[str, float]:
        """Return ``running_auc`` and ``running_average_precision``; nothing while they cannot be had."""
        positives, negatives = int(self.positives.sum()), int(self.negatives.sum())
        if not positives or not negatives:
            return {}
        below = np.cumsum(self.negatives) - self.negatives
        area = float((self.positives * (below + self.negatives / 2)).sum()) / (positives * negatives)
        found = np.cumsum(self.positives[::-1])
        shown = found + np.cumsum(self.negatives[::-1])
        precision = float((self.positives[::-1] * (found / shown)).sum()) / positives
        return {"running_auc": area, "running_average_precision": precision}

    def tensor(self) -> Tensor:
        """Return it as one tensor: int64 [3, m]."""
        return from_numpy(np.stack([self.bins, self.negatives, self.positives]))

    @classmethod
    def of_tensor(cls, tensor: Tensor) -> RunningScores:
        """Return what :meth:`tensor` returned."""
        return cls(*(row.copy() for row in tensor.numpy()))


def _bins_of(scores: NDArray[np.floating]) -> NDArray[np.int64]:
    """Return the bins of scores, ascending with them: the order of floats is that of their bits, by sign."""
    bits = (scores.astype(np.float32) + np.float32(0.0)).view(np.int32).astype(np.int64)  # -0.0 becomes 0.0
    ordered = np.where(bits < 0, -(bits & 0x7FFFFFFF) - 1, bits)
    return ordered >> (32 - _KEPT_BITS)

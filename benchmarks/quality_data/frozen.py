"""Classification of frozen embeddings, as papers on embeddings measure it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import f1_score
from sklearn.multiclass import OneVsRestClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

__all__ = ["one_vs_rest", "split_f1", "standardized_one_vs_rest"]


def one_vs_rest() -> Any:
    """Return the classifier of DeepWalk's protocol: logistic regression, one class against the rest."""
    return OneVsRestClassifier(LogisticRegression(solver="liblinear"))


def standardized_one_vs_rest() -> Any:
    """Return the same on standardized embeddings, so that their scale is no share of the L2 penalty."""
    return make_pipeline(StandardScaler(), one_vs_rest())


def split_f1(
    rows: NDArray[np.float32],
    labels: NDArray[np.int64],
    train_share: float,
    classifier: Callable[[], Any] = one_vs_rest,
    *,
    splits: int = 10,
    first_seed: int = 0,
) -> tuple[float, float]:
    """Return micro and macro F1, the means over random splits.

    Args:
        rows: float32 [n, dim], the embeddings.
        labels: int64 [n], the class of each.
        train_share: share of the rows that the classifier learns from.
        classifier: makes one with ``fit`` and ``predict``.
        splits: number of splits.
        first_seed: seed of the first split; the others follow.
    """
    scores = []
    for seed in range(first_seed, first_seed + splits):
        order = np.random.default_rng(seed).permutation(len(labels))
        known, rest = np.split(order, [int(train_share * len(labels))])
        predicted = classifier().fit(rows[known], labels[known]).predict(rows[rest])
        scores.append([f1_score(labels[rest], predicted, average=kind) for kind in ("micro", "macro")])
    micro, macro = np.mean(scores, axis=0)
    return float(micro), float(macro)

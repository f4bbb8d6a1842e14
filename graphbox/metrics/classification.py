"""Classification metrics: one class for each node, or several labels."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from graphbox.errors import UsageError

__all__ = ["accuracy", "classification_report", "macro_f1", "multilabel_report"]


def accuracy(expected: NDArray[np.integer], predicted: NDArray[np.integer]) -> float:
    """Return the share of nodes whose predicted class is the expected one.

    Args:
        expected: integer [n], the true class of each node.
        predicted: integer [n].

    Raises:
        UsageError: the arrays are empty or differ in shape.
    """
    _check(expected, predicted)
    return float(np.mean(expected == predicted))


def macro_f1(expected: NDArray[np.integer], predicted: NDArray[np.integer]) -> float:
    """Return the unweighted mean of the classes' F1 scores.

    The mean runs over the classes that occur in ``expected`` or in ``predicted``; a class that is never
    predicted right counts 0.

    Args:
        expected: integer [n], classes >= 0.
        predicted: integer [n], classes >= 0.

    Raises:
        UsageError: the arrays are empty or differ in shape.
    """
    _check(expected, predicted)
    classes = int(max(expected.max(), predicted.max())) + 1
    truth = np.bincount(expected, minlength=classes)
    guess = np.bincount(predicted, minlength=classes)
    right = np.bincount(expected[expected == predicted], minlength=classes)
    occurring = (truth + guess) > 0
    return float(np.mean(2.0 * right[occurring] / (truth + guess)[occurring]))


def classification_report(
    expected: NDArray[np.integer], predicted: NDArray[np.integer]
) -> dict[str, float | int]:
    """Return ``accuracy``, ``macro_f1`` and ``nodes``, the number of nodes they were measured on."""
    return {
        "accuracy": accuracy(expected, predicted),
        "macro_f1": macro_f1(expected, predicted),
        "nodes": len(expected),
    }


def multilabel_report(expected: NDArray[np.bool_], scores: NDArray[np.floating]) -> dict[str, float | int]:
    """Return ``micro_f1``, ``macro_f1`` and ``nodes`` where each node has several labels.

    A node is given as many labels as it has, those of highest score: the protocol of DeepWalk (Perozzi et
    al., KDD 2014) and its successors, under which published figures were measured. Of equal scores the lower
    label counts as higher. ``macro_f1`` is the unweighted mean over the labels that occur.

    Args:
        expected: bool [n, labels], which labels each node has, at least one.
        scores: float [n, labels], higher is likelier.

    Raises:
        UsageError: the arrays differ in shape or are empty, a node has no label, or a score is NaN.
    """
    if expected.shape != scores.shape or expected.ndim != 2 or expected.size == 0:
        raise UsageError(
            f"expected labels and scores of one shape [n, labels], received {expected.shape} and "
            f"{scores.shape}"
        )
    number = expected.sum(axis=1)
    if not number.all():
        raise UsageError(
            "expected at least one label of each node, received one without", where=f"row {number.argmin()}"
        )
    if np.isnan(scores).any():
        row = int(np.isnan(scores).any(axis=1).argmax())
        raise UsageError("expected numbers, received a score that is NaN", where=f"row {row}")
    order = np.argsort(-scores, axis=1, kind="stable")
    predicted = np.zeros(expected.shape, dtype=np.bool_)
    np.put_along_axis(predicted, order, np.arange(expected.shape[1]) < number[:, None], axis=1)
    right = (expected & predicted).sum(axis=0)
    total = expected.sum(axis=0) + predicted.sum(axis=0)
    occurring = expected.any(axis=0)
    return {
        "micro_f1": float(2.0 * right.sum() / total.sum()),
        "macro_f1": float(np.mean(2.0 * right[occurring] / total[occurring])),
        "nodes": len(expected),
    }


def _check(expected: NDArray[np.integer], predicted: NDArray[np.integer]) -> None:
    if expected.shape != predicted.shape or expected.ndim != 1:
        raise UsageError(
            f"expected two arrays of one shape [n], received {expected.shape} and {predicted.shape}"
        )
    if expected.size == 0:
        raise UsageError(
            "expected at least one node to score, received none", hint="enlarge the part that is held out"
        )

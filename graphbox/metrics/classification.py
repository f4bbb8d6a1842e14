"""Classification metrics: one class for each node, or several labels."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from graphbox.errors import UsageError


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


def several_classes_report(
    members: NDArray[np.bool_], scores: NDArray[np.float32], threshold: float = 0.5
) -> dict[str, float | int]:
    """Return F1 scores where a node can have several classes.

    ``micro_f1`` and ``macro_f1`` predict as many classes as a node has, those with the highest scores: the
    protocol of DeepWalk (Perozzi et al., KDD 2014), which knows their number. ``threshold_micro_f1`` and
    ``threshold_macro_f1`` predict the classes whose scores reach a threshold. Micro counts pairs of nodes and
    classes, macro is the mean over the classes that occur in either; of equal scores the first class is
    better.

    Args:
        members: bool [n, classes], the true classes, at least one of each node.
        scores: float32 [n, classes], probabilities where the threshold is to mean something.
        threshold: least score of a class that is predicted.

    Returns:
        The four, and ``nodes``, the number of nodes they were measured on.

    Raises:
        UsageError: the arrays are empty or differ in shape.
    """
    if members.shape != scores.shape or members.ndim != 2:
        raise UsageError(
            f"expected two arrays of one shape [n, classes], received {members.shape} and {scores.shape}"
        )
    _check_some(len(members))
    order = np.argsort(-scores, axis=1, kind="stable")
    place = np.empty_like(order)
    np.put_along_axis(place, order, np.arange(scores.shape[1])[None, :], axis=1)
    report: dict[str, float | int] = {}
    for prefix, predicted in (
        ("", place < members.sum(axis=1, keepdims=True)),
        ("threshold_", scores >= threshold),
    ):
        truth, guess = members.sum(axis=0), predicted.sum(axis=0)
        right = (members & predicted).sum(axis=0)
        occurring = truth + guess > 0
        report[f"{prefix}micro_f1"] = float(2.0 * right.sum() / (truth.sum() + guess.sum()))
        of_classes = 2.0 * right[occurring] / (truth + guess)[occurring]
        report[f"{prefix}macro_f1"] = float(of_classes.mean())
    return report | {"nodes": len(members)}


def _check(expected: NDArray[np.integer], predicted: NDArray[np.integer]) -> None:
    if expected.shape != predicted.shape or expected.ndim != 1:
        raise UsageError(
            f"expected two arrays of one shape [n], received {expected.shape} and {predicted.shape}"
        )
    _check_some(expected.size)


def _check_some(nodes: int) -> None:
    if not nodes:
        raise UsageError(
            "expected at least one node to score, received none", hint="enlarge the part that is held out"
        )

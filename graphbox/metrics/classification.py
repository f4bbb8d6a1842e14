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


def _check(expected: NDArray[np.integer], predicted: NDArray[np.integer]) -> None:
    if expected.shape != predicted.shape or expected.ndim != 1:
        raise UsageError(
            f"expected two arrays of one shape [n], received {expected.shape} and {predicted.shape}"
        )
    if expected.size == 0:
        raise UsageError(
            "expected at least one node to score, received none", hint="enlarge the part that is held out"
        )

"""Metrics of predicted classes of nodes: one class of each, or several."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from graphbox.metrics import classification_report, several_classes_report
from graphbox.train.tasks import ClassifySplit


def class_report(
    split: ClassifySplit, nodes: NDArray[np.int64], scores: NDArray[np.float32]
) -> dict[str, float | int]:
    """Return the figures of a classify task.

    Args:
        split: the split of the task.
        nodes: int64 [n], whose classes are known.
        scores: float32 [n, classes], higher for likelier classes; where nodes can have several,
        probabilities.
    """
    if not split.has_several:
        return classification_report(split.labels[nodes], scores.argmax(axis=1))
    return several_classes_report(split.members(nodes)[nodes].toarray() > 0, scores)


def deciding_figure(split: ClassifySplit) -> str:
    """Return the figure of :func:`class_report` that says which of two predictions is better."""
    return "micro_f1" if split.has_several else "accuracy"

"""Labels of the rows of a log: a boolean, or one of two categories."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from graphbox.config import ClickTaskConfig
from graphbox.errors import DataError, UsageError, did_you_mean
from graphbox.graph.columns import Column
from graphbox.graph.schema import FeatureSpec
from graphbox.metrics import click_report

UNKNOWN = -1
"""A label that a row does not have."""


@dataclass(frozen=True)
class ClickLabel:
    """Label of a task: its feature and positive value.

    Attributes:
        name: the feature.
        positive: the category that means a click; None: the feature is a boolean.
    """

    name: str
    positive: str | None

    @classmethod
    def of(cls, node_type: str, name: str, positive: str | None, spec: FeatureSpec | None) -> ClickLabel:
        """Return how a label is read.

        Args:
            node_type: of the rows.
            name: the feature.
            positive: the category that the task calls positive.
            spec: of the feature; None: there is none of that name.

        Raises:
            UsageError: there is no such feature, or the task names no category of it.
            DataError: it has more than two categories, or fewer and the task does not say which is positive.
        """
        where = f"node type {node_type}, label `{name}`"
        if spec is None or spec.kind not in {"boolean", "categorical"}:
            raise UsageError(
                "expected a boolean or categorical feature as label, received "
                f"{'none of that name' if spec is None else f'one of the kind {spec.kind}'}",
                where=where,
                hint=f"write `{name}: boolean` or `{name}: categorical` under its `features`",
            )
        if spec.categories is None:
            if positive is not None:
                raise UsageError(
                    f"expected no `positive` of a boolean label, received `{positive}`",
                    where=where,
                    hint="leave it out: true is positive",
                )
            return cls(name, None)
        found = sorted(spec.categories)
        # Of a stream, the other category may be yet to come: then the task must say which one is positive.
        if len(found) > 2 or (len(found) < 2 and positive is None):
            raise DataError(
                f"expected a label of two categories, received {len(found)}: {', '.join(found[:5])}",
                where=where,
                hint="a task of kind `classify` takes more than two"
                if found[2:]
                else "name the category that means a click: `positive` of the task",
            )
        chosen = found[-1] if positive is None else positive
        if chosen not in found and len(found) == 2:
            raise UsageError(
                f"expected one of {', '.join(found)} as positive, received `{chosen}`",
                where=where,
                hint=did_you_mean(chosen, found),
            )
        return cls(name, chosen)

    def read(self, column: Column) -> NDArray[np.int8]:
        """Return the label of each row of its column: int8 [n], 1 positive, 0 negative, -1 unknown."""
        if self.positive is None:
            return column.values.astype(bool).astype(np.int8)
        categories = [] if column.categories is None else column.categories.to_pylist()
        code = categories.index(self.positive) if self.positive in categories else len(categories)
        return np.where(column.values >= 0, column.values == code, UNKNOWN).astype(np.int8)


def read_labels(
    task: ClickTaskConfig, specs: Mapping[str, FeatureSpec], column_of: Callable[[str], Column]
) -> NDArray[np.int8]:
    """Return all labels of rows: int8 [n, labels], see :meth:`ClickLabel.read`.

    Args:
        task: the task.
        specs: the features of its node type.
        column_of: returns the column of a feature.

    Raises:
        UsageError, DataError: a feature is no label; see :meth:`ClickLabel.of`.
    """
    positives = (task.positive, *(each.positive for each in task.also))
    columns = [
        ClickLabel.of(task.node_type, name, positive, specs.get(name)).read(column_of(name))
        for name, positive in zip(task.labels, positives, strict=True)
    ]
    return np.stack(columns, axis=1)


def labels_report(
    names: Sequence[str],
    labels: NDArray[np.int8],
    probabilities: NDArray[np.float32],
    groups: NDArray[np.int64] | None = None,
) -> dict[str, float | int]:
    """Return the figures of :func:`graphbox.metrics.click_report`, of each label over the rows that have it.

    Those of the first label have the names of that report, those of a label ``bought`` the same names with
    ``.bought`` after them.

    Args:
        names: of the labels that are predicted, the first ones of all.
        labels: int8 [rows, labels], see :meth:`ClickLabel.read`.
        probabilities: float32 [rows, labels that are predicted].
        groups: int64 [rows], whose each row is, or None.
    """
    report: dict[str, float | int] = {}
    for number, name in enumerate(names):
        known = labels[:, number] != UNKNOWN
        figures = click_report(
            labels[known, number] == 1,
            probabilities[known, number],
            None if groups is None else groups[known],
        )
        suffix = f".{name}" if number else ""
        report |= {f"{figure}{suffix}": value for figure, value in figures.items()}
    return report

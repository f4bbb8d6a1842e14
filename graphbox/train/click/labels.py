"""Labels of the rows of a log: a boolean, or one of two categories."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from graphbox.config import ClickTaskConfig
from graphbox.errors import DataError, UsageError, did_you_mean
from graphbox.graph.columns import Column
from graphbox.graph.schema import FeatureSpec


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
    def of(cls, task: ClickTaskConfig, spec: FeatureSpec | None) -> ClickLabel:
        """Return how the label of a task is read.

        Raises:
            UsageError: there is no such feature, or the task names no category of it.
            DataError: it has more than two categories, or fewer and the task does not say which is positive.
        """
        where = f"node type {task.node_type}, label `{task.label}`"
        if spec is None or spec.kind not in {"boolean", "categorical"}:
            raise UsageError(
                "expected a boolean or categorical feature as label, received "
                f"{'none of that name' if spec is None else f'one of the kind {spec.kind}'}",
                where=where,
                hint=f"write `{task.label}: boolean` or `{task.label}: categorical` under its `features`",
            )
        if spec.categories is None:
            if task.positive is not None:
                raise UsageError(
                    f"expected no `positive` of a boolean label, received `{task.positive}`",
                    where=where,
                    hint="leave it out: true is positive",
                )
            return cls(task.label, None)
        found = sorted(spec.categories)
        # Of a stream, the other category may be yet to come: then the task must say which one is positive.
        if len(found) > 2 or (len(found) < 2 and task.positive is None):
            raise DataError(
                f"expected a label of two categories, received {len(found)}: {', '.join(found[:5])}",
                where=where,
                hint="a task of kind `classify` takes more than two"
                if found[2:]
                else "name the category that means a click: `positive` of the task",
            )
        positive = found[-1] if task.positive is None else task.positive
        if positive not in found and len(found) == 2:
            raise UsageError(
                f"expected one of {', '.join(found)} as positive, received `{positive}`",
                where=where,
                hint=did_you_mean(positive, found),
            )
        return cls(task.label, positive)

    def read(self, column: Column) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
        """Return which rows of the label's column are positive, and which have a label: two bool [n]."""
        if self.positive is None:
            return column.values.astype(bool), np.ones(len(column), bool)
        categories = [] if column.categories is None else column.categories.to_pylist()
        code = categories.index(self.positive) if self.positive in categories else len(categories)
        return column.values == code, column.values >= 0

"""Split of a task of kind `click`: rows of a log."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from graphbox.train.tasks.split import FOLDS, Fold, Split


@dataclass(frozen=True, eq=False)
class ClickSplit(Split):
    """Rows with a known label, in three folds.

    Attributes:
        label: feature to predict; models of the task do not see it.
        split_feature: the feature that says which row is held out, if one does; not seen either.
        labels: bool [num_nodes], which rows are positive.
        fold: int8 [num_nodes], position in :data:`FOLDS`, -1 where the label is unknown.
        also: further features to predict, not seen either.
        further_labels: int8 [num_nodes, len(also)], 1 positive, 0 negative, -1 unknown; None without them.
    """

    KIND: ClassVar[str] = "click"

    label: str
    split_feature: str | None
    labels: NDArray[np.bool_]
    fold: NDArray[np.int8]
    also: tuple[str, ...] = ()
    further_labels: NDArray[np.int8] | None = None

    def is_in(self, *folds: Fold) -> NDArray[np.bool_]:
        """Return which rows are in the given folds: bool [num_nodes]."""
        return np.isin(self.fold, [FOLDS.index(fold) for fold in folds])

    def rows(self, *folds: Fold) -> NDArray[np.int64]:
        """Return the rows of the given folds, ascending: int64 [n]."""
        return np.flatnonzero(self.is_in(*folds))

    def all_labels(self) -> NDArray[np.int8]:
        """Return the labels, the first one first: int8 [num_nodes, labels], as in ``further_labels``."""
        first = np.where(self.fold >= 0, self.labels, -1).astype(np.int8)
        return np.column_stack([first] if self.further_labels is None else [first, self.further_labels])

    def hidden_features(self) -> Mapping[tuple[str, str], str]:
        """Return the labels, and the feature that says what is held out."""
        hidden = {(self.node_type, label): "is to predict" for label in (self.label, *self.also)}
        if self.split_feature is not None:
            hidden[self.node_type, self.split_feature] = "is tested on"
        return hidden

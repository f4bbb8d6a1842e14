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
    """

    KIND: ClassVar[str] = "click"

    label: str
    split_feature: str | None
    labels: NDArray[np.bool_]
    fold: NDArray[np.int8]

    def is_in(self, *folds: Fold) -> NDArray[np.bool_]:
        """Return which rows are in the given folds: bool [num_nodes]."""
        return np.isin(self.fold, [FOLDS.index(fold) for fold in folds])

    def rows(self, *folds: Fold) -> NDArray[np.int64]:
        """Return the rows of the given folds, ascending: int64 [n]."""
        return np.flatnonzero(self.is_in(*folds))

    def hidden_features(self) -> Mapping[tuple[str, str], str]:
        """Return the label, and the feature that says what is held out."""
        hidden = {(self.node_type, self.label): "is to predict"}
        if self.split_feature is not None:
            hidden[self.node_type, self.split_feature] = "is tested on"
        return hidden

"""What a task of kind `classify` holds out: nodes with a known class."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from graphbox.train.tasks.split import FOLDS, Fold, Split


@dataclass(frozen=True, eq=False)
class ClassifySplit(Split):
    """Nodes with a known class, in three folds.

    Attributes:
        label: categorical feature to predict; models of the task do not see it.
        split_feature: the feature that says which node is held out, if one does; not seen either.
        classes: names of the classes.
        labels: int64 [num_nodes], class of each node, -1 where unknown.
        fold: int8 [num_nodes], position in :data:`FOLDS`, -1 where the class is unknown.
    """

    KIND: ClassVar[str] = "classify"

    label: str
    split_feature: str | None
    classes: tuple[str, ...]
    labels: NDArray[np.int64]
    fold: NDArray[np.int8]

    def nodes(self, *folds: Fold) -> NDArray[np.int64]:
        """Return the nodes of the given folds, ascending: int64 [n]."""
        return np.flatnonzero(np.isin(self.fold, [FOLDS.index(fold) for fold in folds]))

    def memberships(self, known: NDArray[np.int64]) -> sp.csr_array:
        """Return the classes of some nodes, none of the others: 0/1 float32 [num_nodes, classes].

        Args:
            known: int64 [n], distinct nodes whose class is known.
        """
        ones = np.ones(len(known), np.float32)
        return sp.csr_array((ones, (known, self.labels[known])), shape=(len(self.labels), len(self.classes)))

    def hidden_features(self) -> Mapping[tuple[str, str], str]:
        """Return the label, and the feature that says what is held out."""
        hidden = {(self.node_type, self.label): "is to predict"}
        if self.split_feature is not None:
            hidden[self.node_type, self.split_feature] = "is tested on"
        return hidden

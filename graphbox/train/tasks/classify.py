"""Split of a task of kind `classify`: nodes with a known class."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from graphbox.graph.schema import EdgeType, edge_type_from_text
from graphbox.train.tasks.split import FOLDS, Fold, Split


@dataclass(frozen=True, eq=False)
class ClassifySplit(Split):
    """Nodes with a known class, in three folds.

    Attributes:
        label: categorical feature to predict; models of the task do not see it.
        split_feature: the feature that says which node is held out, if one does; not seen either.
        classes: names of the classes.
        labels: int64 [num_nodes], class of each node, -1 where unknown; where nodes can have several the
        first,
            which says no more than that there are some.
        fold: int8 [num_nodes], position in :data:`FOLDS`, -1 where the class is unknown.
        class_offsets: int64 [num_nodes + 1], where nodes can have several classes; else empty.
        class_numbers: int64, those of node i at ``class_offsets[i]:class_offsets[i + 1]``, ascending.
        memberships: edge type, as text, whose edges lead to the classes; None: ``label`` is a feature.
    """

    KIND: ClassVar[str] = "classify"

    label: str
    split_feature: str | None
    classes: tuple[str, ...]
    labels: NDArray[np.int64]
    fold: NDArray[np.int8]
    class_offsets: NDArray[np.int64] = field(default_factory=lambda: np.zeros(0, np.int64))
    class_numbers: NDArray[np.int64] = field(default_factory=lambda: np.zeros(0, np.int64))
    memberships: str | None = None

    @property
    def has_several(self) -> bool:
        """Whether nodes can have several classes."""
        return len(self.class_offsets) > 0

    def nodes(self, *folds: Fold) -> NDArray[np.int64]:
        """Return the nodes of the given folds, ascending: int64 [n]."""
        return np.flatnonzero(np.isin(self.fold, [FOLDS.index(fold) for fold in folds]))

    def members(self, known: NDArray[np.int64]) -> sp.csr_array:
        """Return the classes of some nodes, none of the others: 0/1 float32 [num_nodes, classes].

        Args:
            known: int64 [n], distinct nodes whose class is known.
        """
        shape = (len(self.labels), len(self.classes))
        if not self.has_several:
            ones = np.ones(len(known), np.float32)
            return sp.csr_array((ones, (known, self.labels[known])), shape=shape)
        counts = np.zeros(len(self.labels), np.int64)
        counts[known] = np.diff(self.class_offsets)[known]
        is_kept = np.repeat(counts > 0, np.diff(self.class_offsets))
        numbers = self.class_numbers[is_kept]
        indptr = np.concatenate([[0], np.cumsum(counts)])
        return sp.csr_array((np.ones(len(numbers), np.float32), numbers, indptr), shape=shape)

    def hidden_features(self) -> Mapping[tuple[str, str], str]:
        """Return the label, if it is a feature, and the feature that says what is held out."""
        hidden = {} if self.memberships is not None else {(self.node_type, self.label): "is to predict"}
        if self.split_feature is not None:
            hidden[self.node_type, self.split_feature] = "is tested on"
        return hidden

    def hidden_edge_types(self) -> Collection[EdgeType]:
        """Return the edge type that leads to the classes, if one does."""
        return () if self.memberships is None else {edge_type_from_text(self.memberships)}

"""Split of a task of kind `next`: events, each to be predicted from those before it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from graphbox.graph import Graph
from graphbox.graph.schema import EdgeType
from graphbox.train.compressed import CompressedRows
from graphbox.train.tasks.split import FOLDS, Fold, Split


@dataclass(frozen=True, eq=False)
class NextSplit(Split):
    """Events of nodes in the order of time, in three folds that follow one another for each node.

    The events of node ``i`` are at ``offsets[i]:offsets[i + 1]`` of the arrays of events; an event's place
    there is its number. Its history are the events of its node before it.

    Attributes:
        target_type: type of items.
        relations: relations whose edges are the events.
        offsets: int64 [nodes + 1].
        items: int64 [e], the item of each event.
        fold: int8 [e], position in :data:`FOLDS`; it never falls within a node.
        edges: int64 [e, 2], the number of its relation and the edge id of each event.
        validation: int64, numbers of the events to predict in validation, ascending.
        test: int64, the same of test.
        untested: held-out events that are not predicted: they have no history, or repeat one of its items.
    """

    KIND: ClassVar[str] = "next"

    target_type: str
    relations: tuple[str, ...]
    offsets: NDArray[np.int64]
    items: NDArray[np.int64]
    fold: NDArray[np.int8]
    edges: NDArray[np.int64]
    validation: NDArray[np.int64]
    test: NDArray[np.int64]
    untested: int

    def tested(self, fold: Fold) -> NDArray[np.int64]:
        """Return the numbers of the events to predict in a fold, ascending; none in train."""
        return {"train": self.items[:0], "validation": self.validation, "test": self.test}[fold]

    def is_known(self, fold: Fold) -> NDArray[np.bool_]:
        """Return which events may be learnt from when ``fold`` is predicted: bool [e]."""
        return self.fold <= _last_known(fold)

    def known(self, fold: Fold) -> CompressedRows:
        """Return the items of the known events of each node, in their order; see :meth:`is_known`."""
        known = self.is_known(fold)
        counts = np.concatenate([[0], np.cumsum(known)])
        return CompressedRows(counts[self.offsets], self.items[known])

    def nodes_of(self, events: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the nodes of events given by their numbers: int64 [n]."""
        return np.asarray(np.searchsorted(self.offsets, events, side="right") - 1)

    def histories(self, events: NDArray[np.int64]) -> CompressedRows:
        """Return the items of the histories of events given by their numbers, in their order."""
        first = self.offsets[self.nodes_of(events)]
        count = events - first
        offsets = np.concatenate([[0], np.cumsum(count)])
        places = np.arange(offsets[-1]) + np.repeat(first - offsets[:-1], count)
        return CompressedRows(offsets, self.items[places])

    def hidden_edges(self, graph: Graph, fold: Fold) -> dict[EdgeType, NDArray[np.int64]]:  # noqa: ARG002
        """Return the ids of the edges of events that are not known."""
        hidden = self.edges[~self.is_known(fold)]
        return {
            (self.node_type, relation, self.target_type): np.sort(hidden[hidden[:, 0] == number, 1])
            for number, relation in enumerate(self.relations)
            if (hidden[:, 0] == number).any()
        }


def _last_known(fold: Fold) -> int:
    """Return the last fold that is known when ``fold`` is predicted."""
    return FOLDS.index("validation" if fold == "test" else "train")

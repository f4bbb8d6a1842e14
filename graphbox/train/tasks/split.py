"""Base class of all splits."""

from __future__ import annotations

from abc import ABC
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from graphbox.graph import Graph
from graphbox.graph.schema import EdgeType

Fold = Literal["train", "validation", "test"]
FOLDS: tuple[Fold, ...] = ("train", "validation", "test")


@dataclass(frozen=True, eq=False)
class Split(ABC):
    """Held-out parts of a task: arrays, text and numbers alone, so that a file can hold it.

    The methods return the parts of a graph that must not be seen; :class:`graphbox.train.view.GraphView`
    hides them.

    Attributes:
        node_type: type of the nodes that are classified, or of queries.
        digest: hex digest of everything that made the split.
    """

    KIND: ClassVar[str]
    """Kind of the task."""

    node_type: str
    digest: str

    def hidden_features(self) -> Mapping[tuple[str, str], str]:
        """Return why a node feature must not be read, as the end of "what it ...", by type and name."""
        return {}

    def hidden_edge_types(self) -> Collection[EdgeType]:
        """Return the edge types that must not be seen; nor must their reverse ones."""
        return ()

    def hidden_edges(self, graph: Graph, fold: Fold) -> dict[EdgeType, NDArray[np.int64]]:  # noqa: ARG002
        """Return the ids of the edges that must not be seen while ``fold`` is predicted: int64, ascending.

        Reverse edge types follow the types whose edges they hold backwards.
        """
        return {}

"""Split of a task of kind `complete`: triples whose head or tail is to be predicted."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from graphbox.graph import Graph
from graphbox.graph.schema import EdgeType, edge_type_from_text
from graphbox.train.tasks.split import FOLDS, Fold, Split


@dataclass(frozen=True, eq=False)
class CompleteSplit(Split):
    """Triples (head, relation, tail) in three folds.

    Heads and tails are numbered as nodes of their type, relations by their place in ``relations``.

    Attributes:
        node_types: the types of entities.
        relations: names of the relations.
        relation_ends: int64 [relations, 2], places in ``node_types`` of the types of heads and of tails.
        train: int64 [t, 3], distinct triples to learn from, ascending.
        validation: int64 [v, 3], distinct triples to find in validation.
        test: int64 [t, 3], distinct triples to find in test.
        edge_types: edge types of which some edges are held out, as text.
        held_out: int64 [h, 3]: place in ``edge_types``, edge id, and fold of each edge of them that is held
            out; fold 3 is in no part.
        held_out_types: edge types that are held out as a whole, as text.
        repeated: edges of validation or test whose triple is known from an earlier fold, not to be found.
    """

    KIND: ClassVar[str] = "complete"

    node_types: tuple[str, ...]
    relations: tuple[str, ...]
    relation_ends: NDArray[np.int64]
    train: NDArray[np.int64]
    validation: NDArray[np.int64]
    test: NDArray[np.int64]
    edge_types: tuple[str, ...]
    held_out: NDArray[np.int64]
    held_out_types: tuple[str, ...]
    repeated: int

    def triples(self, fold: Fold) -> NDArray[np.int64]:
        """Return the triples of a fold: int64 [n, 3]."""
        return {"train": self.train, "validation": self.validation, "test": self.test}[fold]

    def known(self, fold: Fold) -> NDArray[np.int64]:
        """Return the triples that are known when ``fold`` is predicted: int64 [n, 3]."""
        return np.concatenate([self.train, self.validation]) if fold == "test" else self.train

    def true_in(self, fold: Fold) -> NDArray[np.int64]:
        """Return the triples that take no rank of others when ``fold`` is predicted: int64 [n, 3].

        The known ones and those of the fold itself; so what is chosen on validation knows nothing of test.
        """
        return np.concatenate([self.known(fold), self.triples(fold)])

    def hidden_edge_types(self) -> Collection[EdgeType]:
        """Return the edge types that are held out as a whole."""
        return {edge_type_from_text(text) for text in self.held_out_types}

    def hidden_edges(self, graph: Graph, fold: Fold) -> dict[EdgeType, NDArray[np.int64]]:  # noqa: ARG002
        """Return the ids of the edges of hidden triples."""
        last_known = FOLDS.index("validation" if fold == "test" else "train")
        hidden = self.held_out[self.held_out[:, 2] > last_known]
        return {
            edge_type_from_text(text): np.sort(hidden[hidden[:, 0] == number, 1])
            for number, text in enumerate(self.edge_types)
            if (hidden[:, 0] == number).any()
        }

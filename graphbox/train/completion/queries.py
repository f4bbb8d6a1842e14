"""Queries of a knowledge graph: entities that a relation leads to, from an entity."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from graphbox.train.tasks import CompleteSplit


def directed(triples: NDArray[np.int64], num_relations: int) -> NDArray[np.int64]:
    """Return triples in both directions: int64 [2 n, 3], the entity asked about, relation, answer.

    Relations from tails to heads have the number of relations added.

    Args:
        triples: int64 [n, 3], head, relation, tail.
        num_relations: number of relations.
    """
    backwards = triples[:, ::-1].copy()
    backwards[:, 1] += num_relations
    return np.concatenate([triples, backwards])


@dataclass(frozen=True, eq=False)
class DirectedQueries:
    """Distinct queries of triples in both directions, with all their answers.

    Attributes:
        entities: int64 [q], asked about, as nodes of their type; ascending by relation, then entity.
        relations: int64 [q], plus the number of relations where heads are asked for.
        indptr: int64 [q + 1].
        answers: int64, those of query i are ``answers[indptr[i]:indptr[i + 1]]``, ascending, distinct.
    """

    entities: NDArray[np.int64]
    relations: NDArray[np.int64]
    indptr: NDArray[np.int64]
    answers: NDArray[np.int64]

    @classmethod
    def of(cls, triples: NDArray[np.int64], num_relations: int) -> DirectedQueries:
        """Return the queries that triples, int64 [n, 3], answer."""
        asked = np.unique(directed(triples, num_relations)[:, [1, 0, 2]], axis=0)
        first = np.ones(len(asked), dtype=bool)
        first[1:] = (np.diff(asked[:, :2], axis=0) != 0).any(axis=1)
        start = np.flatnonzero(first)
        return cls(
            entities=asked[start, 1],
            relations=asked[start, 0],
            indptr=np.append(start, len(asked)),
            answers=asked[:, 2].copy(),
        )

    def of_queries(self, queries: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return the answers of some queries: row of each in ``queries``, and the answer; int64 [n] each."""
        count = self.indptr[queries + 1] - self.indptr[queries]
        row = np.repeat(np.arange(len(queries)), count)
        return row, self.answers[concatenated_ranges(self.indptr[queries], count)]


def answers_of(
    known: DirectedQueries, entities: NDArray[np.int64], relations: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the known answers of queries that need not be known themselves.

    Args:
        known: queries with answers.
        entities: int64 [n].
        relations: int64 [n], directed as those of ``known``.

    Returns:
        ``indptr`` int64 [n + 1] and the answers, int64.
    """
    bound = 1 + max(known.entities.max(initial=0), entities.max(initial=0))
    keys = known.relations * bound + known.entities
    wanted = relations * bound + entities
    place = np.minimum(np.searchsorted(keys, wanted), len(keys) - 1)
    start, stop = known.indptr[place], known.indptr[place + 1]
    count = np.where(keys[place] == wanted, stop - start, 0)
    return np.concatenate([[0], np.cumsum(count)]), known.answers[concatenated_ranges(start, count)]


def concatenated_ranges(start: NDArray[np.int64], count: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return ``start[i], ..., start[i] + count[i] - 1`` of all i, one after another: int64 [sum of count]."""
    before = np.cumsum(count) - count
    return np.repeat(start - before, count) + np.arange(count.sum())


def answer_types(split: CompleteSplit) -> NDArray[np.int64]:
    """Return the place of the type of answers of each directed relation: int64 [2 relations]."""
    return np.concatenate([split.relation_ends[:, 1], split.relation_ends[:, 0]])

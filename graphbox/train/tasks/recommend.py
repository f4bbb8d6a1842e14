"""Split of a task of kind `recommend`: edges whose targets are to be predicted."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from graphbox.graph import Graph
from graphbox.graph.edge_blocks import edge_blocks
from graphbox.graph.schema import EdgeType
from graphbox.graph.snapshot import as_live
from graphbox.train.tasks.split import Fold, Split

_BLOCK_EDGES = 1 << 20
"""Edges that are looked at together."""


@dataclass(frozen=True, eq=False)
class RecommendSplit(Split):
    """Edges whose targets are to be found, in three folds, and which nodes are candidates.

    Held out are whole pairs of groups: all edges between the nodes of the one group and the nodes of the
    other, whatever their relation and direction, so that no sibling gives an answer away.

    Attributes:
        target_type: type of candidates.
        relations: relations from queries to candidates whose edges are the answers.
        held_out_relations: those of them that are held out as a whole: their edge types are never seen.
        exclude_relations: relations that keep the pairs of groups they join from being held out.
        group: int64 [nodes of node_type], the group of each query.
        target_group: int64 [nodes of target_type], the group of each candidate.
        train: int64 [e, 2], distinct (query, target) of the train fold.
        validation: int64 [e, 2], distinct (query, target) to find in validation.
        test: int64 [e, 2], distinct (query, target) to find in test.
        validation_joined_by: bool [e, relations], which relations join each of ``validation``.
        test_joined_by: bool [e, relations], the same of ``test``.
        validation_pairs: uint64, ascending keys (:meth:`pair_keys`) of the pairs of groups held out for
            validation.
        test_pairs: uint64, the same for test.
        ignored_pairs: uint64, the same of what is in no fold.
        linked_pairs: uint64, ascending keys of the pairs that an excluded relation joins: never held out.
        repeated: edges of validation or test that are known before; they are not to be found.
    """

    KIND: ClassVar[str] = "recommend"

    target_type: str
    relations: tuple[str, ...]
    held_out_relations: tuple[str, ...]
    exclude_relations: tuple[str, ...]
    group: NDArray[np.int64]
    target_group: NDArray[np.int64]
    train: NDArray[np.int64]
    validation: NDArray[np.int64]
    test: NDArray[np.int64]
    validation_joined_by: NDArray[np.bool_]
    test_joined_by: NDArray[np.bool_]
    validation_pairs: NDArray[np.uint64]
    test_pairs: NDArray[np.uint64]
    ignored_pairs: NDArray[np.uint64]
    linked_pairs: NDArray[np.uint64]
    repeated: int

    @property
    def within_one_type(self) -> bool:
        """Whether queries and candidates are nodes of one type."""
        return self.node_type == self.target_type

    def edges(self, fold: Fold) -> NDArray[np.int64]:
        """Return the distinct (query, target) of a fold: int64 [e, 2]."""
        return {"train": self.train, "validation": self.validation, "test": self.test}[fold]

    def edges_by_relation(self, fold: Fold) -> dict[str, NDArray[np.bool_]]:
        """Return which of the edges to find each relation has, where several have any: bool [e] by name.

        An edge that several relations have counts for each.

        Args:
            fold: validation or test.
        """
        joined_by = self.validation_joined_by if fold == "validation" else self.test_joined_by
        found = {name: joined_by[:, number] for number, name in enumerate(self.relations)}
        found = {name: inside for name, inside in found.items() if inside.any()}
        return found if len(found) > 1 else {}

    def known(self, fold: Fold) -> NDArray[np.int64]:
        """Return the distinct (query, target) that are known when ``fold`` is predicted: int64 [e, 2]."""
        return np.concatenate([self.train, self.validation]) if fold == "test" else self.train

    def known_blocks(self, fold: Fold, block_links: int) -> Iterator[NDArray[np.int64]]:
        """Yield the links of :meth:`known`, at most ``block_links`` at a time; a mapped file is read so."""
        for links in (self.train, self.validation) if fold == "test" else (self.train,):
            yield from blocks_of(links, block_links)

    def pair_keys(self, queries: NDArray[np.int64], targets: NDArray[np.int64]) -> NDArray[np.uint64]:
        """Return the key of the pair of groups of each (query, target): uint64 [n]."""
        return pair_keys(self.group[queries], self.target_group[targets], ordered=not self.within_one_type)

    def hidden_pairs(self, fold: Fold) -> NDArray[np.uint64]:
        """Return the pairs of groups that must not be seen while ``fold`` is predicted, ascending keys.

        Training and validation see neither validation nor test; what is measured on test sees validation.
        """
        hidden = np.union1d(self.test_pairs, self.ignored_pairs)
        return hidden if fold == "test" else np.union1d(hidden, self.validation_pairs)

    def hidden_edge_types(self) -> Collection[EdgeType]:
        """Return the edge types that are held out as a whole."""
        return {(self.node_type, relation, self.target_type) for relation in self.held_out_relations}

    def hidden_edges(self, graph: Graph, fold: Fold) -> dict[EdgeType, NDArray[np.int64]]:
        """Return the ids of the edges between the nodes of hidden pairs of groups."""
        return self.edges_of_pairs(graph, self.hidden_pairs(fold))

    def edges_of_pairs(self, graph: Graph, pairs: NDArray[np.uint64]) -> dict[EdgeType, NDArray[np.int64]]:
        """Return the ids of the edges between the nodes of pairs of groups, in any edge type.

        Args:
            graph: the graph; edge types without such edges are not among the result.
            pairs: uint64, ascending :meth:`pair_keys` of the pairs.
        """
        return edges_joining(graph, self.node_type, self.target_type, self.pair_keys, pairs)


def edges_joining(
    graph: Graph,
    node_type: str,
    target_type: str,
    key_of: Callable[[NDArray[np.int64], NDArray[np.int64]], NDArray[np.uint64]],
    pairs: NDArray[np.uint64],
) -> dict[EdgeType, NDArray[np.int64]]:
    """Return the ids of the edges of any relation and direction that join some pairs, by type: ascending.

    Edges are read in blocks, so that memory holds the ids alone.

    Args:
        graph: the graph; its reverse edge types follow the others.
        node_type: type of the one end.
        target_type: type of the other.
        key_of: returns the keys of the pairs of nodes at the one end and at the other, int64 [n] each.
        pairs: uint64, ascending keys.
    """
    found: dict[EdgeType, NDArray[np.int64]] = {}
    for edge_type in graph.edge_types:
        ends = (edge_type[0], edge_type[2])
        if graph.is_reverse(edge_type) or ends not in {(node_type, target_type), (target_type, node_type)}:
            continue
        joining = []
        for block in edge_blocks(as_live(graph.own_edges(edge_type)), _BLOCK_EDGES):
            both = (block.source, block.target) if ends[0] == node_type else (block.target, block.source)
            ids = block.edge_ids[among(key_of(*both), pairs)]
            if len(ids):
                joining.append(ids)
        if joining:
            found[edge_type] = np.concatenate(joining)
    return found


def blocks_of(links: NDArray[np.int64], block_links: int) -> Iterator[NDArray[np.int64]]:
    """Yield links, int64 [n, 2], at most ``block_links`` at a time, in memory where they are mapped."""
    for first in range(0, len(links), block_links):
        yield np.asarray(links[first : first + block_links])


def among(keys: NDArray[np.uint64], pairs: NDArray[np.uint64]) -> NDArray[np.bool_]:
    """Return which keys are among ascending ones."""
    if not len(pairs):
        return np.zeros(len(keys), bool)
    place = np.minimum(np.searchsorted(pairs, keys), len(pairs) - 1)
    found: NDArray[np.bool_] = pairs[place] == keys
    return found


def distinct_keys(keys: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Return keys once each, ascending.

    By a sort: :func:`numpy.unique` may use a hash table instead, which takes several times as long and as
    much memory where most keys are distinct.
    """
    ascending = np.sort(keys)
    is_first = np.ones(len(keys), bool)
    np.not_equal(ascending[1:], ascending[:-1], out=is_first[1:])
    return ascending[is_first]


def ends_of_keys(keys: NDArray[np.uint64]) -> NDArray[np.int64]:
    """Return the two numbers of each key of an ordered pair: int64 [n, 2]."""
    ends = np.empty((len(keys), 2), np.int64)
    ends[:, 0], ends[:, 1] = keys >> np.uint64(32), keys & np.uint64(0xFFFFFFFF)
    return ends


def pair_keys(
    first: NDArray[np.int64], second: NDArray[np.int64], *, ordered: bool = False
) -> NDArray[np.uint64]:
    """Return one key for each pair of groups (numbers below 2^32): uint64 [n].

    Args:
        first: int64 [n].
        second: int64 [n].
        ordered: the groups are of two types; else a pair is the same both ways round.
    """
    low, high = (first, second) if ordered else (np.minimum(first, second), np.maximum(first, second))
    return (low.astype(np.uint64) << np.uint64(32)) | high.astype(np.uint64)

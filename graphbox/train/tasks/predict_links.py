"""Split of a task of kind `predict_links`: edges, and pairs that no edge joins as negatives."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from graphbox.graph import Graph
from graphbox.graph.schema import EdgeType
from graphbox.train.tasks.recommend import blocks_of, distinct_keys, edges_joining, ends_of_keys, pair_keys
from graphbox.train.tasks.split import FOLDS, Fold, Split


@dataclass(frozen=True, eq=False)
class LinkPart:
    """The edges of a fold, and pairs of nodes that are none, to be told apart.

    Attributes:
        edges: int64 [p, 2], source and target; events in the order of time.
        time: int64 [p], when each came to be; empty where the split does not ask.
        origin: int64 [p, 2], the number of its relation and the edge id of each event; empty else.
        query: int64 [p], which negatives an edge is ranked among: those of equal number.
        negatives: int64 [n, 2], source and target; none in training.
        negative_time: int64 [n], when each is asked for; empty where ``time`` is.
        negative_query: int64 [n].
    """

    edges: NDArray[np.int64]
    time: NDArray[np.int64]
    origin: NDArray[np.int64]
    query: NDArray[np.int64]
    negatives: NDArray[np.int64]
    negative_time: NDArray[np.int64]
    negative_query: NDArray[np.int64]

    def batches(self, size: int) -> Iterator[tuple[slice, slice]]:
        """Yield events and negatives batch by batch in the order of time.

        A negative is in the first batch whose last event is not before it.

        Args:
            size: events in a batch.
        """
        starts = np.arange(0, len(self.time), size)
        ends = np.minimum(starts + size, len(self.time))
        negative_ends = np.searchsorted(self.negative_time, self.time[ends - 1], side="right")
        negative_ends[-1:] = len(self.negative_time)
        negative_starts = np.concatenate([[0], negative_ends[:-1]])
        for start, end, first, last in zip(starts, ends, negative_starts, negative_ends, strict=True):
            yield slice(int(start), int(end)), slice(int(first), int(last))


@dataclass(frozen=True, eq=False)
class LinkSplit(Split):
    """Edges to be told from pairs that no edge joins, in three folds, with such pairs.

    Where edges are events, each is in a fold of its own, and a pair that was joined in an earlier fold may
    be again in a later one; else pairs are held out whole, both ways round where the ends are of one type.

    Attributes:
        target_type: type of the targets.
        relations: relations whose edges are to be told.
        held_out_relations: those of them whose edge types are never seen.
        negative_relations: edge types that hold negatives; never seen either.
        sources: number of nodes of ``node_type``.
        targets: number of nodes of ``target_type``.
        edges: int64 [e, 2], source and target of each edge of a fold: distinct pairs ascending, or events in
            the order of time, each fold for itself.
        fold: int8 [e], position in :data:`FOLDS`.
        time: int64 [e] of events; else empty.
        origin: int64 [e, 2] of events, the number of the relation and the edge id; else empty.
        query: int64 [e]; see :class:`LinkPart`.
        negatives: int64 [n, 2], source and target.
        negative_fold: int8 [n], validation or test.
        negative_time: int64 [n] of events; else empty.
        negative_query: int64 [n].
        later_edges: int64 [l, 3], fold, relation and edge id of each event whose pair is known from an
            earlier fold: of these the edge itself is held out, not the pair. Fold 3 is in no part.
        pairs: uint64, ascending keys (:meth:`pair_keys`) of the pairs that are held out.
        pair_fold: int8, the fold of each; 3 is in no part.
        repeated: held-out edges that are known from an earlier fold and not to be told; none of events.
        unused_negatives: given negatives that are in neither held-out part: in training's, by their column or
            their time, or in none.
    """

    KIND: ClassVar[str] = "predict_links"

    target_type: str
    relations: tuple[str, ...]
    held_out_relations: tuple[str, ...]
    negative_relations: tuple[str, ...]
    sources: int
    targets: int
    edges: NDArray[np.int64]
    fold: NDArray[np.int8]
    time: NDArray[np.int64]
    origin: NDArray[np.int64]
    query: NDArray[np.int64]
    negatives: NDArray[np.int64]
    negative_fold: NDArray[np.int8]
    negative_time: NDArray[np.int64]
    negative_query: NDArray[np.int64]
    later_edges: NDArray[np.int64]
    pairs: NDArray[np.uint64]
    pair_fold: NDArray[np.int8]
    repeated: int
    unused_negatives: int

    @property
    def within_one_type(self) -> bool:
        """Whether sources and targets are nodes of one type."""
        return self.node_type == self.target_type

    @property
    def is_stream(self) -> bool:
        """Whether edges are events with a time."""
        return len(self.time) > 0

    def part(self, fold: Fold) -> LinkPart:
        """Return a fold."""
        number = FOLDS.index(fold)
        of_fold, negative = self.fold == number, self.negative_fold == number
        timed, negative_timed = (of_fold, negative) if self.is_stream else (slice(0), slice(0))
        return LinkPart(
            self.edges[of_fold],
            self.time[timed],
            self.origin[timed],
            self.query[of_fold],
            self.negatives[negative],
            self.negative_time[negative_timed],
            self.negative_query[negative],
        )

    def known(self, fold: Fold) -> NDArray[np.int64]:
        """Return the distinct (source, target) that are known when ``fold`` is predicted: int64 [k, 2]."""
        last = FOLDS.index("validation" if fold == "test" else "train")
        edges = self.edges[: np.searchsorted(self.fold, last, side="right")]
        if fold == "train" and not self.is_stream:
            return edges
        keys = distinct_keys(pair_keys(edges[:, 0], edges[:, 1], ordered=True))
        return ends_of_keys(keys)

    def known_blocks(self, fold: Fold, block_links: int) -> Iterator[NDArray[np.int64]]:
        """Yield the links of :meth:`known`, in any order, at most ``block_links`` at a time.

        Those of a mapped file are read so, unless they are events, whose pairs come repeatedly.
        """
        if self.is_stream:
            yield from blocks_of(self.known(fold), block_links)
            return
        last = FOLDS.index("validation" if fold == "test" else "train")
        yield from blocks_of(self.edges[: np.searchsorted(self.fold, last, side="right")], block_links)

    def pair_keys(self, sources: NDArray[np.int64], targets: NDArray[np.int64]) -> NDArray[np.uint64]:
        """Return a key of each pair: uint64 [n]; the same both ways round within one type."""
        return pair_keys(sources, targets, ordered=not self.within_one_type)

    def hidden_pairs(self, fold: Fold) -> NDArray[np.uint64]:
        """Return the pairs that must not be seen joined while ``fold`` is predicted, ascending keys."""
        return self.pairs[self.pair_fold > (1 if fold == "test" else 0)]

    def negative_edge_types(self) -> Collection[EdgeType]:
        """Return the edge types that hold negatives."""
        return {(self.node_type, relation, self.target_type) for relation in self.negative_relations}

    def hidden_edge_types(self) -> Collection[EdgeType]:
        """Return the edge types that are held out as a whole, and those of negatives."""
        held_out = {(self.node_type, relation, self.target_type) for relation in self.held_out_relations}
        return held_out | set(self.negative_edge_types())

    def hidden_edges(self, graph: Graph, fold: Fold) -> dict[EdgeType, NDArray[np.int64]]:
        """Return the ids of the edges that join hidden pairs in any edge type, and of hidden events."""
        found = self.edges_of_pairs(graph, self.hidden_pairs(fold))
        hidden = self.later_edges[self.later_edges[:, 0] > (1 if fold == "test" else 0)]
        for number, relation in enumerate(self.relations):
            ids = hidden[hidden[:, 1] == number, 2]
            if len(ids) and relation not in self.held_out_relations:
                edge_type = (self.node_type, relation, self.target_type)
                found[edge_type] = np.union1d(found.get(edge_type, ids[:0]), ids)
        return found

    def edges_of_pairs(self, graph: Graph, pairs: NDArray[np.uint64]) -> dict[EdgeType, NDArray[np.int64]]:
        """Return the ids of the edges that join pairs, in any edge type and direction.

        Args:
            graph: the graph; edge types without such edges are not among the result.
            pairs: uint64, ascending :meth:`pair_keys` of the pairs.
        """
        return edges_joining(graph, self.node_type, self.target_type, self.pair_keys, pairs)

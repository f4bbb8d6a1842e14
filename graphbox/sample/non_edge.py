"""Pairs of nodes that no edge joins: negatives of link prediction."""

from __future__ import annotations

import numpy as np

from graphbox import _core
from graphbox.errors import DataError
from graphbox.native import Int64Array, thread_count
from graphbox.sample.adjacency import EdgeType, GraphLike, edge_type_name, lists_of
from graphbox.sample.fetched_positives import FetchedPositives
from graphbox.sample.negative import NegativeSampler, edge_type_of, known_positive_rows


class NonEdgeSampler:
    """Draws pairs (source, target) that no edge of a type joins, all of them equally likely.

    A source is drawn by how many targets it has no edge to, then one of these targets. So no pair is ever
    drawn in vain, and the result is exact however dense the graph is.

    Args:
        graph: the graph, changed or not.
        edge_type: whose pairs; None where the graph has one.
        seed: of the draws.
        loops: whether a node and itself may be a pair, where both ends have one node type.

    Raises:
        UsageError: an unknown edge type, or another wrong argument.
        DataError: edges join all pairs, or the adjacency is damaged.
    """

    def __init__(
        self, graph: GraphLike, edge_type: EdgeType | None = None, seed: int = 0, *, loops: bool = False
    ) -> None:
        source, _, target = chosen = edge_type_of(graph, edge_type)
        name = edge_type_name(chosen)
        targets_of = lists_of(graph, chosen, "out")
        rows = known_positive_rows(targets_of, name)
        num_targets = graph.num_nodes(target)
        exclude_loops = source == target and not loops
        left = _core.count_remaining(rows, num_targets, exclude_loops, thread_count(None))
        targets = NegativeSampler.uniform(num_targets, seed, known_positives=targets_of)
        self._start(left, targets, name, seed, exclude_loops=exclude_loops)

    @classmethod
    def of_positives(
        cls, positives: FetchedPositives, name: str, seed: int = 0, *, exclude_loops: bool
    ) -> NonEdgeSampler:
        """Return what draws pairs (query, item) of which the item is no positive of the query.

        Args:
            positives: of a graph on disk; all are read once.
            name: of the edge type, for messages.
            seed: of the draws.
            exclude_loops: queries and items are nodes of one type, and none is paired with itself.

        Raises:
            DataError: all items are positives of all queries.
        """
        sampler = cls.__new__(cls)
        targets = NegativeSampler.uniform(positives.num_items, seed, known_positives=positives)
        left = positives.count_remaining(exclude_query=exclude_loops)
        sampler._start(left, targets, name, seed, exclude_loops=exclude_loops)
        return sampler

    def _start(
        self, left: Int64Array, targets: NegativeSampler, name: str, seed: int, *, exclude_loops: bool
    ) -> None:
        if not left.any():
            raise DataError("expected pairs that no edge joins, but edges join all", where=name)
        self._exclude_loops = exclude_loops
        self._sources = NegativeSampler(left, 1, seed)
        self._targets = targets

    def sample(
        self,
        num_pairs: int,
        epoch: int = 0,
        batch: int = 0,
        num_threads: int | None = None,
    ) -> Int64Array:
        """Return int64 [2, num_pairs], sources and targets, with replacement.

        The same for equal seed, epoch and batch, whatever the number of threads.

        Args:
            num_pairs: how many.
            epoch: part of the key of the draws, as the seed.
            batch: part of the key of the draws, as the seed.
            num_threads: None: see :func:`graphbox.native.thread_count`.
        """
        pairs = np.empty((2, num_pairs), np.int64)
        pairs[0] = self._sources.sample(num_pairs, epoch, batch, num_threads)
        pairs[1] = self._targets.sample_for(
            pairs[0], 1, epoch, batch, num_threads, exclude_query=self._exclude_loops
        )[:, 0]
        return pairs

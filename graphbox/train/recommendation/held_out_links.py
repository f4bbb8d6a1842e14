"""Links of the training part that an epoch holds out of the graph, to learn to find them."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from graphbox.errors import DataError
from graphbox.train.splitting.edges import distinct_pairs
from graphbox.train.tasks import LinkSplit, RecommendSplit


class HeldOutLinks:
    """The training links that may be held out, by the pairs that the task holds out.

    Of a recommend task those are pairs of groups, and those that an excluded relation joins never are.

    Args:
        split: the split of the task.

    Raises:
        DataError: there are none.
    """

    def __init__(self, split: RecommendSplit | LinkSplit) -> None:
        edges = split.known("train")  # distinct, ascending
        keys = split.pair_keys(edges[:, 0], edges[:, 1])
        if isinstance(split, RecommendSplit):
            eligible = ~np.isin(keys, split.linked_pairs)
            if split.within_one_type:
                eligible &= split.group[edges[:, 0]] != split.group[edges[:, 1]]
            edges, keys = edges[eligible], keys[eligible]
        if not len(edges):
            raise DataError(
                "expected training edges between groups that no excluded relation joins, received none",
                where=f"relations {', '.join(split.relations)} of {split.node_type}",
            )
        self.edges = edges
        self._pairs, self._pair_of_edge = distinct_pairs(keys)

    def hold_out(
        self, fraction: float, generator: np.random.Generator
    ) -> tuple[NDArray[np.uint64], NDArray[np.int64]]:
        """Return the keys of pairs drawn with a probability, one at least, and their edges, int64 [e, 2]."""
        held = generator.random(len(self._pairs)) < fraction
        held[generator.integers(len(held))] = True
        return self._pairs[held], self.edges[held[self._pair_of_edge]]

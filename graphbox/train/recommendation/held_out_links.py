"""Links of the training part that an epoch holds out of the graph, to learn to find them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import numpy.typing as npt
from numpy.typing import NDArray

from graphbox.errors import DataError
from graphbox.graph.written_lists import Entries, block_edges, write_lists
from graphbox.sample import permutation
from graphbox.train.mapped_arrays import gathered
from graphbox.train.memory import TrainingMemory
from graphbox.train.splitting.edges import distinct_pairs
from graphbox.train.tasks import LinkSplit, RecommendSplit
from graphbox.train.tasks.recommend import among, blocks_of

Int64Array = NDArray[np.int64]
Uint64Array = NDArray[np.uint64]
KeyOf = Callable[[Int64Array, Int64Array], Uint64Array]

_BLOCK_LINKS = 1 << 20
"""Links that are looked at together."""
_EDGE = "edge"


class HeldOutLinks:
    """The training links that may be held out, by the pairs that the task holds out.

    Of a recommend task those are pairs of groups, and those that an excluded relation joins never are. With a
    budget of the topology links and pairs are in files, and memory has a byte for each pair.

    Args:
        split: the split of the task.
        memory: says whether links are kept in files, and where.

    Attributes:
        edges: int64 [e, 2], source and target of the links that may be held out: distinct, ascending.

    Raises:
        DataError: there are none.
    """

    def __init__(self, split: RecommendSplit | LinkSplit, memory: TrainingMemory) -> None:
        self._memory = memory
        self._key_of: KeyOf = split.pair_keys
        self.edges = _eligible(split, memory)
        if not len(self.edges):
            raise DataError(
                "expected training edges between groups that no excluded relation joins, received none",
                where=f"relations {', '.join(split.relations)} of {split.node_type}",
            )
        # Pairs and which of them each link is in; None: each link is a pair of its own, in their order.
        self._pairs: tuple[Uint64Array, Int64Array] | None = None
        if not _are_pairs(split):
            with memory.folder_for("pairs") as folder:
                if folder is None:
                    self._pairs = distinct_pairs(split.pair_keys(self.edges[:, 0], self.edges[:, 1]))
                else:
                    self._pairs = _pairs_on_disk(self.edges, split.pair_keys, folder, memory.pass_bytes)

    def hold_out(self, fraction: float, generator: np.random.Generator) -> tuple[Uint64Array, Int64Array]:
        """Return the keys of pairs drawn with a probability, one at least, and their edges, int64 [e, 2]."""
        held = np.empty(len(self.edges) if self._pairs is None else len(self._pairs[0]), bool)
        for first in range(0, len(held), _BLOCK_LINKS):
            part = held[first : first + _BLOCK_LINKS]
            np.less(generator.random(len(part)), fraction, out=part)
        held[generator.integers(len(held))] = True
        with self._memory.folder_for("held-out") as folder:
            edges = gathered(self._held_edges(held), np.int64, (2,), folder and folder / "links")
            return gathered(self._held_pairs(held, edges), np.uint64, (), folder and folder / "pairs"), edges

    def shuffled(self, edges: Int64Array, seed: int, epoch: int) -> Int64Array:
        """Return edges of :meth:`hold_out` in the order of an epoch, int64 [e, 2]."""
        order = permutation(len(edges), seed, epoch)
        with self._memory.folder_for("order") as folder:
            blocks = (edges[order[first : first + _BLOCK_LINKS]] for first in _starts(order))
            return gathered(blocks, np.int64, (2,), folder and folder / "links")

    def _held_edges(self, held: NDArray[np.bool_]) -> Iterator[Int64Array]:
        for first in _starts(self.edges):
            part = slice(first, first + _BLOCK_LINKS)
            yield self.edges[part][held[part if self._pairs is None else self._pairs[1][part]]]

    def _held_pairs(self, held: NDArray[np.bool_], edges: Int64Array) -> Iterator[Uint64Array]:
        if self._pairs is None:
            for links in blocks_of(edges, _BLOCK_LINKS):
                yield self._key_of(links[:, 0], links[:, 1])
            return
        for first in _starts(held):
            part = slice(first, first + _BLOCK_LINKS)
            yield self._pairs[0][part][held[part]]


def _starts(array: npt.NDArray[np.generic]) -> range:
    return range(0, len(array), _BLOCK_LINKS)


def _eligible(split: RecommendSplit | LinkSplit, memory: TrainingMemory) -> Int64Array:
    """Return the training links that may be held out: int64 [e, 2]."""
    edges = split.known("train")  # distinct, ascending
    if isinstance(split, LinkSplit) or not (len(split.linked_pairs) or split.within_one_type):
        return edges
    group, linked, within_one_type = split.group, split.linked_pairs, split.within_one_type

    def blocks() -> Iterator[Int64Array]:
        for links in blocks_of(edges, _BLOCK_LINKS):
            eligible = ~among(split.pair_keys(links[:, 0], links[:, 1]), linked)
            if within_one_type:
                eligible &= group[links[:, 0]] != group[links[:, 1]]
            yield links[eligible]

    with memory.folder_for("links") as folder:
        return gathered(blocks(), np.int64, (2,), folder and folder / "links")


def _are_pairs(split: RecommendSplit | LinkSplit) -> bool:
    """Return whether each link is a pair of its own, and ascending links have ascending keys."""
    if split.within_one_type:
        return False
    groups = (split.group, split.target_group) if isinstance(split, RecommendSplit) else ()
    return all(np.array_equal(each, np.arange(len(each))) for each in groups)


def _pairs_on_disk(
    edges: Int64Array, key_of: KeyOf, folder: Path, memory_bytes: int
) -> tuple[Uint64Array, Int64Array]:
    """Return what :func:`distinct_pairs` does, sorted externally and mapped from files of a folder."""
    step = block_edges(memory_bytes)

    def entries() -> Iterator[Entries]:
        for first in range(0, len(edges), step):
            links = edges[first : first + step]
            low, high = _halves(key_of(links[:, 0], links[:, 1]))
            yield Entries(low, high, {_EDGE: np.arange(first, first + len(links))})

    rows = 1 + max(int(each.rows.max()) for each in entries())
    lists = write_lists(
        folder / "lists", entries, rows, {_EDGE: np.int64}, merge=False, memory_bytes=memory_bytes
    )
    high, edge = (
        np.memmap(file.path, file.dtype, "r", shape=file.shape)
        for file in (lists.files.items["indices"], lists.files.items[_EDGE])
    )
    ends = np.cumsum(lists.lengths)
    pair_of_edge = np.memmap(folder / "pair-of-edge", np.int64, "w+", shape=(len(edges),))

    def pairs() -> Iterator[Uint64Array]:
        before, count = None, 0
        for first in range(0, len(edges), step):
            part = slice(first, min(first + step, len(edges)))
            low = np.searchsorted(ends, np.arange(part.start, part.stop), side="right").astype(np.uint64)
            keys = low << np.uint64(32) | high[part].astype(np.uint64)
            is_first = np.ones(len(keys), bool)
            is_first[1:] = keys[1:] != keys[:-1]
            is_first[0] = keys[0] != before
            pair_of_edge[edge[part]] = count - 1 + np.cumsum(is_first)
            before, count = keys[-1], count + int(is_first.sum())
            yield keys[is_first]

    return gathered(pairs(), np.uint64, (), folder and folder / "pairs"), np.asarray(pair_of_edge)


def _halves(keys: Uint64Array) -> tuple[Int64Array, Int64Array]:
    return (keys >> np.uint64(32)).astype(np.int64), (keys & np.uint64(0xFFFFFFFF)).astype(np.int64)

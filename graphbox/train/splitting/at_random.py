"""Splits the edges of a `recommend` task at random, block by block: memory has what is held out alone."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
from numpy.typing import NDArray

from graphbox.config import RecommendTaskConfig
from graphbox.graph import Graph
from graphbox.graph.schema import CSC
from graphbox.graph.written_lists import Entries, block_edges, write_lists
from graphbox.train.mapped_arrays import gathered
from graphbox.train.splitting.edges import distinct_pairs, ends_of, pair_texts, single_alternatives
from graphbox.train.splitting.groups import Groups
from graphbox.train.splitting.parts import TEST, TRAIN, VALIDATION, fold_of, unit_hash
from graphbox.train.tasks import distinct_keys, ends_of_keys, pair_keys
from graphbox.train.tasks.recommend import among

Int64Array = NDArray[np.int64]
Uint64Array = NDArray[np.uint64]

_BLOCK_LINKS = 1 << 18
"""Links that are hashed together."""
_SORT_BYTES = 64 << 20
"""Memory of an external sort."""


@dataclass(frozen=True, eq=False)
class Pairing:
    """Pairs of groups, by which edges are held out.

    Attributes:
        sources: groups of the queries.
        targets: groups of the candidates.
        ordered: these are of two types; else a pair is the same both ways round.
        linked: uint64, ascending keys of the pairs that are never held out.
    """

    sources: Groups
    targets: Groups
    ordered: bool
    linked: Uint64Array

    def keys(self, edges: Int64Array) -> Uint64Array:
        """Return the key of the pair of each edge: uint64 [e]."""
        first, second = self.sources.of_nodes[edges[:, 0]], self.targets.of_nodes[edges[:, 1]]
        return pair_keys(first, second, ordered=self.ordered)

    def may_be_held_out(self, keys: Uint64Array) -> NDArray[np.bool_]:
        """Return which keys are of pairs that may be held out: bool [e]."""
        eligible = ~among(keys, self.linked)
        if not self.ordered:
            eligible &= keys >> np.uint64(32) != keys & np.uint64(0xFFFFFFFF)
        return eligible

    def texts(self, pairs: Uint64Array) -> Iterable[str]:
        """Yield the text by which each pair is hashed."""
        return pair_texts(pairs, self.sources.texts, self.targets.texts, ordered=self.ordered)


@dataclass(frozen=True, eq=False)
class PartedLinks:
    """The links of each part, and the pairs that are held out.

    Attributes:
        links: int64 [e, 2], distinct, ascending (query, target), by part.
        joined_by: bool [e, relations], which relations join each of the links to find, by part.
        pairs: uint64, ascending keys of the pairs that are in a part other than train, by part.
        repeated: edges of validation or test that are known before.
    """

    links: Mapping[int, Int64Array]
    joined_by: Mapping[int, NDArray[np.bool_]]
    pairs: Mapping[int, Uint64Array]
    repeated: int = 0


def split_at_random(
    graph: Graph, task: RecommendTaskConfig, seed: int, pairing: Pairing, folder: Path | None
) -> PartedLinks:
    """Return the parts of a task's edges by a hash of the pairs of their ends.

    Args:
        graph: the graph.
        task: the task's section of the run file.
        seed: of the hash.
        pairing: the pairs.
        folder: where links of training are sorted and mapped from; None: they are in memory.
    """
    parts = (VALIDATION, TEST)
    found: dict[tuple[int, int], list[Uint64Array]] = {}
    pairs: dict[int, list[Uint64Array]] = {part: [] for part in parts}

    def train_links() -> Iterator[Uint64Array]:
        for number, relation in enumerate(task.relations):
            edge_type = (task.node_type, relation, task.candidate_type)
            csc = graph.csc(edge_type)
            single = None
            if task.alternative is not None:
                single = single_alternatives(graph, edge_type, task.alternative, ends_of(csc)[:, 0])
            for place, edges in _edge_blocks(csc):
                keys = pairing.keys(edges)
                part = _parts_of(keys, pairing, task, seed)
                links = pair_keys(edges[:, 0], edges[:, 1], ordered=True)
                for each in parts:
                    held = part == each
                    pairs[each].append(distinct_keys(keys[held]))
                    found.setdefault((each, number), []).append(
                        links[held if single is None else held & single[place]]
                    )
                yield distinct_keys(links[part == TRAIN])

    links = {TRAIN: _distinct_links(train_links(), len(pairing.sources.of_nodes), folder)}
    joined_by = {}
    for part in parts:
        of_relation = [_together(found.get((part, number), [])) for number in range(len(task.relations))]
        keys = distinct_keys(np.concatenate(of_relation))
        links[part] = ends_of_keys(keys)
        joined_by[part] = np.stack([np.isin(keys, each) for each in of_relation], axis=1)
    return PartedLinks(
        links, joined_by, {part: distinct_keys(_together(each)) for part, each in pairs.items()}
    )


def _parts_of(keys: Uint64Array, pairing: Pairing, task: RecommendTaskConfig, seed: int) -> NDArray[np.int8]:
    pairs, pair_of_edge = distinct_pairs(keys)
    part = fold_of(unit_hash(seed, pairing.texts(pairs)), task)
    return np.where(pairing.may_be_held_out(pairs), part, TRAIN).astype(np.int8)[pair_of_edge]


def _edge_blocks(csc: CSC) -> Iterator[tuple[slice, Int64Array]]:
    """Yield the places and the ends, int64 [n, 2], of edges in the order of the CSC."""
    for first in range(0, csc.num_edges, _BLOCK_LINKS):
        place = slice(first, min(first + _BLOCK_LINKS, csc.num_edges))
        edges = np.empty((place.stop - first, 2), np.int64)
        edges[:, 0] = csc.indices[place]
        edges[:, 1] = np.searchsorted(csc.indptr, np.arange(first, place.stop), side="right") - 1
        yield place, edges


def _distinct_links(keys: Iterable[Uint64Array], sources: int, folder: Path | None) -> Int64Array:
    """Return the distinct (source, target) of keys, ascending: int64 [n, 2]."""
    if folder is None:
        return ends_of_keys(distinct_keys(_together(list(keys))))
    with TemporaryDirectory(prefix="links-", dir=folder) as name:
        unsorted = gathered(keys, np.uint64, file=Path(name) / "unsorted")
        step = block_edges(_SORT_BYTES)

        def entries() -> Iterator[Entries]:
            for first in range(0, len(unsorted), step):
                ends = ends_of_keys(unsorted[first : first + step])
                yield Entries(ends[:, 0], ends[:, 1], {})

        lists = write_lists(Path(name) / "lists", entries, sources, {}, merge=True, memory_bytes=_SORT_BYTES)
        stops = np.cumsum(lists.lengths)
        targets = lists.files.items["indices"]

        def links() -> Iterator[Int64Array]:
            mapped = np.memmap(targets.path, targets.dtype, "r", shape=targets.shape)
            for first in range(0, len(mapped), step):
                target = mapped[first : first + step].astype(np.int64)
                place = np.arange(first, first + len(target))
                yield np.stack([np.searchsorted(stops, place, side="right"), target], axis=1)

        return gathered(links() if targets.data_bytes else (), np.int64, (2,), Path(name) / "sorted")


def _together(parts: list[Uint64Array]) -> Uint64Array:
    return np.concatenate([np.empty(0, np.uint64), *parts])

"""Walks over lists that are read from disk: the walkers of many batches take each step together."""

from __future__ import annotations

import dataclasses
import itertools
import weakref
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from graphbox import _core
from graphbox.errors import DataError, UsageError
from graphbox.native import Int64Array, thread_count
from graphbox.sample.adjacency import EdgeType, directed_steps, edge_type_name
from graphbox.sample.derived import no_column
from graphbox.sample.walk_plan import (
    Walkers,
    WalkOptions,
    check_weighted,
    step_count,
    walkers_of,
    weighted_steps,
)

if TYPE_CHECKING:
    from graphbox.graph.tiered_edges import Payload, TieredEdges
    from graphbox.graph.tiered_graph import TieredGraph

_WEIGHT_BYTES = 24
"""Memory of an edge's weight while it is chosen by, of its id and of its alias entry."""

_MOST_WALKERS = 1 << 20
"""Walkers that take a step together in :func:`walk_tiers`."""

_ROWS_READ = 1 << 16
"""Lists read at a time while all are checked."""


@dataclass(frozen=True, eq=False)
class TieredStep:
    """Lists that a step of a walk follows.

    Attributes:
        edges: out-neighbours of the nodes that walkers are at.
        num_nodes: number of nodes that walkers can be at.
        num_neighbors: number of nodes that they can reach.
        name: for messages.
        weighted: choose in proportion to weights; else all edges are equally likely.
    """

    edges: TieredEdges
    num_nodes: int
    num_neighbors: int
    name: str
    weighted: bool = False


class TieredWalker:
    """Makes walks over lists on disk, the same bits as :func:`graphbox.random_walk` in memory.

    A uniform step reads one neighbour of each list. Steps by weight and steps that look back read whole
    lists, in parts of ``list_bytes``, and one list beyond it where that is longer.

    Args:
        paths: steps of each metapath, repeated as often as walks are long.
        length: number of steps of a walk.
        p: node2vec's return parameter.
        q: node2vec's in-out parameter; other than 1 only with one path of one step.
        list_bytes: memory for whole lists.
        threads: None: see :func:`graphbox.native.thread_count`. Walks do not depend on it.

    Raises:
        UsageError: edges without weights where a step needs them, or lists that do not ascend where walks
            look back.
    """

    def __init__(
        self,
        paths: Sequence[Sequence[TieredStep]],
        length: int,
        p: float = 1.0,
        q: float = 1.0,
        *,
        list_bytes: int,
        threads: int | None = None,
    ) -> None:
        self.length = length
        self.num_paths = len(paths)
        self._paths = [list(path) for path in paths]
        self._threads = thread_count(threads)
        self._list_bytes = max(1, list_bytes)
        for path in self._paths:
            for step in path:
                if step.weighted and not step.edges.has("weight"):
                    raise no_column("weight", step.name)
        self._looks_back: tuple[float, float, int] | None = None
        if (p, q) != (1.0, 1.0) and length:
            ((only,),) = self._paths
            self._looks_back = p, q, _most_parallel(only, self._threads)

    def walk(
        self, walkers: Walkers, offsets: Int64Array, key: tuple[int, int, int], first_position: int = 0
    ) -> Int64Array:
        """Return the walks of some batches: int64 [n, length + 1], -1 after a dead end.

        Args:
            walkers: those of all batches, one batch after another; without times.
            offsets: int64 [batches + 1]: batch ``i`` has walkers ``offsets[i]`` to ``offsets[i + 1] - 1``.
            key: seed, epoch and number of the first batch.
            first_position: place of the first walker of each batch in the whole batch.

        Raises:
            UsageError: a start that is no node.
            DataError: a weight that is not a positive number, or a damaged list.
        """
        draws = _core.WalkerDraws(key, offsets, first_position)
        walks = np.full((len(walkers.start), self.length + 1), -1, np.int64)
        for number, path in enumerate(self._paths):
            if walkers.path_of is None:
                chosen = np.arange(len(walks), dtype=np.int64)
            else:
                chosen = np.flatnonzero(walkers.path_of == number)
            self._walk_path(path, walkers, chosen, draws, first_position, walks)
        return walks

    def _walk_path(
        self,
        path: Sequence[TieredStep],
        walkers: Walkers,
        numbers: Int64Array,
        draws: _core.WalkerDraws,
        first_position: int,
        walks: Int64Array,
    ) -> None:
        nodes = walkers.start[numbers]
        _check_nodes(nodes, path[0].num_nodes, numbers + first_position, "start")
        walks[numbers, 0] = nodes
        previous: Int64Array = np.full(len(nodes), -1, np.int64)
        first = 0
        if walkers.second is not None:
            previous, nodes = nodes, walkers.second[numbers]
            walks[numbers, 1] = nodes
            first = 1
            if self.length > 1:
                _check_nodes(nodes, path[1 % len(path)].num_nodes, numbers + first_position, "second")
        for number in range(first, self.length):
            step = path[number % len(path)]
            reached = self._choose(step, draws, number, numbers, nodes, previous)
            walks[numbers, number + 1] = reached
            goes_on = reached >= 0
            if not goes_on.all():
                numbers, nodes, reached = numbers[goes_on], nodes[goes_on], reached[goes_on]
            _check_reached(reached, step)
            previous, nodes = nodes, reached

    def _choose(
        self,
        step: TieredStep,
        draws: _core.WalkerDraws,
        number: int,
        numbers: Int64Array,
        nodes: Int64Array,
        previous: Int64Array,
    ) -> Int64Array:
        """Return the node that each walker steps to, -1 where it has no edge."""
        if not len(nodes):
            return nodes
        if self._looks_back is not None:
            return self._look_back(step, self._looks_back, draws, number, numbers, nodes, previous)
        if step.weighted:
            return self._choose_by_weight(step, draws, number, numbers, nodes)
        bounds = step.edges.bounds(nodes)
        positions = _core.walk_any_edges(draws, number, numbers, bounds, self._threads)
        has_edge = positions >= 0
        positions[has_edge] = step.edges.neighbors(positions[has_edge])
        return positions

    def _choose_by_weight(
        self,
        step: TieredStep,
        draws: _core.WalkerDraws,
        number: int,
        numbers: Int64Array,
        nodes: Int64Array,
    ) -> Int64Array:
        reached = np.full(len(nodes), -1, np.int64)
        unique, row_of = np.unique(nodes, return_inverse=True)
        bounds = step.edges.bounds(unique)
        lengths = bounds[:, 1] - bounds[:, 0]
        order = np.argsort(row_of, kind="stable")
        rows = row_of[order]
        for first, last in self._parts(step, lengths):
            part = slice(*np.searchsorted(rows, (first, last)))
            lists = _Lists.read(step, unique[first:last], bounds[first:last], self._threads)
            if not len(lists.indices):
                continue
            assert lists.tables is not None  # noqa: S101 - the step has weights
            who = order[part]
            positions = _core.walk_weighted_edges(
                draws, number, numbers[who], rows[part] - first, lists.tables, self._threads
            )
            has_edge = positions >= 0
            reached[who[has_edge]] = lists.indices[positions[has_edge]]
        return reached

    def _look_back(
        self,
        step: TieredStep,
        p_q_parallel: tuple[float, float, int],
        draws: _core.WalkerDraws,
        number: int,
        numbers: Int64Array,
        nodes: Int64Array,
        previous: Int64Array,
    ) -> Int64Array:
        """Choose by the lists of the nodes that walkers are at, and of those they were at before."""
        before = np.where(previous >= 0, previous, nodes)
        unique, row_of = np.unique(np.concatenate([nodes, before]), return_inverse=True)
        bounds = step.edges.bounds(unique)
        lengths = bounds[:, 1] - bounds[:, 0]
        here, there = row_of[: len(nodes)], row_of[len(nodes) :]
        # Walkers beside the same long list come together, so that it is read once.
        longer = np.where(lengths[there] > lengths[here], there, here)
        order = np.argsort(longer, kind="stable")
        reached = np.empty(len(nodes), np.int64)
        row_at = np.empty(len(unique), np.int64)
        for who, used in self._pair_parts(step, order, here, there, lengths):
            row_at[used] = np.arange(len(used))
            lists = _Lists.read(step, unique[used], bounds[used], self._threads)
            reached[who] = _core.walk_next_nodes(
                draws,
                number,
                numbers[who],
                lists.indptr,
                lists.indices,
                lists.tables,
                step.num_neighbors,
                (row_at[here[who]], previous[who], row_at[there[who]]),
                p_q_parallel,
                step.name,
                self._threads,
            )
        return reached

    def _most_edges(self, step: TieredStep) -> int:
        """Return how many edges of whole lists fit the memory."""
        edge_bytes = step.edges.index_bytes + (_WEIGHT_BYTES if step.weighted else 0)
        return max(1, self._list_bytes // edge_bytes)

    def _pair_parts(
        self, step: TieredStep, order: Int64Array, here: Int64Array, there: Int64Array, lengths: Int64Array
    ) -> Iterator[tuple[Int64Array, Int64Array]]:
        """Give parts of walkers whose two lists fit the memory, or one walker, and which lists they are."""
        most = self._most_edges(step)
        waiting = [order]
        while waiting:
            who = waiting.pop()
            is_used = np.zeros(len(lengths), bool)
            is_used[here[who]] = is_used[there[who]] = True
            if len(who) > 1 and lengths[is_used].sum() > most:
                waiting += [who[len(who) // 2 :], who[: len(who) // 2]]
            else:
                yield who, np.flatnonzero(is_used)

    def _parts(self, step: TieredStep, lengths: Int64Array) -> Iterator[tuple[int, int]]:
        """Give the bounds of parts whose lists fit the memory; the last list of a part may exceed it."""
        before = np.cumsum(lengths) - lengths
        part_of = before // self._most_edges(step)
        starts = [0, *(np.flatnonzero(np.diff(part_of)) + 1).tolist(), len(lengths)]
        yield from itertools.pairwise(starts)


@dataclass(frozen=True, eq=False)
class _Lists:
    """Whole lists of some nodes.

    Attributes:
        indptr: int64 [nodes + 1].
        indices: integers [edges], neighbours.
        tables: for the choice by weight, where the step has weights and there are edges.
    """

    indptr: Int64Array
    indices: npt.NDArray[Any]
    tables: _core.AliasTables | None

    @classmethod
    def read(cls, step: TieredStep, nodes: Int64Array, bounds: Int64Array, threads: int) -> _Lists:
        indptr = np.concatenate([np.zeros(1, np.int64), np.cumsum(bounds[:, 1] - bounds[:, 0])])
        if not indptr[-1]:
            return cls(indptr, np.zeros(0, np.int64), None)
        payload: tuple[Payload, ...] = ("weight",) if step.weighted else ()
        has_edges = bounds[:, 1] > bounds[:, 0]
        columns = step.edges.columns_between(nodes[has_edges], bounds[has_edges], payload)
        if not step.weighted:
            return cls(indptr, columns["indices"], None)
        weight = np.ascontiguousarray(columns["weight"])
        _check_weights(weight, nodes, indptr, step.name)
        return cls(indptr, columns["indices"], _core.AliasTables(indptr, weight, step.name, threads))


_NOT_IN_TIERS = (
    "restart_probability",
    "temporal",
    "start_time",
    "strictly_later",
    "time_window",
    "temporal_strategy",
)


def walk_tiers(
    graph: TieredGraph,
    start: object,
    length: int,
    options: WalkOptions,
    key: tuple[int, int, int],
    threads: int | None,
) -> Int64Array:
    """Walk over a graph on disk: see :func:`graphbox.random_walk`.

    Args:
        graph: the graph.
        start: as there.
        length: as there.
        options: as there.
        key: seed, epoch, batch.
        threads: as there.

    Returns:
        int64 [n, length + 1], -1 after a dead end.

    Raises:
        UsageError: a wrong argument.
        UnsupportedError: an option that needs the graph in memory.
        NotFoundError: a step goes along edges whose CSR is not on disk.
        DataError: a weight that is not a positive number, or a damaged list.
    """
    options.refuse(
        _NOT_IN_TIERS,
        "`{name}` needs the graph in memory, received one in tiers",
        "walk on the graph itself, without tiered()",
    )
    length = step_count(length)
    p, q, _ = options.checked_bias()
    steps = _tiered_steps(graph, options.paths, length, options.weighted)
    walkers = walkers_of(start, len(steps), length, options.second, options.metapath_of)
    walker = TieredWalker(steps, length, p, q, list_bytes=graph.pass_bytes, threads=threads)
    walks = np.empty((len(walkers.start), length + 1), np.int64)
    for first in range(0, len(walks), _MOST_WALKERS):
        part = slice(first, first + _MOST_WALKERS)
        some = Walkers(
            walkers.start[part],
            None if walkers.second is None else walkers.second[part],
            None if walkers.path_of is None else walkers.path_of[part],
            None,
        )
        offsets = np.array([0, len(some.start)], np.int64)
        walks[part] = walker.walk(some, offsets, key, first)
    return walks


def _tiered_steps(
    graph: TieredGraph,
    paths: Sequence[Sequence[EdgeType] | None],
    length: int,
    weighted: bool | Collection[EdgeType],
) -> list[list[TieredStep]]:
    """Return the lists that each step of each metapath follows."""
    edge_types = graph.graph.edge_types
    directed = [directed_steps(edge_types, _metapath(edge_types, path), length) for path in paths]
    check_weighted(weighted, [name for path in directed for _, _, name in path])
    steps = []
    for path in directed:
        by_weight = weighted_steps(weighted, [name for _, _, name in path])
        steps.append([_tiered_step(graph, *each, by) for each, by in zip(path, by_weight, strict=True)])
    return steps


def _metapath(edge_types: Sequence[EdgeType], metapath: Sequence[EdgeType] | None) -> Sequence[EdgeType]:
    if metapath is not None:
        return metapath
    if len(edge_types) == 1 and edge_types[0][0] == edge_types[0][2]:
        return edge_types
    raise UsageError(
        f"expected a metapath, since the graph has {len(edge_types)} edge types: "
        + ", ".join(map(edge_type_name, edge_types)),
        where="metapath",
    )


def _tiered_step(
    tiered: TieredGraph, edge_type: EdgeType, direction: str, name: str, weighted: bool
) -> TieredStep:
    graph = tiered.graph
    source, _, target = edge_type
    if direction == "in":
        source, target = target, source
    if graph.is_reverse(edge_type):
        edge_type = graph.reverse_type(edge_type) or edge_type
        direction = "in" if direction == "out" else "out"
    into = tiered.edges(edge_type, "in")
    edges = into
    if direction == "out":  # whose weights are in the order of the edges of the other direction
        edges = dataclasses.replace(tiered.edges(edge_type, "out"), by_id=into.lists, backwards=True)
    return TieredStep(edges, graph.num_nodes(source), graph.num_nodes(target), name, weighted)


_parallel: weakref.WeakKeyDictionary[Any, int] = weakref.WeakKeyDictionary()
"""Most parallel edges, by what holds the lists: the graph's tier that they are read through."""


def _most_parallel(step: TieredStep, threads: int) -> int:
    """Return the most edges from one node to another; reads all lists once for as long as they are open.

    Raises:
        UsageError: the list of some node does not ascend.
    """
    owner = step.edges.lists if step.edges.lists is not None else step.edges.overlay
    if owner in _parallel:
        return _parallel[owner]
    most = 1
    for first in range(0, step.num_nodes, _ROWS_READ):
        nodes = np.arange(first, min(first + _ROWS_READ, step.num_nodes), dtype=np.int64)
        offsets, neighbors = step.edges.neighbor_lists(nodes)
        lists = _core.WalkStep(offsets, neighbors, step.name)
        most = max(most, _core.most_parallel_edges(lists, threads))
    if owner is not None:
        _parallel[owner] = most
    return most


def _check_nodes(nodes: Int64Array, count: int, positions: Int64Array, where: str) -> None:
    wrong = (nodes < 0) | (nodes >= count)
    if wrong.any():
        first = int(np.argmax(wrong))
        raise UsageError(
            f"{where} must hold node indices in [0, {count}), received {nodes[first]} at position "
            f"{positions[first]}",
            where=where,
        )


def _check_reached(nodes: Int64Array, step: TieredStep) -> None:
    if len(nodes) and nodes.max() >= step.num_neighbors:
        raise DataError(
            f"indices must be in [0, {step.num_neighbors}), received {nodes.max()}",
            where=step.name,
            hint="the graph is damaged: import it again",
        )


def _check_weights(weight: npt.NDArray[np.float32], nodes: Int64Array, indptr: Int64Array, name: str) -> None:
    wrong = ~((weight > 0) & np.isfinite(weight))
    if wrong.any():
        first = int(np.argmax(wrong))
        node = nodes[np.searchsorted(indptr, first, side="right") - 1]
        raise DataError(
            f"weights must be positive finite numbers; an edge of node {node} has {weight[first]}",
            where=name,
            hint="leave edges without weight out, or sample without weights",
        )

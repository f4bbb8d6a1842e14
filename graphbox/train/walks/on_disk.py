"""Lists that walks follow, written to disk for a training whose topology has a budget, and walks ahead."""

from __future__ import annotations

import shutil
import weakref
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from graphbox import _core
from graphbox.errors import UnsupportedError
from graphbox.graph.schema import EdgeType, Int64Array
from graphbox.graph.tier import TierOptions, open_lists
from graphbox.graph.tiered_edges import TieredEdges
from graphbox.graph.written_lists import WEIGHT, Entries, WrittenLists, block_edges, write_lists
from graphbox.models.node_keys import NodeKeys
from graphbox.native import thread_count
from graphbox.sample.adjacency import Direction, directed_steps
from graphbox.sample.derived import no_column
from graphbox.sample.tiered_walk import TieredStep, TieredWalker
from graphbox.sample.walk_plan import Walkers, WalkPlan, walkers_of
from graphbox.skip_gram.walkers import WalkBatches
from graphbox.train.memory import TrainingMemory
from graphbox.train.view import GraphView
from graphbox.train.walks.one_type import ends_of, followed_types, no_edges, no_weights

_NO_NODES: Int64Array = np.zeros(0, np.int64)

_WALKER_BYTES = 160
"""Memory of a walker while it takes a step, beside its walk."""


class ListFolder:
    """Folder of the lists that a training writes, and its budgets; removed by :meth:`close` or with this.

    Args:
        memory: budgets of the training: ``topology`` for lists, ``passes`` for what is written, read ahead
            and walked ahead.
        threads: of reads.

    Raises:
        UnsupportedError: the model trains on a GPU, which walks in its own memory.
    """

    def __init__(self, memory: TrainingMemory, threads: int | None) -> None:
        if memory.device.type != "cpu":
            raise UnsupportedError(
                f"walks over lists on disk train on the CPU, received device {memory.device}",
                where="memory.topology",
                hint="give `device: cpu`, or the budget `memory.hbm.topology` instead",
            )
        self.topology_bytes = memory.config.topology or 0
        self.pass_bytes = memory.pass_bytes
        self._options = TierOptions(threads=threads)
        self._threads = threads
        self._path = memory.new_folder("walks")
        self._number = 0
        self._removal = weakref.finalize(self, shutil.rmtree, self._path, ignore_errors=True)

    def close(self) -> None:
        """Remove the lists."""
        self._removal()

    def write(
        self, entries: Callable[[int], Iterator[Entries]], num_rows: int, *, weighted: bool, merge: bool
    ) -> WrittenLists:
        """Write lists; see :func:`graphbox.graph.written_lists.write_lists`.

        Args:
            entries: gives all entries, at most so many at a time.
            num_rows: number of lists.
            weighted: entries have weights.
            merge: write equal neighbours once.
        """
        self._number += 1
        return write_lists(
            self._path / str(self._number),
            lambda: entries(block_edges(self.pass_bytes)),
            num_rows,
            {WEIGHT: np.float32} if weighted else {},
            merge=merge,
            memory_bytes=self.pass_bytes,
        )

    def open(self, lists: Sequence[WrittenLists]) -> list[TieredEdges]:
        """Open lists that share the budget of the topology."""
        files = {number: each.files for number, each in enumerate(lists)}
        opened = open_lists(files, budget_bytes=self.topology_bytes, options=self._options)
        return [TieredEdges(opened[number], None, None, backwards=False) for number in files]

    def walker(
        self, paths: Sequence[Sequence[TieredStep]], length: int, p: float = 1.0, q: float = 1.0
    ) -> TieredWalker:
        """Return what walks along lists, with a quarter of the memory of passes for whole ones."""
        return TieredWalker(paths, length, p, q, list_bytes=self.pass_bytes // 4, threads=self._threads)


def unlisted_plan(
    length: int, num_paths: int, types: list[list[str]] | None, threads: int | None
) -> WalkPlan:
    """Return a plan for walks that are made elsewhere: the native core has no lists to walk along."""
    nowhere = _core.WalkStep(np.zeros(1, np.int64), np.zeros(0, np.int32), "lists on disk")
    native = _core.WalkPlan([[nowhere]] * num_paths, length)
    return WalkPlan(native, length, types, num_paths, walkers_of(_NO_NODES, num_paths), thread_count(threads))


# Graphs taken for one type


@dataclass(frozen=True, eq=False)
class OneTypeOnDisk:
    """A graph taken for one type, as :class:`graphbox.train.walks.one_type.OneTypeGraph`, on disk.

    Attributes:
        keys: the numbering of the nodes.
        types: node types at the ends of the edges.
        lengths: int64 [keys], the number of each node's neighbours.
        folder: where the lists are.
        step: the lists.
    """

    keys: NodeKeys
    types: tuple[str, ...]
    lengths: Int64Array
    folder: ListFolder
    step: TieredStep
    _degree: NDArray[np.float64]

    def degree(self) -> NDArray[np.float64]:
        """Return the number of each node's edges, or the sum of their weights: float64 [keys]."""
        return self._degree

    def planned(
        self, length: int, p: float, q: float, threads: int | None
    ) -> tuple[WalkPlan, TieredWalker | None]:
        """Return the plan of walks for the native core, which makes none, and what makes them."""
        return unlisted_plan(length, 1, None, threads), self.folder.walker([[self.step]], length, p, q)


def one_type_on_disk(
    view: GraphView, edge_types: Sequence[EdgeType], *, weighted: bool, folder: ListFolder
) -> OneTypeOnDisk:
    """Write the graph of some edge types, taken for one; see :func:`graphbox.train.walks.one_type_graph`.

    Args:
        view: the graph as training sees it.
        edge_types: what to follow; none: all.
        weighted: add up weights, instead of taking each pair for one edge.
        folder: where to.

    Raises:
        UsageError: an edge type that is not there, or has no weights where they are wanted.
        DataError: there are no edges.
    """
    chosen = followed_types(view, edge_types)
    keys = NodeKeys({name: view.num_nodes(name) for name in view.node_types})

    def entries(most: int) -> Iterator[Entries]:
        for edge_type in chosen:
            for block in view.edge_blocks(edge_type, max(1, most // 2)):
                if weighted and block.weight is None:
                    raise no_weights(edge_type)
                source, target = keys.of(edge_type[0], block.source), keys.of(edge_type[2], block.target)
                apart = source != target  # no walk learns from a node beside itself
                source, target = source[apart], target[apart]
                columns = {WEIGHT: block.weight[apart]} if weighted and block.weight is not None else {}
                yield Entries(source, target, columns)
                yield Entries(target, source, columns)

    lists = folder.write(entries, keys.total, weighted=weighted, merge=True)
    if not lists.lengths.any():
        raise no_edges(chosen)
    (edges,) = folder.open([lists])
    degree = lists.lengths.astype(np.float64) if lists.weight_sums is None else lists.weight_sums
    step = TieredStep(edges, keys.total, keys.total, "lists of walks", weighted)
    return OneTypeOnDisk(keys, ends_of(chosen), lists.lengths, folder, step, degree)


# Metapaths


def metapath_walkers(
    view: GraphView,
    metapaths: Sequence[Sequence[EdgeType]],
    length: int,
    *,
    weighted: bool,
    folder: ListFolder,
) -> tuple[TieredWalker, list[TieredWalker]]:
    """Write the lists that metapaths follow, and return what walks along all, and along each.

    Args:
        view: the graph as training sees it.
        metapaths: the edge types of each.
        length: steps of a walk.
        weighted: take edges in proportion to their weights.
        folder: where to.

    Raises:
        UsageError: the graph lacks an edge type or weights, or the steps do not meet.
    """
    directed = [directed_steps(view.edge_types, path, length) for path in metapaths]
    distinct = dict.fromkeys((each, way) for path in directed for each, way, _ in path)
    names = {(each, way): name for path in directed for each, way, name in path}
    written = [
        _write_direction(view, edge_type, way, names[edge_type, way], weighted=weighted, folder=folder)
        for edge_type, way in distinct
    ]
    steps = {}
    for (edge_type, way), edges in zip(distinct, folder.open(written), strict=True):
        source, _, target = edge_type if way == "out" else edge_type[::-1]
        counts = view.num_nodes(source), view.num_nodes(target)
        steps[edge_type, way] = TieredStep(edges, *counts, names[edge_type, way], weighted)
    paths = [[steps[edge_type, way] for edge_type, way, _ in path] for path in directed]
    return folder.walker(paths, length), [folder.walker([path], length) for path in paths]


def _write_direction(
    view: GraphView,
    edge_type: EdgeType,
    direction: Direction,
    name: str,
    *,
    weighted: bool,
    folder: ListFolder,
) -> WrittenLists:
    def entries(most: int) -> Iterator[Entries]:
        for block in view.edge_blocks(edge_type, most):
            if weighted and block.weight is None:
                raise no_column("weight", name)
            rows, neighbors = block.source, block.target
            if direction == "in":
                rows, neighbors = neighbors, rows
            weight = block.weight if weighted else None
            yield Entries(rows, neighbors, {} if weight is None else {WEIGHT: weight})

    rows = view.num_nodes(edge_type[0 if direction == "out" else 2])
    return folder.write(entries, rows, weighted=weighted, merge=False)


# Walks ahead of training


class WalksAhead:
    """Walks of the batches of an epoch, made many at a time, the next ones while some are trained on.

    Args:
        walker: makes them.
        folder: has the lists that they follow; half of its memory for passes is for walks and walkers.
        seed: of their draws.
    """

    def __init__(self, walker: TieredWalker, folder: ListFolder, seed: int) -> None:
        self._walker, self._folder, self._seed = walker, folder, seed
        walker_bytes = 8 * (walker.length + 1) + _WALKER_BYTES
        self._most_walkers = max(1, folder.pass_bytes // (4 * walker_bytes))
        self._executor = ThreadPoolExecutor(1, thread_name_prefix="graphbox-walks")
        self._batches: WalkBatches | None = None
        self._epoch = self._chunk_batches = 0
        self._current: tuple[int, Int64Array] | None = None
        self._next: tuple[int, Future[Int64Array]] | None = None

    def begin_epoch(self, epoch: int, batches: WalkBatches, group: int) -> None:
        """Forget the walks of the last epoch.

        Args:
            epoch: its number.
            batches: who walks in it.
            group: batches that are asked for together.
        """
        self._forget()
        self._epoch, self._batches = epoch, batches
        count = len(batches.offsets) - 1
        walkers_of_group = max(1, len(batches.start) * group // max(count, 1))
        self._chunk_batches = group * max(1, self._most_walkers // walkers_of_group)

    def take(self, first: int, last: int) -> Int64Array:
        """Return the walks of batches ``first`` to ``last - 1``, of one group: int64 [n, length + 1]."""
        if self._batches is None:
            raise RuntimeError("begin_epoch comes first")
        chunk = first // self._chunk_batches
        if self._current is None or self._current[0] != chunk:
            self._current = None  # its memory is for the next one
            self._current = chunk, self._made(chunk)
            self._begin(chunk + 1)
        offsets = self._batches.offsets
        begin = offsets[chunk * self._chunk_batches]
        return self._current[1][offsets[first] - begin : offsets[last] - begin]

    def close(self) -> None:
        """Stop making walks and remove the lists."""
        self._forget()
        self._executor.shutdown()
        self._folder.close()

    def _forget(self) -> None:
        if self._next is not None:
            self._next[1].cancel()
        self._next = self._current = None

    def _made(self, chunk: int) -> Int64Array:
        if self._next is None or self._next[0] != chunk:
            self._begin(chunk)
        assert self._next is not None  # noqa: S101 - it was just begun
        walks = self._next[1].result()
        self._next = None
        return walks

    def _begin(self, chunk: int) -> None:
        assert self._batches is not None  # noqa: S101 - the caller has looked
        first = chunk * self._chunk_batches
        last = min(first + self._chunk_batches, len(self._batches.offsets) - 1)
        if first < last:
            self._next = chunk, self._executor.submit(self._walk, self._batches, first, last)

    def _walk(self, batches: WalkBatches, first: int, last: int) -> Int64Array:
        offsets = batches.offsets[first : last + 1]
        part = slice(offsets[0], offsets[-1])
        second, path_of = (None if each is None else each[part] for each in (batches.second, batches.path_of))
        walkers = Walkers(batches.start[part], second, path_of, None)
        return self._walker.walk(walkers, offsets - offsets[0], (self._seed, self._epoch, first))

"""Where skip-gram's walks come from: metapaths, walks on a graph taken for one type, or single edges."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

import numpy as np
from numpy.typing import NDArray

from graphbox.graph.live_rows import LiveRows
from graphbox.graph.schema import EdgeType
from graphbox.models.node_keys import NodeKeys
from graphbox.sample import DeviceGraph, NegativeSampler, permutation, random_walk
from graphbox.sample.tiered_walk import TieredWalker
from graphbox.sample.walk_plan import Walkers, WalkOptions, WalkPlan, column_types, plan_walk
from graphbox.skip_gram.walkers import WalkBatches, even_offsets
from graphbox.skip_gram.walks import DeviceWalks, EdgesOnDevice, OneTypeLists, WalksOnDevice
from graphbox.train.view import GraphView
from graphbox.train.walks.on_disk import ListFolder, OneTypeOnDisk, metapath_walkers, unlisted_plan
from graphbox.train.walks.one_type import OneTypeGraph

if TYPE_CHECKING:
    import torch

_VISITS_EPOCH = 2**31
"""Epoch number of the walks that count visits, which is no training epoch's."""

_VISITING_NODES = 1 << 22
"""Nodes of the walks over lists on disk that count visits at a time."""

_DRAWS_BATCH = 2**63
"""Batch number of an epoch's draws of edges: those of batches draw negatives, with the same seed."""

_NO_NODES: NDArray[np.int64] = np.zeros(0, np.int64)


class WalkSource(Protocol):
    """Graph, plan and keys of the walks of a model.

    Attributes:
        keys: the numbering of the nodes.
        types: node types that walks visit.
        plan: steps of the walkers.
        walker: makes the walks where lists are on disk; None: the native core does, by the plan.
        folder: folder of lists on disk, or None.
        window: largest distance, in steps, between a centre and its context.
        has_all_visits: whether no walk visits a key that :meth:`visits` has no visit of.
    """

    has_all_visits: bool
    keys: NodeKeys
    types: tuple[str, ...]
    plan: WalkPlan
    walker: TieredWalker | None
    folder: ListFolder | None
    window: int

    @property
    def column_offsets(self) -> NDArray[np.int64] | None:
        """Offsets added to nodes to make them keys: int64 [paths, columns]; None: none."""
        ...

    def visits(self) -> NDArray[np.float64]:
        """Return how often walks visit each key, in any unit: float64 [keys]."""
        ...

    def batches(self, epoch: int) -> WalkBatches:
        """Return the walkers of an epoch."""
        ...

    def on_device(self, device: torch.device, topology_bytes: int | None = None) -> DeviceWalks:
        """Return what makes the same walks on a device.

        Args:
            device: where.
            topology_bytes: see ``hbm_bytes`` of :class:`graphbox.sample.DeviceGraph`.
        """
        ...


class MetapathSource:
    """Walks along metapaths (Dong et al., KDD 2017); see :class:`WalkSource`.

    Args:
        view: the graph as training sees it.
        metapaths: the edge types of each.
        walks_per_node: from each node of the first type of each, in an epoch.
        walk_length: steps of a walk.
        window: largest distance between a centre and its context.
        batch_size: walks of each metapath in a batch.
        weighted: take edges in proportion to their weights.
        seed: of orders and of the walks that count visits.
        threads: of walks.
        folder: where to write the lists that walks follow; None: they are in memory.

    Raises:
        UsageError: the graph lacks an edge type or weights, or the steps do not meet.
    """

    has_all_visits = False

    def __init__(
        self,
        view: GraphView,
        metapaths: Sequence[Sequence[EdgeType]],
        *,
        walks_per_node: int,
        walk_length: int,
        window: int,
        batch_size: int,
        weighted: bool,
        seed: int,
        threads: int | None,
        folder: ListFolder | None = None,
    ) -> None:
        self._view = view
        self._metapaths = list(metapaths)
        self._starts = [LiveRows.of_graph(view, path[0][0]) for path in metapaths]
        self._walks_per_node = walks_per_node
        self._length = walk_length
        self._batch_size = batch_size
        self._weighted = weighted
        self._seed = seed
        self._threads = threads
        self.window = window
        self.keys = NodeKeys({name: view.num_nodes(name) for name in view.node_types})
        visited = {edge[end] for path in metapaths for edge in path for end in (0, 2)}
        self.types = tuple(name for name in view.node_types if name in visited)
        self.folder = folder
        self.walker: TieredWalker | None = None
        self._walkers: list[TieredWalker] = []
        if folder is None:
            options = WalkOptions(metapaths=metapaths, weighted=weighted)
            self.plan = plan_walk(view, _NO_NODES, walk_length, options, threads)
        else:
            types = [column_types(view, path, walk_length) for path in metapaths]
            self.plan = unlisted_plan(walk_length, len(types), types, threads)
            self.walker, self._walkers = metapath_walkers(
                view, metapaths, walk_length, weighted=weighted, folder=folder
            )
        self.column_offsets = np.array([self._offsets(path) for path in metapaths], dtype=np.int64)

    def visits(self) -> NDArray[np.float64]:
        """Return how often one walk from each start visits each key: float64 [keys]."""
        visits = np.zeros(self.keys.total)
        for number, (path, live) in enumerate(zip(self._metapaths, self._starts, strict=True)):
            for first in range(0, len(live), self._visiting):
                nodes = live.nodes(np.arange(first, min(first + self._visiting, len(live))))
                walks = self._visit(number, nodes, first)
                keys = (walks + self._offsets(path))[walks >= 0]
                visits += np.bincount(keys, minlength=self.keys.total)
        return visits

    @property
    def _visiting(self) -> int:
        """Number of walks in which visits are counted at a time."""
        return _VISITING_NODES // (self._length + 1) + 1 if self._walkers else max(map(len, self._starts))

    def _visit(self, path: int, nodes: NDArray[np.int64], first: int) -> NDArray[np.int64]:
        if not self._walkers:
            return random_walk(
                self._view,
                nodes,
                self._length,
                metapath=self._metapaths[path],
                weighted=self._weighted,
                seed=self._seed,
                epoch=_VISITS_EPOCH,
                num_threads=self._threads,
            )
        key = self._seed, _VISITS_EPOCH, 0
        return self._walkers[path].walk(
            Walkers(nodes, None, None, None), np.array([0, len(nodes)]), key, first
        )

    def batches(self, epoch: int) -> WalkBatches:
        """Put the starts of each metapath in a new order; a batch has the next ones of each."""
        orders = [
            live.nodes(permutation(self._walks_per_node * len(live), self._seed + number, epoch) % len(live))
            for number, live in enumerate(self._starts)
        ]
        batch_of = np.concatenate([np.arange(len(order)) // self._batch_size for order in orders])
        together = np.argsort(batch_of, kind="stable")
        path_of = np.repeat(np.arange(len(orders)), [len(order) for order in orders])[together]
        offsets = np.concatenate([[0], np.cumsum(np.bincount(batch_of))])
        several = path_of if len(orders) > 1 else None
        return WalkBatches(np.concatenate(orders)[together], offsets, path_of=several)

    def on_device(self, device: torch.device, topology_bytes: int | None = None) -> DeviceWalks:
        """See :class:`WalkSource`."""
        graph = DeviceGraph(self._view, device, hbm_bytes=topology_bytes, num_threads=self._threads)
        return WalksOnDevice(
            graph, self._length, WalkOptions(metapaths=self._metapaths, weighted=self._weighted)
        )

    def _offsets(self, path: Sequence[EdgeType]) -> list[int]:
        types = [path[0][0], *(path[step % len(path)][2] for step in range(self._length))]
        return [self.keys.start(name) for name in types]


class OneTypeSource:
    """Walks that are uniform, by weight or look back, on a graph of one type; see :class:`WalkSource`.

    Args:
        graph: the graph.
        walks_per_node: from each node in an epoch.
        walk_length: steps of a walk.
        window: largest distance between a centre and its context.
        batch_size: walks in a batch.
        p: node2vec's return parameter.
        q: node2vec's in-out parameter.
        seed: of orders.
        threads: of walks.
    """

    has_all_visits = True

    def __init__(
        self,
        graph: OneTypeGraph | OneTypeOnDisk,
        *,
        walks_per_node: int,
        walk_length: int,
        window: int,
        batch_size: int,
        p: float = 1.0,
        q: float = 1.0,
        seed: int,
        threads: int | None,
    ) -> None:
        self._graph = graph
        self._walks_per_node = walks_per_node
        self._batch_size = batch_size
        self._seed = seed
        self._length, self._p, self._q = walk_length, p, q
        self._threads = threads
        self.window = window
        self.keys = graph.keys
        self.types = graph.types
        self.plan, self.walker = graph.planned(walk_length, p, q, threads)
        self.folder = graph.folder if isinstance(graph, OneTypeOnDisk) else None
        self.column_offsets = None

    def visits(self) -> NDArray[np.float64]:
        """Return the degree of each node: where edges lead both ways, walks visit nodes by it."""
        return self._graph.degree()

    def batches(self, epoch: int) -> WalkBatches:
        """Return the starts in a new order; nodes without edges are none."""
        starts = np.flatnonzero(self._graph.lengths)
        order = permutation(self._walks_per_node * len(starts), self._seed, epoch) % len(starts)
        return WalkBatches(starts[order], even_offsets(len(order), self._batch_size))

    def on_device(self, device: torch.device, topology_bytes: int | None = None) -> DeviceWalks:
        """See :class:`WalkSource`."""
        assert isinstance(self._graph, OneTypeGraph)  # noqa: S101 - lists on disk are refused on a GPU
        lists = OneTypeLists(self._graph, self._graph.keys.total)
        graph = DeviceGraph(lists, device, hbm_bytes=topology_bytes, num_threads=self._threads)
        weighted = self._graph.weight is not None
        return WalksOnDevice(graph, self._length, WalkOptions(self._p, self._q, weighted=weighted))


class EdgeSource:
    """Single edges as walks of one step (LINE: Tang et al., WWW 2015); see :class:`WalkSource`.

    Args:
        graph: the graph. Where it has weights, edges are drawn in proportion to them, as many as there are.
        batch_size: edges in a batch.
        seed: of orders and draws.
        threads: of draws.
    """

    has_all_visits = True

    def __init__(self, graph: OneTypeGraph, *, batch_size: int, seed: int, threads: int | None) -> None:
        self._graph = graph
        self._batch_size = batch_size
        self._seed = seed
        self._threads = threads
        self.window = 1
        self.keys = graph.keys
        self.types = graph.types
        self.plan = plan_walk(graph, _NO_NODES, 1, WalkOptions(), threads)
        self.walker: TieredWalker | None = None
        self.folder: ListFolder | None = None
        self.column_offsets = None
        source = np.repeat(np.arange(graph.keys.total), np.diff(graph.indptr))
        once = source < graph.indices  # an edge stands in the rows of both its ends
        self._edges = source[once], graph.indices[once].astype(np.int64)
        weight = graph.weight
        self._draws = None if weight is None else NegativeSampler(weight[once], 1.0, seed)

    def visits(self) -> NDArray[np.float64]:
        """Return the degree of each node."""
        return self._graph.degree()

    def batches(self, epoch: int) -> WalkBatches:
        """Return all edges in a new order, or as many drawn by weight."""
        count = len(self._edges[0])
        if self._draws is None:
            order = permutation(count, self._seed, epoch)
        else:
            order = self._draws.sample(count, epoch, _DRAWS_BATCH, self._threads)
        source, target = self._edges
        return WalkBatches(source[order], even_offsets(count, self._batch_size), second=target[order])

    def on_device(self, device: torch.device, topology_bytes: int | None = None) -> DeviceWalks:  # noqa: ARG002
        """See :class:`WalkSource`; no neighbours are looked up."""
        return EdgesOnDevice()

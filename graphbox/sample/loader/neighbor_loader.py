"""A loader of batches around nodes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Unpack

import numpy.typing as npt

from graphbox.native import Int64Array
from graphbox.sample.adjacency import EdgeType, GraphLike
from graphbox.sample.device import DeviceGraph
from graphbox.sample.drawing import times_of_seeds
from graphbox.sample.loader.arguments import (
    graph_to_sample,
    node_times_of,
    nodes_of_type,
    times_of,
    untiered,
)
from graphbox.sample.loader.base import Drawn, Loader, digest
from graphbox.sample.loader.batch import NodeSeeds
from graphbox.sample.loader.options import LoaderKeywords, split_keywords
from graphbox.sample.loader.stages import Neighborhood
from graphbox.sample.sampling_plan import SampleRequest

if TYPE_CHECKING:
    from graphbox.graph.tiered_graph import TieredGraph


class NeighborLoader(Loader):
    """Iterates over batches of seeds with their sampled neighbourhoods.

    A graph with one node and one edge type gives ``torch_geometric.data.Data``, others ``HeteroData``, with
    the attributes PyTorch Geometric's own loader sets: ``edge_index``, ``n_id`` (node indices), ``e_id`` (CSC
    positions), the features by name, ``batch_size`` and ``input_id`` (which seeds), ``num_sampled_nodes``,
    ``num_sampled_edges``, and, if asked for, ``edge_weight`` and ``edge_time``. ``output`` chooses plain
    arrays instead, which need neither PyTorch Geometric nor torch.

    Each pass over the loader is an epoch: seeds are shuffled and neighbours drawn anew by (seed, epoch,
    batch), the same for any number of threads. :meth:`set_epoch` chooses the next; :meth:`state_dict` and
    :meth:`load_state_dict` go on in the middle of one.

    Batches are made ahead by threads of this process, whose work is nearly all outside of Python's global
    lock. Memory is bounded: at most ``num_threads * prefetch`` batches are finished or being made, besides
    those the loop holds. An error in a batch is raised when its turn comes, with the batch in its ``where``.
    Leaving the loop ends the threads.

    Args:
        graph: what to sample: :class:`graphbox.graph.Graph`, one with its faces, or a graph on disk read
            under budgets (:meth:`graphbox.graph.Graph.tiered`), or on a device
            (:class:`graphbox.sample.DeviceGraph`). The batches are the same; of a ``DeviceGraph`` they are on
            its device, sampled and fetched there on streams of their own, while the loop computes. Of
            PyTorch Geometric's ``Data`` or ``HeteroData`` a graph is built first
            (:meth:`graphbox.graph.Graph.from_pyg`), and ``e_id`` counts its edges.
        num_neighbors: how many neighbours at each hop, for all edge types or by edge type; -1: all.
        input_nodes: the seeds: (node type, node indices), or node indices where there is one type, or a node
            type or None for all its nodes. A boolean for each node is a mask.
        batch_size: seeds in a batch.
        input_time: int64, a time for each seed: only what is not later is sampled. Batches are disjoint and
            have the times of their seeds as ``seed_time``. Needs ``time_attr``; None where nodes have times:
            those of the seeds.
        time_attr: ``timestamp``: edges have times by this name; or an integer feature of nodes: only
            neighbours whose time is not later than their seed's are sampled, as in PyTorch Geometric. Edges
            without times, or from nodes of types without, are always sampled.
        part: (i, n): of the seeds of each batch only part i of n, in their order; for n processes that train
            on a batch together. A part may be empty. Neighbours of the seeds are drawn as in the whole batch.
        options: see :class:`graphbox.sample.NeighborOptions` (of disjoint batches ``batch`` is the tree of
            each node) and :class:`graphbox.sample.LoaderOptions`.

    Raises:
        UsageError: a wrong argument; seeds that are no nodes are found when their batch is sampled.
        NotFoundError: the graph has no such feature.
        BackendMissingError: PyTorch Geometric or torch is needed for ``output`` and not installed.
        UnsupportedError: what loaders on a device do not know: tables with rows on SSD.
        TimeLimitError: while iterating, a batch did not come within ``timeout``.
        ConflictError: while iterating, the process was forked.
    """

    def __init__(
        self,
        graph: GraphLike | TieredGraph | DeviceGraph,
        num_neighbors: Mapping[EdgeType, Sequence[int]] | Sequence[int],
        input_nodes: tuple[str, npt.ArrayLike] | str | npt.ArrayLike | None = None,
        batch_size: int = 1,
        *,
        input_time: npt.ArrayLike | None = None,
        time_attr: str | None = None,
        part: tuple[int, int] = (0, 1),
        **options: Unpack[LoaderKeywords],
    ) -> None:
        neighbors, loading = split_keywords(options, NeighborLoader.__init__.__annotations__)
        graph = graph_to_sample(graph)
        self._node_type, self._seeds = nodes_of_type(untiered(graph), input_nodes)
        node_times = node_times_of(untiered(graph), time_attr)
        self._times = times_of(input_time, time_attr, node_times, len(self._seeds), "input_time")
        if self._times is None and node_times is not None:
            seeds = {self._node_type: self._seeds}
            self._times = times_of_seeds(node_times.by_type, seeds).get(self._node_type)
        super().__init__(
            graph,
            batch_size,
            Neighborhood(num_neighbors, neighbors, node_times),
            loading,
            part=part,
            has_times=self._times is not None,
        )

    @property
    def _num_seeds(self) -> int:
        return len(self._seeds)

    def _seed_digest(self) -> str:
        return digest(self._node_type, self._seeds, self._times)

    def _draw(self, chosen: Int64Array, epoch: int, batch: int) -> Drawn:
        times = None if self._times is None else self._times[chosen]
        request = SampleRequest(
            seeds={self._node_type: self._seeds[chosen]},
            times=None if times is None else {self._node_type: times},
            epoch=epoch,
            batch=batch,
        )
        return Drawn(request, NodeSeeds(self._node_type, chosen, times))

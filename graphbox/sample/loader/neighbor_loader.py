"""A loader of batches around nodes."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Never

import numpy.typing as npt

from graphbox.native import Int64Array, seed_number
from graphbox.sample.adjacency import EdgeColumnName, EdgeType, GraphLike
from graphbox.sample.device import DeviceGraph
from graphbox.sample.drawing import TemporalStrategy, times_of_seeds
from graphbox.sample.loader.arguments import (
    graph_to_sample,
    node_times_of,
    nodes_of_type,
    refuse_unknown,
    times_of,
    untiered,
)
from graphbox.sample.loader.assemble import Output
from graphbox.sample.loader.base import DEFAULT_PREFETCH, BatchOptions, Drawn, Loader, LoadingOptions, digest
from graphbox.sample.loader.batch import NodeSeeds
from graphbox.sample.loader.edge_features import EdgeFeatureNames
from graphbox.sample.loader.features import FeatureNames
from graphbox.sample.loader.stages import FetchStage, NeighborOptions, SampleRequest

if TYPE_CHECKING:
    import torch

    from graphbox.graph.tiered_graph import TieredGraph
    from graphbox.table.table import EmbeddingTable

__all__ = ["NeighborLoader"]


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
        shuffle: seeds in another order each epoch.
        shuffle_block: how many seeds that follow each other in ``input_nodes`` stay together when they are
            shuffled. 1: none. Where they are near each other (node indices ascend, or follow a breadth-first
            search), batches read fewer different nodes, and fewer blocks of the disk; they are less random,
            so take blocks much smaller than ``batch_size``.
        replace: draw neighbours with replacement.
        weighted: draw neighbours in proportion to the edges' weights: those of all edge types that are
            sampled, or of some. Edges of the others are equally likely.
        labor: let nodes with common neighbours choose the same ones: a third fewer nodes whose features must
            be fetched, for longer sampling. See :func:`graphbox.sample.sample_neighbors`.
        disjoint: a tree of its own for each seed; ``batch`` tells which a node is in.
        input_time: int64, a time for each seed: only what is not later is sampled. Batches are disjoint and
            have the times of their seeds as ``seed_time``. Needs ``time_attr``; None where nodes have times:
            those of the seeds.
        time_attr: ``timestamp``: edges have times by this name; or an integer feature of nodes: only
            neighbours whose time is not later than their seed's are sampled, as in PyTorch Geometric. Edges
            without times, or from nodes of types without, are always sampled.
        temporal_strategy: ``uniform`` draws among these edges, ``last`` takes the latest of each node.
        drop_last: leave out a last batch that is not full.
        part: (i, n): of the seeds of each batch only part i of n, in their order; for n processes that train
            on a batch together. A part may be empty. Neighbours of the seeds are drawn as in the whole batch.
        features: names of node features to put into the batch under their names, by node type; a sequence
            where there is one type. None: all that the graph has, without slots; ``()``: none. Categories
            become codes (int64), slots their values and offsets (``name_ptr``).
        fetch: fetches features in place of the graph: called with samples, gives their rows. Of a
            ``DeviceGraph`` :class:`graphbox.sample.DeviceFeatures`, which several loaders can share; None:
            one of its own.
        edge_attributes: what to put into the batch of each edge: ``weight``, ``timestamp``, both or none; of
            the edge types that have it, one at least.
        edge_features: names of edge features to put into the batch under their names (PyTorch Geometric's
            ``edge_attr``), by edge type; a sequence where there is one type. None: all that the graph has,
            without slots, and of a ``DeviceGraph`` none; ``()``: none.
        output: ``pyg`` for ``Data`` and ``HeteroData``; ``torch`` or ``numpy`` for
            :class:`graphbox.sample.Batch` with arrays of that kind.
        transform: called with each batch in the loader's threads, with several batches at a time; what it
            returns is the batch.
        seed: of all random draws.
        num_threads: threads that make batches ahead. None: see :func:`graphbox.native.thread_count`; of a
            ``DeviceGraph`` one.
        prefetch: batches for each thread that may wait to be used or be in the making; of a graph in tiers
            for all threads together. Bounds the memory.
        pass_batches: batches that go through the stages together: all are sampled, then the features of all
            fetched. None: one; of a graph in tiers as many as its ``pass_bytes`` hold. With more, one pass is
            made while the one before is used. Of a ``DeviceGraph``: after how many batches, and at the end of
            each epoch, its memory gets the lists and rows that were used; None: 256.
        timeout: seconds to wait for a batch; 0: no limit.
        tables: tables with a row for each node, by node type, that the loop pulls rows of the batches' nodes
            from: those with rows on SSD have them read ahead, see :class:`graphbox.table.RowsAhead`. One
            thread then makes all batches ahead.
        device: where batches are to be, whose arrays are then tensors: they are copied there ahead of their
            use, on a stream of their own. Of a ``DeviceGraph`` it is the graph's.
        unknown: arguments of other loaders, refused with what to give instead.

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
        shuffle: bool = False,
        shuffle_block: int = 1,
        replace: bool = False,
        weighted: bool | Collection[EdgeType] = False,
        labor: bool = False,
        disjoint: bool = False,
        input_time: npt.ArrayLike | None = None,
        time_attr: str | None = None,
        temporal_strategy: TemporalStrategy = "uniform",
        drop_last: bool = False,
        part: tuple[int, int] = (0, 1),
        features: FeatureNames = None,
        fetch: FetchStage | None = None,
        edge_attributes: Collection[EdgeColumnName] = (),
        edge_features: EdgeFeatureNames = None,
        output: Output = "pyg",
        transform: Callable[[Any], Any] | None = None,
        seed: int = 0,
        num_threads: int | None = None,
        prefetch: int = DEFAULT_PREFETCH,
        pass_batches: int | None = None,
        timeout: float = 0,
        tables: Mapping[str, EmbeddingTable] | None = None,
        device: torch.device | str | None = None,
        **unknown: Never,
    ) -> None:
        refuse_unknown(unknown, tuple(NeighborLoader.__init__.__annotations__))
        graph = graph_to_sample(graph)
        self._node_type, self._seeds = nodes_of_type(untiered(graph), input_nodes)
        node_times = node_times_of(untiered(graph), time_attr)
        self._times = times_of(input_time, time_attr, node_times, len(self._seeds), "input_time")
        if self._times is None and node_times is not None:
            seeds = {self._node_type: self._seeds}
            self._times = times_of_seeds(node_times.by_type, seeds).get(self._node_type)
        super().__init__(
            graph,
            NeighborOptions(
                num_neighbors=num_neighbors,
                replace=replace,
                weighted=weighted,
                labor=bool(labor),
                disjoint=disjoint,
                temporal_strategy=temporal_strategy,
                edge_attributes=edge_attributes,
                seed=seed_number(seed),
                node_times=node_times,
            ),
            BatchOptions(batch_size, shuffle, shuffle_block, drop_last, part),
            LoadingOptions(
                features=features,
                fetch=fetch,
                output=output,
                transform=transform,
                num_threads=num_threads,
                prefetch=prefetch,
                pass_batches=pass_batches,
                timeout=timeout,
                tables=tables or {},
                device=device,
                edge_features=edge_features,
            ),
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

"""Loaders: batches of sampled subgraphs as PyTorch Geometric data, sampled ahead by threads."""

from __future__ import annotations

import importlib
from collections import deque
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt

from graphbox.errors import UsageError, missing_extra
from graphbox.native import Int64Array, epoch_number, integer_array, seed_number, thread_count
from graphbox.sample.adjacency import EdgeColumnName, EdgeType, GraphLike
from graphbox.sample.neighbor import TemporalStrategy, sample_heterogeneous
from graphbox.sample.permutation import permutation

if TYPE_CHECKING:
    from torch_geometric.data import Data, HeteroData

__all__ = ["NeighborLoader"]

_PREFETCHED_BATCHES = 2


@runtime_checkable
class _WithFeatures(Protocol):
    def feature(self, node_type: str, name: str) -> npt.NDArray[Any]: ...


class NeighborLoader:
    """Iterates over batches of seeds with their sampled neighbourhoods.

    A graph with one node and one edge type gives ``torch_geometric.data.Data``, others ``HeteroData``, with
    the attributes PyTorch Geometric's own loader sets: ``edge_index``, ``n_id`` (node indices), ``e_id`` (CSC
    positions), ``batch_size`` and ``input_id`` (which seeds), ``num_sampled_nodes``, ``num_sampled_edges``,
    and, if asked for, ``edge_weight`` and ``edge_time``.

    Each pass over the loader is an epoch: seeds are shuffled and neighbours drawn anew by (seed, epoch,
    batch), the same for any number of threads. :meth:`set_epoch` chooses the next.

    Args:
        graph: what to sample: :class:`graphbox.graph.Graph`, or one with its faces.
        num_neighbors: how many neighbours at each hop, for all edge types or by edge type; -1: all.
        input_nodes: the seeds: (node type, node indices), or node indices where there is one type, or a node
            type or None for all its nodes.
        batch_size: seeds in a batch.
        shuffle: seeds in another order each epoch.
        replace: draw neighbours with replacement.
        weighted: draw neighbours in proportion to the edges' weights: those of all edge types that are
            sampled, or of some. Edges of the others are equally likely.
        disjoint: a tree of its own for each seed; ``batch`` tells which a node is in.
        input_time: int64, a time for each seed: only edges whose timestamp is not later are sampled. Batches
            are disjoint and have the times of their seeds as ``seed_time``. Needs ``time_attr``.
        time_attr: ``timestamp``: edges have times by this name. Edges of types without are always sampled.
        temporal_strategy: ``uniform`` draws among these edges, ``last`` takes the latest of each node.
        drop_last: leave out a last batch that is not full.
        features: names of node features to put into the batch under their names, by node type; a sequence
            where there is one type.
        edge_attributes: what to put into the batch of each edge: ``weight``, ``timestamp``, both or none; of
            the edge types that have it, one at least.
        transform: called with each batch in the loader's threads; what it returns is the batch.
        seed: of all random draws.
        num_threads: threads that sample ahead. None: see :func:`graphbox.native.thread_count`.
        prefetch: batches for each thread that may wait to be used. Bounds the memory.

    Raises:
        UsageError: a wrong argument; seeds that are no nodes are found when their batch is sampled.
        BackendMissingError: PyTorch Geometric is not installed.
    """

    def __init__(
        self,
        graph: GraphLike,
        num_neighbors: Mapping[EdgeType, Sequence[int]] | Sequence[int],
        input_nodes: tuple[str, npt.ArrayLike] | str | npt.ArrayLike | None = None,
        batch_size: int = 1,
        *,
        shuffle: bool = False,
        replace: bool = False,
        weighted: bool | Collection[EdgeType] = False,
        disjoint: bool = False,
        input_time: npt.ArrayLike | None = None,
        time_attr: str | None = None,
        temporal_strategy: TemporalStrategy = "uniform",
        drop_last: bool = False,
        features: Mapping[str, Sequence[str]] | Sequence[str] = (),
        edge_attributes: Collection[EdgeColumnName] = (),
        transform: Callable[[Any], Any] | None = None,
        seed: int = 0,
        num_threads: int | None = None,
        prefetch: int = _PREFETCHED_BATCHES,
    ) -> None:
        if not isinstance(graph, GraphLike):
            raise UsageError(f"expected a graph, received {type(graph).__name__}", where="graph")
        for name, value in (("batch_size", batch_size), ("prefetch", prefetch)):
            if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < 1:
                raise UsageError(f"expected an integer, 1 or more, received {value!r}", where=name)
        self._graph = graph
        self._num_neighbors = num_neighbors
        self._node_type, self._seeds = _seeds_of(graph, input_nodes)
        self._batch_size = int(batch_size)
        self._shuffle = shuffle
        self._replace = replace
        self._weighted = weighted
        self._disjoint = disjoint
        self._times = _times_of(input_time, time_attr, len(self._seeds))
        self._temporal_strategy: TemporalStrategy = temporal_strategy
        self._drop_last = drop_last
        self._features = _features_of(graph, features)
        self._edge_attributes = edge_attributes
        self._transform = transform
        self._seed = seed_number(seed)
        self._threads = thread_count(num_threads)
        self._prefetch = int(prefetch)
        self._epoch = 0
        try:
            self._data = importlib.import_module("torch_geometric.data")
        except ImportError:
            raise missing_extra("torch_geometric", "train") from None

    def __len__(self) -> int:
        full, rest = divmod(len(self._seeds), self._batch_size)
        return full + (1 if rest and not self._drop_last else 0)

    @property
    def epoch(self) -> int:
        """Number of the next epoch."""
        return self._epoch

    def set_epoch(self, epoch: int) -> None:
        """Make the next pass over the loader that of ``epoch``, for instance when a run is resumed."""
        self._epoch = epoch_number(epoch)

    def __iter__(self) -> Iterator[Any]:
        epoch = self._epoch
        self._epoch = epoch_number(epoch + 1)
        order = (
            permutation(len(self._seeds), self._seed, epoch)
            if self._shuffle
            else np.arange(len(self._seeds), dtype=np.int64)
        )
        return self._batches(order, epoch)

    def _batches(self, order: Int64Array, epoch: int) -> Iterator[Any]:
        waiting: deque[Future[Any]] = deque()
        executor = ThreadPoolExecutor(self._threads, thread_name_prefix="neighbor-loader")
        try:
            for batch in range(len(self)):
                waiting.append(executor.submit(self._batch, order, epoch, batch))
                if len(waiting) >= self._threads * self._prefetch:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
        finally:
            executor.shutdown(wait=True, cancel_futures=True)

    def _batch(self, order: Int64Array, epoch: int, batch: int) -> Any:
        chosen = order[batch * self._batch_size : (batch + 1) * self._batch_size]
        sample = sample_heterogeneous(
            self._graph,
            {self._node_type: self._seeds[chosen]},
            self._num_neighbors,
            replace=self._replace,
            weighted=self._weighted,
            disjoint=self._disjoint,
            input_time=None if self._times is None else {self._node_type: self._times[chosen]},
            temporal_strategy=self._temporal_strategy,
            edge_attributes=self._edge_attributes,
            seed=self._seed,
            epoch=epoch,
            batch=batch,
            threads=1,
        )
        single = len(self._graph.node_types) == 1 and len(self._graph.edge_types) == 1
        data = self._data.Data() if single else self._data.HeteroData()
        self._fill(data, sample, single=single)
        seeds = data if single else data[self._node_type]
        import torch

        seeds.input_id = torch.from_numpy(chosen)
        seeds.batch_size = len(chosen)
        if self._times is not None:
            seeds.seed_time = torch.from_numpy(self._times[chosen])
        return data if self._transform is None else self._transform(data)

    def _fill(self, data: Data | HeteroData, sample: Any, *, single: bool) -> None:
        import torch

        for node_type, nodes in sample.nodes.items():
            store = data if single else data[node_type]
            store.n_id = torch.from_numpy(nodes)
            store.num_nodes = len(nodes)
            if node_type in sample.trees:
                store.batch = torch.from_numpy(sample.trees[node_type])
            for name in self._features.get(node_type, ()):
                values = self._graph.feature(node_type, name)  # type: ignore[attr-defined]  # see _features_of
                store[name] = torch.from_numpy(np.asarray(values[nodes]))
            if not single:
                store.num_sampled_nodes = sample.nodes_per_hop[node_type]
        for edge_type, rows in sample.rows.items():
            store = data if single else data[edge_type]
            store.edge_index = torch.from_numpy(np.stack([rows, sample.cols[edge_type]]))
            store.e_id = torch.from_numpy(sample.edge_ids[edge_type])
            if edge_type in sample.weight:
                store.edge_weight = torch.from_numpy(sample.weight[edge_type])
            if edge_type in sample.timestamp:
                store.edge_time = torch.from_numpy(sample.timestamp[edge_type])
            if not single:
                store.num_sampled_edges = sample.edges_per_hop[edge_type]
        if single:
            data.num_sampled_nodes = next(iter(sample.nodes_per_hop.values()))
            data.num_sampled_edges = next(iter(sample.edges_per_hop.values()))


def _seeds_of(graph: GraphLike, input_nodes: Any) -> tuple[str, Int64Array]:
    node_type: Any = None
    indices: Any = None
    if isinstance(input_nodes, str):
        node_type = input_nodes
    elif isinstance(input_nodes, tuple) and len(input_nodes) == 2 and isinstance(input_nodes[0], str):
        node_type, indices = input_nodes
    else:
        indices = input_nodes
    known = ", ".join(graph.node_types)
    if node_type is None:
        if len(graph.node_types) != 1:
            raise UsageError(f"expected (node type, node indices) with one of: {known}", where="input_nodes")
        node_type = graph.node_types[0]
    if node_type not in graph.node_types:
        raise UsageError(f"unknown node type {node_type!r}; the graph has: {known}", where="input_nodes")
    if indices is None:
        return node_type, np.arange(graph.num_nodes(node_type), dtype=np.int64)
    array = np.asarray(indices) if isinstance(indices, Sequence | np.ndarray) else indices
    if getattr(array, "dtype", None) == np.bool_:
        if array.shape != (graph.num_nodes(node_type),):
            raise UsageError(
                f"a mask must have one entry for each of the {graph.num_nodes(node_type)} nodes, received "
                f"{array.shape}",
                where="input_nodes",
            )
        return node_type, np.flatnonzero(array)
    return node_type, integer_array(array, "input_nodes")


def _times_of(input_time: Any, time_attr: str | None, seeds: int) -> Int64Array | None:
    if input_time is None and time_attr is None:
        return None
    if input_time is None or time_attr != "timestamp":
        raise UsageError(
            f"expected both input_time and time_attr='timestamp', received time_attr={time_attr!r} and "
            f"{'no' if input_time is None else 'an'} input_time",
            where="time_attr",
        )
    times = integer_array(input_time, "input_time")
    if len(times) != seeds:
        raise UsageError(
            f"expected a time for each of {seeds} seeds, received {len(times)}", where="input_time"
        )
    return times


def _features_of(graph: GraphLike, features: Any) -> dict[str, tuple[str, ...]]:
    if not features:
        return {}
    if not isinstance(graph, _WithFeatures):
        raise UsageError(f"{type(graph).__name__} has no features", where="features")
    if not isinstance(features, Mapping):
        if len(graph.node_types) != 1 or isinstance(features, str):
            raise UsageError(
                f"expected names of features by node type, received {features!r}", where="features"
            )
        features = {graph.node_types[0]: features}
    for node_type, names in features.items():
        if node_type not in graph.node_types:
            raise UsageError(
                f"unknown node type; the graph has: {', '.join(graph.node_types)}",
                where=f"features[{node_type!r}]",
            )
        for name in names:
            graph.feature(node_type, name)
    return {node_type: tuple(names) for node_type, names in features.items()}

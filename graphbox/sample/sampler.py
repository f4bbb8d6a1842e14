"""Neighbour sampling: for seeds, a few in-neighbours of each node, hop by hop."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Unpack, overload

import numpy.typing as npt

from graphbox.errors import UsageError
from graphbox.native import Int64Array
from graphbox.sample.adjacency import Adjacency, EdgeType, GraphLike, is_tiered
from graphbox.sample.device import DeviceGraph
from graphbox.sample.device_neighbor import DeviceSampler
from graphbox.sample.excluded import ExcludedEdges
from graphbox.sample.hops import checked_hops
from graphbox.sample.neighbor import AdjacencyGraph, MemorySampler
from graphbox.sample.options import NeighborKeywords, NeighborOptions
from graphbox.sample.sampled import HeteroSample, NeighborSample
from graphbox.sample.sampling_plan import NeighborSampler, NumNeighbors, SampleRequest
from graphbox.sample.tiered_neighbor import TieredSampler

if TYPE_CHECKING:
    import torch

    from graphbox.graph.tiered_graph import TieredGraph

_ANY_TYPE: EdgeType = ("", "csc", "")  # of an adjacency that is given without a graph


class _Keywords(NeighborKeywords, total=False):
    epoch: int
    batch: int
    num_threads: int | None


def prepare_sampler(
    graph: GraphLike | Mapping[EdgeType, Adjacency] | TieredGraph | DeviceGraph,
    num_neighbors: NumNeighbors,
    *,
    node_time: Mapping[str, Any] | None = None,
    num_threads: int | None = None,
    **options: Unpack[NeighborKeywords],
) -> NeighborSampler:
    """Return a sampler of a graph: what is the same for all batches is checked and prepared once.

    Its samples are those of :func:`sample_heterogeneous`, wherever the graph is. ::

        sampler = prepare_sampler(graph, [15, 10], seed=1)
        (sample,) = sampler.sample([SampleRequest({"node": seeds}, batch=3)])

    Args:
        graph: a graph in memory, the CSC of each edge type, a graph in tiers (the requests of a call are
            then a pass, whose lists are read together), or one on a device.
        num_neighbors: how many neighbours at each hop, for all edge types or by edge type; -1: all.
        node_time: see :func:`sample_heterogeneous`; not of a graph in tiers.
        num_threads: of one sample, None: one; of a pass all.
        options: see :class:`graphbox.sample.NeighborOptions`.

    Raises:
        UsageError: a wrong argument, or weights, columns or times that are not there.
        UnsupportedError: times of nodes over a graph in tiers.
    """
    return sampler_of(graph, num_neighbors, NeighborOptions.of(options), node_time, num_threads)


def sampler_of(
    graph: GraphLike | Mapping[EdgeType, Adjacency] | TieredGraph | DeviceGraph,
    num_neighbors: NumNeighbors,
    options: NeighborOptions,
    node_time: Mapping[str, Any] | None = None,
    num_threads: int | None = None,
) -> NeighborSampler:
    """Return what :func:`prepare_sampler` does."""
    if isinstance(graph, DeviceGraph):
        return DeviceSampler(graph, num_neighbors, options, node_time)
    if is_tiered(graph):
        return TieredSampler(graph, num_neighbors, options, node_time, num_threads)
    whole = graph if isinstance(graph, GraphLike) else AdjacencyGraph(graph)
    return MemorySampler(whole, num_neighbors, options, node_time, num_threads)


@overload
def sample_neighbors(
    graph: GraphLike | Adjacency | DeviceGraph,
    seeds: torch.Tensor,
    num_neighbors: Sequence[int],
    *,
    input_time: Any | None = ...,
    node_time: Any | None = ...,
    excluded_edges: ExcludedEdges | None = ...,
    **options: Unpack[_Keywords],
) -> NeighborSample[torch.Tensor]: ...


@overload
def sample_neighbors(
    graph: GraphLike | Adjacency | DeviceGraph,
    seeds: npt.ArrayLike,
    num_neighbors: Sequence[int],
    *,
    input_time: Any | None = ...,
    node_time: Any | None = ...,
    excluded_edges: ExcludedEdges | None = ...,
    **options: Unpack[_Keywords],
) -> NeighborSample[Int64Array]: ...


def sample_neighbors(
    graph: GraphLike | Adjacency | DeviceGraph,
    seeds: Any,
    num_neighbors: Sequence[int],
    *,
    input_time: Any | None = None,
    node_time: Any | None = None,
    excluded_edges: ExcludedEdges | None = None,
    **options: Unpack[_Keywords],
) -> NeighborSample[Any]:
    """Sample in-neighbours of ``seeds``, then of the nodes found, and so on.

    Every in-neighbour is equally likely, or likely in proportion to the weight of its edge. Without
    replacement the choice is exact (Floyd's algorithm; with weights successive sampling: each next edge in
    proportion to its weight among those not taken yet); a node with no more neighbours than asked for gives
    all of them, in order. What a node draws depends on ``seed``, ``epoch``, ``batch``, the hop and its index
    alone: neither on the number of threads nor on the other seeds.

    Weights need alias tables: see :func:`graphbox.sample.derived.weights_of`. With ``input_time`` they need
    sums in the order of time instead, in which each draw is a binary search:
    :func:`graphbox.sample.derived.weight_sums_of`.

    Args:
        graph: a graph with one node and one edge type, or its CSC; or a
            :class:`graphbox.sample.DeviceGraph`, whose samples are the same bits and stay on its device.
        seeds: integers [s], node indices. One given twice is kept twice; edges to it lead to the first.
        num_neighbors: how many neighbours at each hop, the hop next to the seeds first; -1: all.
        input_time: int64 [s], a time for each seed: only edges whose timestamp is not later are sampled, at
            all hops. The sample is disjoint. None with ``node_time``: the times the seeds have as nodes.
        node_time: int64 [nodes], a time for each node: only neighbours whose time is not later than the
            seed's are sampled, at all hops; timestamps of edges do not count. The sample is disjoint.
        excluded_edges: edges that must not be sampled: a node draws among its others, as if it had no more.
        options: ``epoch`` and ``batch``, parts of the key of the draws as ``seed`` is; ``num_threads`` of
            this sample, None: one (frontiers of thousands of nodes are worth a second; sampling another batch
            on it, as the loaders do, is worth more); and :class:`graphbox.sample.NeighborOptions`.

    Returns:
        The sample; torch tensors when ``seeds`` is one, else NumPy arrays.

    Raises:
        UsageError: a seed that is no node of the graph, weights that are not there, or another wrong
            argument.
        DataError: the adjacency is damaged, or a weight is not a positive number.
    """
    whole: GraphLike | Mapping[EdgeType, Adjacency] | DeviceGraph
    if isinstance(graph, GraphLike | DeviceGraph):
        whole, edge_type, node_type = graph, _only_edge_type(graph), graph.node_types[0]
    else:
        whole, edge_type, node_type = {_ANY_TYPE: graph}, _ANY_TYPE, _ANY_TYPE[0]
    times = None
    if input_time is not None:
        times = {node_type: input_time} if len(input_time) or len(seeds) else {}
    sample: HeteroSample[Any] = sample_heterogeneous(
        whole,
        {node_type: seeds},
        {edge_type: checked_hops(num_neighbors, "num_neighbors")},
        input_time=times,
        node_time=None if node_time is None else {node_type: node_time},
        excluded_edges=None if excluded_edges is None else {edge_type: excluded_edges},
        **options,
    )
    return NeighborSample(
        nodes=sample.nodes[node_type],
        row=sample.row[edge_type],
        col=sample.col[edge_type],
        edge_ids=sample.edge_ids[edge_type],
        num_sampled_nodes=sample.num_sampled_nodes[node_type],
        num_sampled_edges=sample.num_sampled_edges[edge_type],
        weight=sample.weight.get(edge_type),
        timestamp=sample.timestamp.get(edge_type),
        trees=sample.trees.get(node_type),
    )


@overload
def sample_heterogeneous(
    graph: GraphLike | Mapping[EdgeType, Adjacency] | DeviceGraph,
    seeds: Mapping[str, torch.Tensor],
    num_neighbors: NumNeighbors,
    *,
    input_time: Mapping[str, Any] | None = ...,
    node_time: Mapping[str, Any] | None = ...,
    excluded_edges: Mapping[EdgeType, ExcludedEdges] | None = ...,
    **options: Unpack[_Keywords],
) -> HeteroSample[torch.Tensor]: ...


@overload
def sample_heterogeneous(
    graph: GraphLike | Mapping[EdgeType, Adjacency] | DeviceGraph,
    seeds: Mapping[str, npt.ArrayLike],
    num_neighbors: NumNeighbors,
    *,
    input_time: Mapping[str, Any] | None = ...,
    node_time: Mapping[str, Any] | None = ...,
    excluded_edges: Mapping[EdgeType, ExcludedEdges] | None = ...,
    **options: Unpack[_Keywords],
) -> HeteroSample[Int64Array]: ...


def sample_heterogeneous(
    graph: GraphLike | Mapping[EdgeType, Adjacency] | DeviceGraph,
    seeds: Mapping[str, Any],
    num_neighbors: NumNeighbors,
    *,
    input_time: Mapping[str, Any] | None = None,
    node_time: Mapping[str, Any] | None = None,
    excluded_edges: Mapping[EdgeType, ExcludedEdges] | None = None,
    epoch: int = 0,
    batch: int = 0,
    num_threads: int | None = None,
    **options: Unpack[NeighborKeywords],
) -> HeteroSample[Any]:
    """Sample in-neighbours over several edge types: see :func:`sample_neighbors`.

    At each hop the edge types take their turns in order; each samples in-neighbours of the nodes of its
    target type that the hop before added.

    Args:
        graph: a graph, or the CSC of each edge type; or a :class:`graphbox.sample.DeviceGraph`.
        seeds: node indices by node type.
        num_neighbors: how many neighbours at each hop, for all edge types or by edge type. Edge types that
            are left out of a mapping are not sampled.
        input_time: the time of each seed by node type: only edges whose timestamp is not later are sampled,
            at all hops; edges of types without timestamps always. The sample is disjoint. None with
            ``node_time``: the times the seeds have as nodes.
        node_time: a time for each node by node type: only neighbours whose time is not later than the seed's
            are sampled, at all hops; those of types that are left out always. Timestamps of edges do not
            count.
        excluded_edges: edges that must not be sampled, by edge type; see :func:`sample_neighbors`.
        epoch: part of the key of the draws, as ``seed``.
        batch: part of the key of the draws, as ``seed``.
        num_threads: of this sample, None: one; see :func:`sample_neighbors`.
        options: see :class:`graphbox.sample.NeighborOptions`.

    Returns:
        The sample, with an entry for every node type and every sampled edge type; torch tensors when the
        seeds are.

    Raises:
        UsageError: an unknown type, a seed that is no node of the graph, weights that are not there, or
            another wrong argument.
        DataError: the adjacency is damaged, or a weight is not a positive number.
    """
    sampler = sampler_of(graph, num_neighbors, NeighborOptions.of(options), node_time, num_threads)
    return sampler.sample([SampleRequest(seeds, input_time, epoch, batch, excluded_edges)])[0]


def _only_edge_type(graph: GraphLike | DeviceGraph) -> EdgeType:
    if len(graph.edge_types) != 1 or len(graph.node_types) != 1:
        raise UsageError(
            f"expected a graph with one node and one edge type, received "
            f"{len(graph.node_types)} and {len(graph.edge_types)}",
            where="graph",
            hint="sample_heterogeneous takes several types",
        )
    return graph.edge_types[0]

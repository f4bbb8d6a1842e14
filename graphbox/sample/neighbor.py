"""Neighbour sampling: for seeds, a few in-neighbours of each node, hop by hop."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, Unpack, overload

import numpy.typing as npt

from graphbox import _core
from graphbox.errors import UsageError
from graphbox.native import (
    Int64Array,
    batch_number,
    converter,
    epoch_number,
    integer_array,
    thread_count,
)
from graphbox.sample.adjacency import (
    Adjacency,
    Arrays,
    EdgeType,
    GraphLike,
    as_arrays,
    edge_column,
    edge_type_name,
    lists_of,
)
from graphbox.sample.device import DeviceGraph
from graphbox.sample.device_neighbor import sample_on_device
from graphbox.sample.drawing import of_type, times_of_nodes, times_of_seeds, times_of_trees
from graphbox.sample.excluded import ExcludedEdges, excluded_rows
from graphbox.sample.hops import checked_hops, hops_by_edge_type
from graphbox.sample.options import NeighborKeywords, NeighborOptions
from graphbox.sample.relations import give_attributes, indexed_lists, keep_to_times, sampled_relation
from graphbox.sample.sampled import HeteroSample, NeighborSample

if TYPE_CHECKING:
    import torch

_UNKNOWN = -1
_ANY_TYPE: EdgeType = ("", "csc", "")  # of an adjacency that is given without a graph


class _Keywords(NeighborKeywords, total=False):
    epoch: int
    batch: int
    num_threads: int | None


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
    epoch: int = 0,
    batch: int = 0,
    num_threads: int | None = None,
    **options: Unpack[NeighborKeywords],
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
        epoch: part of the key of the draws, as ``seed``.
        batch: part of the key of the draws, as ``seed``.
        num_threads: of this sample, None: one. Frontiers of thousands of nodes are worth a second; sampling
            another batch on it, as the loaders do, is worth more.
        options: see :class:`graphbox.sample.NeighborOptions`.

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
    sample: HeteroSample[Any] = sample_heterogeneous(
        whole,
        {node_type: seeds},
        {edge_type: checked_hops(num_neighbors, "num_neighbors")},
        input_time=None if input_time is None else _times_of_type(node_type, input_time, seeds),
        node_time=None if node_time is None else {node_type: node_time},
        excluded_edges=None if excluded_edges is None else {edge_type: excluded_edges},
        epoch=epoch,
        batch=batch,
        num_threads=num_threads,
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
    num_neighbors: Mapping[EdgeType, Sequence[int]] | Sequence[int],
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
    num_neighbors: Mapping[EdgeType, Sequence[int]] | Sequence[int],
    *,
    input_time: Mapping[str, Any] | None = ...,
    node_time: Mapping[str, Any] | None = ...,
    excluded_edges: Mapping[EdgeType, ExcludedEdges] | None = ...,
    **options: Unpack[_Keywords],
) -> HeteroSample[Int64Array]: ...


def sample_heterogeneous(
    graph: GraphLike | Mapping[EdgeType, Adjacency] | DeviceGraph,
    seeds: Mapping[str, Any],
    num_neighbors: Mapping[EdgeType, Sequence[int]] | Sequence[int],
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
    chosen = NeighborOptions.of(options)
    hops_by_type = hops_by_edge_type(graph, num_neighbors)
    excluded = excluded_edges or {}
    if isinstance(graph, DeviceGraph):
        _check_seed_types(seeds, graph.node_types)
        key = (epoch_number(epoch), batch_number(batch))
        return sample_on_device(graph, seeds, hops_by_type, chosen, key, input_time, node_time, excluded)
    cscs = _adjacencies(graph, hops_by_type)
    arrays = {edge_type: as_arrays(csc, edge_type_name(edge_type)) for edge_type, csc in cscs.items()}
    num_nodes = _node_counts(graph, cscs, arrays, seeds)
    numbers = {node_type: number for number, node_type in enumerate(num_nodes)}
    _check_seed_types(seeds, num_nodes)
    by_weight: Collection[EdgeType] = ()
    if chosen.weight_attr is not None:
        by_weight = chosen.weighted_types(
            {name: edge_column(csc, "weight", edge_type_name(name)) is not None for name, csc in cscs.items()}
        )
    its_times = times_of_nodes(node_time, num_nodes)
    relations = [
        sampled_relation(
            csc,
            arrays[edge_type],
            edge_type_name(edge_type),
            (numbers[edge_type[0]], numbers[edge_type[2]]),
            hops_by_type[edge_type],
            weighted=edge_type in by_weight,
            times=_what_has_times(input_time, its_times),
            node_time=None if its_times is None else its_times.get(edge_type[0]),
            threads=num_threads,
        )
        for edge_type, csc in cscs.items()
    ]
    times = None
    if its_times is not None and input_time is None:
        input_time = times_of_seeds(its_times, seeds)
    if input_time is not None:
        times = times_of_trees(input_time, seeds, list(num_nodes))
        keep_to_times(relations, chosen, num_threads, by_nodes=its_times is not None)
    give_attributes(relations, chosen.edge_attributes)
    indexed = indexed_lists(relations)
    disjoint = chosen.disjoint or times is not None
    types, edges = _core.sample_neighbors(
        [each.native for each in relations],
        list(num_nodes.values()),
        [integer_array(seeds.get(node_type, ()), of_type("seeds", node_type)) for node_type in num_nodes],
        max((len(hops) for hops in hops_by_type.values()), default=0),
        chosen.replace,
        chosen.seed,
        epoch_number(epoch),
        batch_number(batch),
        1 if num_threads is None else thread_count(num_threads, "num_threads"),
        disjoint,
        times,
        chosen.temporal_strategy == "last",
        excluded_rows(excluded, cscs, disjoint=disjoint, threads=thread_count(num_threads, "num_threads")),
        [(each.lists.index, each.numbers) for each in indexed if each.lists.index is not None],
    )
    for each in indexed:
        each.lists.count(sum(types[each.target][1][:-1]), num_threads)
    as_given = converter(next(iter(seeds.values()), None))
    by_node_type = dict(zip(num_nodes, types, strict=True))
    by_edge_type = dict(zip(cscs, edges, strict=True))
    return HeteroSample(
        nodes={name: as_given(entry[0]) for name, entry in by_node_type.items()},
        row={name: as_given(entry[0]) for name, entry in by_edge_type.items()},
        col={name: as_given(entry[1]) for name, entry in by_edge_type.items()},
        edge_ids={name: as_given(entry[2]) for name, entry in by_edge_type.items()},
        num_sampled_nodes={name: entry[1] for name, entry in by_node_type.items()},
        num_sampled_edges={name: entry[3] for name, entry in by_edge_type.items()},
        weight={name: as_given(entry[4]) for name, entry in by_edge_type.items() if entry[4] is not None},
        timestamp={name: as_given(entry[5]) for name, entry in by_edge_type.items() if entry[5] is not None},
        trees={name: as_given(entry[2]) for name, entry in by_node_type.items() if entry[2] is not None},
    )


def _check_seed_types(seeds: Collection[str], known: Collection[str]) -> None:
    for node_type in seeds:
        if node_type not in known:
            raise UsageError(
                f"unknown node type; the graph has: {', '.join(known)}", where=of_type("seeds", node_type)
            )


def _times_of_type(node_type: str, input_time: Any, seeds: Any) -> dict[str, Any]:
    return {node_type: input_time} if len(input_time) or len(seeds) else {}


def _what_has_times(input_time: object | None, node_time: object | None) -> Literal["edges", "nodes"] | None:
    if node_time is not None:
        return "nodes"
    return None if input_time is None else "edges"


def _only_edge_type(graph: GraphLike | DeviceGraph) -> EdgeType:
    if len(graph.edge_types) != 1 or len(graph.node_types) != 1:
        raise UsageError(
            f"expected a graph with one node and one edge type, received "
            f"{len(graph.node_types)} and {len(graph.edge_types)}",
            where="graph",
            hint="sample_heterogeneous takes several types",
        )
    return graph.edge_types[0]


def _adjacencies(
    graph: GraphLike | Mapping[EdgeType, Adjacency], edge_types: Collection[EdgeType]
) -> Mapping[EdgeType, Adjacency]:
    """Return the in-neighbours of each edge type, in the same order."""
    if isinstance(graph, GraphLike):
        return {edge_type: lists_of(graph, edge_type, "in") for edge_type in edge_types}
    return {edge_type: graph[edge_type] for edge_type in edge_types}


def _node_counts(
    graph: GraphLike | Mapping[EdgeType, Adjacency],
    cscs: Mapping[EdgeType, Adjacency],
    arrays: Mapping[EdgeType, Arrays],
    seeds: Mapping[str, Any],
) -> dict[str, int]:
    """Return the number of nodes of each type, in a fixed order; -1 for a source type that does not say."""
    if isinstance(graph, GraphLike):
        return {node_type: graph.num_nodes(node_type) for node_type in graph.node_types}
    counts: dict[str, int] = {}
    for edge_type, csc in cscs.items():
        source, _, target = edge_type
        counts.setdefault(source, _UNKNOWN)
        if counts.get(target, _UNKNOWN) == _UNKNOWN:
            counts[target] = len(arrays[edge_type].indptr) - 1
        if counts[source] == _UNKNOWN:
            counts[source] = int(getattr(csc, "num_sources", _UNKNOWN))
    for node_type in seeds:
        if node_type not in counts and any(node_type in (name[0], name[2]) for name in graph):
            counts[node_type] = _UNKNOWN
    return counts

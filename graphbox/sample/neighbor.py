"""Neighbour sampling: for seeds, a few in-neighbours of each node, hop by hop."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, overload

import numpy.typing as npt

from graphbox import _core
from graphbox.errors import UsageError
from graphbox.native import (
    Int64Array,
    batch_number,
    converter,
    epoch_number,
    integer_array,
    seed_number,
    thread_count,
)
from graphbox.sample.adjacency import (
    Adjacency,
    EdgeColumnName,
    EdgeType,
    GraphLike,
    as_arrays,
    edge_type_name,
    lists_of,
)
from graphbox.sample.device import DeviceGraph
from graphbox.sample.device_neighbor import sample_on_device
from graphbox.sample.drawing import (
    TemporalStrategy,
    time_array,
    times_of_nodes,
    times_of_seeds,
    times_of_trees,
    weighted_types,
)
from graphbox.sample.excluded import ExcludedEdges, excluded_rows
from graphbox.sample.hops import checked_hops, hops_by_edge_type
from graphbox.sample.relations import give_attributes, indexed_lists, keep_to_times, sampled_relation
from graphbox.sample.sampled import HeteroSample, NeighborSample

if TYPE_CHECKING:
    import torch

__all__ = ["sample_heterogeneous", "sample_neighbors"]

_UNKNOWN = -1
_ANY_TYPE: EdgeType = ("", "", "")  # of an adjacency that is given without a graph


@overload
def sample_neighbors(
    graph: GraphLike | Adjacency | DeviceGraph,
    seeds: torch.Tensor,
    num_neighbors: Sequence[int],
    replace: bool = ...,
    weighted: bool = ...,
    *,
    labor: bool = ...,
    disjoint: bool = ...,
    input_time: Any | None = ...,
    node_time: Any | None = ...,
    temporal_strategy: TemporalStrategy = ...,
    edge_attributes: Collection[EdgeColumnName] = ...,
    excluded_edges: ExcludedEdges | None = ...,
    seed: int = ...,
    epoch: int = ...,
    batch: int = ...,
    threads: int | None = ...,
) -> NeighborSample[torch.Tensor]: ...


@overload
def sample_neighbors(
    graph: GraphLike | Adjacency | DeviceGraph,
    seeds: npt.ArrayLike,
    num_neighbors: Sequence[int],
    replace: bool = ...,
    weighted: bool = ...,
    *,
    labor: bool = ...,
    disjoint: bool = ...,
    input_time: Any | None = ...,
    node_time: Any | None = ...,
    temporal_strategy: TemporalStrategy = ...,
    edge_attributes: Collection[EdgeColumnName] = ...,
    excluded_edges: ExcludedEdges | None = ...,
    seed: int = ...,
    epoch: int = ...,
    batch: int = ...,
    threads: int | None = ...,
) -> NeighborSample[Int64Array]: ...


def sample_neighbors(
    graph: GraphLike | Adjacency | DeviceGraph,
    seeds: Any,
    num_neighbors: Sequence[int],
    replace: bool = False,
    weighted: bool = False,
    *,
    labor: bool = False,
    disjoint: bool = False,
    input_time: Any | None = None,
    node_time: Any | None = None,
    temporal_strategy: TemporalStrategy = "uniform",
    edge_attributes: Collection[EdgeColumnName] = (),
    excluded_edges: ExcludedEdges | None = None,
    seed: int = 0,
    epoch: int = 0,
    batch: int = 0,
    threads: int | None = None,
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

    With ``labor`` every node has one random number in a hop, and each node takes the neighbours with the
    smallest: LABOR-0 (Balin and Çatalyürek, "Layer-Neighbor Sampling", NeurIPS 2023) with exact counts. What
    a node takes is distributed as without, so means over its edges need no correction; but nodes with common
    neighbours take the same ones, which leaves a third fewer nodes to read. It looks at all neighbours, which
    takes some five times as long.

    Args:
        graph: a graph with one node and one edge type, or its CSC; or a
            :class:`graphbox.sample.DeviceGraph`, whose samples are the same bits and stay on its device.
        seeds: integers [s], node indices. One given twice is kept twice; edges to it lead to the first.
        num_neighbors: how many neighbours at each hop, the hop next to the seeds first; -1: all.
        replace: draw with replacement: always as many as asked for, the same edge possibly more than once.
        weighted: draw in proportion to the edges' weights.
        labor: let nodes with common neighbours choose the same ones, so that fewer nodes are in the sample.
            Without replacement only, and not for disjoint trees.
        disjoint: a tree of its own for each seed: nodes that several seeds reach are in the sample several
            times. Trees are independent of each other, and ``trees`` tells them apart.
        input_time: int64 [s], a time for each seed: only edges whose timestamp is not later are sampled, at
            all hops. The sample is disjoint. None with ``node_time``: the times the seeds have as nodes.
        node_time: int64 [nodes], a time for each node: only neighbours whose time is not later than the
            seed's are sampled, at all hops; timestamps of edges do not count. The sample is disjoint.
        temporal_strategy: ``uniform`` draws among these edges, with ``weighted`` in proportion to their
            weights; ``last`` takes the latest of each node (of equal timestamps those later in the
            adjacency).
        edge_attributes: what to give of each sampled edge: ``weight``, ``timestamp``, both or none.
        excluded_edges: edges that must not be sampled: a node draws among its others, as if it had no more.
        seed: of the random draws.
        epoch: part of the key of the draws, as ``seed``.
        batch: part of the key of the draws, as ``seed``.
        threads: of this sample, None: one. Frontiers of thousands of nodes are worth a second; sampling
            another batch on it, as the loaders do, is worth more.

    Returns:
        The sample; torch tensors when ``seeds`` is one, else NumPy arrays.

    Raises:
        UsageError: a seed that is no node of the graph, weights that are not there, or another wrong
            argument.
        DataError: the adjacency is damaged, or a weight is not a positive number.
    """
    if isinstance(graph, DeviceGraph):
        edge_type = _only_edge_type(graph)
        (node_type,) = graph.node_types
        sample = sample_on_device(
            graph,
            {node_type: seeds},
            {edge_type: checked_hops(num_neighbors, "num_neighbors")},
            replace,
            [edge_type] if weighted else [],
            (seed, epoch, batch),
            labor=labor,
            disjoint=disjoint,
            input_time=None if input_time is None else _times_of_type(node_type, input_time, seeds),
            node_time=None if node_time is None else {node_type: node_time},
            temporal_strategy=temporal_strategy,
            edge_attributes=edge_attributes,
            excluded={} if excluded_edges is None else {edge_type: excluded_edges},
        )
        return NeighborSample(
            sample.nodes[node_type],
            sample.rows[edge_type],
            sample.cols[edge_type],
            sample.edge_ids[edge_type],
            sample.nodes_per_hop[node_type],
            sample.edges_per_hop[edge_type],
            sample.weight.get(edge_type),
            sample.timestamp.get(edge_type),
            sample.trees.get(node_type),
        )
    adjacency: Adjacency
    name = "csc"
    if isinstance(graph, GraphLike):
        edge_type = _only_edge_type(graph)
        adjacency, name = lists_of(graph, edge_type, "in"), edge_type_name(edge_type)
    else:
        adjacency = graph
    arrays = as_arrays(adjacency, name)
    rows = len(arrays.indptr) - 1
    num_nodes = graph.num_nodes(edge_type[2]) if isinstance(graph, GraphLike) else rows
    hops = checked_hops(num_neighbors, "num_neighbors")
    its_times = None if node_time is None else times_of_nodes({"": node_time}, {"": num_nodes})
    relation = sampled_relation(
        adjacency,
        arrays,
        name,
        (0, 0),
        hops,
        weighted=weighted,
        times=_what_has_times(input_time, its_times),
        node_time=None if its_times is None else its_times[""],
        threads=threads,
    )
    times = None
    if its_times is not None and input_time is None:
        input_time = times_of_seeds(its_times, {"": seeds}).get("", ())
    if input_time is not None:
        times = time_array(input_time, seeds, "input_time")
        keep_to_times([relation], temporal_strategy, replace, threads, by_nodes=its_times is not None)
    give_attributes([relation], edge_attributes)
    (nodes,), (edges,) = _core.sample_neighbors(
        [relation.native],
        [num_nodes],
        [integer_array(seeds, "seeds")],
        len(hops),
        replace,
        seed_number(seed),
        epoch_number(epoch),
        batch_number(batch),
        1 if threads is None else thread_count(threads),
        disjoint or times is not None,
        times,
        temporal_strategy == "last",
        excluded_rows(
            {} if excluded_edges is None else {_ANY_TYPE: excluded_edges},
            {_ANY_TYPE: adjacency},
            disjoint=disjoint or times is not None,
            threads=thread_count(threads),
        ),
        labor,
    )
    as_given = converter(seeds)
    return NeighborSample(
        nodes=as_given(nodes[0]),
        rows=as_given(edges[0]),
        cols=as_given(edges[1]),
        edge_ids=as_given(edges[2]),
        nodes_per_hop=nodes[1],
        edges_per_hop=edges[3],
        weight=None if edges[4] is None else as_given(edges[4]),
        timestamp=None if edges[5] is None else as_given(edges[5]),
        trees=None if nodes[2] is None else as_given(nodes[2]),
    )


@overload
def sample_heterogeneous(
    graph: GraphLike | Mapping[EdgeType, Adjacency] | DeviceGraph,
    seeds: Mapping[str, torch.Tensor],
    num_neighbors: Mapping[EdgeType, Sequence[int]] | Sequence[int],
    replace: bool = ...,
    weighted: bool | Collection[EdgeType] = ...,
    *,
    labor: bool = ...,
    disjoint: bool = ...,
    input_time: Mapping[str, Any] | None = ...,
    node_time: Mapping[str, Any] | None = ...,
    temporal_strategy: TemporalStrategy = ...,
    edge_attributes: Collection[EdgeColumnName] = ...,
    excluded_edges: Mapping[EdgeType, ExcludedEdges] | None = ...,
    seed: int = ...,
    epoch: int = ...,
    batch: int = ...,
    threads: int | None = ...,
) -> HeteroSample[torch.Tensor]: ...


@overload
def sample_heterogeneous(
    graph: GraphLike | Mapping[EdgeType, Adjacency] | DeviceGraph,
    seeds: Mapping[str, npt.ArrayLike],
    num_neighbors: Mapping[EdgeType, Sequence[int]] | Sequence[int],
    replace: bool = ...,
    weighted: bool | Collection[EdgeType] = ...,
    *,
    labor: bool = ...,
    disjoint: bool = ...,
    input_time: Mapping[str, Any] | None = ...,
    node_time: Mapping[str, Any] | None = ...,
    temporal_strategy: TemporalStrategy = ...,
    edge_attributes: Collection[EdgeColumnName] = ...,
    excluded_edges: Mapping[EdgeType, ExcludedEdges] | None = ...,
    seed: int = ...,
    epoch: int = ...,
    batch: int = ...,
    threads: int | None = ...,
) -> HeteroSample[Int64Array]: ...


def sample_heterogeneous(
    graph: GraphLike | Mapping[EdgeType, Adjacency] | DeviceGraph,
    seeds: Mapping[str, Any],
    num_neighbors: Mapping[EdgeType, Sequence[int]] | Sequence[int],
    replace: bool = False,
    weighted: bool | Collection[EdgeType] = False,
    *,
    labor: bool = False,
    disjoint: bool = False,
    input_time: Mapping[str, Any] | None = None,
    node_time: Mapping[str, Any] | None = None,
    temporal_strategy: TemporalStrategy = "uniform",
    edge_attributes: Collection[EdgeColumnName] = (),
    excluded_edges: Mapping[EdgeType, ExcludedEdges] | None = None,
    seed: int = 0,
    epoch: int = 0,
    batch: int = 0,
    threads: int | None = None,
) -> HeteroSample[Any]:
    """Sample in-neighbours over several edge types: see :func:`sample_neighbors`.

    At each hop the edge types take their turns in order; each samples in-neighbours of the nodes of its
    target type that the hop before added.

    Args:
        graph: a graph, or the CSC of each edge type; or a :class:`graphbox.sample.DeviceGraph`.
        seeds: node indices by node type.
        num_neighbors: how many neighbours at each hop, for all edge types or by edge type. Edge types that
            are left out of a mapping are not sampled.
        replace: draw with replacement.
        weighted: draw in proportion to the edges' weights: those of all edge types that are sampled, or of
            some. Edges of the others are equally likely.
        labor: let nodes with common neighbours choose the same ones, so that fewer nodes are in the sample:
            see :func:`sample_neighbors`.
        disjoint: a tree of its own for each seed: nodes that several seeds reach are in the sample several
            times. Trees are independent of each other, and ``trees`` tells them apart.
        input_time: the time of each seed by node type: only edges whose timestamp is not later are sampled,
            at all hops; edges of types without timestamps always. The sample is disjoint. None with
            ``node_time``: the times the seeds have as nodes.
        node_time: a time for each node by node type: only neighbours whose time is not later than the seed's
            are sampled, at all hops; those of types that are left out always. Timestamps of edges do not
            count.
        temporal_strategy: ``uniform`` draws among these edges, with ``weighted`` in proportion to their
            weights; ``last`` takes the latest of each node (of equal timestamps those later in the
            adjacency).
        edge_attributes: what to give of each sampled edge: ``weight``, ``timestamp``, both or none; of the
            edge types that have it, one at least.
        excluded_edges: edges that must not be sampled, by edge type; see :func:`sample_neighbors`.
        seed: of the random draws.
        epoch: part of the key of the draws, as ``seed``.
        batch: part of the key of the draws, as ``seed``.
        threads: of this sample, None: one. Frontiers of thousands of nodes are worth a second; sampling
            another batch on it, as the loaders do, is worth more.

    Returns:
        The sample, with an entry for every node type and every sampled edge type; torch tensors when the
        seeds are.

    Raises:
        UsageError: an unknown type, a seed that is no node of the graph, weights that are not there, or
            another wrong argument.
        DataError: the adjacency is damaged, or a weight is not a positive number.
    """
    hops_by_type = hops_by_edge_type(graph, num_neighbors)
    if isinstance(graph, DeviceGraph):
        _check_seed_types(seeds, graph.node_types)
        return sample_on_device(
            graph,
            seeds,
            hops_by_type,
            replace,
            weighted_types(weighted, hops_by_type),
            (seed, epoch, batch),
            labor=labor,
            disjoint=disjoint,
            input_time=input_time,
            node_time=node_time,
            temporal_strategy=temporal_strategy,
            edge_attributes=edge_attributes,
            excluded=excluded_edges or {},
        )
    cscs = _adjacencies(graph, hops_by_type)
    num_nodes = _node_counts(graph, cscs, seeds)
    numbers = {node_type: number for number, node_type in enumerate(num_nodes)}
    _check_seed_types(seeds, num_nodes)
    chosen = weighted_types(weighted, cscs)
    its_times = times_of_nodes(node_time, num_nodes)
    what_has_times = _what_has_times(input_time, its_times)
    relations = []
    for edge_type, csc in cscs.items():
        name = edge_type_name(edge_type)
        relations.append(
            sampled_relation(
                csc,
                as_arrays(csc, name),
                name,
                (numbers[edge_type[0]], numbers[edge_type[2]]),
                hops_by_type[edge_type],
                weighted=edge_type in chosen,
                times=what_has_times,
                node_time=None if its_times is None else its_times.get(edge_type[0]),
                threads=threads,
            )
        )
    times = None
    if its_times is not None and input_time is None:
        input_time = times_of_seeds(its_times, seeds)
    if input_time is not None:
        times = times_of_trees(input_time, seeds, list(num_nodes))
        keep_to_times(relations, temporal_strategy, replace, threads, by_nodes=its_times is not None)
    give_attributes(relations, edge_attributes)
    indexed = indexed_lists(relations)
    types, edges = _core.sample_neighbors(
        [each.native for each in relations],
        list(num_nodes.values()),
        [integer_array(seeds.get(node_type, ()), f"seeds[{node_type!r}]") for node_type in num_nodes],
        max((len(hops) for hops in hops_by_type.values()), default=0),
        replace,
        seed_number(seed),
        epoch_number(epoch),
        batch_number(batch),
        1 if threads is None else thread_count(threads),
        disjoint or times is not None,
        times,
        temporal_strategy == "last",
        excluded_rows(
            excluded_edges or {},
            cscs,
            disjoint=disjoint or times is not None,
            threads=thread_count(threads),
        ),
        labor,
        [(each.lists.index, each.numbers) for each in indexed if each.lists.index is not None],
    )
    for each in indexed:
        each.lists.count(sum(types[each.target][1][:-1]), threads)
    as_given = converter(next(iter(seeds.values()), None))
    by_node_type = dict(zip(num_nodes, types, strict=True))
    by_edge_type = dict(zip(cscs, edges, strict=True))
    return HeteroSample(
        nodes={name: as_given(entry[0]) for name, entry in by_node_type.items()},
        rows={name: as_given(entry[0]) for name, entry in by_edge_type.items()},
        cols={name: as_given(entry[1]) for name, entry in by_edge_type.items()},
        edge_ids={name: as_given(entry[2]) for name, entry in by_edge_type.items()},
        nodes_per_hop={name: entry[1] for name, entry in by_node_type.items()},
        edges_per_hop={name: entry[3] for name, entry in by_edge_type.items()},
        weight={name: as_given(entry[4]) for name, entry in by_edge_type.items() if entry[4] is not None},
        timestamp={name: as_given(entry[5]) for name, entry in by_edge_type.items() if entry[5] is not None},
        trees={name: as_given(entry[2]) for name, entry in by_node_type.items() if entry[2] is not None},
    )


def _check_seed_types(seeds: Collection[str], known: Collection[str]) -> None:
    for node_type in seeds:
        if node_type not in known:
            raise UsageError(
                f"unknown node type; the graph has: {', '.join(known)}", where=f"seeds[{node_type!r}]"
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
    seeds: Mapping[str, Any],
) -> dict[str, int]:
    """Return the number of nodes of each type, in a fixed order; -1 for a source type that does not say."""
    if isinstance(graph, GraphLike):
        return {node_type: graph.num_nodes(node_type) for node_type in graph.node_types}
    counts: dict[str, int] = {}
    for (source, _, target), csc in cscs.items():
        counts.setdefault(source, _UNKNOWN)
        if counts.get(target, _UNKNOWN) == _UNKNOWN:
            counts[target] = len(csc.indptr) - 1
        if counts[source] == _UNKNOWN:
            counts[source] = int(getattr(csc, "num_sources", _UNKNOWN))
    for node_type in seeds:
        if node_type not in counts and any(node_type in (name[0], name[2]) for name in graph):
            counts[node_type] = _UNKNOWN
    return counts

"""Neighbour sampling on a device: what users give, checked as in host memory and handed to kernels."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from graphbox.errors import UnsupportedError
from graphbox.sample.adjacency import EdgeType, edge_type_name
from graphbox.sample.device import DeviceGraph
from graphbox.sample.drawing import (
    check_temporal,
    times_of_nodes,
    times_of_seeds,
    times_of_trees,
)
from graphbox.sample.excluded import ExcludedEdges, excluded_pairs
from graphbox.sample.options import NeighborOptions, lacks_attribute
from graphbox.sample.sampled import HeteroSample

if TYPE_CHECKING:
    from graphbox.sample.neighbor_gpu import DrawingByTime


def sample_on_device(
    graph: DeviceGraph,
    seeds: Mapping[str, Any],
    num_neighbors: Mapping[EdgeType, Sequence[int]],
    options: NeighborOptions,
    key: tuple[int, int],
    input_time: Mapping[str, Any] | None,
    node_time: Mapping[str, Any] | None,
    excluded: Mapping[EdgeType, ExcludedEdges],
) -> HeteroSample[Any]:
    """Sample in-neighbours: see :func:`graphbox.sample.sample_heterogeneous`.

    Args:
        graph: as there, as are those that are not named here.
        seeds: by node type.
        num_neighbors: for each edge type that is sampled.
        options: how.
        key: epoch, batch.
        input_time: as there.
        node_time: as there.
        excluded: edges that must not be sampled.

    Raises:
        UsageError: a wrong argument.
        UnsupportedError: more than 512 distinct neighbours of a node, but not all; or lists on disk, sampled
            otherwise than uniformly.
        DataError: a weight is not a positive number, or the adjacency is damaged.
        DoesNotFitError: the sample is too large for a device.
    """
    from graphbox.sample.neighbor_gpu import read_edge_values, sample_device_graph  # Triton, where it is used
    from graphbox.sample.tiered_neighbor_gpu import sample_disk_lists

    for name in options.edge_attributes:
        if num_neighbors and not any(graph.has_values(each, "in", name) for each in num_neighbors):
            raise lacks_attribute(name, [*map(edge_type_name, num_neighbors)])
    weighted = device_weighted_types(graph, num_neighbors, options)
    has_times = input_time is not None or node_time is not None
    by_alias = () if has_times else weighted
    check_tiers(graph, num_neighbors, by_alias, disjoint=options.disjoint or has_times, times=has_times)
    on_disk = graph.disk_lists(list(num_neighbors), by_alias)
    if on_disk is not None:
        if excluded:
            raise UnsupportedError(
                "`excluded_edges` is not supported on a device over lists on disk",
                where="excluded_edges",
                hint="give Graph.tiered topology_bytes that hold all lists, or sample in host memory",
            )
        (in_pass,) = sample_disk_lists(
            graph,
            on_disk,
            [seeds],
            num_neighbors,
            replace=options.replace,
            keys=[(options.seed, *key)],
            edge_attributes=options.edge_attributes,
        )
        return in_pass
    by_time = _drawing_by_time(graph, seeds, num_neighbors, weighted, input_time, node_time, options)
    in_trees = options.disjoint or by_time is not None
    sample = sample_device_graph(
        graph,
        seeds,
        num_neighbors,
        replace=options.replace,
        weighted=weighted,
        key=(options.seed, *key),
        excluded=excluded_pairs(excluded, list(num_neighbors), disjoint=in_trees),
        disjoint=in_trees,
        by_time=by_time,
    )
    values: Any = {
        name: read_edge_values(graph, num_neighbors, name, sample) for name in options.edge_attributes
    }
    return dataclasses.replace(sample, **values)


def device_weighted_types(
    graph: DeviceGraph, edge_types: Iterable[EdgeType], options: NeighborOptions
) -> list[EdgeType]:
    """Return the sampled edge types that are drawn by weight.

    Raises:
        UsageError: weights are asked for, and no sampled edge type has them.
    """
    if options.weight_attr is None:
        return []
    return options.weighted_types({each: graph.has_values(each, "in", "weight") for each in edge_types})


def _drawing_by_time(
    graph: DeviceGraph,
    seeds: Mapping[str, Any],
    edge_types: Collection[EdgeType],
    weighted: Collection[EdgeType],
    input_time: Mapping[str, Any] | None,
    node_time: Mapping[str, Any] | None,
    options: NeighborOptions,
) -> DrawingByTime | None:
    """Return the times up to which is sampled; None: there are none."""
    from graphbox.sample.neighbor_gpu import DrawingByTime

    of_nodes = times_of_nodes(node_time, {each: graph.num_nodes(each) for each in graph.node_types})
    of_seeds = input_time
    if of_nodes is not None and of_seeds is None:
        of_seeds = times_of_seeds(of_nodes, {name: _in_host_memory(nodes) for name, nodes in seeds.items()})
    if of_seeds is None:
        return None
    timed = timed_types(graph, edge_types, of_nodes)
    check_temporal(
        [*map(edge_type_name, edge_types)],
        [each in weighted for each in timed],
        options.temporal_strategy,
        replace=options.replace,
        by_nodes=of_nodes is not None,
    )
    by_type = {name: _in_host_memory(times) for name, times in of_seeds.items()}
    last = options.temporal_strategy == "last"
    return DrawingByTime(times_of_trees(by_type, seeds, graph.node_types), timed, of_nodes, last)


def check_tiers(
    graph: DeviceGraph,
    edge_types: Collection[EdgeType],
    by_alias: Collection[EdgeType],
    *,
    disjoint: bool,
    times: bool,
) -> None:
    """Raise where a graph in tiers is to be sampled as a device samples whole graphs alone.

    Args:
        graph: what is sampled.
        edge_types: that are sampled.
        by_alias: of which alias tables are wanted.
        disjoint: in trees.
        times: up to times.

    Raises:
        UnsupportedError: up to times, or lists that are on disk, in trees.
        NotFoundError: the lists of a reverse edge type are not on disk.
    """
    if graph.tiered is None or not (disjoint or times):
        return
    argument, lists = ("input_time", "lists that may be") if times else ("disjoint", "lists")
    if times or graph.disk_lists(list(edge_types), by_alias) is not None:
        raise UnsupportedError(
            f"`{argument}` is not supported on a device over {lists} on disk",
            where=argument,
            hint="give DeviceGraph the graph itself, or sample in host memory: loaders over "
            "graph.tiered(...) take device=...",
        )


def timed_types(
    graph: DeviceGraph, edge_types: Iterable[EdgeType], node_time: Collection[str] | None
) -> list[EdgeType]:
    """Return the edge types whose edges have times.

    Args:
        graph: whose.
        edge_types: all that are sampled.
        node_time: the node types whose nodes have times; None: edges have their own.
    """
    if node_time is None:
        return [each for each in edge_types if graph.has_values(each, "in", "timestamp")]
    return [each for each in edge_types if each[0] in node_time]


def _in_host_memory(values: Any) -> Any:
    """Return integers as they are, or a copy of those on a device."""
    is_on_device = getattr(getattr(values, "device", None), "type", "cpu") != "cpu"
    return values.cpu() if is_on_device else values

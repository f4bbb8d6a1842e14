"""Neighbour sampling on a device: what users give, checked as in host memory and handed to kernels."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from graphbox.errors import UnsupportedError, UsageError
from graphbox.native import batch_number, epoch_number, seed_number
from graphbox.sample.adjacency import EdgeColumnName, EdgeType, edge_type_name
from graphbox.sample.device import DeviceGraph
from graphbox.sample.drawing import (
    TemporalStrategy,
    check_temporal,
    times_of_nodes,
    times_of_seeds,
    times_of_trees,
)
from graphbox.sample.excluded import ExcludedEdges, excluded_pairs
from graphbox.sample.relations import check_attributes, lacks_attribute
from graphbox.sample.sampled import HeteroSample

if TYPE_CHECKING:
    from graphbox.sample.neighbor_gpu import DrawingByTime

__all__ = ["check_tiers", "sample_on_device", "timed_types"]


def sample_on_device(
    graph: DeviceGraph,
    seeds: Mapping[str, Any],
    num_neighbors: Mapping[EdgeType, Sequence[int]],
    replace: bool,
    weighted: Collection[EdgeType],
    key: tuple[int, int, int],
    *,
    labor: bool,
    disjoint: bool,
    input_time: Mapping[str, Any] | None,
    node_time: Mapping[str, Any] | None,
    temporal_strategy: TemporalStrategy,
    edge_attributes: Collection[EdgeColumnName],
    excluded: Mapping[EdgeType, ExcludedEdges],
) -> HeteroSample[Any]:
    """Sample in-neighbours: see :func:`graphbox.sample.sample_heterogeneous`.

    Args:
        graph: as there, as are those that are not named here.
        seeds: by node type.
        num_neighbors: for each edge type that is sampled.
        replace: draw with replacement.
        weighted: edge types drawn in proportion to weights.
        key: seed, epoch, batch.
        labor: as there.
        disjoint: as there.
        input_time: as there.
        node_time: as there.
        temporal_strategy: as there.
        edge_attributes: as there.
        excluded: edges that must not be sampled.

    Raises:
        UsageError: a wrong argument.
        UnsupportedError: more than 512 distinct neighbours of a node, but neither all nor with ``labor``; or
            lists on disk, sampled otherwise than uniformly.
        DataError: a weight is not a positive number, or the adjacency is damaged.
        DoesNotFitError: the sample is too large for a device.
    """
    from graphbox.sample.neighbor_gpu import read_edge_values, sample_device_graph  # Triton, where it is used
    from graphbox.sample.tiered_neighbor_gpu import sample_disk_lists

    seed, epoch, batch = key
    checked = seed_number(seed), epoch_number(epoch), batch_number(batch)
    check_attributes(edge_attributes)
    for name in edge_attributes:
        if num_neighbors and not any(graph.has_values(each, "in", name) for each in num_neighbors):
            raise lacks_attribute(name, [*map(edge_type_name, num_neighbors)])
    has_times = input_time is not None or node_time is not None
    by_alias = () if has_times else weighted
    check_tiers(graph, num_neighbors, by_alias, labor=labor, disjoint=disjoint or has_times, times=has_times)
    on_disk = graph.disk_lists(list(num_neighbors), by_alias)
    if on_disk is not None:
        if excluded:
            raise UnsupportedError(
                "samplers on a device know no excluded edges among lists that are on disk",
                where="excluded_edges",
                hint="give Graph.tiered topology_bytes that hold all lists, or sample in host memory",
            )
        (in_pass,) = sample_disk_lists(
            graph,
            on_disk,
            [seeds],
            num_neighbors,
            replace=replace,
            keys=[checked],
            edge_attributes=edge_attributes,
        )
        return in_pass
    by_time = _drawing_by_time(
        graph, seeds, num_neighbors, weighted, input_time, node_time, temporal_strategy, replace=replace
    )
    in_trees = disjoint or by_time is not None
    if labor and (replace or in_trees):
        raise UsageError(
            "expected a sample without replacement of shared nodes, received labor and "
            f"{'replace' if replace else 'disjoint trees'}",
            where="labor",
            hint="leave one of the two out",
        )
    sample = sample_device_graph(
        graph,
        seeds,
        num_neighbors,
        replace=replace,
        weighted=weighted,
        key=checked,
        excluded=excluded_pairs(excluded, list(num_neighbors), disjoint=in_trees),
        labor=labor,
        disjoint=in_trees,
        by_time=by_time,
    )
    values: Any = {name: read_edge_values(graph, num_neighbors, name, sample) for name in edge_attributes}
    return dataclasses.replace(sample, **values)


def _drawing_by_time(
    graph: DeviceGraph,
    seeds: Mapping[str, Any],
    edge_types: Collection[EdgeType],
    weighted: Collection[EdgeType],
    input_time: Mapping[str, Any] | None,
    node_time: Mapping[str, Any] | None,
    strategy: TemporalStrategy,
    *,
    replace: bool,
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
        strategy,
        replace=replace,
        by_nodes=of_nodes is not None,
    )
    by_type = {name: _in_host_memory(times) for name, times in of_seeds.items()}
    return DrawingByTime(
        times_of_trees(by_type, seeds, graph.node_types), timed, of_nodes, strategy == "last"
    )


def check_tiers(
    graph: DeviceGraph,
    edge_types: Collection[EdgeType],
    by_alias: Collection[EdgeType],
    *,
    labor: bool,
    disjoint: bool,
    times: bool,
) -> None:
    """Raise where a graph in tiers is to be sampled as a device samples whole graphs alone.

    Args:
        graph: what is sampled.
        edge_types: that are sampled.
        by_alias: of which alias tables are wanted.
        labor: with LABOR.
        disjoint: in trees.
        times: up to times.

    Raises:
        UnsupportedError: up to times, or lists that are on disk with LABOR or in trees.
        NotFoundError: the lists of a reverse edge type are not on disk.
    """
    if graph.tiered is None or not (labor or disjoint or times):
        return
    name = "times" if times else "labor" if labor else "disjoint"
    if times or graph.disk_lists(list(edge_types), by_alias) is not None:
        raise UnsupportedError(
            f"samplers on a device know no {name} among lists that {'may be' if times else 'are'} on disk",
            where="input_time" if times else name,
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

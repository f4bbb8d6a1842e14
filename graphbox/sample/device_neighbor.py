"""Neighbour sampling on a device: what users give, checked as in host memory and handed to kernels."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from graphbox.errors import UnsupportedError
from graphbox.sample.adjacency import EdgeColumnName, EdgeType
from graphbox.sample.device import DeviceGraph
from graphbox.sample.disk_lists import DiskLists
from graphbox.sample.hops import hops_by_edge_type
from graphbox.sample.options import NeighborOptions
from graphbox.sample.sampled import HeteroSample
from graphbox.sample.sampling_plan import NumNeighbors, SampleRequest, SamplingPlan

if TYPE_CHECKING:
    import torch


class DeviceSampler:
    """Samples in-neighbours on a device: see :func:`graphbox.sample.sample_heterogeneous`.

    Requests that are given together are a pass where lists are on disk: what they draw is read together.

    Args:
        graph: what to sample.
        num_neighbors: how many neighbours at each hop.
        options: how.
        node_time: int64 by node type, the time of each node; None: edges have times.

    Attributes:
        graph: what is sampled.

    Raises:
        UsageError: an unknown edge type, or weights, columns or times that are not there.
    """

    def __init__(
        self,
        graph: DeviceGraph,
        num_neighbors: NumNeighbors,
        options: NeighborOptions,
        node_time: Mapping[str, Any] | None = None,
    ) -> None:
        self.graph = graph
        self._plan = SamplingPlan(
            {node_type: graph.num_nodes(node_type) for node_type in graph.node_types},
            hops_by_edge_type(graph.edge_types, num_neighbors),
            options,
            lambda edge_type, column: graph.has_values(edge_type, "in", column),
            node_time,
        )

    def hold(self, *, has_times: bool) -> None:
        """Bring the lists that are sampled to where they are read, before others take what they leave.

        Args:
            has_times: seeds have times.

        Raises:
            UsageError: there are no times.
            UnsupportedError: lists on disk are to be sampled otherwise than uniformly, or up to times.
        """
        plan, graph = self._plan, self.graph
        timed = plan.timed if has_times else []
        by_alias = [each for each in plan.weighted if each not in timed]
        self._check_tiers(by_alias, disjoint=plan.options.disjoint or has_times, timed=has_times)
        graph.hold([(each, "in") for each in plan.hops], [(each, "in") for each in by_alias])
        for each in timed:
            graph.times(each, "in", plan.node_time_of(each), weighted=each in plan.weighted)

    def sample(self, requests: Sequence[SampleRequest]) -> list[HeteroSample[torch.Tensor]]:
        """Return a sample for each request, on the device.

        Raises:
            UsageError: a seed that is no node of the graph, or another wrong request.
            UnsupportedError: more than 512 distinct neighbours of a node, but not all; or lists on disk,
                sampled otherwise than uniformly.
            DataError: a weight is not a positive number, the adjacency is damaged, or the disk does not give
                its bytes.
            DoesNotFitError: a sample is too large for a device.
        """
        from graphbox.sample.neighbor_gpu import sample_device_graph  # Triton, where it is used
        from graphbox.sample.tiered_neighbor_gpu import sample_disk_lists

        plan = self._plan
        timed = any(map(plan.keeps_to_times, requests))
        by_alias = [] if timed else plan.weighted
        self._check_tiers(by_alias, disjoint=plan.options.disjoint or timed, timed=timed)
        on_disk = self.graph.disk_lists(list(plan.hops), by_alias)
        if on_disk is None:
            samples = [sample_device_graph(self.graph, plan, request) for request in requests]
            return self._with_columns(samples)
        if any(request.excluded_edges for request in requests):
            raise UnsupportedError(
                "`excluded_edges` is not supported on a device over lists on disk",
                where="excluded_edges",
                hint="give Graph.tiered topology_bytes that hold all lists, or sample in host memory",
            )
        return sample_disk_lists(self.graph, on_disk, plan, requests)

    def _with_columns(
        self, samples: Sequence[HeteroSample[torch.Tensor]]
    ) -> list[HeteroSample[torch.Tensor]]:
        """Return samples with the values of their edges that are asked for."""
        from graphbox.sample.neighbor_gpu import read_edge_values

        found = list(samples)
        for name, having in self._plan.columns.items():
            on_disk = self.graph.values_on_disk(having, name)
            if on_disk:
                found = _with_values_on_disk(found, name, on_disk)
                continue
            for number, sample in enumerate(found):
                values: Any = {name: read_edge_values(self.graph, having, name, sample)}
                found[number] = dataclasses.replace(sample, **values)
        return found

    def _check_tiers(self, by_alias: Sequence[EdgeType], *, disjoint: bool, timed: bool) -> None:
        """Raise where a graph in tiers is to be sampled as a device samples whole graphs alone.

        Raises:
            UnsupportedError: up to times, or lists that are on disk, in trees.
            NotFoundError: the lists of a reverse edge type are not on disk.
        """
        if self.graph.tiered is None or not (disjoint or timed):
            return
        argument, lists = ("input_time", "lists that may be") if timed else ("disjoint", "lists")
        if timed or self.graph.disk_lists(list(self._plan.hops), by_alias) is not None:
            raise UnsupportedError(
                f"`{argument}` is not supported on a device over {lists} on disk",
                where=argument,
                hint="give DeviceGraph the graph itself, or sample in host memory: loaders over "
                "graph.tiered(...) take device=...",
            )


def _with_values_on_disk(
    samples: Sequence[HeteroSample[torch.Tensor]],
    name: EdgeColumnName,
    on_disk: Mapping[EdgeType, DiskLists],
) -> list[HeteroSample[torch.Tensor]]:
    """Return samples with values of their edges, read from disk for all of them together."""
    values = {
        each: lists.values(name, [sample.edge_ids[each] for sample in samples])
        for each, lists in on_disk.items()
    }
    found = []
    for number, sample in enumerate(samples):
        own: Any = {name: {each: parts[number] for each, parts in values.items()}}
        found.append(dataclasses.replace(sample, **own))
    return found

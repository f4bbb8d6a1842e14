"""Stages of loaders whose batches are made on a device."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from graphbox.device import chosen_device
from graphbox.errors import UnsupportedError, UsageError
from graphbox.sample.device import DeviceGraph
from graphbox.sample.device_neighbor import check_tiers, device_weighted_types, timed_types
from graphbox.sample.hops import hops_by_edge_type
from graphbox.sample.loader.arguments import positive_integer
from graphbox.sample.loader.features import FeatureNames
from graphbox.sample.loader.stages import FetchStage, MemorySampler, Neighborhood, SampleRequest
from graphbox.sample.sampled import HeteroSample
from graphbox.table.rows_ahead import RowsAhead

if TYPE_CHECKING:
    import torch

    from graphbox.sample.tiered_neighbor_gpu import DevicePassSample
    from graphbox.table.table import EmbeddingTable

_PASS_BATCHES = 256


def device_of_batches(graph: DeviceGraph | None, device: torch.device | str | None) -> torch.device | None:
    """Return where batches are to be; None: in host memory.

    Args:
        graph: what is sampled, if it is on a device.
        device: as users give it.

    Raises:
        UsageError: another device than the graph's, or none.
        BackendMissingError: it is not there.
    """
    if device is None:
        return None if graph is None else graph.device
    chosen = chosen_device(str(device))
    if graph is not None and chosen != graph.device:
        raise UsageError(f"expected {graph.device}, where the graph is, received {chosen}", where="device")
    return None if graph is None and chosen.type == "cpu" else chosen


def check_device_options(graph: DeviceGraph, tables: Mapping[str, EmbeddingTable]) -> None:
    """Check that loaders on a device know what is asked for.

    Raises:
        UnsupportedError: rows of tables are on SSD, and to be read ahead of batches.
    """
    if graph.tiered is None and RowsAhead(tables).is_needed:
        raise UnsupportedError(
            "loaders on a device read no rows of tables ahead, unless the graph is in tiers",
            where="tables",
            hint="give the loader the graph itself, and the device as device=: batches are copied there",
        )


def hold_lists(graph: DeviceGraph, neighbors: Neighborhood, *, has_times: bool) -> None:
    """Bring the lists that are sampled to where they are read, before features take what they leave.

    Args:
        graph: what is sampled.
        neighbors: which.
        has_times: seeds have times.

    Raises:
        UsageError: an unknown edge type, no weights, or no times.
        UnsupportedError: lists on disk are to be sampled otherwise than uniformly, or up to times.
    """
    hops, options = hops_by_edge_type(graph, neighbors.num_neighbors), neighbors.options
    by_weight = device_weighted_types(graph, hops, options)
    node_time = neighbors.node_time
    timed = timed_types(graph, hops, node_time) if has_times else []
    by_alias = [each for each in hops if each in by_weight and each not in timed]
    check_tiers(graph, hops, by_alias, disjoint=options.disjoint or has_times, times=has_times)
    graph.hold([(each, "in") for each in hops], [(each, "in") for each in by_alias])
    for each in timed:
        of_sources = None if node_time is None else node_time[each[0]]
        graph.times(each, "in", of_sources, weighted=each in by_weight)


def device_fetch(graph: DeviceGraph, features: FeatureNames) -> FetchStage:
    """Return what fetches features on the device of ``graph``."""
    from graphbox.sample.device_features import DeviceFeatures  # which knows features by this package

    return DeviceFeatures(graph.graph, graph.device, features)


class DevicePassSampler:
    """Samples passes of batches over a graph in tiers, on its device.

    Which lists are where is chosen anew after 1, 2, 4, ... batches, then always after 256 or more.

    Args:
        graph: of a graph in tiers.
        neighbors: which.
    """

    def __init__(self, graph: DeviceGraph, neighbors: Neighborhood) -> None:
        self._graph = graph
        self._neighbors = neighbors
        self._hops = hops_by_edge_type(graph, neighbors.num_neighbors)
        self._stream: torch.cuda.Stream | None = None
        self._made = 0
        self._due = 1  # at first all lists are on disk

    def sample(self, requests: Sequence[SampleRequest]) -> DevicePassSample:
        """Return the samples of a pass; the host has waited for them. One thread at a time.

        Raises:
            UnsupportedError: edges are excluded of lists that are on disk.
            UsageError: a seed that is no node of the graph.
            DataError: the graph is damaged, or the disk does not give its bytes.
        """
        from graphbox.sample.tiered_neighbor_gpu import DevicePassSample  # Triton, where it is used

        with self._on_own_stream() as stream:
            samples = self._sample(requests)
            if stream is not None:
                stream.synchronize()
            sampled = DevicePassSample(samples)
            self._made += len(samples)
            if self._made >= self._due:
                self._graph.end_pass()
                self._made, self._due = 0, min(2 * self._due, _PASS_BATCHES)
        return sampled

    def _sample(self, requests: Sequence[SampleRequest]) -> list[HeteroSample[torch.Tensor]]:
        from graphbox.sample.tiered_neighbor_gpu import sample_disk_lists

        options, graph = self._neighbors.options, self._graph
        by_weight = device_weighted_types(graph, self._hops, options)
        lists = graph.disk_lists(list(self._hops), by_weight)
        if lists is not None and not any(request.excluded_edges for request in requests):
            return sample_disk_lists(
                graph,
                lists,
                [request.seeds for request in requests],
                self._hops,
                replace=options.replace,
                keys=[(options.seed, request.epoch, request.batch) for request in requests],
                edge_attributes=options.edge_attributes,
            )
        on_disk = {name: graph.values_on_disk(self._hops, name) for name in options.edge_attributes}
        near = [name for name, lists in on_disk.items() if not lists]
        neighbors = replace(self._neighbors, options=replace(options, edge_attributes=near))
        sampler = MemorySampler(graph, neighbors, 1)
        samples: list[HeteroSample[Any]] = list(sampler.sample(requests))
        for name, having in on_disk.items():
            values = {
                each: found.values(name, [sample.edge_ids[each] for sample in samples])
                for each, found in having.items()
            }
            for number, sample in enumerate(samples):
                if having:
                    own: Any = {name: {each: parts[number] for each, parts in values.items()}}
                    samples[number] = replace(sample, **own)
        return samples

    @contextmanager
    def _on_own_stream(self) -> Iterator[torch.cuda.Stream | None]:
        if self._graph.device.type != "cuda":
            yield None
            return
        import torch

        if self._stream is None:  # it stays: samplers keep memory for each that they were used on
            self._stream = torch.cuda.Stream(self._graph.device)  # type: ignore[no-untyped-call]
        with torch.cuda.stream(self._stream):
            yield self._stream


class DevicePass:
    """Ends passes of batches: then the device's memory gets what batches read.

    Args:
        ended: what has passes: graphs, and what fetches features, if it does.
        pass_batches: batches in a pass; None: 256. The last batch of an epoch ends one, too.
    """

    def __init__(self, ended: Sequence[object], pass_batches: int | None) -> None:
        self._ends = [getattr(each, "end_pass") for each in ended if hasattr(each, "end_pass")]  # noqa: B009
        self._batches = (
            _PASS_BATCHES if pass_batches is None else positive_integer(pass_batches, "pass_batches")
        )
        self._made = 0
        self._lock = threading.Lock()

    def count(self, batches: int, *, is_last: bool) -> None:
        """Count batches that were made, and end the pass if it has all of its."""
        with self._lock:
            self._made += batches
            if self._made < self._batches and not is_last:
                return
            self._made = 0
        for end_pass in self._ends:
            end_pass()

"""Stages of loaders whose batches are made on a device."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from graphbox.device import chosen_device
from graphbox.errors import UnsupportedError, UsageError
from graphbox.sample.device import DeviceGraph
from graphbox.sample.loader.arguments import positive_integer
from graphbox.sample.loader.features import FeatureNames
from graphbox.sample.loader.stages import FetchStage
from graphbox.sample.sampling_plan import SampleRequest
from graphbox.table.rows_ahead import RowsAhead

if TYPE_CHECKING:
    import torch

    from graphbox.sample.device_neighbor import DeviceSampler
    from graphbox.sample.tiered_neighbor_gpu import DevicePassSample
    from graphbox.table.protocol import Table

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


def check_device_options(graph: DeviceGraph, tables: Mapping[str, Table]) -> None:
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


def device_fetch(graph: DeviceGraph, features: FeatureNames) -> FetchStage:
    """Return what fetches features on the device of ``graph``."""
    from graphbox.sample.device_features import DeviceFeatures  # which knows features by this package

    return DeviceFeatures(graph.graph, graph.device, features)


class DevicePassSampler:
    """Samples passes of batches over a graph in tiers, on its device.

    Which lists are where is chosen anew after 1, 2, 4, ... batches, then always after 256 or more.

    Args:
        sampler: of the graph.
    """

    def __init__(self, sampler: DeviceSampler) -> None:
        self._graph = sampler.graph
        self._sampler = sampler
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
            samples = self._sampler.sample(requests)
            if stream is not None:
                stream.synchronize()
            sampled = DevicePassSample(samples)
            self._made += len(samples)
            if self._made >= self._due:
                self._graph.end_pass()
                self._made, self._due = 0, min(2 * self._due, _PASS_BATCHES)
        return sampled

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

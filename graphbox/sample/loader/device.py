"""What loaders do otherwise where batches are made on a device."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import TYPE_CHECKING

from graphbox.device import chosen_device
from graphbox.errors import UnsupportedError, UsageError
from graphbox.sample.device import DeviceGraph
from graphbox.sample.drawing import weighted_types
from graphbox.sample.loader.arguments import positive_integer
from graphbox.sample.loader.features import FeatureNames
from graphbox.sample.loader.stages import FetchStage, NeighborOptions
from graphbox.sample.neighbor import hops_by_edge_type
from graphbox.table.rows_ahead import RowsAhead

if TYPE_CHECKING:
    import torch

    from graphbox.table.table import EmbeddingTable

__all__ = ["DevicePass", "check_device_options", "device_fetch", "device_of_batches", "hold_lists"]

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


def check_device_options(
    options: NeighborOptions, tables: Mapping[str, EmbeddingTable], *, has_times: bool
) -> None:
    """Check that samplers on a device know what is asked for.

    Raises:
        UnsupportedError: they do not.
    """
    unknown = {
        "labor": options.labor,
        "disjoint": options.disjoint,
        "time_attr": has_times or options.node_times is not None,
        "tables": RowsAhead(tables).is_needed,
    }
    for name, is_asked_for in unknown.items():
        if is_asked_for:
            raise UnsupportedError(
                f"samplers on a device know no {name}",
                where=name,
                hint="give the loader the graph itself, and the device as device=: batches are copied there",
            )


def hold_lists(graph: DeviceGraph, options: NeighborOptions) -> None:
    """Bring the lists that are sampled to where they are read, before features take what they leave.

    Raises:
        UsageError: an unknown edge type, or no weights.
    """
    hops = hops_by_edge_type(graph, options.num_neighbors)
    by_weight = weighted_types(options.weighted, hops)
    graph.hold([(each, "in") for each in hops], [(each, "in") for each in hops if each in by_weight])


def device_fetch(graph: DeviceGraph, features: FeatureNames) -> FetchStage:
    """Return what fetches features on the device of ``graph``."""
    from graphbox.sample.device_features import DeviceFeatures  # which knows features by this package

    return DeviceFeatures(graph.graph, graph.device, features)


class DevicePass:
    """Ends passes of batches: then the device's memory gets what batches read.

    Args:
        graph: what is sampled.
        fetch: what fetches features.
        pass_batches: batches in a pass; None: 256. The last batch of an epoch ends one, too.
    """

    def __init__(self, graph: DeviceGraph, fetch: FetchStage, pass_batches: int | None) -> None:
        self._graph = graph
        self._fetch = fetch
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
        self._graph.end_pass()
        end_pass = getattr(self._fetch, "end_pass", None)
        if end_pass is not None:
            end_pass()

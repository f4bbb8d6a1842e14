"""Features of nodes where a device reads them, for loaders over a graph on a device."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy.typing as npt

from graphbox.errors import UsageError
from graphbox.sample.adjacency import GraphLike
from graphbox.sample.device_arrays import DeviceArrays, Misses, RowBlocks
from graphbox.sample.loader.features import FeatureNames, feature_arrays, feature_names
from graphbox.sample.pinned import as_tensor
from graphbox.sample.resident_lists import ResidentStatistics

if TYPE_CHECKING:
    import torch

    from graphbox.bandwidth import Bandwidths
    from graphbox.sample.sampled import HeteroSample


class DeviceFeatures:
    """Fetches rows of features to a device, for loaders over a :class:`graphbox.sample.DeviceGraph`.

    Where rows are is as :class:`graphbox.sample.device_arrays.DeviceArrays` says: what fits ``hbm_bytes`` is
    in the device's memory as a whole, and of what does not, rows by measured use are.

    Args:
        graph: has the features: :class:`graphbox.graph.Graph`, or one with its faces. Arrays are copied to
            where they are read; later changes do not show.
        device: where rows are wanted.
        features: names by node type, a sequence where there is one type, None for all but slots.
        hbm_bytes: the most memory of the device for rows and what is known about them; None: three quarters
            of what is free, and any number on the CPU.
        misses: how rows come that are not on the device: ``read`` by the device itself, or ``copy``, gathered
            by the host for one copy, for which it must wait. None: what takes less time by ``bandwidths``.
        bandwidths: of the device; None: as if it read all rows from pinned memory faster than a host gathers
            them, and sectors half as fast as long rows.
        num_threads: of the host's gathering.

    Raises:
        BackendMissingError: Triton or the device is not there.
        NotFoundError: there is no such feature.
        UnsupportedError: slots, whose lists differ in length.
        UsageError: another wrong argument.
    """

    def __init__(
        self,
        graph: GraphLike,
        device: torch.device | str = "cuda",
        features: FeatureNames = None,
        *,
        hbm_bytes: int | None = None,
        misses: Misses | None = None,
        bandwidths: Bandwidths | None = None,
        num_threads: int | None = None,
    ) -> None:
        found = feature_arrays(graph, feature_names(graph, features))
        self._is_categorical = {key: each.is_categorical for key, each in found.items()}
        self._num_nodes = {each: graph.num_nodes(each) for each in graph.node_types}
        self._arrays = DeviceArrays(
            {key: RowBlocks.of(as_tensor(each.values)) for key, each in found.items()},
            device,
            hbm_bytes=hbm_bytes,
            misses=misses,
            bandwidths=bandwidths,
            threads=num_threads,
        )
        self.device = self._arrays.device

    def fetch(self, samples: Sequence[HeteroSample[Any]]) -> list[dict[str, dict[str, torch.Tensor]]]:
        """Return the rows of each sample's nodes by node type and name."""
        found = []
        for sample in samples:
            rows: dict[str, dict[str, torch.Tensor]] = {}
            for node_type, name in self._is_categorical:
                rows.setdefault(node_type, {})[name] = self._read(node_type, name, sample.nodes[node_type])
            found.append(rows)
        return found

    def rows(self, node_type: str, name: str, nodes: torch.Tensor | npt.ArrayLike) -> torch.Tensor:
        """Return rows of a feature [n, ...] on the device.

        Args:
            node_type: the node type.
            name: of the feature.
            nodes: node indices [n], integers, repeated ones too.

        Raises:
            UsageError: no such feature is held, or no such node.
        """
        from graphbox.sample.node_tensor import node_tensor

        if (node_type, name) not in self._is_categorical:
            held = ", ".join(f"`{each[1]}` of `{each[0]}`" for each in self._is_categorical)
            raise UsageError(f"expected one of {held or 'no features'}, received `{name}` of `{node_type}`")
        return self._read(
            node_type, name, node_tensor(nodes, self._num_nodes[node_type], self.device, "nodes")
        )

    def end_pass(self) -> ResidentStatistics:
        """Choose anew which rows are resident, by how often each was read; what is fetched does not change.

        Rows that stay are not read again. It waits for all kernels of the device, and readers wait for it.
        """
        return self._arrays.end_pass()

    @property
    def statistics(self) -> ResidentStatistics:
        """Number of resident rows, and how often reads hit them."""
        return self._arrays.statistics

    @property
    def device_bytes(self) -> int:
        """Bytes on the device."""
        return self._arrays.device_bytes

    @property
    def pinned_bytes(self) -> int:
        """Bytes in pinned host memory."""
        return self._arrays.pinned_bytes

    def _read(self, node_type: str, name: str, nodes: torch.Tensor) -> torch.Tensor:
        import torch

        values = self._arrays.rows((node_type, name), nodes)
        return values.to(torch.int64) if self._is_categorical[node_type, name] else values

"""Where skip-gram's walks come from on a device: kernels that walk, or the ends of edges as they are."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

import torch

from graphbox.sample import DeviceGraph
from graphbox.sample.adjacency import Adjacency, EdgeType
from graphbox.sample.device_walk import plan_device_walk
from graphbox.sample.walk_plan import WalkOptions

if TYPE_CHECKING:
    from torch import Tensor

    from graphbox.sample.walk_gpu import DeviceWalker, WalkerDraws

_EDGE: EdgeType = ("node", "to", "node")


class OneTypeLists:
    """A graph taken for one type, as samplers take graphs.

    Args:
        neighbors: of each node, both ways.
        num_nodes: number of nodes.
    """

    def __init__(self, neighbors: Adjacency, num_nodes: int) -> None:
        self._neighbors, self._num_nodes = neighbors, num_nodes
        self.node_types: Sequence[str] = (_EDGE[0],)
        self.edge_types: Sequence[EdgeType] = (_EDGE,)

    def num_nodes(self, node_type: str) -> int:  # noqa: ARG002 - there is one
        """Return the number of nodes."""
        return self._num_nodes

    def csc(self, edge_type: EdgeType) -> Adjacency:  # noqa: ARG002 - there is one
        """Return the neighbours of each node."""
        return self._neighbors

    def csr(self, edge_type: EdgeType) -> Adjacency:  # noqa: ARG002 - there is one
        """Return the neighbours of each node."""
        return self._neighbors


class DeviceWalks(Protocol):
    """Generator of walks on a device.

    Attributes:
        width: nodes of a walk.
    """

    width: int

    @property
    def lists_in(self) -> str | None:
        """Where neighbours are that are not on the device, in words; None: all are."""
        ...

    def begin_epoch(self) -> None:
        """Choose anew which neighbours are on the device, where not all are."""
        ...

    def walk(
        self, start: Tensor, second: Tensor | None, path_of: Tensor | None, draws: WalkerDraws
    ) -> Tensor:
        """Walk from each start: int64 [n, width], -1 after a dead end. The host waits for nothing."""
        ...


class WalksOnDevice:
    """Walks by kernels; see :class:`DeviceWalks`.

    Args:
        graph: where to walk.
        length: steps of a walk.
        options: how walkers choose their steps.
    """

    def __init__(self, graph: DeviceGraph, length: int, options: WalkOptions | None = None) -> None:
        self._graph, self._length, self._options = graph, length, options or WalkOptions()
        self._walker = self._planned()
        self.width = length + 1

    @property
    def lists_in(self) -> str | None:
        """See :class:`DeviceWalks`."""
        pinned_bytes = self._graph.pinned_bytes
        if not pinned_bytes:
            return None
        return f"pinned host memory, {pinned_bytes:,} bytes, and {self._graph.device_bytes:,} on the device"

    def begin_epoch(self) -> None:
        """See :class:`DeviceWalks`."""
        if self._graph.pinned_bytes:
            self._graph.end_pass()
            self._walker = self._planned()

    def walk(
        self,
        start: Tensor,
        second: Tensor | None,  # noqa: ARG002 - walkers choose
        path_of: Tensor | None,
        draws: WalkerDraws,
    ) -> Tensor:
        """See :class:`DeviceWalks`."""
        with self._graph.reading():
            return self._walker.walk(start, path_of, draws)

    def _planned(self) -> DeviceWalker:
        from graphbox.sample.walk_gpu import DeviceWalker  # Triton, where it is used

        walk, _ = plan_device_walk(self._graph, self._length, self._options)
        return DeviceWalker(walk, self._graph.device)


class EdgesOnDevice:
    """Walks of one step whose both nodes are known; see :class:`DeviceWalks`."""

    width = 2
    lists_in = None

    def begin_epoch(self) -> None:
        """See :class:`DeviceWalks`."""

    def walk(
        self,
        start: Tensor,
        second: Tensor | None,
        path_of: Tensor | None,  # noqa: ARG002 - there is one
        draws: WalkerDraws,  # noqa: ARG002 - nothing is drawn
    ) -> Tensor:
        """See :class:`DeviceWalks`."""
        if second is None:
            raise RuntimeError("edges have two ends")
        return torch.stack([start, second], dim=1)

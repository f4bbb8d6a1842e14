"""Where skip-gram's walks come from on a device: kernels that walk, or the ends of edges as they are."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal, Protocol

import torch

from graphbox.sample import DeviceGraph
from graphbox.sample.adjacency import Adjacency, EdgeType
from graphbox.sample.device_walk import plan_device_walk

if TYPE_CHECKING:
    from torch import Tensor

    from graphbox.sample.walk_gpu import WalkerDraws

__all__ = ["DeviceWalks", "EdgesOnDevice", "OneTypeLists", "WalksOnDevice", "place_of_lists"]

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
    """What makes walks on a device.

    Attributes:
        width: nodes of a walk.
        lists_in: where neighbours are, if not on the device: in words.
    """

    width: int
    lists_in: str | None

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
        p: node2vec's return parameter.
        q: node2vec's in-out parameter.
        metapaths: edge types of the steps of each; ``[None]``: the only edge type.
        weighted: take edges in proportion to their weights.
    """

    def __init__(
        self,
        graph: DeviceGraph,
        length: int,
        *,
        p: float = 1.0,
        q: float = 1.0,
        metapaths: Sequence[Sequence[EdgeType] | None] = (None,),
        weighted: bool = False,
    ) -> None:
        from graphbox.sample.walk_gpu import DeviceWalker  # Triton, where it is used

        walk, _ = plan_device_walk(graph, length, p, q, metapaths, weighted)
        self._graph = graph  # whose lists the kernels read
        self._walker = DeviceWalker(walk, graph.device)
        self.width = length + 1
        pinned_bytes = graph.pinned_bytes
        self.lists_in = f"pinned host memory, {pinned_bytes:,} bytes" if pinned_bytes else None

    def walk(
        self,
        start: Tensor,
        second: Tensor | None,  # noqa: ARG002 - walkers choose
        path_of: Tensor | None,
        draws: WalkerDraws,
    ) -> Tensor:
        """See :class:`DeviceWalks`."""
        return self._walker.walk(start, path_of, draws)


class EdgesOnDevice:
    """Walks of one step whose both nodes are known; see :class:`DeviceWalks`."""

    width = 2
    lists_in: str | None = None

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


def place_of_lists(
    needed: int, device: torch.device, topology_bytes: int | None
) -> Literal["device", "pinned"]:
    """Return where neighbours go: to the device where there is room, else to pinned host memory.

    Args:
        needed: bytes that neighbours and their weights take.
        device: where walks are made.
        topology_bytes: the most they may take there; None: half of what is free.
    """
    if topology_bytes is None:
        if device.type != "cuda":
            return "device"
        topology_bytes = torch.cuda.mem_get_info(device)[0] // 2
    return "device" if needed <= topology_bytes else "pinned"

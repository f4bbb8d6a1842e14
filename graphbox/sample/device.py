"""Graphs in the memory of a device, or in host memory that it reads, for samplers that run on it."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, cast

import numpy as np

from graphbox.device import check_device
from graphbox.errors import DataError, UsageError
from graphbox.native import Int64Array, integer_array, thread_count
from graphbox.sample.adjacency import (
    Adjacency,
    Direction,
    EdgeColumn,
    EdgeType,
    GraphLike,
    as_arrays,
    edge_column,
    edge_type_name,
)
from graphbox.sample.derived import weights_of
from graphbox.sample.list_order import most_parallel_edges

if TYPE_CHECKING:
    import torch

__all__ = ["DeviceAdjacency", "DeviceGraph", "DeviceWeights", "node_tensor"]

_LARGEST_DEGREE = 2**31 - 1
_PLACES = frozenset({"device", "pinned"})


@dataclass(frozen=True, slots=True)
class DeviceAdjacency:
    """Compressed rows where kernels read them; see :class:`graphbox.sample.adjacency.Adjacency`.

    Attributes:
        indptr: int64 [rows + 1], on the device.
        indices: int32 or int64 [edges], on the device or in pinned host memory.
    """

    indptr: torch.Tensor
    indices: torch.Tensor


@dataclass(frozen=True, slots=True)
class DeviceWeights:
    """What weighted draws among the edges of a :class:`DeviceAdjacency` need, in the places of its edges.

    Attributes:
        alias_tables: int32 [edges, 2], bits of thresholds and aliases: see ``csrc/sample/alias.h``.
        weight: float32 [edges].
    """

    alias_tables: torch.Tensor
    weight: torch.Tensor


class DeviceGraph:
    """A graph whose lists are read by kernels: each is brought to the device when it is first asked for.

    Samplers take it in the place of the graph, and seeds on its device; the samples are the same, bit for
    bit, and stay there.

    Args:
        graph: a graph in host memory, as it is now: later changes do not show.
        device: where kernels run.
        indices_in: where neighbours and weights are: ``device``, or ``pinned`` host memory that the device
            reads by itself, for graphs that do not fit it. Where rows begin is on the device either way.
        threads: for tables of weights.

    Raises:
        BackendMissingError: Triton or the device is not there.
    """

    def __init__(
        self,
        graph: GraphLike,
        device: torch.device | str = "cuda",
        *,
        indices_in: Literal["device", "pinned"] = "device",
        threads: int | None = None,
    ) -> None:
        import torch

        if str(indices_in) not in _PLACES:
            raise UsageError(f"expected device or pinned, received {indices_in!r}", where="indices_in")
        self.device = torch.device(device)
        check_device(self.device)
        if str(self.device) == "cuda":
            self.device = torch.device("cuda", torch.cuda.current_device())
        self._graph = graph
        self._is_pinned = indices_in == "pinned"
        self._threads = threads
        self._lists: dict[tuple[EdgeType, Direction], DeviceAdjacency] = {}
        self._weights: dict[tuple[EdgeType, Direction], DeviceWeights] = {}

    @property
    def node_types(self) -> Sequence[str]:
        """All node types."""
        return self._graph.node_types

    @property
    def edge_types(self) -> Sequence[EdgeType]:
        """All edge types."""
        return self._graph.edge_types

    def num_nodes(self, node_type: str) -> int:
        """Return the number of nodes of a type."""
        return self._graph.num_nodes(node_type)

    def csc(self, edge_type: EdgeType) -> DeviceAdjacency:
        """Return the in-neighbours of the target type.

        Raises:
            DataError: the adjacency is damaged.
        """
        return self._lists_of(edge_type, "in")

    def csr(self, edge_type: EdgeType) -> DeviceAdjacency:
        """Return the out-neighbours of the source type.

        Raises:
            DataError: the adjacency is damaged.
        """
        return self._lists_of(edge_type, "out")

    def weights(self, edge_type: EdgeType, direction: Direction) -> DeviceWeights:
        """Return what weighted draws among the edges of :meth:`csc` (``in``) or :meth:`csr` (``out``) need.

        Raises:
            UsageError: the edges have no weights.
            DataError: a weight is not a positive number.
        """
        key = (edge_type, direction)
        if key not in self._weights:
            name = edge_type_name(edge_type)
            adjacency = self._host_lists(edge_type, direction)
            tables = weights_of(adjacency, name, self._threads).base.entries
            column = cast(
                "EdgeColumn", edge_column(adjacency, "weight", name)
            )  # which the tables are made of
            self._weights[key] = DeviceWeights(self._placed(tables.view(np.int32)), self._placed(column.base))
        return self._weights[key]

    def most_parallel(self, edge_type: EdgeType, direction: Direction) -> int:
        """Return the most edges between two nodes.

        Raises:
            UsageError: the neighbours of a node do not ascend.
        """
        adjacency, name = self._host_lists(edge_type, direction), edge_type_name(edge_type)
        return most_parallel_edges(adjacency, as_arrays(adjacency, name), name, thread_count(self._threads))

    @property
    def device_bytes(self) -> int:
        """Bytes that lists and weights take on the device."""
        return sum(tensor.nbytes for tensor in self._tensors() if tensor.device == self.device)

    @property
    def pinned_bytes(self) -> int:
        """Bytes that lists and weights take in pinned host memory."""
        return sum(tensor.nbytes for tensor in self._tensors() if tensor.device != self.device)

    def _tensors(self) -> list[torch.Tensor]:
        lists = [tensor for each in self._lists.values() for tensor in (each.indptr, each.indices)]
        return lists + [
            tensor for each in self._weights.values() for tensor in (each.alias_tables, each.weight)
        ]

    def _host_lists(self, edge_type: EdgeType, direction: Direction) -> Adjacency:
        return self._graph.csc(edge_type) if direction == "in" else self._graph.csr(edge_type)

    def _lists_of(self, edge_type: EdgeType, direction: Direction) -> DeviceAdjacency:
        key = (edge_type, direction)
        if key not in self._lists:
            adjacency = self._host_lists(edge_type, direction)
            name = edge_type_name(edge_type)
            indptr, indices, _ = as_arrays(adjacency, name)
            num_columns = self.num_nodes(edge_type[0] if direction == "in" else edge_type[2])
            _check_lists(indptr, indices, num_columns, name)
            self._lists[key] = DeviceAdjacency(_as_tensor(indptr).to(self.device), self._placed(indices))
        return self._lists[key]

    def _placed(self, array: np.ndarray[Any, Any]) -> torch.Tensor:
        tensor = _as_tensor(array)
        if self._is_pinned and self.device.type == "cuda":
            return tensor.pin_memory()
        return tensor.to(self.device)


def _as_tensor(array: np.ndarray[Any, Any]) -> torch.Tensor:
    """Return a tensor of the same memory. It is only read: what is mapped from a file cannot be written."""
    import torch

    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "The given NumPy array is not writable", UserWarning)
        return torch.from_numpy(array)


def _check_lists(indptr: Int64Array, indices: np.ndarray[Any, Any], num_columns: int, name: str) -> None:
    """Kernels read what they are led to, so nothing may lead them astray."""
    if len(indptr) == 0 or indptr[0] != 0 or indptr[-1] != len(indices) or np.any(indptr[1:] < indptr[:-1]):
        raise DataError(
            f"expected indptr to rise from 0 to the number of edges, {len(indices)}",
            where=name,
            hint="the graph is damaged: import it again",
        )
    if len(indices) > _LARGEST_DEGREE:
        degrees = np.diff(indptr)
        if degrees.max() > _LARGEST_DEGREE:
            raise DataError(
                f"expected at most {_LARGEST_DEGREE} neighbours of a node on a device, found {degrees.max()}",
                where=f"{name}, node {degrees.argmax()}",
            )
    if len(indices) and (indices.min() < 0 or indices.max() >= num_columns):
        raise DataError(
            f"expected neighbours from 0 to {num_columns - 1}, found {indices.min()} to {indices.max()}",
            where=name,
            hint="the graph is damaged: import it again",
        )


def node_tensor(nodes: object, num_nodes: int, device: torch.device, name: str) -> torch.Tensor:
    """Return node indices as a contiguous int64 tensor on ``device``.

    Raises:
        UsageError: no integers of one dimension, or one that is no node.
    """
    import torch

    if isinstance(nodes, torch.Tensor):
        tensor = nodes
        if tensor.dtype not in (torch.int64, torch.int32) or tensor.ndim != 1:
            raise UsageError(
                f"expected int64 or int32 with one dimension, received {tensor.dtype} {tuple(tensor.shape)}",
                where=name,
            )
        tensor = tensor.to(device, torch.int64).contiguous()
    else:
        tensor = torch.from_numpy(integer_array(nodes, name)).to(device)
    if len(tensor):
        least, most = torch.stack(torch.aminmax(tensor)).tolist()
        if least < 0 or most >= num_nodes:
            raise UsageError(
                f"expected node indices from 0 to {num_nodes - 1}, received {least if least < 0 else most}",
                where=name,
            )
    return tensor

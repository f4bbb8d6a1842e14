"""Graphs in the memory of a device, or in host memory that it reads, for samplers that run on it."""

from __future__ import annotations

import threading
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, cast

import numpy as np

from graphbox.device import check_device, on_device
from graphbox.errors import DataError, DoesNotFitError, UnsupportedError, UsageError
from graphbox.native import Int64Array, integer_array, thread_count
from graphbox.sample.adjacency import (
    Adjacency,
    Arrays,
    Direction,
    EdgeColumn,
    EdgeColumnName,
    EdgeType,
    GraphLike,
    as_arrays,
    edge_column,
    edge_type_name,
    is_tiered,
)
from graphbox.sample.derived import no_column, weights_of
from graphbox.sample.list_order import most_parallel_edges
from graphbox.sample.pass_gate import PassGate
from graphbox.sample.pinned import as_tensor, pinned_copy, to_device
from graphbox.sample.resident_lists import (
    ListColumn,
    ResidentLists,
    Residents,
    ResidentStatistics,
    sectors_of_byte,
)
from graphbox.words import counted_bytes

if TYPE_CHECKING:
    import torch

    from graphbox.bandwidth import Bandwidths

__all__ = ["DeviceAdjacency", "DeviceGraph", "DeviceWeights", "node_tensor"]

ListKey = tuple[EdgeType, Direction]

DEFAULT_RELABEL_BYTES = 1 << 30
_LARGEST_DEGREE = 2**31 - 1
_UNBOUNDED_BYTES = 2**63
_SHARE_OF_FREE = 0.75
_LIST_BYTES = 256  # a usual list
_PLACES = (None, "device", "pinned")


@dataclass(frozen=True, slots=True)
class DeviceAdjacency:
    """Compressed rows where kernels read them; see :class:`graphbox.sample.adjacency.Adjacency`.

    Attributes:
        indptr: int64 [rows + 1], on the device or in pinned host memory.
        indices: int32 or int64 [edges], on the device or in pinned host memory.
        residents: lists that are on the device as well, while ``indices`` are not; None: there can be none.
        uses: int32 [rows], on the device, where kernels count the sectors they read of each list; None:
            nobody wants to know.
    """

    indptr: torch.Tensor
    indices: torch.Tensor
    residents: Residents | None = None
    uses: torch.Tensor | None = None


@dataclass(frozen=True, slots=True)
class DeviceWeights:
    """What weighted draws among the edges of a :class:`DeviceAdjacency` need, in the places of its edges.

    Attributes:
        alias_tables: int32 [edges, 2], bits of thresholds and aliases: see ``csrc/sample/alias.h``.
        weight: float32 [edges].
        alias_residents: lists of ``alias_tables`` that are on the device as well; ``places`` count pairs.
        weight_residents: lists of ``weight`` that are.
    """

    alias_tables: torch.Tensor
    weight: torch.Tensor
    alias_residents: Residents | None = None
    weight_residents: Residents | None = None


@dataclass(frozen=True, slots=True)
class _HeldColumn:
    """A column of edges: the whole of it, and what says which lists of it are resident, if they can be."""

    values: torch.Tensor
    tiered: ListColumn | None


@dataclass(slots=True)
class _HeldLists:
    """The lists of an edge type in a direction."""

    host: Adjacency
    name: str
    indptr: torch.Tensor
    is_indptr_near: bool
    indices: _HeldColumn = field(init=False)
    uses: torch.Tensor | None = None
    alias_tables: _HeldColumn | None = None
    weight: _HeldColumn | None = None


class DeviceGraph:
    """A graph whose lists are read by kernels: each is brought to where they are when it is first asked for.

    Samplers take it in the place of the graph, and seeds on its device; the samples are the same, bit for
    bit, wherever lists are, and stay on the device.

    What fits ``hbm_bytes`` is in the device's memory as a whole. Of what does not, the offsets are, and lists
    of nodes by measured use: kernels count what they read of each, and :meth:`end_pass` chooses anew what is
    resident; the rest they read from pinned host memory by themselves. Where not even the offsets fit, all is
    in pinned memory. Arrays are copied there: their pages in the page cache can go.

    Args:
        graph: a graph in host memory, as it is now: later changes do not show.
        device: where kernels run.
        hbm_bytes: the most memory of the device for lists, weights and what is known about them; None: three
            quarters of what is free when the first lists are asked for, and any number on the CPU. Samples,
            and what gives nodes their positions in them, are beside it.
        indices_in: where neighbours and weights are, whatever their use: ``device``, or ``pinned``, with the
            offsets on the device either way. None: as said above.
        relabel_bytes: the most memory of the device for finding the positions of nodes of a type in a sample
            by an array over all nodes of it, 8 bytes each; larger types have a hash table.
        bandwidths: of the device, which say how often a list must have been read so that bringing it to the
            device pays; None: as if pinned memory gave sectors half as fast as long rows.
        threads: for tables of weights.

    Raises:
        BackendMissingError: Triton or the device is not there.
        UnsupportedError: the graph is read in tiers.
        UsageError: another wrong argument.
    """

    def __init__(
        self,
        graph: GraphLike,
        device: torch.device | str = "cuda",
        *,
        hbm_bytes: int | None = None,
        indices_in: Literal["device", "pinned"] | None = None,
        relabel_bytes: int = DEFAULT_RELABEL_BYTES,
        bandwidths: Bandwidths | None = None,
        threads: int | None = None,
    ) -> None:
        import torch

        _check_graph(graph)
        if indices_in not in _PLACES:
            raise UsageError(f"expected device or pinned, received {indices_in!r}", where="indices_in")
        for name, value in (("hbm_bytes", hbm_bytes), ("relabel_bytes", relabel_bytes)):
            if value is not None and value < 0:
                raise UsageError(f"expected 0 bytes or more, received {value}", where=name)
        self.device = torch.device(device)
        check_device(self.device)
        if str(self.device) == "cuda":
            self.device = torch.device("cuda", torch.cuda.current_device())
        self.relabel_bytes = relabel_bytes
        self._graph = graph
        self._hbm_bytes = hbm_bytes
        self._indices_in = indices_in
        self._threads = threads
        self._held: dict[ListKey, _HeldLists] = {}
        self._values: dict[tuple[ListKey, EdgeColumnName], torch.Tensor] = {}
        self._columns: list[ListColumn] = []
        self._device_bytes = self._pinned_bytes = 0
        self._residents = ResidentLists(self.device, sectors_of_byte=sectors_of_byte(bandwidths, _LIST_BYTES))
        self._parallel: dict[ListKey, int] = {}
        self._lock = threading.RLock()
        self._gate = PassGate()

    @property
    def graph(self) -> GraphLike:
        """The graph in host memory."""
        return self._graph

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

    # What kernels read

    def csc(self, edge_type: EdgeType) -> DeviceAdjacency:
        """Return the in-neighbours of the target type.

        Raises:
            DataError: the adjacency is damaged.
            DoesNotFitError: they are to be on the device, which has no room for them.
        """
        return self._lists_of((edge_type, "in"))

    def csr(self, edge_type: EdgeType) -> DeviceAdjacency:
        """Return the out-neighbours of the source type.

        Raises:
            DataError: the adjacency is damaged.
            DoesNotFitError: they are to be on the device, which has no room for them.
        """
        return self._lists_of((edge_type, "out"))

    def weights(self, edge_type: EdgeType, direction: Direction) -> DeviceWeights:
        """Return what weighted draws among the edges of :meth:`csc` (``in``) or :meth:`csr` (``out``) need.

        Raises:
            UsageError: the edges have no weights.
            DataError: a weight is not a positive number.
            DoesNotFitError: they are to be on the device, which has no room for them.
        """
        key = (edge_type, direction)
        self.hold([key], [key])
        held = self._held[key]
        alias_tables, weight = cast("_HeldColumn", held.alias_tables), cast("_HeldColumn", held.weight)
        return DeviceWeights(
            alias_tables.values,
            weight.values,
            self._residents_of(alias_tables),
            self._residents_of(weight),
        )

    def edge_values(self, edge_type: EdgeType, direction: Direction, name: EdgeColumnName) -> torch.Tensor:
        """Return the weight or the timestamp of each edge, on the device or in pinned host memory.

        Raises:
            UsageError: the edges have none.
            DoesNotFitError: they are to be on the device, which has no room for them.
        """
        key = (edge_type, direction)
        self.hold([key])
        held = self._held[key]
        if name == "weight" and held.weight is not None:
            return held.weight.values
        with self._lock:
            if (key, name) not in self._values:
                column = edge_column(held.host, name, held.name)
                if column is None:
                    raise no_column(name, held.name)
                self._values[key, name] = self._whole(column.base, column.base.nbytes <= self._room)
                self._settle()
            return self._values[key, name]

    def has_values(self, edge_type: EdgeType, direction: Direction, name: EdgeColumnName) -> bool:
        """Return whether edges have a weight or a timestamp."""
        key = (edge_type, direction)
        self.hold([key])
        return edge_column(self._held[key].host, name, self._held[key].name) is not None

    def most_parallel(self, edge_type: EdgeType, direction: Direction) -> int:
        """Return the most edges between two nodes.

        Raises:
            UsageError: the neighbours of a node do not ascend.
        """
        key = (edge_type, direction)
        self.hold([key])
        if key not in self._parallel:
            host, name = self._held[key].host, self._held[key].name
            self._parallel[key] = most_parallel_edges(
                host, as_arrays(host, name), name, thread_count(self._threads)
            )
        return self._parallel[key]

    def hold(self, lists: Iterable[ListKey], weighted: Collection[ListKey] = ()) -> None:
        """Bring lists to where kernels read them; of those that come together all fit the device, or none.

        Args:
            lists: edge types and directions.
            weighted: those of which weights are wanted, too.

        Raises:
            UsageError: the edges have no weights.
            DataError: an adjacency is damaged, or a weight is not a positive number.
            DoesNotFitError: they are to be on the device, which has no room for them.
        """
        wanted = list(dict.fromkeys(lists))
        if all(self._has(key, weighted=key in weighted) for key in wanted):
            return  # without the lock, which who ends a pass has while it waits for readers
        with self._lock:
            new = [key for key in wanted if key not in self._held]
            unweighted = [
                key for key in wanted if key in weighted and (key in new or self._held[key].weight is None)
            ]
            hosts = {key: self._host_lists(key) for key in new}
            arrays = {key: as_arrays(host, edge_type_name(key[0])) for key, host in hosts.items()}
            needed = sum(each.indptr.nbytes + each.indices.nbytes for each in arrays.values())
            needed += sum(
                12 * (len(arrays[key].indices) if key in arrays else len(self._held[key].indices.values))
                for key in unweighted
            )
            if needed > self._room:
                self._empty_arena()  # which gets what is left when the pass ends
            fits = needed <= self._room
            brought: dict[ListKey, _HeldLists] = {}
            weights: dict[ListKey, tuple[_HeldColumn, _HeldColumn]] = {}
            try:
                for key, host in hosts.items():
                    brought[key] = self._bring_lists(key, host, arrays[key], fits=fits)
                for key in unweighted:
                    weights[key] = self._bring_weights(brought.get(key) or self._held[key], fits=fits)
            finally:  # others find them without the lock, so only when they are there
                self._settle()
                for key, columns in weights.items():
                    held = brought.get(key) or self._held[key]
                    held.alias_tables, held.weight = columns
                self._held.update(brought)

    @contextmanager
    def reading(self) -> Iterator[None]:
        """Keep lists where they are while kernels that read them are launched, with the device as current."""
        with self._gate.reading(), on_device(self.device):
            yield

    # Passes

    def end_pass(self) -> ResidentStatistics:
        """Choose anew which lists are resident, by what was read of each; samples do not change by it.

        Lists that stay are not read again. What was read in earlier passes counts half for each pass since.
        It waits for all kernels of the device, and samplers wait for it. Where everything fits the device, or
        nothing may be there, it does nothing. A :class:`graphbox.sample.walk_gpu.DeviceWalker` made before
        the first pass ended goes on reading from host memory: make another.
        """
        with self._lock:
            if not self._columns:
                return self._residents.statistics
            with self._gate.changing(), on_device(self.device):
                self._settle()
                self._residents.end_pass(self._columns, self._room + self._residents.held_bytes)
                self._settle()
            return self._residents.statistics

    @property
    def statistics(self) -> ResidentStatistics:
        """What is resident, and how often it was what was read."""
        return self._residents.statistics

    @property
    def device_bytes(self) -> int:
        """Bytes that lists, weights and what is known about them take on the device."""
        return self._residents.held_bytes + self._device_bytes

    @property
    def pinned_bytes(self) -> int:
        """Bytes that lists and weights take in pinned host memory."""
        return self._pinned_bytes

    # Where things go

    @property
    def _room(self) -> int:
        """Bytes of the budget that nothing takes."""
        import torch

        if self._hbm_bytes is None:
            self._hbm_bytes = _UNBOUNDED_BYTES
            if self.device.type == "cuda":
                self._hbm_bytes = int(_SHARE_OF_FREE * torch.cuda.mem_get_info(self.device)[0])
        return self._hbm_bytes - self.device_bytes

    def _has(self, key: ListKey, *, weighted: bool) -> bool:
        held = self._held.get(key)
        return held is not None and (not weighted or held.weight is not None)

    def _host_lists(self, key: ListKey) -> Adjacency:
        return self._graph.csc(key[0]) if key[1] == "in" else self._graph.csr(key[0])

    def _lists_of(self, key: ListKey) -> DeviceAdjacency:
        self.hold([key])
        held = self._held[key]
        return DeviceAdjacency(held.indptr, held.indices.values, self._residents_of(held.indices), held.uses)

    def _residents_of(self, column: _HeldColumn) -> Residents | None:
        if column.tiered is None:
            return None
        residents = self._residents.of(column.tiered)
        return Residents(residents.values.view(column.values.dtype), residents.places)

    def _bring_lists(self, key: ListKey, host: Adjacency, arrays: Arrays, *, fits: bool) -> _HeldLists:
        indptr, indices = arrays.indptr, arrays.indices
        name = edge_type_name(key[0])
        num_columns = self.num_nodes(key[0][0] if key[1] == "in" else key[0][2])
        _check_lists(indptr, indices, num_columns, name)
        known_bytes = 20 * len(indptr) if self._indices_in is None and not fits else indptr.nbytes
        is_near = fits or self._indices_in is not None or known_bytes <= self._room
        held = _HeldLists(host, name, self._whole(indptr, is_near), is_near)
        held.indices = self._column(held, indices, fits=fits, counts=True)
        return held

    def _bring_weights(self, held: _HeldLists, *, fits: bool) -> tuple[_HeldColumn, _HeldColumn]:
        tables = weights_of(held.host, held.name, self._threads).base.entries
        column = cast("EdgeColumn", edge_column(held.host, "weight", held.name))  # the tables are made of it
        alias_tables = self._column(held, tables.view(np.int32).reshape(-1, 2), fits=fits)
        return alias_tables, self._column(held, column.base, fits=fits)

    def _column(
        self, held: _HeldLists, array: np.ndarray[Any, Any], *, fits: bool, counts: bool = False
    ) -> _HeldColumn:
        """Bring a column whole, or have lists of it resident, if there is room for knowing about them."""
        import torch

        is_near = fits if self._indices_in is None else self._indices_in == "device"
        values = self._whole(array, is_near)
        rows = len(held.indptr) - 1
        known_bytes = 8 * rows + (0 if held.uses is not None else 4 * rows)
        can_be = self._indices_in is None and not is_near and held.is_indptr_near
        if not can_be or rows == 0 or known_bytes > self._room:
            return _HeldColumn(values, None)
        if held.uses is None:
            held.uses = torch.zeros(rows, dtype=torch.int32, device=self.device)
        one_each = values.view(torch.int64).squeeze(1) if values.ndim == 2 else values
        tiered = ListColumn(one_each, held.uses, held.indptr, counts=counts)
        self._device_bytes += known_bytes
        self._columns.append(tiered)
        return _HeldColumn(values, tiered)

    def _whole(self, array: np.ndarray[Any, Any], is_near: bool) -> torch.Tensor:
        """Return an array on the device, or in pinned host memory."""
        if not is_near:
            self._pinned_bytes += array.nbytes
            return pinned_copy(as_tensor(array), self.device)
        if array.nbytes > self._room:
            raise DoesNotFitError(
                f"expected {counted_bytes(array.nbytes)} for lists on {self.device}, there is room for "
                f"{counted_bytes(max(self._room, 0))}",
                where="hbm_bytes",
                hint="leave indices_in out: then the device has what fits, and reads the rest",
            )
        self._device_bytes += array.nbytes
        return as_tensor(array).to(self.device)

    def _empty_arena(self) -> None:
        if self._residents.held_bytes:
            with self._gate.changing():
                self._settle()
                self._residents.forget()

    def _settle(self) -> None:
        """Wait until what was brought is there: other streams read it, too."""
        import torch

        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)


def _check_graph(graph: object) -> None:
    if is_tiered(graph):
        raise UnsupportedError(
            "expected a graph in host memory for samplers on a device, received one that is read in tiers: "
            "which of its lists a batch reads is known only when it is sampled",
            where="graph",
            hint="give the graph itself, which is copied to pinned memory, or sample in host memory: loaders "
            "over graph.tiered(...) take device=...",
        )
    if not isinstance(graph, GraphLike):
        raise UsageError(f"expected a graph, received {type(graph).__name__}", where="graph")


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

    if isinstance(nodes, torch.Tensor) and nodes.device.type != "cpu":
        tensor = nodes
        if tensor.dtype not in (torch.int64, torch.int32) or tensor.ndim != 1:
            raise UsageError(
                f"expected int64 or int32 with one dimension, received {tensor.dtype} {tuple(tensor.shape)}",
                where=name,
            )
        tensor = tensor.to(device, torch.int64).contiguous()
        least, most = torch.stack(torch.aminmax(tensor)).tolist() if len(tensor) else (0, -1)
    else:
        array = integer_array(nodes, name)
        least, most = (int(array.min()), int(array.max())) if len(array) else (0, -1)
        tensor = to_device(array, device)
    if least < 0 or most >= num_nodes:
        raise UsageError(
            f"expected node indices from 0 to {num_nodes - 1}, received {least if least < 0 else most}",
            where=name,
        )
    return tensor

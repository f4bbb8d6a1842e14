"""Graphs in the memory of a device, in host memory that it reads, or on disk, for samplers that run on it."""

from __future__ import annotations

import threading
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Literal, cast

import numpy as np

from graphbox.device import check_device, on_device
from graphbox.errors import DoesNotFitError, UnsupportedError, UsageError
from graphbox.native import Int64Array, thread_count
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
from graphbox.sample.device_lists import DeviceAdjacency, DeviceWeights, HeldColumn, HeldLists
from graphbox.sample.device_times import DeviceColumn, DeviceTimes, HeldTimes, host_times
from graphbox.sample.disk_lists import DiskLists, DiskTier
from graphbox.sample.list_checks import check_lists
from graphbox.sample.list_order import most_parallel_edges
from graphbox.sample.pass_gate import PassGate
from graphbox.sample.pinned import as_tensor, pinned_copy
from graphbox.sample.resident_lists import (
    ListColumn,
    ResidentLists,
    Residents,
    ResidentStatistics,
    age_uses,
    sectors_of_byte,
)
from graphbox.words import counted_bytes

if TYPE_CHECKING:
    import torch

    from graphbox.bandwidth import Bandwidths
    from graphbox.graph.tiered_graph import TieredGraph

__all__ = ["DeviceAdjacency", "DeviceGraph", "DeviceWeights"]

ListKey = tuple[EdgeType, Direction]

DEFAULT_RELABEL_BYTES = 1 << 30
_UNBOUNDED_BYTES = 2**63
_SHARE_OF_FREE = 0.75
_LIST_BYTES = 256  # a usual list
_WEIGHT_BYTES = 20  # of an edge: weight and alias table, which the host has as well
_PLACES = (None, "device", "pinned")


class DeviceGraph:
    """A graph whose lists are read by kernels: each is brought to where they are when it is first asked for.

    Samplers take it in the place of the graph, and seeds on its device; the samples are the same, bit for
    bit, wherever lists are, and stay on the device.

    What fits ``hbm_bytes`` is in the device's memory as a whole. Of what does not, the offsets are, and lists
    of nodes by measured use: kernels count what they read of each, and :meth:`end_pass` chooses anew what is
    resident; the rest they read from pinned host memory by themselves. Where not even the offsets fit, all is
    in pinned memory. Arrays are copied there: their pages in the page cache can go.

    Of a graph in tiers (:meth:`graphbox.graph.Graph.tiered`) ``topology_bytes`` bounds what is in pinned
    memory. Where that has no room for lists as a whole either, they are on disk, and those that are read most
    on the device and in pinned memory: see :mod:`graphbox.sample.disk_lists`. Neighbours are sampled then,
    every one equally likely; walks and draws by weight are refused. Of a graph that changed all lists are
    read through host memory.

    Args:
        graph: a graph in host memory, as it is now: later changes do not show; or one in tiers.
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
        num_threads: for tables of weights.

    Raises:
        BackendMissingError: Triton or the device is not there.
        UsageError: another wrong argument.
    """

    def __init__(
        self,
        graph: GraphLike | TieredGraph,
        device: torch.device | str = "cuda",
        *,
        hbm_bytes: int | None = None,
        indices_in: Literal["device", "pinned"] | None = None,
        relabel_bytes: int = DEFAULT_RELABEL_BYTES,
        bandwidths: Bandwidths | None = None,
        num_threads: int | None = None,
    ) -> None:
        import torch

        if not is_tiered(graph) and not isinstance(graph, GraphLike):
            raise UsageError(f"expected a graph, received {type(graph).__name__}", where="graph")
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
        self._tiered = graph if is_tiered(graph) else None
        self._graph = cast("GraphLike", graph if self._tiered is None else self._tiered.graph)
        self._disk = None if self._tiered is None else DiskTier(self._tiered, self.device)
        self._hbm_bytes = hbm_bytes
        self._indices_in = indices_in
        self._threads = num_threads
        self._held: dict[ListKey, HeldLists] = {}
        self._values: dict[tuple[ListKey, EdgeColumnName], torch.Tensor] = {}
        self._columns: list[ListColumn] = []
        self._device_bytes = self._pinned_bytes = 0
        self._residents = ResidentLists(self.device, sectors_of_byte=sectors_of_byte(bandwidths, _LIST_BYTES))
        self._parallel: dict[ListKey, int] = {}
        self._lock = threading.RLock()
        self._gate = PassGate()

    @property
    def graph(self) -> GraphLike:
        """The graph in host memory, or memory-mapped."""
        return self._graph

    @property
    def tiered(self) -> TieredGraph | None:
        """The graph in tiers, if it was made of one."""
        return self._tiered

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
        held = self._whole_lists((edge_type, direction), weighted=True)
        alias_tables, weight = cast("HeldColumn", held.alias_tables), cast("HeldColumn", held.weight)
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
        held = self._whole_lists(key)
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

    def values_on_disk(
        self, edge_types: Iterable[EdgeType], name: EdgeColumnName
    ) -> dict[EdgeType, DiskLists]:
        """Return what reads values of edges for which no budget has room; none: :meth:`edge_values` has."""
        if self._disk is None:
            return {}
        lists = {each: self._disk.lists_from_disk((each, "in")) for each in edge_types}
        having = {each: found for each, found in lists.items() if found.edges.has(name)}
        new = [found for each, found in having.items() if ((each, "in"), name) not in self._values]
        needed = sum(each.edges.num_base_edges for each in new) * (4 if name == "weight" else 8)
        are_held = all((each, "in") in self._held for each in having)
        return {} if are_held and needed <= max(self._room, self._host_room) else having

    def times(
        self,
        edge_type: EdgeType,
        direction: Direction,
        node_time: Int64Array | None = None,
        *,
        weighted: bool = False,
    ) -> DeviceTimes:
        """Return the edges of each node by time; kept for each ``node_time`` as long as the graph is.

        Args:
            edge_type: whose edges.
            direction: of :meth:`csc` (``in``) or :meth:`csr` (``out``).
            node_time: int64 [neighbours], the time of each neighbour; None: edges have times.
            weighted: with what draws by weight need.

        Raises:
            UsageError: the edges have no times, or no weights.
            DataError: a weight is not a positive number, or neighbours are no nodes.
            DoesNotFitError: they are to be on the device, which has no room for them.
        """
        held = self._whole_lists((edge_type, direction))
        if held.times_by(node_time, weighted=weighted) is None:
            with self._lock:
                if held.times_by(node_time, weighted=weighted) is None:
                    self._bring_times(held, node_time, weighted=weighted)
        found = cast("HeldTimes[HeldColumn]", held.times_by(node_time, weighted=weighted))
        times, shifts, *by_weight = (
            DeviceColumn(each.values, self._residents_of(each)) for each in found.columns
        )
        sums, weight = by_weight if weighted else (None, None)
        return DeviceTimes(times, shifts, sums, weight, found.node_time)

    def has_values(self, edge_type: EdgeType, direction: Direction, name: EdgeColumnName) -> bool:
        """Return whether edges have a weight or a timestamp."""
        if self._disk is not None:
            return self._disk.lists_from_disk((edge_type, direction)).edges.has(name)
        held = self._whole_lists((edge_type, direction))
        return edge_column(held.host, name, held.name) is not None

    def most_parallel(self, edge_type: EdgeType, direction: Direction) -> int:
        """Return the most edges between two nodes.

        Raises:
            UsageError: the neighbours of a node do not ascend.
        """
        key = (edge_type, direction)
        held = self._whole_lists(key)
        if key not in self._parallel:
            host, name = held.host, held.name
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
            UnsupportedError: weights are wanted of lists that are on disk.
            NotFoundError: the neighbours of a reverse edge type are not on disk.
        """
        wanted = list(dict.fromkeys(lists))
        if all(self._has(key, weighted=key in weighted) for key in wanted):
            return  # without the lock, which who ends a pass has while it waits for readers
        with self._lock:
            new = [key for key in wanted if key not in self._held]
            unweighted = [
                key for key in wanted if key in weighted and (key in new or self._held[key].weight is None)
            ]
            if self._stay_on_disk(new, unweighted):
                return
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
            brought: dict[ListKey, HeldLists] = {}
            weights: dict[ListKey, tuple[HeldColumn, HeldColumn]] = {}
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

    def disk_lists(
        self, edge_types: Sequence[EdgeType], weighted: Collection[EdgeType] = ()
    ) -> list[DiskLists] | None:
        """Return the in-neighbours of edge types as samplers of passes read them; None: not from disk.

        Args:
            edge_types: which are sampled together.
            weighted: of which weights are wanted.

        Raises:
            NotFoundError: those of a reverse edge type are not on disk.
            UnsupportedError: weights are wanted of lists that are on disk.
        """
        if self._disk is None:
            return None
        keys: list[ListKey] = [(each, "in") for each in edge_types]
        self.hold(keys, [(each, "in") for each in weighted])
        if all(key in self._held for key in keys):
            return None
        with self._lock:
            missing = [key for key in keys if key not in self._disk]
            if missing:  # which are on the device as a whole, but others are not
                self._bring_from_disk(missing)
            return [self._disk[key] for key in keys]

    def holds(self, edge_types: Collection[EdgeType], edge_attributes: Iterable[EdgeColumnName] = ()) -> bool:
        """Return whether in-neighbours, and values of their edges, are where kernels read them as a whole."""
        if self.disk_lists(list(edge_types)) is not None:
            return False
        return not any(self.values_on_disk(edge_types, name) for name in edge_attributes)

    def residents(self, lists: DiskLists) -> tuple[Residents, Residents] | None:
        """Return what is resident of lists on disk, on the device and in pinned memory; None: nothing can be.

        They hold while :meth:`reading`.
        """
        return None if self._disk is None else self._disk.residents(lists, self._residents)

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
                room_bytes = self._room + self._residents.held_bytes
                self._residents.end_pass(self._columns, room_bytes, ages=False)
                if self._disk is not None:
                    self._disk.end_pass(self._host_room + self._disk.held_bytes)
                age_uses(self._columns)
                self._settle()
            return self._residents.statistics

    @property
    def statistics(self) -> ResidentStatistics:
        """Counts of resident lists, and of reads that hit them."""
        return self._residents.statistics

    @property
    def pinned_statistics(self) -> ResidentStatistics | None:
        """Counts of lists on disk resident in pinned host memory; None: the graph is not in tiers."""
        return None if self._disk is None else self._disk.statistics

    @property
    def device_bytes(self) -> int:
        """Bytes that lists, weights and what is known about them take on the device."""
        known_bytes = 0 if self._disk is None else self._disk.known_bytes
        return self._residents.held_bytes + self._device_bytes + known_bytes

    @property
    def pinned_bytes(self) -> int:
        """Bytes that lists and weights take in host memory, most of it pinned."""
        return self._pinned_bytes + (0 if self._disk is None else self._disk.held_bytes)

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

    @property
    def _host_room(self) -> int:
        """Bytes of host memory for lists that nothing takes."""
        return (_UNBOUNDED_BYTES if self._tiered is None else self._tiered.list_bytes) - self.pinned_bytes

    def _has(self, key: ListKey, *, weighted: bool) -> bool:
        held = self._held.get(key)
        if held is None:
            return self._disk is not None and key in self._disk and not weighted
        return not weighted or held.weight is not None

    def _whole_lists(self, key: ListKey, *, weighted: bool = False) -> HeldLists:
        self.hold([key], [key] if weighted else ())
        if key not in self._held:
            raise _on_disk(edge_type_name(key[0]))
        return self._held[key]

    def _stay_on_disk(self, new: Sequence[ListKey], weighted: Collection[ListKey]) -> bool:
        """Leave lists on disk if neither the device nor pinned memory has room for them, and return that."""
        if self._disk is None:
            return False
        sizes = [self._disk.sizes(key) for key in new]
        for key in weighted:
            if key in self._disk:
                raise _on_disk(edge_type_name(key[0]), "and weights ")
        present = [each for each in sizes if each is not None]
        weights = [self._disk.sizes(key) for key in weighted]
        needed = sum(list_bytes for list_bytes, _ in present)
        needed += sum(_WEIGHT_BYTES * edges for _, edges in filter(None, weights))
        is_unchanged = len(present) == len(sizes) and None not in weights
        if is_unchanged and needed <= max(self._room + self._residents.held_bytes, self._host_room):
            return False
        if weighted:
            raise _on_disk(edge_type_name(next(iter(weighted))[0]), "and weights ")
        self._bring_from_disk(new)
        return True

    def _bring_from_disk(self, keys: Sequence[ListKey]) -> None:
        assert self._disk is not None  # noqa: S101 - for the type checker
        with on_device(self.device):
            brought = self._disk.bring(keys, device_bytes=self._room, host_bytes=self._host_room)
            self._columns += [each.near for each in brought if each.near is not None]
            self._settle()

    def _host_lists(self, key: ListKey) -> Adjacency:
        return self._graph.csc(key[0]) if key[1] == "in" else self._graph.csr(key[0])

    def _lists_of(self, key: ListKey) -> DeviceAdjacency:
        held = self._whole_lists(key)
        return DeviceAdjacency(held.indptr, held.indices.values, self._residents_of(held.indices), held.uses)

    def _residents_of(self, column: HeldColumn) -> Residents | None:
        if column.tiered is None:
            return None
        residents = self._residents.of(column.tiered)
        return Residents(residents.values.view(column.values.dtype), residents.places)

    def _bring_lists(self, key: ListKey, host: Adjacency, arrays: Arrays, *, fits: bool) -> HeldLists:
        indptr, indices = arrays.indptr, arrays.indices
        name = edge_type_name(key[0])
        num_columns = self.num_nodes(key[0][0] if key[1] == "in" else key[0][2])
        check_lists(indptr, indices, num_columns, name)
        known_bytes = 20 * len(indptr) if self._indices_in is None and not fits else indptr.nbytes
        is_near = fits or self._indices_in is not None or known_bytes <= self._room
        held = HeldLists(host, name, self._whole(indptr, is_near), is_near)
        held.indices = self._column(held, indices, fits=fits, counts=True)
        return held

    def _bring_weights(self, held: HeldLists, *, fits: bool) -> tuple[HeldColumn, HeldColumn]:
        tables = weights_of(held.host, held.name, self._threads).base.entries
        column = cast("EdgeColumn", edge_column(held.host, "weight", held.name))  # the tables are made of it
        alias_tables = self._column(held, tables.view(np.int32).reshape(-1, 2), fits=fits)
        return alias_tables, self._column(held, column.base, fits=fits)

    def _bring_times(self, held: HeldLists, node_time: Int64Array | None, *, weighted: bool) -> None:
        """Add the edges by time to what is held, or to those that are there what draws by weight need."""
        known = held.times_by(node_time, weighted=False)
        arrays = host_times(held.host, held.name, node_time, self._threads, weighted=weighted)
        wanted = arrays[0 if known is None else len(known.columns) :]
        needed = sum(each.nbytes for each in wanted)
        if needed > self._room:
            self._empty_arena()
        fits = needed <= self._room
        columns = [self._column(held, each, fits=fits) for each in wanted]
        nodes = None if known is None else known.node_time
        if node_time is not None and nodes is None:
            nodes = self._whole(node_time, node_time.nbytes <= self._room)
        self._settle()
        brought = HeldTimes(node_time, [*(known.columns if known else ()), *columns], nodes)
        held.times = [each for each in held.times if each is not known] + [brought]

    def _column(
        self, held: HeldLists, array: np.ndarray[Any, Any], *, fits: bool, counts: bool = False
    ) -> HeldColumn:
        """Bring a column whole, or have lists of it resident, if there is room for knowing about them."""
        import torch

        is_near = fits if self._indices_in is None else self._indices_in == "device"
        values = self._whole(array, is_near)
        rows = len(held.indptr) - 1
        known_bytes = 8 * rows + (0 if held.uses is not None else 4 * rows)
        can_be = self._indices_in is None and not is_near and held.is_indptr_near
        if not can_be or rows == 0 or known_bytes > self._room:
            return HeldColumn(values, None)
        if held.uses is None:
            held.uses = torch.zeros(rows, dtype=torch.int32, device=self.device)
        one_each = values.view(torch.int64).squeeze(1) if values.ndim == 2 else values
        tiered = ListColumn(one_each, held.uses, held.indptr, counts=counts)
        self._device_bytes += known_bytes
        self._columns.append(tiered)
        return HeldColumn(values, tiered)

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


def _on_disk(name: str, what: str = "") -> UnsupportedError:
    return UnsupportedError(
        f"expected lists {what}that the device or pinned memory holds as a whole, received some on disk, of "
        "which samplers on a device draw single neighbours, each equally likely",
        where=name,
        hint="give Graph.tiered more topology_bytes, or sample in host memory: loaders over "
        "graph.tiered(...) take device=...",
    )

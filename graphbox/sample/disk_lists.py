"""Neighbour lists on disk that a device samples: those that are read most are in its reach.

Three tiers, each for what the one above has no room for. Lists that are read most for their size are in the
device's own memory (HBM), the next in pinned host memory that it reads by itself (MEM), both chosen by what
was read of each (``resident_lists.py``). Of the rest single neighbours are read from disk (SSD) as they are
drawn: for a whole pass of batches together, in the order of the disk.

Where a device has no room for the offsets of all lists, and of graphs that changed, all are read through
host memory, which keeps what is used often.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from graphbox.native import Int64Array
from graphbox.sample.adjacency import Direction, EdgeColumnName, EdgeType, edge_type_name
from graphbox.sample.list_checks import check_degrees, check_neighbors
from graphbox.sample.pinned import as_tensor, pinned_empty
from graphbox.sample.resident_lists import (
    ListColumn,
    ResidentLists,
    Residents,
    ResidentStatistics,
    copy_lists,
)

if TYPE_CHECKING:
    import torch

    from graphbox.graph.tiered_edges import TieredEdges
    from graphbox.graph.tiered_graph import TieredGraph

ListKey = tuple[EdgeType, Direction]

_BLOCK_BYTES = 4096
"""The least a disk reads for one neighbour: so many bytes of a list are worth a draw."""
_KNOWN_BYTES = 28
"""On the device of each list: where it begins, what was read of it, its places in both arenas."""
_STAGES_OF_PASS = 16
_MOST_STAGING_BYTES = 8 << 20
_ROWS_OF_STEP = 1 << 20


class Staging:
    """Pinned host memory of one size, through which arrays of any size go to a device.

    Args:
        device: which one; on the CPU arrays are taken as they are.
        size_bytes: of the memory.
    """

    def __init__(self, device: torch.device, size_bytes: int) -> None:
        import torch

        self._device = device
        is_cuda = device.type == "cuda"
        self.size_bytes = max(size_bytes, _BLOCK_BYTES)
        self._memory = pinned_empty((self.size_bytes,), torch.uint8, device) if is_cuda else None
        self._copied: Any = torch.cuda.Event() if is_cuda else None  # type: ignore[no-untyped-call]
        self._lock = threading.Lock()

    @property
    def held_bytes(self) -> int:
        """Bytes of pinned memory."""
        return 0 if self._memory is None else self._memory.nbytes

    def to_device(self, array: npt.NDArray[Any]) -> torch.Tensor:
        """Return an array on the device, which the current stream may read; the array is free at once."""
        import torch

        source = as_tensor(array)
        if self._memory is None:
            return source
        found = torch.empty(len(source), dtype=source.dtype, device=self._device)
        step = self.size_bytes // source.element_size()
        with self._lock:
            room = self._memory[: step * source.element_size()].view(source.dtype)
            for first in range(0, len(source), step):
                part = source[first : first + step]
                self._copied.synchronize()  # what was there before is on its way no more
                room[: len(part)].copy_(part)
                found[first : first + step].copy_(room[: len(part)], non_blocking=True)
                self._copied.record(torch.cuda.current_stream(self._device))
        return found


@dataclass(eq=False)
class DiskLists:
    """The lists of an edge type on disk.

    Attributes:
        edges: reads them.
        name: of the edge type.
        num_columns: neighbours are below.
        staging: through which they go to the device.
        device: where they are sampled.
        indptr: int64 [rows + 1], where lists begin, on the device; None: it is read for each hop.
        near: those in the device's memory; None: there can be none, there or in pinned memory.
        far: those in pinned host memory.
    """

    edges: TieredEdges
    name: str
    num_columns: int
    staging: Staging
    device: torch.device
    indptr: torch.Tensor | None = None
    near: DiskColumn | None = None
    far: DiskColumn | None = None

    def neighbors(self, positions: torch.Tensor) -> torch.Tensor:
        """Return the neighbours at positions on the disk, int64 [n] on the device, each read once.

        Raises:
            DataError: what is read is no node, or the disk does not give its bytes.
        """
        import torch

        different, places = torch.unique(positions, return_inverse=True)
        values = self.edges.neighbors(different.cpu().numpy())
        check_neighbors(values, self.num_columns, self.name)
        return self.staging.to_device(values)[places]

    def edge_ids(self, positions: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """Return the ids of edges at positions on disk, int64, as samplers in memory give them."""
        if self.edges.overlay is None:
            return list(positions)
        return self._of_edges(positions, self.edges.edge_ids)

    def values(self, name: EdgeColumnName, positions: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """Return the weights or timestamps of edges at positions on disk, which have them."""
        return self._of_edges(positions, partial(self.edges.payload, name))

    def _of_edges(
        self, positions: Sequence[torch.Tensor], read: Callable[[Int64Array], npt.NDArray[Any]]
    ) -> list[torch.Tensor]:
        """Return what is read of edges, of all together in one go."""
        import torch

        found = self.staging.to_device(read(torch.cat([*positions]).cpu().numpy()))
        parts = torch.split(found, [len(part) for part in positions])
        return [each.clone() for each in parts]

    def spans(self, nodes: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Read where the lists of nodes, int64 [n], begin and how long they are, int64 [n] each."""
        read = self.edges.bounds(nodes.cpu().numpy())
        check_degrees(read[:, 1] - read[:, 0], 0, self.name)
        bounds = self.staging.to_device(read.reshape(-1)).view(-1, 2)
        begins = bounds[:, 0].contiguous()
        return begins, bounds[:, 1] - begins

    def copy_lists(
        self,
        begins: torch.Tensor,
        degrees: torch.Tensor,
        target: torch.Tensor,
        targets: torch.Tensor,
    ) -> None:
        """Read whole lists of the base, part by part, those longer than a part in pieces.

        Args:
            begins: int64 [n], where they begin on disk.
            degrees: int64 [n], how long each is, one at least.
            target: of the dtype of neighbours, where the device writes them.
            targets: int64 [n], where each begins there.
        """
        import torch

        first_edges, lengths = begins.cpu().numpy(), degrees.cpu().numpy()
        ends = np.cumsum(lengths)
        step = max(self.staging.size_bytes // target.element_size(), 1)
        for first in range(0, int(ends[-1]) if len(ends) else 0, step):
            last = min(first + step, int(ends[-1]))
            some = slice(*np.searchsorted(ends, [first, last - 1], side="right") + np.array([0, 1]))
            passed = np.maximum(first - (ends[some] - lengths[some]), 0)  # of lists begun in the part before
            left = np.minimum(ends[some], last) - (ends[some] - lengths[some]) - passed
            values = self._read(first_edges[some] + passed, left)
            taken = self.staging.to_device(values)
            here, there = (self.staging.to_device(each) for each in (np.cumsum(left) - left, passed))
            sizes = self.staging.to_device(left)
            copy_lists(taken, here, sizes, target, targets[some] + there)
            if self.device.type == "cuda":
                torch.cuda.current_stream(self.device).synchronize()  # so that parts do not pile up

    def _read(self, begins: Int64Array, lengths: Int64Array) -> npt.NDArray[Any]:
        lists = self.edges.lists
        assert lists is not None  # noqa: S101 - else no list is resident
        bounds = np.stack([begins, begins + lengths], axis=1)  # which is what is read, in this order
        read = lists.read(np.arange(len(begins)), ("indices",), bounds=bounds, whole_pass=True)
        check_neighbors(read.items["indices"], self.num_columns, self.name)
        return read.items["indices"]


@dataclass(eq=False)
class DiskColumn(ListColumn):
    """Neighbours on disk, of which the lists of some rows are resident; ``values`` only tells their dtype.

    Attributes:
        lists: reads them.
        other: the column of the same lists in the other arena.
        arena: that arena, where lists are copied from; None: lists that are there do not come.
    """

    lists: DiskLists | None = None
    other: DiskColumn | None = None
    arena: ResidentLists | None = None

    def may_come(self, rows: slice) -> torch.Tensor | None:
        """Return which of successive lists may be resident: in pinned memory those that are not nearer."""
        if self.arena is not None or self.other is None:
            return None
        return self.other.places[rows] < 0

    def copy(self, rows: torch.Tensor, target: torch.Tensor, targets: torch.Tensor) -> None:
        """Copy lists from the other arena, or from disk."""
        assert self.lists is not None  # noqa: S101 - for the type checker
        begins, degrees = self.spans(rows)
        if self.arena is not None and self.other is not None:
            there = self.arena.of(self.other)
            places = there.places[rows]
            is_there = places >= 0
            copy_lists(there.values, places[is_there], degrees[is_there], target, targets[is_there])
            on_disk = ~is_there
            begins, degrees, targets = begins[on_disk], degrees[on_disk], targets[on_disk]
        self.lists.copy_lists(begins, degrees, target, targets)


class DiskTier:
    """The lists of a graph in tiers that neither a device nor pinned memory holds as a whole.

    Args:
        graph: is read.
        device: where it is sampled.
    """

    def __init__(self, graph: TieredGraph, device: torch.device) -> None:
        self._graph = graph
        self._device = device
        self._far = ResidentLists(device, sectors_of_byte=1 / _BLOCK_BYTES, is_pinned=True)
        self._disk: TieredGraph | None = None
        self._staging: Staging | None = None
        self._lists: dict[ListKey, DiskLists] = {}
        self._known_bytes = self._cache_bytes = 0

    @property
    def known_bytes(self) -> int:
        """Bytes on the device of what is known about lists."""
        return self._known_bytes

    @property
    def held_bytes(self) -> int:
        """Bytes of host memory for lists: resident ones, and the most that are kept to be copied."""
        return self._far.held_bytes + self._cache_bytes

    @property
    def statistics(self) -> ResidentStatistics:
        """Counts of lists that are resident in pinned host memory."""
        return self._far.statistics

    def lists_from_disk(self, key: ListKey) -> DiskLists:
        """Return lists as they are read past all memory."""
        return self._lists.get(key) or self._new_lists(key, is_known=False)

    def __contains__(self, key: ListKey) -> bool:
        return key in self._lists

    def __getitem__(self, key: ListKey) -> DiskLists:
        return self._lists[key]

    def sizes(self, key: ListKey) -> tuple[int, int] | None:
        """Return the bytes of the lists of a key and the number of their edges; None: they changed.

        Raises:
            NotFoundError: they are not on disk.
        """
        edges = self._graph.edges(*key)
        if edges.lists is None or edges.overlay is not None or edges.lists.num_lists != self._rows(key):
            return None
        offset_bytes = 8 * (edges.lists.num_lists + 1)
        return offset_bytes + edges.index_bytes * edges.lists.num_items, edges.lists.num_items

    def bring(self, keys: Sequence[ListKey], *, device_bytes: int, host_bytes: int) -> list[DiskLists]:
        """Make lists known to the device, as far as it has room for that, and return them.

        Args:
            keys: which.
            device_bytes: the most that what is known about them may take there.
            host_bytes: the most host memory for lists.
        """
        unchanged = [key for key in keys if self.sizes(key) is not None]
        needed = sum(_KNOWN_BYTES * (self._rows(key) + 1) for key in unchanged)
        known = set(unchanged) if needed <= device_bytes else set()
        if self._disk is None:
            self._open_disk(int((1 - len(known) / max(len(keys), 1)) * max(host_bytes, 0)))
        brought = {key: self._new_lists(key, is_known=key in known) for key in keys}
        self._known_bytes += needed if known else 0
        self._lists |= brought
        return list(brought.values())

    def end_pass(self, host_bytes: int) -> None:
        """Choose anew what is resident in pinned memory, after the device's own.

        Args:
            host_bytes: the most host memory for lists.
        """
        columns = [each.far for each in self._lists.values() if each.far is not None]
        if columns:
            self._far.end_pass(columns, host_bytes - self._cache_bytes, ages=False)

    def residents(self, lists: DiskLists, near: ResidentLists) -> tuple[Residents, Residents] | None:
        """Return what is resident of lists on the device and in pinned memory; None: nothing can be."""
        if lists.near is None or lists.far is None:
            return None
        return near.of(lists.near), self._far.of(lists.far)

    def _open_disk(self, cache_bytes: int) -> TieredGraph:
        """Open the edges on disk with memory for those that are to be copied."""
        self._cache_bytes = cache_bytes
        self._disk = self._graph.with_topology_bytes(cache_bytes)
        size_bytes = min(self._graph.pass_bytes // _STAGES_OF_PASS, _MOST_STAGING_BYTES)
        self._staging = Staging(self._device, size_bytes // 8 * 8)
        return self._disk

    def _rows(self, key: ListKey) -> int:
        return self._graph.graph.num_nodes(key[0][2] if key[1] == "in" else key[0][0])

    def _new_lists(self, key: ListKey, *, is_known: bool) -> DiskLists:
        import torch

        disk = self._disk or self._open_disk(0)
        assert self._staging is not None  # noqa: S101 - for the type checker
        num_columns = self._graph.graph.num_nodes(key[0][0] if key[1] == "in" else key[0][2])
        lists = DiskLists(disk.edges(*key), edge_type_name(key[0]), num_columns, self._staging, self._device)
        rows = self._rows(key)
        if not is_known or rows == 0:
            return lists
        lists.indptr = self._offsets(lists, rows)
        uses = torch.zeros(rows, dtype=torch.int32, device=self._device)
        dtype = torch.int32 if lists.edges.index_bytes == 4 else torch.int64
        empty = torch.empty(0, dtype=dtype, device=self._device)
        each_block = 1 / _BLOCK_BYTES
        lists.near = DiskColumn(empty, uses, lists.indptr, sectors_of_byte=each_block, lists=lists)
        lists.far = DiskColumn(empty, uses, lists.indptr, lists=lists, other=lists.near)
        lists.near.other, lists.near.arena = lists.far, self._far
        return lists

    def _offsets(self, lists: DiskLists, rows: int) -> torch.Tensor:
        """Return where lists begin, read through the staging memory."""
        import torch

        found = torch.empty(rows + 1, dtype=torch.int64, device=self._device)
        for first in range(0, rows, _ROWS_OF_STEP):
            nodes = np.arange(first, min(first + _ROWS_OF_STEP, rows))
            bounds = lists.edges.bounds(nodes)
            degrees = bounds[:, 1] - bounds[:, 0]
            check_degrees(degrees, first, lists.name)
            begins = np.append(bounds[:, 0], bounds[-1, 1])  # the next part begins with its end
            found[first : first + len(begins)] = lists.staging.to_device(begins)
        return found

"""Lists of a graph that are resident on a device, by measured use: chosen anew after each pass.

The same is done with lists on disk that are resident in pinned host memory, which the device reads.

All resident lists of all columns share one arena. They lie one after the other in it; from its end
downwards stand their names, in the same order. What is chosen is decided by how much each list was read
for the room it takes: kernels count the sectors they read of each. Lists that stay slide together, so that
only those that are new are read from host memory.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from graphbox.sample.pinned import pinned_empty

if TYPE_CHECKING:
    import torch

    from graphbox.bandwidth import Bandwidths

SECTOR_BYTES = 32
"""The least a device reads."""

_UNIT_BYTES = 8  # lists begin at multiples of it
_ROWS_OF_STEP = 1 << 21
_UNITS_OF_STEP = 1 << 21
_NUMBER_SHIFT = 48  # a list is named by its column's number, above its row
_WANTED = -2  # a place: not there yet, but chosen
_SCORE_SHIFT = 18  # of the bits of a float32: its exponent and 5 bits of its fraction are left
_BUCKETS = 1 << (32 - _SCORE_SHIFT)


@dataclass(frozen=True, slots=True)
class Residents:
    """Copies of lists on the device, as kernels read them.

    Attributes:
        values: of the column's dtype.
        places: int64 [rows], where in ``values`` each row's list begins; -1: it is not there.
    """

    values: torch.Tensor
    places: torch.Tensor


@dataclass(eq=False)
class ListColumn:
    """Values in pinned host memory, of which the lists of some rows can be resident.

    Attributes:
        values: [values], of up to 8 bytes each, in pinned host memory.
        uses: int32 [rows], on the device, sectors read of each list; several columns can share it.
        indptr: int64 [rows + 1], where lists begin, on the device; None: all are equally long.
        row_values: how long, then.
        counts: whether it is this column that the reads in ``uses`` are about.
        sectors_of_byte: see :class:`ResidentLists`; None: as there.
        places: int64 [rows], see :class:`Residents`.
    """

    values: torch.Tensor
    uses: torch.Tensor
    indptr: torch.Tensor | None = None
    row_values: int = 0
    counts: bool = True
    sectors_of_byte: float | None = None
    places: torch.Tensor = field(init=False)

    def __post_init__(self) -> None:
        import torch

        self.places = torch.full((len(self.uses),), -1, dtype=torch.int64, device=self.uses.device)

    @property
    def rows(self) -> int:
        """Number of lists."""
        return len(self.uses)

    def spans(self, rows: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Return where the lists of rows, int64 [n], begin, and how long they are."""
        import torch

        if self.indptr is None:
            return rows * self.row_values, torch.full_like(rows, self.row_values)
        begins = self.indptr[rows]
        return begins, self.indptr[rows + 1] - begins

    def degrees(self, rows: slice) -> torch.Tensor:
        """Return how long the lists of successive rows are, int64."""
        import torch

        if self.indptr is None:
            size = rows.stop - rows.start
            return torch.full((size,), self.row_values, dtype=torch.int64, device=self.uses.device)
        return self.indptr[rows.start + 1 : rows.stop + 1] - self.indptr[rows]

    def may_come(self, rows: slice) -> torch.Tensor | None:  # noqa: ARG002 - of those that choose
        """Return which of successive lists may be resident, bool; None: all."""
        return None

    def copy(self, rows: torch.Tensor, target: torch.Tensor, targets: torch.Tensor) -> None:
        """Copy lists.

        Args:
            rows: int64 [n], which.
            target: of the dtype of the values, which the device writes to.
            targets: int64 [n], where in it each begins.
        """
        begins, degrees = self.spans(rows)
        copy_lists(self.values, begins, degrees, target, targets)

    @property
    def element_bytes(self) -> int:
        """Of a value."""
        return self.values.element_size()

    @property
    def elements_of_unit(self) -> int:
        """Number of values in a unit of the arena."""
        return _UNIT_BYTES // self.element_bytes


@dataclass(frozen=True, slots=True)
class ResidentStatistics:
    """Counts of resident lists, and of reads that hit them.

    Attributes:
        lists: how many are resident.
        list_bytes: what they take.
        room_bytes: what they may take.
        hit_rate: of the sectors of lists that were read, the share of resident ones; reads of each earlier
            pass count half as much as those of the one after it. None: nothing was read.
        passes: how many have ended.
        moved_bytes: read from host memory to make lists resident, in all passes.
    """

    lists: int
    list_bytes: int
    room_bytes: int
    hit_rate: float | None
    passes: int
    moved_bytes: int


class ResidentLists:
    """The arena, and who is in it.

    Args:
        device: where it is.
        sectors_of_byte: how many sectors of a list must have been read, for each byte of it, so that it is
            brought in.
        is_pinned: it is in pinned host memory, which the device reads and writes.
    """

    def __init__(self, device: torch.device, *, sectors_of_byte: float, is_pinned: bool = False) -> None:
        self._device = device
        self._sectors_of_byte = sectors_of_byte
        self._is_pinned = is_pinned
        self._arena = self._new_arena(0)
        self._columns: list[ListColumn] = []
        self._lists = 0
        self._end = 0  # of the last list, in units
        self._passes = 0
        self._moved_bytes = 0
        self._hit_rate: float | None = None

    @property
    def held_bytes(self) -> int:
        """Bytes of the arena."""
        return self._arena.nbytes

    @property
    def statistics(self) -> ResidentStatistics:
        """Counts of resident lists, and of reads that hit them."""
        return ResidentStatistics(
            self._lists,
            self._end * _UNIT_BYTES,
            self.held_bytes,
            self._hit_rate,
            self._passes,
            self._moved_bytes,
        )

    def of(self, column: ListColumn) -> Residents:
        """Return the resident lists of a column, as kernels read them; they hold until the pass ends."""
        return Residents(self._arena.view(column.values.dtype), column.places)

    def end_pass(self, columns: Sequence[ListColumn], room_bytes: int, *, ages: bool = True) -> None:
        """Choose what is resident by what was read so far, and bring it there. Nothing may read meanwhile.

        Beside the arena it takes memory for steps of about two million lists or units, some 200 MB.

        Args:
            columns: those there are, in the order they came; none has gone.
            room_bytes: the most bytes of the arena.
            ages: what was read until now counts half from now on.
        """
        units = max(room_bytes, 0) // _UNIT_BYTES
        self._columns = list(columns)
        if units < len(self._arena) or (len(self._arena) == 0 and units > 0):
            self.forget()
            self._arena = self._new_arena(units)
        self._mark(*self._least_bucket())
        self._slide_together()
        self._bring_in()
        self._passes += 1
        if ages:
            age_uses(self._columns)

    def forget(self) -> None:
        """Empty the arena. Who still has what :meth:`of` gave finds there what was there."""
        import torch

        for column in self._columns:
            column.places = torch.full_like(column.places, -1)
        self._lists = self._end = 0
        self._arena = self._new_arena(0)

    def _new_arena(self, units: int) -> torch.Tensor:
        import torch

        if self._is_pinned:
            return pinned_empty((units,), torch.int64, self._device)
        return torch.empty(units, dtype=torch.int64, device=self._device)

    # Choosing

    def _steps(self) -> Iterator[tuple[int, ListColumn, slice]]:
        for number, column in enumerate(self._columns):
            for first in range(0, column.rows, _ROWS_OF_STEP):
                yield number, column, slice(first, min(first + _ROWS_OF_STEP, column.rows))

    def _scores(self, column: ListColumn, rows: slice) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the bucket of each list, -1 for those not to be resident, and the units they take."""
        import torch

        degrees = column.degrees(rows)
        bytes_of_list = degrees * column.element_bytes
        units = (bytes_of_list + _UNIT_BYTES - 1) // _UNIT_BYTES + 1  # and its name
        uses = _whole(column.uses[rows])
        is_resident = column.places[rows] >= 0
        score = (uses / units).to(torch.float32).view(torch.int32) >> _SCORE_SHIFT
        bucket = 2 * score.to(torch.int64) + is_resident  # of equals those that are there
        least = self._sectors_of_byte if column.sectors_of_byte is None else column.sectors_of_byte
        pays = uses >= least * bytes_of_list
        chosen = (is_resident | (pays & (uses > 0))) & (degrees > 0)
        may_come = column.may_come(rows)
        bucket[(chosen if may_come is None else chosen & may_come).logical_not_()] = -1
        return bucket, units

    def _least_bucket(self) -> tuple[int, int]:
        """Return the bucket from which on lists fit, and how many units of it do."""
        import torch

        room = torch.zeros(_BUCKETS + 1, dtype=torch.int64, device=self._device)
        read = torch.zeros(2, dtype=torch.int64, device=self._device)
        for _, column, rows in self._steps():
            bucket, units = self._scores(column, rows)
            room.scatter_add_(0, bucket + 1, units)
            if column.counts:
                uses = _whole(column.uses[rows])
                read[0] += uses.sum()
                read[1] += uses[column.places[rows] >= 0].sum()
        total, resident = read.tolist()
        self._hit_rate = resident / total if total else None
        from_above = np.cumsum(room.cpu().numpy()[:0:-1])
        too_many = np.flatnonzero(from_above > len(self._arena))
        if len(too_many) == 0:
            return 0, len(self._arena)
        fitting = from_above[too_many[0] - 1] if too_many[0] > 0 else 0
        return _BUCKETS - 1 - int(too_many[0]), len(self._arena) - int(fitting)

    def _mark(self, least: int, left: int) -> None:
        """Mark lists that go, and those that come; of the least bucket as many as ``left`` units hold."""
        import torch

        taken = torch.zeros(1, dtype=torch.int64, device=self._device)
        for _, column, rows in self._steps():
            bucket, units = self._scores(column, rows)
            ends = torch.cumsum(torch.where(bucket == least, units, 0), 0) + taken
            taken = ends[-1:]
            is_chosen = (bucket > least) | ((bucket == least) & (ends <= left))
            places = column.places[rows]
            places[~is_chosen] = -1
            places[is_chosen & (places < 0)] = _WANTED

    # Moving

    def _slide_together(self) -> None:
        """Close the gaps that lists have left, in the order they lie in."""
        import torch

        lists = end = 0
        for first in range(0, self._lists, _ROWS_OF_STEP):
            names = self._names(first, min(first + _ROWS_OF_STEP, self._lists)).to(self._device).flip(0)
            begins = torch.full_like(names, -1)
            units = torch.zeros_like(names)
            for number, column in enumerate(self._columns):
                mine = (names >> _NUMBER_SHIFT == number).nonzero().squeeze(1)
                rows = _row_of(names[mine])
                begins[mine] = torch.div(column.places[rows], column.elements_of_unit, rounding_mode="floor")
                units[mine] = _units_of(column, rows)
            stays = begins >= 0
            names, begins, units = names[stays], begins[stays], units[stays]
            if len(names) == 0:
                continue
            targets = torch.cumsum(units, 0) - units + end
            if not torch.equal(begins, targets):
                self._slide(begins, units, end)
                self._place(names, targets)
            self._names(lists, lists + len(names)).copy_(names.flip(0))
            lists += len(names)
            end += int(units.sum())
        self._lists, self._end = lists, end

    def _slide(self, begins: torch.Tensor, units: torch.Tensor, target: int) -> None:
        """Move lists down to ``target``, each to the end of the one before."""
        import torch

        ends = torch.cumsum(units, 0)
        shifts = begins - (ends - units)
        total = int(ends[-1])
        for first in range(0, total, _UNITS_OF_STEP):
            unit = torch.arange(first, min(first + _UNITS_OF_STEP, total), device=self._device)
            moved = self._units_at(unit + shifts[torch.searchsorted(ends, unit, right=True)])
            self._arena[target + first : target + first + len(moved)].copy_(moved)

    def _units_at(self, places: torch.Tensor) -> torch.Tensor:
        import torch

        if not self._is_pinned:
            return self._arena[places]
        from graphbox.sample.edge_reads_gpu import copy_elements  # Triton, where it is used

        found = torch.empty(len(places), dtype=torch.int64, device=self._device)
        copy_elements(self._arena, places, found, torch.arange(len(places), device=self._device))
        return found

    def _bring_in(self) -> None:
        """Copy the lists that are wanted behind those that are there."""
        import torch

        for number, column, part in self._steps():
            rows = (column.places[part] == _WANTED).nonzero().squeeze(1) + part.start
            if len(rows) == 0:
                continue
            units = _units_of(column, rows)
            ends = torch.cumsum(units, 0) + self._end
            names = rows | number << _NUMBER_SHIFT
            self._place(names, ends - units)
            self._names(self._lists, self._lists + len(rows)).copy_(names.flip(0))
            column.copy(rows, self._arena.view(column.values.dtype), column.places[rows])
            self._moved_bytes += int(column.spans(rows)[1].sum()) * column.element_bytes
            self._lists += len(rows)
            self._end = int(ends[-1])

    def _place(self, names: torch.Tensor, begins: torch.Tensor) -> None:
        for number, column in enumerate(self._columns):
            mine = (names >> _NUMBER_SHIFT == number).nonzero().squeeze(1)
            column.places[_row_of(names[mine])] = begins[mine] * column.elements_of_unit

    def _names(self, first: int, last: int) -> torch.Tensor:
        """Return the names of lists, the last first, as they stand in the arena."""
        end = len(self._arena)
        return self._arena[end - last : end - first]


def age_uses(columns: Sequence[ListColumn]) -> None:
    """Let what was read of the lists of columns until now count half from now on."""
    for uses in {id(each.uses): each.uses for each in columns}.values():
        uses.bitwise_right_shift_(1).bitwise_and_(2**31 - 1)  # of unsigned numbers


def copy_lists(
    source: torch.Tensor,
    begins: torch.Tensor,
    degrees: torch.Tensor,
    target: torch.Tensor,
    targets: torch.Tensor,
) -> None:
    """Copy lists in steps of about two million values.

    Args:
        source: [any], on the device or in pinned host memory.
        begins: int64 [n], where in it each list begins.
        degrees: int64 [n], how long it is.
        target: [any] of the same dtype, as well.
        targets: int64 [n], where in it each list begins.
    """
    import torch

    from graphbox.sample.edge_reads_gpu import copy_elements  # Triton, where it is used

    ends = torch.cumsum(degrees, 0)
    total = int(ends[-1]) if len(ends) else 0
    for first in range(0, total, _UNITS_OF_STEP):
        edge = torch.arange(first, min(first + _UNITS_OF_STEP, total), device=ends.device)
        owner = torch.searchsorted(ends, edge, right=True)
        edge -= (ends - degrees)[owner]
        copy_elements(source, begins[owner] + edge, target, targets[owner] + edge)


def sectors_of_byte(bandwidths: Bandwidths | None, list_bytes: int) -> float:
    """Return how often sectors of a list must have been read, for each byte of it, so that copying it pays.

    A pass like the one before reads as many sectors, each so much faster from the device's own memory.

    Args:
        bandwidths: of the device; None: as if pinned memory gave sectors half as fast as long rows.
        list_bytes: of a usual list.
    """
    if bandwidths is None:
        return 1 / (2 * SECTOR_BYTES)
    gained_seconds = SECTOR_BYTES / bandwidths.pinned_sectors - SECTOR_BYTES / bandwidths.device_sectors
    copy_seconds = 1 / bandwidths.rows("pinned", list_bytes)
    return copy_seconds / gained_seconds if gained_seconds > 0 else float("inf")


def _row_of(names: torch.Tensor) -> torch.Tensor:
    return names & ((1 << _NUMBER_SHIFT) - 1)


def _units_of(column: ListColumn, rows: torch.Tensor) -> torch.Tensor:
    _, degrees = column.spans(rows)
    return (degrees * column.element_bytes + _UNIT_BYTES - 1) // _UNIT_BYTES


def _whole(uses: torch.Tensor) -> torch.Tensor:
    """Return counts as int64: their 32 bits are an unsigned number."""
    import torch

    return uses.to(torch.int64) & 0xFFFFFFFF

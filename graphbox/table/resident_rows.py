"""Rows in the memory of a device: whose they are, what they hold, and which were not used for long."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import torch

from graphbox.device import keep_until_used
from graphbox.table.hash_gpu import DeviceHash

if TYPE_CHECKING:
    from torch import Tensor

_FREE: Final = 2**31 - 1
"""Stands for the last use of a slot without a row: later than all."""

_KEY_BYTES: Final = 8
_LAST_USE_BYTES: Final = 4
_CHANGED_BYTES: Final = 1
_FREED_BYTES: Final = 8
_CHOICE_BYTES: Final = 9
"""For each slot, what it takes for a moment to find slots by what is noted of them: a bool and an index."""


@dataclass(frozen=True, slots=True)
class RowForm:
    """Layout of a row on the device: the native record (``csrc/table/row_layout.h``), split in columns.

    Attributes:
        dim: values.
        dtype: type of the values, float32 or float16.
        state_columns: float32 of the optimizer's state; counts of steps are bits of uint32.
        counter_columns: shows, clicks, last seen pass and second, the latter as bits of uint32; or 0.
    """

    dim: int
    dtype: torch.dtype
    state_columns: int
    counter_columns: int

    @property
    def value_bytes(self) -> int:
        """Bytes of the values."""
        return self.dim * self.dtype.itemsize

    @property
    def record_bytes(self) -> int:
        """Bytes of a row."""
        return self.value_bytes + 4 * (self.state_columns + self.counter_columns)

    @property
    def places(self) -> tuple[slice, slice, slice]:
        """Where values, state and counters are in a record."""
        state_end = self.value_bytes + 4 * self.state_columns
        return (
            slice(0, self.value_bytes),
            slice(self.value_bytes, state_end),
            slice(state_end, self.record_bytes),
        )

    def part(self, records: Tensor, number: int) -> Tensor:
        """Return a copy of values (0), state (1) or counters (2) of records, uint8 [n, record_bytes]."""
        copied = records[:, self.places[number]].clone(memory_format=torch.contiguous_format)
        return copied.view(torch.float32 if number else self.dtype)


class ResidentRows:
    """A fixed number of slots, each for a row, on a device.

    Nothing here knows of other tiers. All of it runs on the current stream; the caller sees to it that one
    operation follows the other.

    Args:
        form: of the rows.
        slots: how many rows there is room for.
        device: where.
    """

    def __init__(self, form: RowForm, slots: int, device: torch.device) -> None:
        self.form = form
        self.slots = slots
        self.device = device
        self.values = torch.empty(slots, form.dim, dtype=form.dtype, device=device)
        self.state = torch.empty(slots, form.state_columns, device=device)
        self.counters = torch.empty(slots, form.counter_columns, device=device)
        self._parts = (self.values, self.state, self.counters)
        self._hash = DeviceHash(slots, device)
        self._keys = torch.empty(slots, dtype=torch.int64, device=device)
        self._use_marks = torch.full((slots + 1,), _FREE, dtype=torch.int32, device=device)
        self._change_marks = torch.zeros(slots + 1, dtype=torch.bool, device=device)
        self._last_use, self._is_changed = self._use_marks[:slots], self._change_marks[:slots]
        self._never_used = 0  # the slots from this one on
        self._freed = torch.empty(0, dtype=torch.int64, device=device)
        self._now = 0

    @staticmethod
    def bytes_for(form: RowForm, slots: int) -> int:
        """Return the bytes on the device of so many slots."""
        notes = _KEY_BYTES + _LAST_USE_BYTES + _CHANGED_BYTES + _FREED_BYTES + _CHOICE_BYTES
        return slots * (form.record_bytes + notes) + notes + DeviceHash.bytes_for(slots)

    def __len__(self) -> int:
        return self.slots - self.room

    @property
    def room(self) -> int:
        """Slots without a row."""
        return self.slots - self._never_used + len(self._freed)

    @property
    def changed(self) -> int:
        """Number of rows that changed and were not written back."""
        return int(torch.count_nonzero(self._is_changed))

    # --- The running operation

    @property
    def now(self) -> int:
        """Number of the operation that runs: rows were used before it, or in it."""
        return self._now

    def begin(self) -> int:
        """Begin an operation, and return its number."""
        if self._now == _FREE - 1:  # once in months: all rows count as used at the beginning of time
            self._last_use.masked_fill_(self._last_use != _FREE, 0)
            self._now = 0
        self._now += 1
        return self._now

    def find(self, keys: Tensor) -> Tensor:
        """Return where the rows of keys are, int64, -1 where they are not; those that are count as used."""
        slots: Tensor = self._hash.find(keys)
        self.use(slots)
        return slots

    def holds(self, keys: Tensor) -> Tensor:
        """Return whether the rows of keys are here, bool; they do not count as used."""
        return self._hash.find(keys) >= 0

    def use(self, slots: Tensor) -> None:
        """Note that rows are used; -1 is none."""
        self._use_marks[self._marks_of(slots)] = self._now

    def change(self, slots: Tensor) -> None:
        """Note that rows are changed; -1 is none."""
        self._change_marks[self._marks_of(slots)] = True

    def _marks_of(self, slots: Tensor) -> Tensor:
        """Return where marks of slots are: that of none is behind the others."""
        return torch.where(slots < 0, self.slots, slots)

    # --- Coming and going

    def place(self, keys: Tensor, records: Tensor) -> Tensor:
        """Give different keys that are absent slots, in their order, and copy their rows there.

        Args:
            keys: int64 [n], at most :attr:`room`.
            records: uint8 [n, record_bytes], on the device.

        Returns:
            The slots, int64 [n].
        """
        slots = self._take(len(keys))
        for number, part in enumerate(self._parts):
            if part.shape[1]:
                part[slots] = self.form.part(records, number)
        self._keys[slots] = keys
        self._is_changed[slots] = False
        self._last_use[slots] = self._now
        self._hash.insert(keys, slots, checked=False)
        return slots

    def records(self, slots: Tensor, out: Tensor) -> Tensor:
        """Copy rows to ``out``, uint8 [n, record_bytes] on the device, and return their keys."""
        for place, part in zip(self.form.places, self._parts, strict=True):
            if part.shape[1]:
                out[:, place] = part[slots].view(torch.uint8)
        return self._keys[slots]

    def remove(self, slots: Tensor) -> None:
        """Give slots back; what their rows hold is lost."""
        self._hash.erase(self._keys[slots], are_there=True)
        self._last_use[slots] = _FREE
        self._is_changed[slots] = False
        freed = self._freed
        self._freed = torch.cat([freed, slots])
        keep_until_used(freed)

    def clear(self) -> None:
        """Give all slots back."""
        self._hash.clear()
        self._last_use.fill_(_FREE)
        self._is_changed.zero_()
        self._never_used, self._freed = 0, self._freed[:0]

    def keys(self) -> Tensor:
        """Return the keys of all rows, int64, by slot."""
        return self._keys[torch.nonzero(self._last_use != _FREE).squeeze(1)]

    # --- Choosing

    def keys_of(self, slots: Tensor) -> Tensor:
        """Return the keys of rows."""
        return self._keys[slots]

    def changed_of(self, slots: Tensor) -> Tensor:
        """Return those of the slots whose rows are changed."""
        return slots[self._is_changed[slots]]

    def changed_parts(self, most: int) -> Iterator[Tensor]:
        """Yield the slots of all changed rows, at most so many at a time; the caller calls :meth:`keep`."""
        yield from torch.split(torch.nonzero(self._is_changed).squeeze(1), most)

    def keep(self, slots: Tensor) -> None:
        """Note that what rows hold was written back."""
        self._is_changed[slots] = False

    def unused_since(self, operation: int) -> int:
        """Return how many rows were used in no operation from this one on."""
        return int(torch.count_nonzero(self._last_use < operation))

    def least_recent(self, count: int, before: int) -> Tensor:
        """Return the slots of ``count`` rows, the least recently used ones; of equal ones the lower slots.

        Fewer where there are not so many that were used in no operation from ``before`` on.
        """
        if self.unused_since(before) <= count:
            return torch.nonzero(self._last_use < before).squeeze(1)
        none, too_many = 0, before  # so many rows, and more than so many, were last used before
        while too_many - none > 1:
            middle = (none + too_many) // 2
            if self.unused_since(middle) <= count:
                none = middle
            else:
                too_many = middle
        oldest = torch.nonzero(self._last_use < none).squeeze(1)
        others = torch.nonzero(self._last_use == none).squeeze(1)
        return torch.cat([oldest, others[: count - len(oldest)]])

    def _take(self, count: int) -> Tensor:
        """Take slots without a row, those that were given back first."""
        reused = self._freed[:count]
        self._freed = self._freed[len(reused) :]
        first = self._never_used
        self._never_used += count - len(reused)
        return torch.cat([reused, torch.arange(first, self._never_used, device=self.device)])


def distinct_in_order(keys: Tensor) -> tuple[Tensor, Tensor]:
    """Return different keys in the order of first appearance, and for each key its position among them."""
    ascending, places = torch.unique(keys, return_inverse=True)
    first = torch.full_like(ascending, len(keys))
    first.scatter_reduce_(0, places, torch.arange(len(keys), device=keys.device), "amin")
    order = torch.argsort(first)
    rank = torch.empty_like(order)
    rank[order] = torch.arange(len(order), device=keys.device)
    return ascending[order], rank[places]

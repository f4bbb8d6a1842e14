"""A hash table of keys in the memory of a device: which slot a row has there.

Open addressing with linear probing, at most half full of keys. An entry is a key and a slot, 16 bytes that
one read brings: that an entry is free, or was, is said by its slot, so that every int64 is a legal key. Who
inserts claims a free entry by comparing and swapping its slot; keys that are inserted are distinct and
absent, so none has to be read meanwhile, and what a lookup finds depends on nothing but the keys.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from graphbox.device import check_device, keep_until_used, on_device
from graphbox.errors import ConflictError, DoesNotFitError, UsageError

_BLOCK = 128  # of one warp, whose threads wait for each other without a barrier
_ENTRY = tl.constexpr(2)  # words of int64
_FREE = tl.constexpr(-1)
_ERASED = tl.constexpr(-2)  # lookups go on behind it, insertions take it
_NEVER = tl.constexpr(-3)  # is in no entry
_LEAST_ENTRIES = 64
_ENTRIES_PER_KEY = 2
_MOST_CAPACITY = 2**30


@triton.jit
def _entry_of(key, entries):
    """Return where the search for keys begins: their bits mixed (Stafford, "mix 13"), then scaled."""
    bits = key.to(tl.uint64, bitcast=True)
    bits = (bits ^ (bits >> 30)) * 0xBF58476D1CE4E5B9
    bits = (bits ^ (bits >> 27)) * 0x94D049BB133111EB
    bits = bits ^ (bits >> 31)
    return ((bits >> 32) * entries >> 32).to(tl.int64)


@triton.jit
def _search(table, key, wanted, entries):
    """Return entries and slots of keys; the slot is -1 where there is none, or nothing is wanted."""
    entry = _entry_of(key, entries)
    slot = tl.full(key.shape, _FREE, tl.int64)
    searching = wanted
    looked_at = tl.zeros((), tl.int64)
    while (tl.max(searching.to(tl.int32)) > 0) & (looked_at < entries):
        here = table + entry * _ENTRY
        key_here = tl.load(here, mask=searching, other=0)
        slot_here = tl.load(here + 1, mask=searching, other=_FREE)
        found = searching & (slot_here >= 0) & (key_here == key)
        slot = tl.where(found, slot_here, slot)
        searching = searching & (slot_here != _FREE) & (found == 0)
        following = tl.where(entry + 1 == entries, 0, entry + 1)
        entry = tl.where(searching, following, entry)
        looked_at += 1
    return entry, slot


@triton.jit(do_not_specialize=["size"])  # one kernel for batches of all sizes
def _find(table, keys, slots, size, entries, BLOCK: tl.constexpr):
    number = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = number < size
    key = tl.load(keys + number, mask=inside, other=0)
    _, slot = _search(table, key, inside, entries)
    tl.store(slots + number, slot, mask=inside)


@triton.jit
def _claim(table, counts, key, slot, wanted, entries):
    """Put distinct and absent keys into entries that are free or erased, of which there are enough."""
    entry = _entry_of(key, entries)
    searching = wanted
    reused = tl.zeros(key.shape, tl.int32)
    looked_at = tl.zeros((), tl.int64)
    while (tl.max(searching.to(tl.int32)) > 0) & (looked_at < entries):
        here = table + entry * _ENTRY + 1
        slot_here = tl.load(here, mask=searching, other=0, volatile=True)
        # A compare-and-swap has no mask: those that are not to swap compare with what is nowhere.
        expected = tl.where(searching & (slot_here < 0), slot_here, _NEVER)
        before = tl.atomic_cas(here, expected, slot, sem="relaxed")
        is_claimed = (expected != _NEVER) & (before == expected)
        tl.store(here - 1, key, mask=is_claimed)
        reused += (is_claimed & (expected == _ERASED)).to(tl.int32)
        searching = searching & (is_claimed == 0)
        # An entry that was taken stays so: who has looked at all has found one, since there are enough.
        following = tl.where(entry + 1 == entries, 0, entry + 1)
        entry = tl.where(searching, following, entry)
        looked_at += 1
    claimed = wanted & (searching == 0)
    tl.atomic_add(counts, tl.sum(claimed.to(tl.int64), axis=0), sem="relaxed")
    tl.atomic_add(counts + 1, -tl.sum(reused.to(tl.int64), axis=0), sem="relaxed")


@triton.jit(do_not_specialize=["size"])  # one kernel for batches of all sizes
def _insert(table, counts, keys, slots, size, entries, BLOCK: tl.constexpr):
    number = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = number < size
    key = tl.load(keys + number, mask=inside, other=0)
    slot = tl.load(slots + number, mask=inside, other=0)
    _claim(table, counts, key, slot, inside, entries)


@triton.jit
def _move(old_table, table, counts, entries, BLOCK: tl.constexpr):
    number = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = number < entries
    key = tl.load(old_table + number * _ENTRY, mask=inside, other=0)
    slot = tl.load(old_table + number * _ENTRY + 1, mask=inside, other=_FREE)
    _claim(table, counts, key, slot, slot >= 0, entries)


@triton.jit(do_not_specialize=["size"])  # one kernel for batches of all sizes
def _erase(table, counts, keys, size, entries, BLOCK: tl.constexpr):
    number = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = number < size
    key = tl.load(keys + number, mask=inside, other=0)
    entry, slot = _search(table, key, inside, entries)
    erased = tl.full(key.shape, _ERASED, tl.int64)
    before = tl.atomic_xchg(table + entry * _ENTRY + 1, erased, mask=slot >= 0, sem="relaxed")
    gone = tl.sum(((slot >= 0) & (before >= 0)).to(tl.int64), axis=0)  # of a key that repeats, one is
    tl.atomic_add(counts, -gone, sem="relaxed")
    tl.atomic_add(counts + 1, gone, sem="relaxed")


class DeviceHash:
    """Hash table from keys to slots. Run all calls on one stream, or order them by events.

    Args:
        capacity: the most keys, 1 to 2^30; each takes 32 bytes.
        device: device of the keys.

    Raises:
        UsageError: `capacity` is out of range.
        BackendMissingError: kernels do not run on the device.
    """

    def __init__(self, capacity: int, device: torch.device | str) -> None:
        if isinstance(capacity, bool) or not isinstance(capacity, int) or not 1 <= capacity <= _MOST_CAPACITY:
            raise UsageError(
                f"expected an integer from 1 to {_MOST_CAPACITY}, received {capacity!r}", where="capacity"
            )
        self.capacity = capacity
        check_device(torch.device(device))
        self._counts = torch.zeros(2, dtype=torch.int64, device=device)  # keys, erased entries
        self.device = self._counts.device
        self._entries = max(_LEAST_ENTRIES, _ENTRIES_PER_KEY * capacity)
        self._table = self._empty_table()
        self._most_keys = 0  # what the host knows of the counts without waiting for them
        self._most_erased = 0

    @staticmethod
    def bytes_for(capacity: int) -> int:
        """Return the most bytes of so many keys: while erased entries are made free there are two tables."""
        return 2 * 8 * int(_ENTRY.value) * max(_LEAST_ENTRIES, _ENTRIES_PER_KEY * capacity)

    def __len__(self) -> int:
        """Return the number of keys. Waits for the device."""
        self._most_keys, self._most_erased = self._counts.tolist()
        return self._most_keys

    @property
    def nbytes(self) -> int:
        """Bytes held on the device."""
        return self._table.nbytes + self._counts.nbytes

    def find(self, keys: torch.Tensor) -> torch.Tensor:
        """Return the slots of keys.

        Args:
            keys: int64 [n], on the device.

        Returns:
            int64 [n], -1 for keys that are not there.

        Raises:
            UsageError: other keys.
        """
        keys = self._checked(keys, "keys")
        slots = torch.empty_like(keys)
        self._launch(_find, len(keys), self._table, keys, slots, len(keys))
        return slots

    def insert(self, keys: torch.Tensor, slots: torch.Tensor, *, checked: bool = True) -> None:
        """Give keys slots.

        It waits for the device where it checks, and where keys were erased of which nobody said that they
        were there, as soon as there might be more than ``capacity``.

        Args:
            keys: int64 [n], on the device: distinct ones that are not there.
            slots: int64 [n], 0 or more.
            checked: look whether keys and slots are as they must be, which waits for the device. Otherwise
                the caller knows: of a key that is there twice, lookups find one or the other.

        Raises:
            UsageError: other keys or slots.
            ConflictError: a key that repeats, or that is there; none was inserted.
            DoesNotFitError: more than ``capacity`` keys; none was inserted.
        """
        keys, slots = self._checked(keys, "keys"), self._checked(slots, "slots")
        if len(keys) != len(slots):
            raise UsageError(
                f"expected one for each of {len(keys)} keys, received {len(slots)}", where="slots"
            )
        if len(keys) == 0:
            return
        if checked:
            self._refuse_wrong(keys, slots)
        self._make_room(len(keys))
        self._most_keys += len(keys)
        self._launch(_insert, len(keys), self._table, self._counts, keys, slots, len(keys))

    def erase(self, keys: torch.Tensor, *, are_there: bool = False) -> None:
        """Forget keys; those that are not there are passed over.

        Args:
            keys: int64 [n], on the device.
            are_there: the caller knows that they are distinct, and there: so how many are left is known
                without waiting for the device.

        Raises:
            UsageError: other keys.
        """
        keys = self._checked(keys, "keys")
        self._most_erased += len(keys)
        if are_there:
            self._most_keys -= len(keys)
        self._launch(_erase, len(keys), self._table, self._counts, keys, len(keys))

    def clear(self) -> None:
        """Forget all keys."""
        self._table[:, 1] = _FREE.value
        self._counts.zero_()
        self._most_keys = self._most_erased = 0

    def _checked(self, values: torch.Tensor, name: str) -> torch.Tensor:
        if values.dtype != torch.int64 or values.ndim != 1 or values.device != self.device:
            raise UsageError(
                f"expected int64 [n] on {self.device}, received {values.dtype} {tuple(values.shape)} on "
                f"{values.device}",
                where=name,
            )
        return values.contiguous()

    def _refuse_wrong(self, keys: torch.Tensor, slots: torch.Tensor) -> None:
        least = int(slots.min())
        if least < 0:
            raise UsageError(f"expected slots from 0 on, received {least}", where="slots")
        in_order = keys.sort().values
        repeated = in_order[1:][in_order[1:] == in_order[:-1]]
        present = keys[self.find(keys) >= 0]
        for wrong, what in ((repeated, "repeats"), (present, "has a slot already")):
            if len(wrong):
                raise ConflictError(
                    f"expected distinct keys without a slot; this one {what}",
                    where=f"key {int(wrong[0])}",
                    hint="find() tells which keys have one",
                )

    def _make_room(self, keys: int) -> None:
        """Refuse more keys than there may be; make erased entries free where there may be many.

        Making them free takes less than waiting to learn how many there are.
        """
        if self._most_keys + keys > self.capacity:
            there = len(self)  # what the host knew was too much
            if there + keys > self.capacity:
                raise DoesNotFitError(
                    f"expected at most {self.capacity} keys, received {keys} besides {there}",
                    where="keys",
                    hint="erase some first",
                )
        if self._most_keys + self._most_erased + keys > self._entries - self._entries // 4:
            self._rebuild()

    def _rebuild(self) -> None:
        old_table, self._table = self._table, self._empty_table()
        self._counts.zero_()
        self._most_erased = 0
        self._launch(_move, self._entries, old_table, self._table, self._counts)
        keep_until_used(old_table)

    def _empty_table(self) -> torch.Tensor:
        return torch.full((self._entries, 2), _FREE.value, dtype=torch.int64, device=self.device)

    def _launch(self, kernel: triton.JITFunction, size: int, *arguments: torch.Tensor | int) -> None:
        if size > 0:
            with on_device(self.device):
                kernel[triton.cdiv(size, _BLOCK),](
                    *arguments, self._entries, BLOCK=_BLOCK, num_warps=1, enable_fp_fusion=False
                )

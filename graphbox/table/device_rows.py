"""Rows on a device: fetching, training and writing back."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import torch

from graphbox import _core
from graphbox.device import check_device, on_device
from graphbox.errors import ConflictError, DataError, UnsupportedError, UsageError
from graphbox.table.device_batch import MissingRows, PushedRows, RowSums, sums_of_counts
from graphbox.table.device_budget import checked_budget, does_not_fit, form_of, slots_within, staged_rows
from graphbox.table.device_counters import DeviceCounters
from graphbox.table.device_prefetch import DevicePrefetch, DevicePrefetched, ReadAhead
from graphbox.table.gather_gpu import gather_rows
from graphbox.table.optimizer_gpu import DeviceOptimizer
from graphbox.table.resident_rows import ResidentRows, distinct_in_order
from graphbox.table.row_staging import RowStaging

if TYPE_CHECKING:
    from torch import Tensor

    from graphbox.native import Int64Array
    from graphbox.table.table import EmbeddingTable

_EVICTED_SHARE: Final = 16


@dataclass(slots=True)
class _Moved:
    """Positions and rows, since the table was made: see :class:`graphbox.table.DeviceTableStatistics`."""

    hits: int = 0
    misses: int = 0
    read: int = 0
    prefetched: int = 0
    evicted: int = 0
    written: int = 0


class DeviceRows:
    """The rows of a table that are on a device: :class:`DeviceTable` says what is done with them.

    Args:
        table: keeps all rows.
        device: where rows are trained.
        hbm_bytes: the most memory to take of it, or None.
    """

    def __init__(self, table: EmbeddingTable, device: torch.device, hbm_bytes: int | None) -> None:
        check_device(device)
        number = None if device.type != "cuda" or device.index is not None else torch.cuda.current_device()
        self.device = device if number is None else torch.device("cuda", number)
        if table.policies.eviction is not None:
            raise UnsupportedError(
                "expected a table whose rows stay, received one with eviction: it could drop rows that are "
                "trained on the device",
                where="table",
                hint="make it with path=, so that rows which find no room go to SSD",
            )
        if table._upper is not None:
            raise ConflictError("the table has a DeviceTable already", where="table", hint="close() that one")
        native = table._native
        self._table = table
        dtype = torch.float32 if table.dtype == "float32" else torch.float16
        self._optimizer = DeviceOptimizer(native.optimizer, dtype, seed=table.seed)
        self._form = form_of(table, self._optimizer)
        self.hbm_bytes = checked_budget(hbm_bytes, self.device)
        slots = slots_within(self.hbm_bytes, self._form)
        try:
            self._rows = ResidentRows(self._form, slots, self.device)
            self._staging, self._ahead_staging = (
                RowStaging(self._form, staged_rows(slots, self._form), self.device) for _ in range(2)
            )
        except torch.cuda.OutOfMemoryError:
            raise does_not_fit(self.device, f"hbm_bytes is {self.hbm_bytes:,}") from None
        score = table.policies.score
        self._counters = DeviceCounters(1.0 if score is None else score.decay, self.device)
        self._lock = threading.RLock()
        self._prefetching = threading.Lock()
        self._prefetches: list[DevicePrefetch] = []
        self._reading: ReadAhead | None = None
        self._is_cuda = self.device.type == "cuda"
        self._last_event = torch.cuda.Event() if self._is_cuda else None  # type: ignore[no-untyped-call]
        self._side_stream = torch.cuda.Stream(device) if self._is_cuda else None  # type: ignore[no-untyped-call]
        self._version = 0  # another one whenever a slot loses its row
        self._step = 0  # the operation that the running step began with
        self._seen_changes = native.changes
        self._skipped = 0
        self._moved = _Moved()
        if self._last_event is not None:
            self._last_event.record(torch.cuda.current_stream(self.device))
        self._process = os.getpid()
        self._is_open = True

    def write_back(self) -> None:
        """Write what changed to the table below. Its own methods call this before they look at rows.

        Raises:
            ConflictError: another process has the device, or the table below was changed by others at the
                same time.
        """
        if not self._is_open:
            return
        if os.getpid() != self._process:
            raise ConflictError(
                "rows of the table are on a device that belongs to the process this one was forked from",
                hint="flush() and close() the DeviceTable before processes are forked",
            )
        with self._turn():
            for slots in self._rows.changed_parts(self._staging.rows):
                self._write(slots)

    def close(self) -> None:
        """Write back what changed, and give the device's memory back; the table below is as any other then.

        Raises:
            GraphboxError: rows could not be written back; this stays open.
        """
        if not self._is_open:
            return
        with self._lock:
            running = list(self._prefetches)
        for prefetch in running:
            prefetch.cancel()
            prefetch.join()
        with self._lock:
            self.write_back()
            if self._is_cuda:
                torch.cuda.synchronize(self.device)  # others get the memory next, on whichever stream
            self._is_open = False
            self._table._upper = None
            del self._rows, self._staging, self._ahead_staging

    def discard(self) -> None:
        """Let go of all rows on the device; what was not written back of them is lost.

        For when the table below is to count as it is, say after a ConflictError.
        """
        with self._lock:
            self._check_open()
            with on_device(self.device):
                if self._last_event is not None:
                    self._last_event.wait()
                self._let_go(self._table._native.changes)
                if self._last_event is not None:
                    self._last_event.record()

    def _check_open(self) -> None:
        if not self._is_open:
            raise UsageError("the DeviceTable is closed", hint="make another one over the table")

    @contextmanager
    def _turn(self) -> Iterator[None]:
        """One operation after another, also on the device, whichever streams they are on."""
        with self._lock:
            self._check_open()
            with on_device(self.device):
                if self._last_event is not None:
                    self._last_event.wait()
                try:
                    self._notice_changes()
                    yield
                except torch.cuda.OutOfMemoryError as error:
                    raise does_not_fit(
                        self.device,
                        str(error).partition(".")[0],
                        "give the table a lower hbm_bytes, so that batches find room, or use smaller batches",
                    ) from None
                finally:
                    if self._last_event is not None:
                        self._last_event.record()

    def _notice_changes(self) -> None:
        """Let go of all rows where others changed the table below."""
        changes = self._table._native.changes
        if changes == self._seen_changes:
            return
        if self._rows.changed:
            raise ConflictError(
                "the table below was changed directly while rows of it were being trained on the device, so "
                "that one of the changes would be lost",
                hint="discard() what the device learned since the last flush(), and use one of the two",
            )
        self._let_go(changes)

    def _let_go(self, changes: int) -> None:
        """Let go of all rows; the table below has changed so often."""
        self._rows.clear()
        self._version += 1
        self._seen_changes = changes
        if self._reading is not None:
            self._reading.is_void = True

    def _read(self, keys: Tensor, out: Tensor, *, creates: bool) -> Tensor | None:
        """Write the rows of keys; return their slots, or None where they were not all there at once."""
        slots = self._rows.find(keys)
        absent = torch.nonzero(slots < 0).squeeze(1)
        self._moved.hits += len(keys) - len(absent)
        self._moved.misses += len(absent)
        if len(absent) == 0:
            gather_rows(self._rows.values, slots, out=out)
            return slots
        missing = MissingRows(keys[absent], absent)
        if creates:
            self._admit(missing, is_pull=True)
        return self._read_missing(keys, slots, missing, out)

    def _read_missing(self, keys: Tensor, slots: Tensor, missing: MissingRows, out: Tensor) -> Tensor | None:
        has_row = self._bring(missing, slots)
        if has_row is None:
            middle = len(keys) // 2
            for part in (slice(0, middle), slice(middle, len(keys))):
                self._rows.begin()
                found = self._rows.find(keys[part])
                absent = torch.nonzero(found < 0).squeeze(1)
                if len(absent):
                    self._read_missing(keys[part], found, MissingRows(keys[part][absent], absent), out[part])
                else:
                    gather_rows(self._rows.values, found, out=out[part])
            return None
        gather_rows(self._rows.values, slots.clamp(min=0), out=out)
        if has_row.all():
            return slots
        without = torch.from_numpy(np.flatnonzero(~has_row)).to(self.device)
        rank = torch.full((len(has_row),), -1, device=self.device)
        rank[without] = torch.arange(len(without), device=self.device)
        rank_of_missing = rank[missing.place_of]
        is_without = rank_of_missing >= 0
        initial = self._initial_values(missing.in_host[~has_row])
        out[missing.positions[is_without]] = initial[rank_of_missing[is_without]]
        return None

    def _places_for_push(self, keys: Tensor) -> Tensor | None:
        """Return the slots of keys, -1 where they are not admitted; None where they find no room at once."""
        slots = self._rows.find(keys)
        absent = torch.nonzero(slots < 0).squeeze(1)
        self._moved.hits += len(keys) - len(absent)
        self._moved.misses += len(absent)
        if len(absent) == 0:
            return slots
        missing = MissingRows(keys[absent], absent)
        self._admit(missing, is_pull=False)
        return None if self._bring(missing, slots) is None else slots

    def _admit(self, missing: MissingRows, *, is_pull: bool) -> None:
        """Give keys rows below by the rules of that table, which may count each position of a batch."""
        self._table._look_at_clock()
        counts_positions = self._table.policies.admission is not None
        keys = missing.keys.cpu().numpy() if counts_positions else missing.in_host
        _core.table_admit(self._table._native, keys, is_pull, self._table.threads)

    def _bring(self, missing: MissingRows, slots: Tensor) -> np.ndarray[Any, Any] | None:
        """Bring rows to the device, and write their slots.

        Returns:
            Which of the different keys have a row, bool; None where there is no room for all of these at
            once beside what the running operation uses: then nothing has changed.
        """
        has_row = self._table._native.contains(missing.in_host, self._table.threads)
        with_row = torch.from_numpy(np.flatnonzero(has_row)).to(self.device)
        if not self._make_room(len(with_row), before=self._rows.now):
            return None
        keys, in_host = missing.distinct[with_row], missing.in_host[has_row]
        placed = []
        for begin in range(0, len(keys), self._staging.rows):
            part = slice(begin, begin + self._staging.rows)
            records, _ = self._staging.read(self._table._native, in_host[part], self._table.threads)
            placed.append(self._rows.place(keys[part], records))
        self._moved.read += len(keys)
        if placed:
            slot_of = torch.full((len(has_row),), -1, dtype=torch.int64, device=self.device)
            slot_of[with_row] = torch.cat(placed)
            slots[missing.positions] = slot_of[missing.place_of]
        return has_row

    def _initial_values(self, keys: Int64Array) -> Tensor:
        """Return what rows of keys that have none would be."""
        parts = [torch.empty(0, self._form.dim, device=self.device)]
        for begin in range(0, len(keys), self._staging.rows):
            part = keys[begin : begin + self._staging.rows]
            records, _ = self._staging.read(self._table._native, part, self._table.threads)
            parts.append(self._form.part(records, 0).float())
        return torch.cat(parts)

    def _make_room(self, count: int, *, before: int) -> bool:
        """Let rows leave that no operation from ``before`` on used; false where that is not enough."""
        rows = self._rows
        if rows.room >= count:
            return True
        wanted = max(count - rows.room, rows.slots // _EVICTED_SHARE)
        leaving = rows.least_recent(wanted, before)
        if rows.room + len(leaving) < count:
            return False
        for part in torch.split(rows.changed_of(leaving), self._staging.rows):
            self._write(part)
        rows.remove(leaving)
        self._version += 1
        self._moved.evicted += len(leaving)
        return True

    def _write(self, slots: Tensor) -> None:
        """Write rows to the table below, at most as many as there is staging for."""
        if not len(slots):  # the table below counts a write as a change, even one of nothing
            return
        keys = self._rows.records(slots, self._staging.on_device[: len(slots)])
        in_host = self._staging.write(self._table._native, keys, self._table.threads)
        self._rows.keep(slots)
        self._seen_changes = self._table._native.changes
        self._moved.written += len(slots)
        if self._reading is not None:
            self._reading.written.append(in_host)

    def _leave(self, keys: Tensor) -> None:
        """Let go of rows of keys that are about to change below; what they hold is lost."""
        distinct, _ = distinct_in_order(keys)
        slots = self._rows.find(distinct)
        slots = slots[slots >= 0]
        self._rows.remove(slots)
        self._version += 1
        if self._reading is not None:
            self._reading.written.append(distinct.cpu().numpy())

    def _finite(self, keys: Tensor, pushed: PushedRows) -> Tensor | None:
        """Return the positions whose gradients are finite, None for all; refuse others unless skipped."""
        if pushed.all_finite():
            return None
        is_finite = pushed.is_finite()
        wrong = torch.nonzero(~is_finite).squeeze(1)
        if len(wrong) == 0:  # of keys: an empty bag has a gradient, too
            return None
        if not self._table._native.skip_nonfinite:
            first = int(wrong[0])
            gradient = first if pushed.gradient_of is None else int(pushed.gradient_of[first])
            raise DataError(
                f"gradients must be finite; the one at position {gradient} holds NaN or infinity, and none "
                "was applied",
                where=f"key {int(keys[first])}",
                hint='lower the learning rate, or make the table with nonfinite="skip"',
            )
        self._skipped += len(wrong)
        return torch.nonzero(is_finite).squeeze(1)

    def _learn(
        self, keys: Tensor, slots: Tensor, pushed: PushedRows, left_in: Tensor | None, lr: float
    ) -> None:
        """Apply gradients to rows in their slots; -1 is none."""
        gradients, shows, clicks = pushed.of_keys(), pushed.shows, pushed.clicks
        if left_in is not None:
            keys, slots, gradients = keys[left_in], slots[left_in], gradients[left_in]
            shows, clicks = (None if each is None else each[left_in] for each in (shows, clicks))
        if len(slots) == 0:
            return
        rows = self._rows
        self._optimizer.push(rows.values, rows.state, slots, gradients, lr=lr, keys=keys, shows=shows)
        if self._form.counter_columns:
            self._count(*sums_of_counts(slots, shows, clicks))
        rows.use(slots)
        rows.change(slots)

    def _learn_in_parts(self, keys: Tensor, pushed: PushedRows, left_in: Tensor | None, lr: float) -> None:
        """Apply gradients of more rows than there is room for: the sums of some after those of others."""
        distinct, sums = RowSums.of(keys, pushed, left_in)
        for part in torch.split(torch.arange(len(distinct), device=self.device), self._rows.slots):
            self._rows.begin()
            slots = self._rows.find(distinct[part])
            absent = torch.nonzero(slots < 0).squeeze(1)
            if len(absent):
                self._bring(MissingRows(distinct[part][absent], absent), slots)
            has_row = torch.nonzero(slots >= 0).squeeze(1)
            self._apply(slots[has_row], sums.take(part[has_row]), lr)

    def _apply(self, slots: Tensor, sums: RowSums, lr: float) -> None:
        """Apply the sums of gradients to different rows."""
        if len(slots) == 0:
            return
        rows = self._rows
        keys = rows.keys_of(slots)
        self._optimizer.apply(rows.values, rows.state, slots, sums.gradients, sums.weights, lr=lr, keys=keys)
        if self._form.counter_columns:
            self._count(slots, sums.shows, sums.clicks)
        rows.use(slots)
        rows.change(slots)

    def _count(self, slots: Tensor, shows: Tensor, clicks: Tensor) -> None:
        """Count what different rows were shown and clicked; -1 is none."""
        with_row = torch.nonzero(slots >= 0).squeeze(1)
        seconds, passes = self._table._look_at_clock(), self._table.passes
        self._counters.add(
            self._rows.counters, slots[with_row], shows[with_row], clicks[with_row], passes, seconds
        )

    # --- Ahead

    def _bring_ahead(
        self, keys: Tensor, is_ready: torch.cuda.Event | None, stop: threading.Event
    ) -> DevicePrefetched:
        stream = nullcontext() if self._side_stream is None else torch.cuda.stream(self._side_stream)
        with self._prefetching, stream:
            if is_ready is not None and self._side_stream is not None:
                self._side_stream.wait_event(is_ready)
            with self._turn():
                distinct, _ = distinct_in_order(keys)
                absent = distinct[self._rows.find(distinct) < 0]
                in_host: Int64Array = absent.cpu().numpy()
            there = len(distinct) - len(absent)
            if self._table.path is not None:
                below = self._table.prefetch(in_host)
                while not below.is_done and not stop.wait(0.01):
                    pass
                if stop.is_set():
                    below.cancel()
                below.wait()
            landed = 0
            for begin in range(0, len(absent), self._ahead_staging.rows):
                if stop.is_set():
                    break
                part = slice(begin, begin + self._ahead_staging.rows)
                reading = self._begin_reading(in_host[part])
                try:
                    records, has_row = self._ahead_staging.read(
                        self._table._native, in_host[part], self._table.threads
                    )
                    came = self._land(absent[part], records, has_row, reading)
                finally:
                    self._reading = None
                landed += came
                if came < int(has_row.sum()) and not reading.written and not reading.is_void:
                    break  # no more room
            return DevicePrefetched(there + landed, landed)

    def _begin_reading(self, keys: Int64Array) -> ReadAhead:
        with self._turn():
            self._reading = ReadAhead(keys)
            return self._reading

    def _land(self, keys: Tensor, records: Tensor, has_row: np.ndarray[Any, Any], reading: ReadAhead) -> int:
        """Give rows that were read ahead their slots, as many as there is room for; return how many."""
        with self._turn():
            self._reading = None
            usable = torch.from_numpy(reading.usable(has_row)).to(self.device)
            places = torch.nonzero(usable & ~self._rows.holds(keys)).squeeze(1)
            room = self._rows.room + self._rows.unused_since(self._step)
            places = places[:room]
            self._rows.begin()
            if not self._make_room(len(places), before=self._step):
                return 0
            self._rows.place(keys[places], records[places])
            self._moved.prefetched += len(places)
            return len(places)

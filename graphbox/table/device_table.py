"""Rows of an embedding table in the memory of a device: the tier above host memory and SSD."""

from __future__ import annotations

import os
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Never, Self

import torch

from graphbox.errors import UsageError
from graphbox.table.device_arguments import (
    check_counts,
    count_tensor,
    gradient_rows,
    key_tensor,
    output_rows,
)
from graphbox.table.device_batch import DeviceSlots, PushedRows
from graphbox.table.device_budget import bytes_for
from graphbox.table.device_lookup import DeviceGradient, DeviceLookup
from graphbox.table.device_prefetch import DevicePrefetch
from graphbox.table.device_rows import DeviceRows
from graphbox.table.gradients import joined_gradient
from graphbox.table.statistics import DeviceTableStatistics
from graphbox.table.table import EmbeddingTable

if TYPE_CHECKING:
    from torch import Tensor

    from graphbox.table.key_bags import KeyBags
    from graphbox.table.policy import RowCounters, ShrinkReport, TablePolicies

__all__ = ["DeviceSlots", "DeviceTable"]


class DeviceTable(DeviceRows):
    """Keeps rows of an :class:`EmbeddingTable` in the memory of a GPU, and trains them there.

    The same interface, with keys, rows and gradients on the device. Results are those of the table below,
    whatever ``hbm_bytes`` is: new keys get rows by its rules, gradients of equal keys are summed in its
    order and applied once by its optimizer (``graphbox.table.optimizer_gpu`` says how exactly that
    agrees with the CPU).

    Rows come in one copy for all keys of a batch that are missing, and stay until others need their room:
    then those leave that were not used for longest, none of the running batch. What changed is written back
    when it leaves, in :meth:`flush`, and before anything else looks at the table below: whatever reads that
    one directly, say :meth:`EmbeddingTable.save`, sees all that was pushed here. What changes it directly is
    noticed here with the next operation; then all rows are read again. A batch with more rows than there is
    room for is served in parts.

    The table below belongs to one DeviceTable at a time. Safe to use from several threads, each on the stream
    that is current there; but while others push here, do not change the table below directly.

    Args:
        table: keeps all rows. With a ``path``, a row may be on SSD until it is asked for.
        device: a GPU; ``cpu`` where Triton's interpreter runs kernels, for tests.
        hbm_bytes: the most memory to take of the device, for rows, their state, the hash that finds them,
            and staging; taken at once. Besides, each operation takes what its results and the gradients of
            its keys need. None: three quarters of what is free (64 MiB on the CPU).

    Raises:
        BackendMissingError: Triton or the device is not there.
        UnsupportedError: rows of the table leave for others (``eviction``).
        ConflictError: another DeviceTable has the table.
        DoesNotFitError: ``hbm_bytes`` has no room for a row, or the device has not so much memory.
    """

    def __init__(
        self, table: EmbeddingTable, device: torch.device | str = "cuda", *, hbm_bytes: int | None = None
    ) -> None:
        if not isinstance(table, EmbeddingTable):
            raise UsageError(f"expected an EmbeddingTable, received {type(table).__name__}", where="table")
        super().__init__(table, torch.device(device), hbm_bytes)
        table._upper = self

    def __repr__(self) -> str:
        if not self._is_open:
            return "DeviceTable(closed)"
        rows = f"{len(self._rows)} of {self._rows.slots}"
        return f"DeviceTable(rows={rows}, device={self.device}, {self._table!r})"

    def __reduce__(self) -> Never:
        raise UsageError("a table can be neither copied nor pickled", hint="save(path) the table below")

    def __len__(self) -> int:
        return len(self._table)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # --- What it is

    @property
    def dim(self) -> int:
        """Values of a row."""
        return self._form.dim

    @property
    def optimizer(self) -> str:
        """Name of the optimizer."""
        return self._table.optimizer

    @property
    def dtype(self) -> str:
        """Type of the stored values: ``float32`` or ``float16``."""
        return self._table.dtype

    @property
    def lr(self) -> float:
        """Learning rate: that of the table below."""
        return self._table.lr

    @lr.setter
    def lr(self, value: float) -> None:
        self._table.lr = value

    @property
    def policies(self) -> TablePolicies:
        """Admission and eviction policies: those of the table below."""
        return self._table.policies

    @property
    def path(self) -> Path | None:
        """Folder of the rows that are on SSD, or None."""
        return self._table.path

    @property
    def skipped_gradients(self) -> int:
        """Number of gradients left out for NaN or infinity, here and in the table below."""
        return self._skipped + self._table.skipped_gradients

    def statistics(self) -> DeviceTableStatistics:
        """Return what is on the device, what moved, and the figures of the table below."""
        with self._turn():
            moved = self._moved
            return DeviceTableStatistics(
                len(self._rows),
                self._rows.slots,
                self._rows.changed,
                bytes_for(self._form, self._rows.slots),
                moved.hits,
                moved.misses,
                moved.read,
                moved.prefetched,
                moved.evicted,
                moved.written,
                self._table.statistics(),
            )

    # --- Pull and push

    def pull(self, keys: Any, out: Tensor | None = None, create: bool = True) -> Tensor:
        """Return the rows of ``keys``, as :meth:`EmbeddingTable.pull` does.

        Args:
            keys: integers of any shape, best on the device.
            out: float32 [*keys.shape, dim] on the device, contiguous, to write into instead of new memory.
            create: give unknown keys a row, if they are admitted. Otherwise they get their initial values.

        Returns:
            float32 [*keys.shape, dim] on the device.

        Raises:
            UsageError: keys that are no integers, or ``out`` of another shape, dtype or device.
            DoesNotFitError: new rows would exceed the ``memory_bytes`` of the table below, none was created;
                or the device has no memory for the result.
        """
        return self.pull_slots(keys, out, create=create)[0]

    def pull_slots(
        self, keys: Any, out: Tensor | None = None, *, create: bool = True
    ) -> tuple[Tensor, DeviceSlots]:
        """Return the rows of ``keys`` as :meth:`pull` does, and where they are.

        A push to these looks no key up again, as long as no row has left the device.
        """
        tensor = key_tensor(keys, "keys", self.device)
        shape = (*tensor.shape, self.dim)
        flat = tensor.reshape(-1)
        with self._turn():
            result = torch.empty(shape, device=self.device) if out is None else out
            rows = output_rows(result, "out", shape, self.device)
            self._step = self._rows.begin()
            slots = self._read(flat, rows, creates=create)
            return result, DeviceSlots(self, tuple(tensor.shape), flat, slots, self._version)

    def push(self, keys: Any, grads: Any, *, shows: Any = None, clicks: Any = None) -> None:
        """Apply gradients as :meth:`EmbeddingTable.push` does.

        Args:
            keys: integers of any shape, best on the device.
            grads: float32 [*keys.shape, dim].
            shows: how often each key was shown, numbers of shape ``keys.shape``; see there.
            clicks: how many of the shows were clicked; see there.

        Raises:
            UsageError: wrong shapes or dtypes, or shows or clicks that nothing counts.
            DataError: a gradient that holds NaN or infinity, where those are not skipped; none was applied.
            DoesNotFitError: new rows would exceed the ``memory_bytes`` of the table below, or the device has
                no memory for the sums; nothing was applied.
        """
        tensor = key_tensor(keys, "keys", self.device)
        shape = tuple(tensor.shape)
        slots = DeviceSlots(self, shape, tensor.reshape(-1), None, -1)
        self.push_slots(slots, grads, shows=shows, clicks=clicks)

    def push_slots(self, slots: DeviceSlots, grads: Any, *, shows: Any = None, clicks: Any = None) -> None:
        """Apply gradients as :meth:`push` does to the rows that :meth:`pull_slots` gave.

        Args:
            slots: of this table; they stay right whatever happens to it.
            grads: float32 [*slots.shape, dim].
            shows: as in :meth:`push`, as clicks.
            clicks: numbers of shape ``slots.shape``.
        """
        if not isinstance(slots, DeviceSlots) or slots.table is not self:
            raise UsageError("expected slots that this table's pull_slots gave", where="slots")
        self._table._check_counted(shows, clicks)
        pushed = PushedRows(
            gradient_rows(grads, "grads", (*slots.shape, self.dim), self.device),
            shows=count_tensor(shows, "shows", slots.shape, self.device),
            clicks=count_tensor(clicks, "clicks", slots.shape, self.device),
        )
        self.push_rows(slots, pushed)

    def push_rows(self, slots: DeviceSlots, pushed: PushedRows) -> None:
        """Apply gradients that were checked."""
        with self._turn():
            check_counts(slots.keys, pushed.shows, pushed.clicks)
            left_in = self._finite(slots.keys, pushed)
            places = slots.current(self._version)
            if places is None:
                self._rows.begin()
                places = self._places_for_push(slots.keys)
            lr = self._table.lr
            if places is None:
                self._learn_in_parts(slots.keys, pushed, left_in, lr)
            else:
                self._learn(slots.keys, places, pushed, left_in, lr)

    # --- For torch modules

    @property
    def local(self) -> EmbeddingTable:
        """The table below, which keeps all rows."""
        return self._table

    @property
    def is_collective(self) -> bool:
        """Never: it is a table of this process alone."""
        return False

    def learn(self, gradients: Sequence[DeviceGradient]) -> None:
        """Apply the gradients of lookups, in their order, as one push."""
        gradient = joined_gradient(gradients)
        self.push_rows(gradient.slots, gradient.pushed)

    def lookup_keys(self, keys: Tensor, name: str) -> Tensor:
        """Return keys of a module's lookup as it is done here: int64 on the device."""
        return key_tensor(keys, name, self.device)

    def lookup(self, keys: Tensor, bags: KeyBags | None = None) -> DeviceLookup:
        """Return what pulls the rows of keys, or the sums of bags, and makes gradients of their rows."""
        return DeviceLookup(self, keys, bags)

    def reference(self) -> dict[str, Any]:
        """Return what a ``state_dict`` holds of the table below: see :meth:`EmbeddingTable.reference`."""
        return self._table.reference()

    def check_reference(self, state: object) -> None:
        """Compare the table below: see :meth:`EmbeddingTable.check_reference`."""
        self._table.check_reference(state)

    # --- Ahead

    def prefetch(self, keys: Any) -> DevicePrefetch:
        """Begin to bring the rows of ``keys`` to the device, on a stream of its own, while others go on.

        For the keys of the next batch or pass. It takes the room of rows that the running step does not use,
        and stops when there is no more. Keys without a row get none. Rows on SSD are brought to host memory
        first. Pulls and pushes of the same keys may go on meanwhile.

        Args:
            keys: integers of any shape; repetitions do no harm.

        Returns:
            A handle: its ``wait()`` says how many rows are on the device.

        Raises:
            UsageError: keys that are no integers.
        """
        wanted = key_tensor(keys, "keys", self.device).reshape(-1)
        is_ready = None
        if self._side_stream is not None:
            is_ready = torch.cuda.current_stream(self.device).record_event()
            wanted.record_stream(self._side_stream)
        prefetch = DevicePrefetch(partial(self._bring_ahead, wanted, is_ready))
        with self._lock:
            self._check_open()
            self._prefetches = [each for each in self._prefetches if not each.is_done] + [prefetch]
            prefetch.start(in_background=self._is_cuda)
        return prefetch

    # --- Keeping the table below up to date

    def flush(self) -> None:
        """Write back what changed; with a ``path`` below also what :meth:`EmbeddingTable.flush` does.

        What this returned for is in the table below, and durable as that one promises.

        Raises:
            GraphboxError: what that one raises; rows that were not written back stay changed here.
        """
        self.write_back()
        if self._table.path is not None:
            self._table.flush()

    def erase(self, keys: Any) -> int:
        """Forget keys as :meth:`EmbeddingTable.erase` does; return how many had a row."""
        tensor = key_tensor(keys, "keys", self.device).reshape(-1)
        with self._turn():
            self._leave(tensor)
            erased = self._table._native.erase(tensor.cpu().numpy())
            self._seen_changes = self._table._native.changes
            return erased

    def assign(self, keys: Any, rows: Any) -> None:
        """Give keys values as :meth:`EmbeddingTable.assign` does."""
        tensor = key_tensor(keys, "keys", self.device)
        with self._turn():
            self.write_back()
            self._leave(tensor.reshape(-1))
            self._table.assign(tensor, rows)
            self._seen_changes = self._table._native.changes

    def shrink(self) -> ShrinkReport:
        """Drop rows as :meth:`EmbeddingTable.shrink` does."""
        with self._turn():
            self.write_back()
            report = self._table.shrink()
            keys = self._rows.keys()
            for part in (
                torch.split(keys, 1 << 22) if self._table._native.changes != self._seen_changes else ()
            ):
                is_there = torch.from_numpy(self._table.contains(part.cpu().numpy())).to(self.device)
                self._leave(part[~is_there])
            self._seen_changes = self._table._native.changes
            return report

    def contains(self, keys: Any) -> Tensor:
        """Return whether each key has a row, on the device or below: bool [*keys.shape] on the device."""
        tensor = key_tensor(keys, "keys", self.device)
        return torch.from_numpy(self._table.contains(tensor.cpu().numpy())).to(self.device)

    def counters(self, keys: Any) -> RowCounters:
        """Return what the table's policies know of ``keys``: see :meth:`EmbeddingTable.counters`."""
        return self._table.counters(key_tensor(keys, "keys", self.device).cpu())

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write a checkpoint with all that was pushed: see :meth:`EmbeddingTable.save`."""
        self._table.save(path)

    def end_pass(self) -> None:
        """Say that a pass over the data has ended: see :meth:`EmbeddingTable.end_pass`."""
        self._table.end_pass()

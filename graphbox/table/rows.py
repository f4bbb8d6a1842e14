"""Operations on the rows of a table: pull, push, policies and statistics."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol, overload

import numpy as np
import numpy.typing as npt

from graphbox import _core
from graphbox.errors import UsageError
from graphbox.native import Int64Array, host_array, integer_array, like, thread_count
from graphbox.table.arguments import (
    NO_BUDGET,
    Float32Array,
    budget_bytes,
    float32_rows,
    integer,
    new_rows,
    nonnegative,
    writable_rows,
)
from graphbox.table.policy import (
    PolicyEvents,
    RowCounters,
    ShrinkReport,
    TablePolicies,
    clock_seconds,
    show_counts,
)
from graphbox.table.slots import Slots

if TYPE_CHECKING:
    import torch

_ASSIGNED_BYTES: Final = 1 << 22
"""Rows of a part that is assigned at once: less than the least memory of a table on SSD."""

_MOST_ROWS: Final = (1 << 31) - 1


class TierAbove(Protocol):
    """Holds rows of a table where they are trained: :class:`graphbox.table.DeviceTable`."""

    def write_back(self) -> None:
        """Write what changed to the table."""
        ...

    def close(self) -> None:
        """Write what changed, and let go of the table."""
        ...


@dataclass(frozen=True)
class ClosedTable:
    """Why a native table can no longer be used.

    Attributes:
        folder: of its rows.
        message: of the error that each use raises.
        hint: a remedy.
    """

    folder: Path
    message: str = "the table is closed"
    hint: str = "open it again with EmbeddingTable.open"

    def error(self) -> UsageError:
        """Return the error that a use of the table raises."""
        return UsageError(self.message, where=str(self.folder), hint=self.hint)


class TableRows:
    """The rows of a native table: :class:`EmbeddingTable` says where they are kept besides memory.

    Args:
        native: holds the rows.
        policies: those it was made with.
        clock: tells the time in seconds since 1970, for ``expiry``.
        threads: of pull and push.
    """

    def __init__(
        self, native: _core.Table, policies: TablePolicies, clock: Callable[[], float], threads: int
    ) -> None:
        self._held: _core.Table | ClosedTable = native
        self._upper: TierAbove | None = None
        self._policies = policies
        self._clock = clock
        self._threads = threads

    def __len__(self) -> int:
        return len(self._native)

    @property
    def _native(self) -> _core.Table:
        """The native table, for what has nothing to do with the contents of rows.

        It is to be said anew in each call of the core, and kept in no variable: :meth:`EmbeddingTable.close`
        does not give its memory back while anything keeps it, say, after Ctrl-C in a notebook, a variable of
        the interrupted call in the traceback that the notebook remembers.

        Raises:
            UsageError: the table was closed, or belongs to the process that this one was forked from.
        """
        if isinstance(self._held, ClosedTable):
            raise self._held.error()
        return self._held

    @property
    def _current(self) -> _core.Table:
        """The native table, for the contents of rows: what a tier above changed is written back first.

        Raises:
            UsageError: see :attr:`_native`.
        """
        if self._upper is not None:
            self._upper.write_back()
        return self._native

    @property
    def dim(self) -> int:
        """Values of a row."""
        return self._native.dim

    @property
    def optimizer(self) -> str:
        """Name of the optimizer."""
        return self._native.optimizer.name

    @property
    def dtype(self) -> str:
        """Type of the stored values: ``float32`` or ``float16``."""
        return self._native.dtype

    @property
    def lr(self) -> float:
        """Learning rate, as float32 holds it."""
        return self._native.lr

    @lr.setter
    def lr(self, value: float) -> None:
        self._native.lr = nonnegative(value, "lr")

    @property
    def threads(self) -> int:
        """Threads of pull and push; changes no result."""
        return self._threads

    @threads.setter
    def threads(self, value: int | None) -> None:
        self._threads = thread_count(value)

    @property
    def seed(self) -> int:
        """Seed of the initial values."""
        return self._native.seed

    @property
    def nbytes(self) -> int:
        """Memory of rows and index in bytes."""
        return self._native.nbytes

    @property
    def memory_bytes(self) -> int | None:
        """The most memory the table may take, or None."""
        budget = self._native.memory_bytes
        return None if budget == NO_BUDGET else budget

    @memory_bytes.setter
    def memory_bytes(self, value: int | None) -> None:
        """Change the budget; rows leave memory for the table's folder where it must take less.

        Refused with DoesNotFitError where a table without a folder already takes more, or where there would
        be no room for the index and some rows.
        """
        self._native.memory_bytes = budget_bytes(value)

    @property
    def skipped_gradients(self) -> int:
        """Number of gradients in this process's pushes left out for NaN or infinity."""
        return self._native.skipped_gradients

    @property
    def policies(self) -> TablePolicies:
        """Admission and eviction policies."""
        return self._policies

    @property
    def policy_events(self) -> PolicyEvents:
        """Counts of policy events in this process."""
        events = self._native.policy_events()
        return PolicyEvents(
            events.admitted_keys,
            events.refused_pulls,
            events.dropped_gradients,
            events.evicted_rows,
            events.dropped_rows,
        )

    @property
    def passes(self) -> int:
        """Number of passes that have ended."""
        return self._native.passes

    @property
    def clock(self) -> Callable[[], float]:
        """Tells the time in seconds since 1970; can be set, also after loading."""
        return self._clock

    @clock.setter
    def clock(self, clock: Callable[[], float]) -> None:
        self._clock = clock

    def reserve(self, rows: int) -> None:
        """Make room in the index for so many more rows, so that it need not grow: then it is there twice.

        Raises:
            UsageError: no number of rows.
            DoesNotFitError: the index would leave no room for rows within ``memory_bytes``.
        """
        self._native.reserve(integer(rows, "rows", 0, _MOST_ROWS))

    @overload
    def pull(
        self, keys: torch.Tensor, out: torch.Tensor | None = ..., create: bool = ...
    ) -> torch.Tensor: ...

    @overload
    def pull(
        self,
        keys: npt.ArrayLike,
        out: Float32Array | None = ...,
        create: bool = ...,
    ) -> Float32Array: ...

    def pull(self, keys: Any, out: Any = None, create: bool = True) -> Any:
        """Return the rows of ``keys``.

        Args:
            keys: integers of any shape; every int64 is a legal key.
            out: float32 [*keys.shape, dim], contiguous, in host memory, to write into instead of new memory.
            create: give unknown keys a row, if they are admitted. Otherwise they get their initial values,
                and the table stays as it is.

        Returns:
            float32 [*keys.shape, dim]: ``out`` when given; a torch tensor when ``keys`` is one.

        Raises:
            UsageError: keys that are no integers, or ``out`` of another shape or dtype.
            DoesNotFitError: new rows would exceed ``memory_bytes``; none was created.
        """
        array = integer_array(keys, "keys", dimensions=None)
        shape = (*array.shape, self.dim)
        if create:
            self._look_at_clock()
        if out is None:
            return like(self._current.pull(array.reshape(-1), create, self._threads).reshape(shape), keys)
        rows = writable_rows(out, "out", shape)
        self._current.pull_into(array.reshape(-1), rows, create, self._threads)
        return out

    @overload
    def pull_slots(
        self, keys: torch.Tensor, out: torch.Tensor | None = ...
    ) -> tuple[torch.Tensor, Slots]: ...

    @overload
    def pull_slots(
        self, keys: npt.ArrayLike, out: Float32Array | None = ...
    ) -> tuple[Float32Array, Slots]: ...

    def pull_slots(self, keys: Any, out: Any = None) -> tuple[Any, Slots]:
        """Return the rows of ``keys`` as :meth:`pull` does, and where they are.

        A training step that pushes to these looks every key up once instead of twice.

        Raises:
            UsageError: keys that are no integers, or ``out`` of another shape or dtype.
            DoesNotFitError: new rows would exceed ``memory_bytes``; none was created.
        """
        array = integer_array(keys, "keys", dimensions=None)
        shape = (*array.shape, self.dim)
        if out is None:
            rows = new_rows(array.size, self.dim)
            result = like(rows.reshape(shape), keys)
        else:
            rows, result = writable_rows(out, "out", shape), out
        self._look_at_clock()
        pulled = self._current.pull_rows(array.reshape(-1), rows, True, self._threads)
        return result, Slots(self, array.shape, pulled)

    def push_slots(self, slots: Slots, grads: Any, *, shows: Any = None, clicks: Any = None) -> None:
        """Apply gradients as :meth:`push` does to the rows that :meth:`pull_slots` gave.

        Args:
            slots: of this table. They stay right whatever happens to the table: after an :meth:`erase`, or
                where a key had no row, the keys are looked up again.
            grads: float32 [*slots.shape, dim].
            shows: as in :meth:`push`, as clicks.
            clicks: numbers of shape ``slots.shape``.

        Raises:
            UsageError: slots of another table, wrong shapes or dtypes.
            DataError: a gradient that holds NaN or infinity, where those are not skipped; none was applied.
        """
        if not isinstance(slots, Slots) or slots.table is not self:
            raise UsageError("expected slots that this table's pull_slots gave", where="slots")
        gradients = float32_rows(grads, "grads", (*slots.shape, self.dim))
        counts = self._counts(shows, clicks, slots.shape)
        self._look_at_clock()
        self._current.push_rows(slots._rows, gradients, self._threads, *counts)

    def push(self, keys: Any, grads: Any, *, shows: Any = None, clicks: Any = None) -> None:
        """Apply gradients; those of equal keys are summed (or averaged) first, in their order.

        A key without a row gets one first, as :meth:`pull` would have given it. Where ``admission`` counts
        pulls, a push counts nothing: it is dropped for keys that were not pulled often enough.

        Args:
            keys: integers of any shape.
            grads: float32 [*keys.shape, dim].
            shows: how often each key was shown, numbers of shape ``keys.shape``; only of a table with
                ``score``, whose rows count them, or with ``mean_gradient``, where the gradients of a key are
                divided by the sum of its shows; where that is 0, they count as 0. None: once.
            clicks: how many of the shows were clicked; only of a table with ``score``. None: none.

        Raises:
            UsageError: wrong shapes or dtypes, or shows or clicks that nothing counts.
            DataError: a gradient that holds NaN or infinity, where those are not skipped; none was applied.
            DoesNotFitError: new rows would exceed ``memory_bytes``; nothing was applied.
        """
        array = integer_array(keys, "keys", dimensions=None)
        gradients = float32_rows(grads, "grads", (*array.shape, self.dim))
        counts = self._counts(shows, clicks, array.shape)
        self._look_at_clock()
        self._current.push(array.reshape(-1), gradients, self._threads, *counts)

    def _counts(self, shows: Any, clicks: Any, shape: tuple[int, ...]) -> tuple[Any, Any]:
        """Return shows and clicks of a push as the core takes them."""
        if shows is None and clicks is None:
            return None, None
        self._check_counted(shows, clicks)
        return show_counts(shows, "shows", shape), show_counts(clicks, "clicks", shape)

    def _check_counted(self, shows: Any, clicks: Any) -> None:
        """Refuse shows and clicks that nothing counts."""
        if shows is not None and self._policies.score is None and not self._native.optimizer.mean_gradient:
            raise UsageError(
                "expected a table with score or mean_gradient, which use shows; this one has neither",
                where="shows",
                hint="make it with score=ShowClickScore() or mean_gradient=True, or leave shows out",
            )
        if clicks is not None and self._policies.score is None:
            raise UsageError(
                "expected a table with score, which counts clicks; this one has none",
                where="clicks",
                hint="make it with score=ShowClickScore(), or leave clicks out",
            )

    def assign(self, keys: Any, rows: Any) -> None:
        """Give keys these values, say those of a pretrained model; what has no row gets one.

        ``admission`` refuses none of the keys. Optimizer state of the rows begins anew, what policies count
        goes on. Where a key comes twice, its last values count. Large arrays are taken in parts, each at
        once, so they may exceed what fits into memory beside a folder on SSD.

        Args:
            keys: integers of any shape.
            rows: floating [*keys.shape, dim].

        Raises:
            UsageError: wrong shapes or dtypes.
            DataError: values that are NaN or infinite.
            DoesNotFitError: new rows would exceed ``memory_bytes``; parts before this one are assigned.
        """
        array = integer_array(keys, "keys", dimensions=None)
        values = np.asarray(host_array(rows, "rows"))
        if values.dtype.kind != "f" or values.shape != (*array.shape, self.dim):
            raise UsageError(
                f"expected floating {(*array.shape, self.dim)}, received {values.dtype} {values.shape}",
                where="rows",
            )
        flat, values = array.reshape(-1), values.reshape(-1, self.dim)
        part_rows = max(1, _ASSIGNED_BYTES // (4 * self.dim))
        for begin in range(0, len(flat), part_rows):
            part = slice(begin, begin + part_rows)
            self._look_at_clock()
            self._current.assign(
                flat[part], np.ascontiguousarray(values[part], dtype=np.float32), self._threads
            )

    def contains(self, keys: Any) -> npt.NDArray[np.bool_]:
        """Return whether each key has a row: bool [*keys.shape]."""
        array = integer_array(keys, "keys", dimensions=None)
        return self._native.contains(array.reshape(-1), self._threads).reshape(array.shape)

    def erase(self, keys: Any) -> int:
        """Forget keys, their rows and their state; return how many had a row.

        A key that comes back starts anew. Later keys get the memory of those that were erased.
        """
        return self._current.erase(integer_array(keys, "keys", dimensions=None).reshape(-1))

    def end_pass(self) -> None:
        """Say that a pass over the data has ended: what was shown and clicked so far counts less from now on.

        Takes no time: rows are told by the pass that last saw them. See ``expiry``, ``score`` and
        ``admission``.
        """
        self._native.end_pass()

    def shrink(self) -> ShrinkReport:
        """Drop rows that have expired or are of low score, and say what was dropped and why.

        Their keys are as if they were erased: they start anew when they come back. A table without
        ``expiry`` and ``score`` stays as it is.
        """
        self._look_at_clock()
        counts = self._current.shrink(self._threads)
        return ShrinkReport(
            counts.examined,
            counts.unseen_passes,
            counts.unseen_seconds,
            counts.low_score,
            counts.freed_bytes,
        )

    def counters(self, keys: Any) -> RowCounters:
        """Return what the table's policies know of ``keys``; changes nothing.

        Raises:
            UsageError: keys that are no integers, or a table without ``score`` and ``expiry``.
        """
        array = integer_array(keys, "keys", dimensions=None)
        columns = self._current.counters(array.reshape(-1), self._threads)
        return RowCounters(*(column.reshape(array.shape) for column in columns))

    def _look_at_clock(self) -> int:
        """Tell the native table the time, if its policies want to know; return it, or 0."""
        if not self._policies.has_counters:
            return 0
        seconds = clock_seconds(self._clock())
        self._native.set_time(seconds)
        return seconds

    def keys(self) -> Int64Array:
        """Return all keys, int64 [len]: in the order they came unless some were erased or are on SSD."""
        return self._native.keys()

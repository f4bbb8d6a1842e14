"""Rows on their way to a device while it computes."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from graphbox.errors import GraphboxError, TimeLimitError

if TYPE_CHECKING:
    from graphbox.native import Int64Array


@dataclass(frozen=True, slots=True)
class DevicePrefetched:
    """Result of a prefetch to a device.

    Attributes:
        rows: number of different keys whose rows were on the device when it ended, as far as it got.
        rows_read: number of these that it copied there.
    """

    rows: int
    rows_read: int


@dataclass(slots=True)
class ReadAhead:
    """Rows that are being read from the table below, and what became of them meanwhile.

    Attributes:
        keys: theirs.
        written: keys whose rows were written to the table below since: what was read of them may be old.
        is_void: the table below was changed by others.
    """

    keys: Int64Array
    written: list[Int64Array] = field(default_factory=list)
    is_void: bool = False

    def usable(self, has_row: npt.NDArray[np.bool_]) -> npt.NDArray[np.bool_]:
        """Return which rows are what the table below holds."""
        if self.is_void:
            return np.zeros_like(has_row)
        return has_row & ~np.isin(self.keys, np.concatenate([np.zeros(0, np.int64), *self.written]))


class DevicePrefetch:
    """A running prefetch: what :meth:`DeviceTable.prefetch` returns.

    Args:
        work: brings the rows; asked to stop by the event that it is given.
    """

    def __init__(self, work: Callable[[threading.Event], DevicePrefetched]) -> None:
        self._work = work
        self._stop = threading.Event()
        self._ended = threading.Event()
        self._result: DevicePrefetched | None = None
        self._error: BaseException | None = None

    def __repr__(self) -> str:
        if not self.is_done:
            return "DevicePrefetch(reading)"
        return f"DevicePrefetch({f'failed: {self._error}' if self._error else self._result})"

    def start(self, *, in_background: bool) -> None:
        """Begin: in a thread of its own, or all of it now."""
        if in_background:
            threading.Thread(target=self._run, name="graphbox-device-prefetch", daemon=True).start()
        else:
            self._run()

    @property
    def is_done(self) -> bool:
        """Whether it has ended."""
        return self._ended.is_set()

    def wait(self, timeout_s: float | None = None) -> DevicePrefetched:
        """Wait for the end, and return what was achieved.

        Raises:
            TimeLimitError: it did not end within ``timeout_s`` seconds; it goes on.
            GraphboxError: what went wrong while rows were read.
        """
        if not self._ended.wait(timeout_s):
            raise TimeLimitError(
                f"waited {timeout_s} s for rows to be brought to the device",
                hint="wait longer; rows that are not there in time are brought when they are pulled",
            )
        if self._result is None:
            raise self._error or GraphboxError("the prefetch ended without a result")
        return self._result

    def join(self) -> None:
        """Wait for the end, whatever it is."""
        self._ended.wait()

    def cancel(self) -> None:
        """Stop soon. Rows that were brought stay."""
        self._stop.set()

    def _run(self) -> None:
        try:
            self._result = self._work(self._stop)
        except BaseException as error:  # noqa: BLE001 - raised again by whoever waits
            self._error = error
        finally:
            self._ended.set()

"""Arrival times of an open loop, and a timer that is more precise than the millisecond of an event loop."""

from __future__ import annotations

import asyncio
import ctypes
import os
import time
from collections.abc import Callable, Iterator

import numpy as np

from graphbox.server.load.plan import Arrivals

__all__ = ["ArrivalProcess", "PrecisionTimer", "arrival_times"]

_BLOCK = 4096
_CLOCK_MONOTONIC = 1
_ABSOLUTE = 1
_NANOSECONDS = 1_000_000_000


def arrival_times(rate: float, arrivals: Arrivals, begin_ns: int, seed: int) -> Iterator[int]:
    """Yield the intended times of requests in nanoseconds, without end.

    Args:
        rate: requests per second.
        arrivals: ``constant`` intervals, or ``poisson``: exponentially distributed ones.
        begin_ns: time from which intervals count.
        seed: of the intervals.
    """
    generator = np.random.default_rng(seed)
    at = float(begin_ns)
    while True:
        intervals = generator.standard_exponential(_BLOCK) if arrivals == "poisson" else np.ones(_BLOCK)
        times = at + np.cumsum(intervals) * (_NANOSECONDS / rate)
        yield from times.astype(np.int64).tolist()
        at = float(times[-1])


class _TimeSpec(ctypes.Structure):
    _fields_ = (("seconds", ctypes.c_long), ("nanoseconds", ctypes.c_long))


class _TimerSpec(ctypes.Structure):
    _fields_ = (("interval", _TimeSpec), ("value", _TimeSpec))


class PrecisionTimer:
    """Calls a function at times of `time.monotonic_ns`, by a timerfd of Linux.

    epoll, and therefore `loop.call_at`, waits whole milliseconds: several requests of a fast open loop would
    be sent at once.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, callback: Callable[[], None]) -> None:
        self._loop = loop
        self._callback = callback
        self._library = ctypes.CDLL(None, use_errno=True)
        self._file = self._library.timerfd_create(_CLOCK_MONOTONIC, os.O_NONBLOCK | os.O_CLOEXEC)
        if self._file < 0:
            raise OSError(ctypes.get_errno(), "timerfd_create failed")
        loop.add_reader(self._file, self._expired)

    def set(self, at_ns: int) -> None:
        """Call the function at a time; one that has passed means at once. Replaces an earlier time."""
        at = max(at_ns, time.monotonic_ns() - 1, 1)
        spec = _TimerSpec(_TimeSpec(0, 0), _TimeSpec(*divmod(at, _NANOSECONDS)))
        if self._library.timerfd_settime(self._file, _ABSOLUTE, ctypes.byref(spec), None):
            raise OSError(ctypes.get_errno(), "timerfd_settime failed")

    def close(self) -> None:
        """Stop the timer."""
        self._loop.remove_reader(self._file)
        os.close(self._file)

    def _expired(self) -> None:
        try:
            os.read(self._file, 8)
        except BlockingIOError:
            return  # it was set anew in between
        self._callback()


class ArrivalProcess:
    """Announces the requests of an open loop when they are due, from now on; on the running event loop.

    Args:
        rate, arrivals, seed: see `arrival_times`.
        end_ns: no request is due from this time of `time.monotonic_ns` on.
        arrive: called with the intended time of each request.
    """

    def __init__(
        self, rate: float, arrivals: Arrivals, seed: int, end_ns: int, arrive: Callable[[int], None]
    ) -> None:
        self._times = arrival_times(rate, arrivals, time.monotonic_ns(), seed)
        self._next = next(self._times)
        self._end_ns = end_ns
        self._arrive = arrive
        self._timer = PrecisionTimer(asyncio.get_running_loop(), self._release)
        self._timer.set(self._next)

    def close(self) -> None:
        """Announce no more."""
        self._timer.close()

    def _release(self) -> None:
        now = time.monotonic_ns()
        while self._next <= now:
            if self._next >= self._end_ns:
                return
            self._arrive(self._next)
            self._next = next(self._times)
        self._timer.set(self._next)

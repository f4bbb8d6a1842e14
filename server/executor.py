"""Threads for model executions: short ones run on the event loop, long ones never hold up the others."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from http import HTTPStatus
from typing import TypeVar

from graphbox.deploy.cancellation import Cancellation, cancellable
from graphbox.server.problem import RefusedError

__all__ = ["CostEstimate", "Executor"]

Result = TypeVar("Result")

# A hand-over to a thread costs about 0.1 ms; shorter work delays other requests less on the event loop.
INLINE_NS = 500_000
# Longer work has threads of its own.
LONG_NS = 20_000_000
_LONG_WORK_OF_UNKNOWN_COST = 256
_WEIGHT = 0.1
_WEIGHT_OF_FASTER = 0.5
_MOST_GROWTH = 4
_KEPT_OBSERVATIONS = 4096
_BELIEVED_OBSERVATIONS = 3


class CostEstimate:
    """Time of a model for an amount of work, estimated from its executions.

    Executions are told apart by the power of two of their work, as time is no multiple of it: a batch costs
    less for each row than a single row. Sizes that are not executed any more are forgotten: what once seemed
    too long for the event loop, as its processor was taken away, is tried again.
    """

    def __init__(self) -> None:
        self._ns: dict[int, float] = {}
        self._observations = 0
        self._counts: dict[int, int] = {}
        self._last_observation: dict[int, int] = {}

    def estimate_ns(self, work: int) -> float | None:
        """Return the time of an execution, at most; None where none was observed."""
        size = max(work, 1).bit_length()
        known = self._ns.get(size)
        if known is not None or not self._ns:
            return known
        return self._extrapolated_ns(size)

    def _extrapolated_ns(self, size: int) -> float:
        nearest = self._nearest(size)
        return self._ns[nearest] * float(1 << min(max(size - nearest, 0), 64))

    def _nearest(self, size: int) -> int:
        """Return the largest size up to ``size`` that was observed, or else the smallest one."""
        return max((each for each in self._ns if each <= size), default=None) or min(self._ns)

    def at_least_ns(self, work: int) -> float:
        """Return the time of an execution, at least; 0 where nothing like it was observed often enough.

        Calls are refused by it, and the first executions of a model say little about the next ones.
        """
        size = work.bit_length()
        counts = self._counts
        return max(
            (ns for each, ns in self._ns.items() if each <= size and counts[each] >= _BELIEVED_OBSERVATIONS),
            default=0.0,
        )

    def is_short(self, work: int) -> bool:
        """Return whether an execution may run on the event loop. Of unknown cost, none may."""
        ns = self.estimate_ns(work)
        return ns is not None and ns < INLINE_NS

    def is_long(self, work: int) -> bool:
        """Return whether an execution belongs to the threads of long ones.

        The first executions of a model are slow: what they took would send short ones to wait for long ones.
        """
        ns = self.estimate_ns(work)
        if ns is None or self._counts[self._nearest(max(work, 1).bit_length())] < _BELIEVED_OBSERVATIONS:
            return work > _LONG_WORK_OF_UNKNOWN_COST
        return ns > LONG_NS

    def observe(self, work: int, ns: int) -> None:
        """Update the estimate: this much work took ``ns``."""
        size = max(work, 1).bit_length()
        known = self._ns.get(size)
        if known is None and min(self._ns, default=size) < size:
            known = self._extrapolated_ns(size)
            known = known if ns > known else None
        if known is None:
            self._ns[size] = ns
        else:
            # One that lost its processor, or was the first, says little about the next ones.
            weight = _WEIGHT if ns > known else _WEIGHT_OF_FASTER
            self._ns[size] = known + weight * (min(ns, known * _MOST_GROWTH) - known)
        self._observations += 1
        self._counts[size] = self._counts.get(size, 0) + 1
        self._last_observation[size] = self._observations
        if self._observations % _KEPT_OBSERVATIONS == 0:
            self._forget()

    def _forget(self) -> None:
        """Forget sizes that were not observed among the last `_KEPT_OBSERVATIONS`."""
        oldest = self._observations - _KEPT_OBSERVATIONS
        for size, last in list(self._last_observation.items()):
            if last <= oldest:
                del self._ns[size], self._counts[size], self._last_observation[size]


class Executor:
    """Two pools of threads, one of them for long executions, with one bounded queue.

    Long executions have half the threads, so that a short one never waits for them to end.

    Args:
        max_pending: most executions queued or running.
        threads: threads for short executions; the number of CPUs by default.
        gauge: int64 [1], shows other processes how many are pending; None: they do not see it.

    Attributes:
        turns: one for each thread of short executions. Work of several executions that keeps much in between
            takes one from its first execution to its last: queued one after the other, the first ones of all
            would come before the last one of any.
    """

    def __init__(
        self, max_pending: int, threads: int | None = None, gauge: memoryview[int] | None = None
    ) -> None:
        threads = threads or os.cpu_count() or 1
        self._max_pending = max_pending
        self._short = ThreadPoolExecutor(threads, thread_name_prefix="graphbox-model")
        self._long = ThreadPoolExecutor(max(1, threads // 2), thread_name_prefix="graphbox-model-long")
        self.turns = asyncio.Semaphore(threads)
        self._pending = 0
        self._gauge = memoryview(bytearray(8)).cast("q") if gauge is None else gauge
        self._lock = threading.Lock()

    @property
    def pending(self) -> int:
        """Executions queued or running."""
        return self._pending

    async def run(
        self, work: Callable[[], Result], cancellation: Cancellation | None = None, *, long: bool = False
    ) -> Result:
        """Run ``work`` on a thread.

        When the caller is cancelled, queued work is dropped and running work ends at its next
        `graphbox.deploy.cancellation.check_cancelled`; its place is free then.

        Args:
            work: called once, within `cancellable`.
            cancellation: ends the work; also carries its time limit.
            long: whether it takes a thread of long executions.

        Raises:
            RefusedError: 503, too many executions are waiting.
            TimeLimitError: the time limit of ``cancellation`` has passed.
        """
        cancellation = cancellation or Cancellation()
        future = self.submit(work, cancellation, long=long)
        try:
            return await asyncio.wrap_future(future)
        except asyncio.CancelledError:
            cancellation.cancel()
            raise
        finally:
            # An error refers to this frame, which refers to the error: the body would wait for the collector.
            del future

    def submit(
        self, work: Callable[[], Result], cancellation: Cancellation, *, long: bool = False
    ) -> Future[Result]:
        """Run ``work`` on a thread; see `run`.

        Raises:
            RefusedError: 503, too many executions are waiting, or the server stops.
        """
        pool = self._long if long else self._short
        with self._lock:
            if self._pending >= self._max_pending:
                raise RefusedError(
                    HTTPStatus.SERVICE_UNAVAILABLE,
                    "overloaded",
                    f"{self._pending} executions are waiting, the most this server takes",
                    hint="try again in a second",
                    headers={"retry-after": "1"},
                )
            self._pending += 1
            self._gauge[0] = self._pending
        try:
            future = pool.submit(_run, work, cancellation)
        except RuntimeError as error:
            self._done()
            raise RefusedError(
                HTTPStatus.SERVICE_UNAVAILABLE, "stopping", "the server is stopping"
            ) from error
        future.add_done_callback(lambda _: self._done())
        return future

    def _done(self) -> None:
        with self._lock:
            self._pending -= 1
            self._gauge[0] = self._pending

    def close(self) -> None:
        """Drop queued work and wait for running work."""
        for pool in (self._short, self._long):
            pool.shutdown(wait=True, cancel_futures=True)


def _run(work: Callable[[], Result], cancellation: Cancellation) -> Result:
    with cancellable(cancellation):
        cancellation.check()
        return work()

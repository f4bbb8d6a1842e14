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
from graphbox.server.asgi import Receive
from graphbox.server.problem import ClientLeftError, RefusedError

__all__ = ["CostEstimate", "Executor"]

Result = TypeVar("Result")

# A hand-over to a thread costs about 0.1 ms; shorter work delays other requests less on the event loop.
INLINE_NS = 500_000
# Longer work has threads of its own.
LONG_NS = 20_000_000
_LONG_WORK_OF_UNKNOWN_COST = 256
_WEIGHT = 0.1


class CostEstimate:
    """Time of a model for an amount of work, estimated from its executions."""

    def __init__(self) -> None:
        self._ns_per_unit: float | None = None

    def is_short(self, work: int) -> bool:
        """Return whether an execution may run on the event loop. Of unknown cost, none may."""
        return self._ns_per_unit is not None and self._ns_per_unit * max(work, 1) < INLINE_NS

    def is_long(self, work: int) -> bool:
        """Return whether an execution belongs to the threads of long ones."""
        if self._ns_per_unit is None:
            return work > _LONG_WORK_OF_UNKNOWN_COST
        return self._ns_per_unit * work > LONG_NS

    def observe(self, work: int, ns: int) -> None:
        """Update the estimate: this much work took ``ns``."""
        # A large batch costs less per row than a small one, so the estimate errs on the side of threads.
        measured = ns / max(work, 1)
        known = self._ns_per_unit
        self._ns_per_unit = measured if known is None else known + _WEIGHT * (measured - known)


class Executor:
    """Two pools of threads, one of them for long executions, with one bounded queue.

    Long executions have half the threads, so that a short one never waits for them to end.

    Args:
        max_pending: most executions queued or running.
        threads: threads for short executions; the number of CPUs by default.
    """

    def __init__(self, max_pending: int, threads: int | None = None) -> None:
        threads = threads or os.cpu_count() or 1
        self._max_pending = max_pending
        self._short = ThreadPoolExecutor(threads, thread_name_prefix="graphbox-model")
        self._long = ThreadPoolExecutor(max(1, threads // 2), thread_name_prefix="graphbox-model-long")
        self._pending = 0
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
        future = self._submit(work, cancellation, self._long if long else self._short)
        try:
            return await asyncio.wrap_future(future)
        except asyncio.CancelledError:
            cancellation.cancel()
            raise
        finally:
            # An error refers to this frame, which refers to the error: the body would wait for the collector.
            del future

    async def run_while_connected(
        self,
        receive: Receive,
        work: Callable[[], Result],
        cancellation: Cancellation | None = None,
        *,
        long: bool = False,
    ) -> Result:
        """Run ``work`` as `run` does, until the client of ``receive`` leaves.

        Args:
            receive: of an ASGI request whose body has been read.
            work: see `run`.
            cancellation: see `run`.
            long: see `run`.

        Raises:
            ClientLeftError: the client closed the connection.
        """
        execution = asyncio.ensure_future(self.run(work, cancellation, long=long))
        departure = asyncio.ensure_future(_departure(receive))
        try:
            await asyncio.wait({execution, departure}, return_when=asyncio.FIRST_COMPLETED)
            if not execution.done():
                raise ClientLeftError
            return execution.result()
        finally:
            departure.cancel()
            execution.cancel()
            del departure, execution  # see `run`

    def _submit(
        self, work: Callable[[], Result], cancellation: Cancellation, pool: ThreadPoolExecutor
    ) -> Future[Result]:
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

    def close(self) -> None:
        """Drop queued work and wait for running work."""
        for pool in (self._short, self._long):
            pool.shutdown(wait=True, cancel_futures=True)


def _run(work: Callable[[], Result], cancellation: Cancellation) -> Result:
    with cancellable(cancellation):
        cancellation.check()
        return work()


async def _departure(receive: Receive) -> None:
    """Return when the client has left."""
    while (await receive())["type"] != "http.disconnect":
        pass

"""Where model executions run: short ones on the event loop, the others on threads, never too many at once."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from http import HTTPStatus
from typing import TypeVar

from graphbox.server.problem import RefusedError

__all__ = ["CostEstimate", "Executor"]

Result = TypeVar("Result")

# A hand-over to a thread costs about 0.1 ms; work shorter than this holds other requests up less.
INLINE_NS = 500_000
_WEIGHT = 0.1


class CostEstimate:
    """How long a model takes for an amount of work, learnt from its executions."""

    def __init__(self) -> None:
        self._ns_per_unit: float | None = None

    def is_short(self, work: int) -> bool:
        """Tell whether an execution may run on the event loop. Unknown is long."""
        return self._ns_per_unit is not None and self._ns_per_unit * max(work, 1) < INLINE_NS

    def observe(self, work: int, ns: int) -> None:
        """Learn that this much work took ``ns``."""
        # A large batch costs less per row than a small one, so this errs on the side of threads.
        measured = ns / max(work, 1)
        known = self._ns_per_unit
        self._ns_per_unit = measured if known is None else known + _WEIGHT * (measured - known)


class Executor:
    """A pool of threads with a bounded queue.

    Args:
        max_pending: most executions queued or running.
        threads: threads of the pool; the number of CPUs by default.
    """

    def __init__(self, max_pending: int, threads: int | None = None) -> None:
        self._max_pending = max_pending
        self._pool = ThreadPoolExecutor(threads or os.cpu_count() or 1, thread_name_prefix="graphbox-model")
        self._pending = 0
        self._lock = threading.Lock()

    @property
    def pending(self) -> int:
        """Executions queued or running."""
        return self._pending

    async def run(self, work: Callable[[], Result]) -> Result:
        """Run ``work`` on a thread.

        A caller that is cancelled leaves the work running; its place is free when it is done.

        Raises:
            RefusedError: 503, too many executions are waiting.
        """
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
            future = self._pool.submit(work)
        except RuntimeError as error:
            self._done()
            raise RefusedError(
                HTTPStatus.SERVICE_UNAVAILABLE, "stopping", "the server is stopping"
            ) from error
        future.add_done_callback(lambda _: self._done())
        return await asyncio.wrap_future(future)

    def _done(self) -> None:
        with self._lock:
            self._pending -= 1

    def close(self) -> None:
        """Drop what is queued and wait for what runs."""
        self._pool.shutdown(wait=True, cancel_futures=True)

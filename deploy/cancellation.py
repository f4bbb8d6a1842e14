"""Cancellation of executions that nobody waits for any more.

A long execution works in chunks and calls `check_cancelled` between them. The caller runs it within
`cancellable`; the check finds the caller's `Cancellation` in a context variable, so that the functions in
between need no parameter for it.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from graphbox.errors import TimeLimitError

__all__ = ["Cancellation", "ExecutionCancelledError", "cancellable", "check_cancelled"]


class ExecutionCancelledError(Exception):
    """The caller has left; no one receives this as an answer."""


class Cancellation:
    """The state of an execution: wanted, cancelled or out of time. Safe to use from any thread.

    Args:
        limit_s: time after which `check` raises TimeLimitError; None: no limit.
        elapsed_s: part of that time that has passed already.
    """

    def __init__(self, limit_s: float | None = None, elapsed_s: float = 0.0) -> None:
        self._limit_s = limit_s
        self._deadline = None if limit_s is None else time.monotonic() + limit_s - elapsed_s
        self._cancelled = False

    def cancel(self) -> None:
        """Make every later `check` raise ExecutionCancelledError."""
        self._cancelled = True

    def check(self) -> None:
        """Return while the result is wanted.

        Raises:
            ExecutionCancelledError: `cancel` was called.
            TimeLimitError: the time limit has passed.
        """
        if self._cancelled:
            raise ExecutionCancelledError
        if self._deadline is not None and time.monotonic() > self._deadline:
            raise TimeLimitError(
                f"expected an answer within {self._limit_s:g} s, the limit of the request; it was not ready",
                hint="send fewer rows in one request, or a longer timeout",
            )


_current: ContextVar[Cancellation | None] = ContextVar("graphbox_cancellation", default=None)


@contextmanager
def cancellable(cancellation: Cancellation) -> Iterator[None]:
    """Make `check_cancelled` follow ``cancellation`` for the time of the block, in this thread."""
    token = _current.set(cancellation)
    try:
        yield
    finally:
        _current.reset(token)


def check_cancelled() -> None:
    """Raise if the execution that calls this was cancelled or is out of time; see `Cancellation.check`."""
    cancellation = _current.get()
    if cancellation is not None:
        cancellation.check()

"""What a pipeline tells whoever watches it, and how it is asked to stop."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from types import FrameType
from typing import Protocol

from graphbox.errors import InterruptedRunError

__all__ = ["Progress", "Silence", "Stop", "stop_on_signals"]


class Progress(Protocol):
    """Receives what a pipeline is doing."""

    def begin(self, stage: str, position: int, count: int) -> None:
        """A stage starts; it is number ``position`` (from 1) of ``count``."""

    def step(
        self,
        what: str,
        done: float,
        total: float | None,
        unit: str = "",
        values: Mapping[str, float] | None = None,
    ) -> None:
        """``done`` of ``total`` units of ``what`` are done; ``values`` are figures to show beside."""

    def end(self, stage: str, seconds: float, peak_bytes: int, summary: str) -> None:
        """A stage has ended well."""

    def note(self, text: str) -> None:
        """Something worth telling a person happened."""


class Silence:
    """Progress that nobody watches."""

    def begin(self, stage: str, position: int, count: int) -> None:
        """Do nothing."""

    def step(
        self,
        what: str,
        done: float,
        total: float | None,
        unit: str = "",
        values: Mapping[str, float] | None = None,
    ) -> None:
        """Do nothing."""

    def end(self, stage: str, seconds: float, peak_bytes: int, summary: str) -> None:
        """Do nothing."""

    def note(self, text: str) -> None:
        """Do nothing."""


class Stop:
    """A request to stop at the next safe point."""

    def __init__(self) -> None:
        self._event = threading.Event()

    @property
    def requested(self) -> bool:
        """Whether someone asked to stop."""
        return self._event.is_set()

    def __call__(self) -> bool:
        """Return `requested`."""
        return self.requested

    def request(self) -> None:
        """Ask to stop."""
        self._event.set()

    def check(self) -> None:
        """Stop here if asked to.

        Raises:
            InterruptedRunError: someone asked to stop.
        """
        if self.requested:
            raise InterruptedRunError("stopped on request")


@contextmanager
def stop_on_signals(
    tell: Callable[[str], None], what_is_left: str = "writing a checkpoint"
) -> Iterator[Stop]:
    """Give a `Stop` that the first Ctrl-C or SIGTERM requests; a second Ctrl-C raises KeyboardInterrupt.

    Outside the main thread, where Python handles no signals, nothing is handled.

    Args:
        tell: called with a remark when a signal has come.
        what_is_left: what is done before the process ends, for the remark.
    """
    stop = Stop()

    def handle(number: int, _frame: FrameType | None) -> None:
        if number == signal.SIGINT and stop.requested:
            raise KeyboardInterrupt
        if not stop.requested:
            stop.request()
            tell(f"stopping: {what_is_left} (Ctrl-C again to stop at once)")

    if threading.current_thread() is not threading.main_thread():
        yield stop
        return
    before = {number: signal.signal(number, handle) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)

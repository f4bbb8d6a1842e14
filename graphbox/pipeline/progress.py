"""Progress reports of a pipeline, and requests to stop it."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from types import FrameType
from typing import Protocol

from graphbox.errors import InterruptedRunError

STOPPED = "stopped on request"


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
    """A request to stop at the next safe point.

    Attributes:
        last_work: what is done before the process ends, for the remark on a signal.
    """

    def __init__(self, last_work: str = "writing a checkpoint") -> None:
        self._event = threading.Event()
        self._raises = False
        self.last_work = last_work

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

    def request_by_signal(self) -> None:
        """Ask to stop, from a signal handler in the main thread.

        Raises:
            InterruptedRunError: the main thread is in a block of :meth:`at_once`.
        """
        self._event.set()
        if self._raises:
            self.check()

    @contextmanager
    def at_once(self) -> Iterator[None]:
        """Let a signal end the block wherever it is: for work of the main thread that writes no files.

        Raises:
            InterruptedRunError: someone asked to stop.
        """
        self.check()
        self._raises = True
        try:
            yield
        finally:
            self._raises = False
        self.check()  # some libraries catch every exception while they are imported

    def check(self) -> None:
        """Stop here if asked to.

        Raises:
            InterruptedRunError: someone asked to stop.
        """
        if self.requested:
            raise InterruptedRunError(STOPPED)


@contextmanager
def stop_on_signals(tell: Callable[[str], None], last_work: str = "writing a checkpoint") -> Iterator[Stop]:
    """Yield a `Stop` that the first Ctrl-C or SIGTERM requests; a second Ctrl-C raises KeyboardInterrupt.

    Outside the main thread, where Python handles no signals, nothing is handled.

    Args:
        tell: called with a remark when a signal has come.
        last_work: what is done before the process ends, for the remark; stages of a run replace it.
    """
    stop = Stop(last_work)

    def handle(number: int, _frame: FrameType | None) -> None:
        if number == signal.SIGINT and stop.requested:
            raise KeyboardInterrupt
        if not stop.requested:
            tell(f"stopping: {stop.last_work} (Ctrl-C again to stop at once)")
            stop.request_by_signal()

    if threading.current_thread() is not threading.main_thread():
        yield stop
        return
    before = {number: signal.signal(number, handle) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)

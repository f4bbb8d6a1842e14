"""Ends of waits for streams, which have none of their own."""

from __future__ import annotations

import itertools
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

__all__ = ["Deadlines"]

_LOOK_SECONDS: Final = 0.1


class Deadlines:
    """Cancels what takes longer than it may: a call of Flight has a limit, one message of a stream has none.

    One thread looks after all streams of a trainer, so that a message costs two entries of a dictionary.
    """

    def __init__(self) -> None:
        self._waits: dict[int, tuple[float, Callable[[], None]]] = {}
        self._numbers = itertools.count()  # several threads take from it
        self._ends = threading.Event()
        looking = threading.Thread(
            target=_look, args=(weakref.ref(self), self._ends), name="deadlines of shards", daemon=True
        )
        looking.start()

    @contextmanager
    def within(self, seconds: float, cancel: Callable[[], None]) -> Iterator[Callable[[], bool]]:
        """Cancel what the block waits for after so many seconds.

        Yields:
            A function that says whether it was cancelled.
        """
        number = next(self._numbers)
        self._waits[number] = (time.monotonic() + seconds, cancel)
        try:
            yield lambda: number not in self._waits
        finally:
            self._waits.pop(number, None)

    def close(self) -> None:
        """End the thread."""
        self._ends.set()

    def cancel_late(self) -> None:
        """Cancel all waits whose time is over."""
        now = time.monotonic()
        for number, (until, cancel) in list(self._waits.items()):
            if now > until and self._waits.pop(number, None) is not None:
                cancel()


def _look(deadlines: weakref.ref[Deadlines], ends: threading.Event) -> None:
    while not ends.wait(_LOOK_SECONDS):
        found = deadlines()
        if found is None:
            return
        found.cancel_late()
        del found

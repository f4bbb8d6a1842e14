"""Readers-writer lock for state that changes when a pass ends."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager


class PassGate:
    """Lets any number of threads read, or one thread change what they read.

    Who wants to change it goes before readers that come later, and those that waited meanwhile go before the
    next one who does: neither keeps the other out for good.
    """

    def __init__(self) -> None:
        self._condition = threading.Condition()
        self._readers = 0
        self._waiting = 0  # readers
        self._admitted = 0  # of these, whose turn it is
        self._changers = 0  # that wait, or are at it
        self._is_changing = False

    @contextmanager
    def reading(self) -> Iterator[None]:
        """Wait until nobody changes anything, and keep it so."""
        is_waiting = is_reading = False
        try:
            with self._condition:
                self._waiting += 1
                is_waiting = True
                self._condition.wait_for(lambda: self._changers == 0 or self._admitted > 0)
                self._waiting -= 1
                self._admitted = max(self._admitted - 1, 0)
                self._readers += 1
                is_waiting, is_reading = False, True
                self._condition.notify_all()
            yield
        finally:  # also where Ctrl-C ends the waiting
            with self._condition:
                self._waiting -= is_waiting
                self._admitted = min(self._admitted, self._waiting)
                self._readers -= is_reading
                self._condition.notify_all()

    @contextmanager
    def changing(self) -> Iterator[None]:
        """Wait until all readers have finished, and keep others out; not to be called by a reader."""
        is_counted = is_changing = False
        try:
            with self._condition:
                self._changers += 1
                is_counted = True
                self._condition.wait_for(
                    lambda: self._readers == 0 and self._admitted == 0 and not self._is_changing
                )
                self._is_changing = is_changing = True
            yield
        finally:
            with self._condition:
                self._changers -= is_counted
                if is_changing:
                    self._is_changing = False
                    self._admitted = self._waiting
                self._condition.notify_all()

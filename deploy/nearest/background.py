"""Threads of a model for work that no request waits for: building of indexes, checks of their recall."""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable

__all__ = ["Background"]

logger = logging.getLogger("graphbox.deploy")

_NICENESS = 10


class Background:
    """Runs functions on threads of low priority until it is closed. Safe to use from several threads."""

    def __init__(self) -> None:
        self._closed = threading.Event()
        self._lock = threading.Lock()
        self._threads: set[threading.Thread] = set()

    def is_wanted(self) -> bool:
        """Return whether to continue working: the owner is open, and the process is not about to end."""
        return not self._closed.is_set() and threading.main_thread().is_alive()

    @property
    def is_busy(self) -> bool:
        """Whether anything runs, for which `close` would wait."""
        return bool(self._threads)

    def wait(self, seconds: float) -> None:
        """Wait for a time, or until it is closed."""
        self._closed.wait(seconds)

    def start(self, work: Callable[[], None]) -> bool:
        """Run ``work`` on a thread of its own; errors are logged. Return whether it was started."""
        thread = threading.Thread(target=self._run, args=(work,), name="graphbox-nearest")
        with self._lock:
            if not self.is_wanted():
                return False
            try:
                thread.start()
            except RuntimeError:  # the interpreter is about to end, or there are too many threads
                return False
            self._threads.add(thread)  # before the thread can remove itself, which needs the lock
        return True

    def close(self) -> None:
        """Return when the running work has seen `is_wanted` and ended; later work is not started."""
        self._closed.set()
        with self._lock:
            threads = list(self._threads)
        for thread in threads:
            thread.join()

    def _run(self, work: Callable[[], None]) -> None:
        try:
            _lower_priority()
            work()
        except Exception:
            logger.exception("work beside requests failed")
        finally:
            with self._lock:
                self._threads.discard(threading.current_thread())


def _lower_priority() -> None:
    """Give way to other threads, where the system allows it."""
    try:
        # On Linux the niceness is that of a thread; threads that it starts inherit it.
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), _NICENESS)
    except OSError as error:
        logger.debug("work beside requests has the priority of requests: %s", error)

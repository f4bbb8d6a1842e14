"""Threads that preload the models at start, then follow the workspace, the folders and the other workers."""

from __future__ import annotations

import atexit
import logging
import queue
import threading
from collections.abc import Callable
from functools import partial

from graphbox.errors import GraphboxError
from graphbox.server.readiness import Readiness
from graphbox.server.repository import Repository

__all__ = ["Watcher"]

logger = logging.getLogger("graphbox.server")

POLL_S = 0.5
# Requests to unload models and row updates hold for all workers within a second, also while one opens models.
_POLL_REQUESTS_S = 0.1
_LONGEST_OPENING_S = 60.0


class Watcher:
    """Preloads a repository once, then polls its sources until stopped, or waits for `reload`.

    A second thread follows requests that other workers have answered: to load and unload models, and for
    canaries and shadows. A third applies row updates.

    Args:
        repository: the models.
        on_preload: called once, in the thread, after every model was opened or failed to open.
        follows: whether it polls the sources; else versions become active at `reload` alone.
        also_poll: called by the second thread each time, and raises nothing; None: there is nothing else.
    """

    def __init__(
        self,
        repository: Repository,
        on_preload: Callable[[Readiness], None] | None = None,
        *,
        follows: bool = True,
        also_poll: Callable[[], None] | None = None,
    ) -> None:
        self._repository = repository
        self._also_poll = also_poll
        self._on_preload = on_preload
        self._poll_s = POLL_S if follows else None
        self._stopping = threading.Event()
        # Unlike the lock of an event, `put` may be interrupted by a signal handler that calls it.
        self._tasks: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self._poll_now = threading.Event()
        self._polled = threading.Event()
        self._thread = threading.Thread(target=self._run, name="graphbox-models", daemon=True)
        self._requests = threading.Thread(target=self._poll_requests, name="graphbox-requests", daemon=True)
        self._rows = threading.Thread(target=self._follow_rows, name="graphbox-rows", daemon=True)

    def start(self) -> None:
        """Begin to preload."""
        self._thread.start()
        self._requests.start()
        self._rows.start()

    def reload(self) -> None:
        """Read every source again and retry what failed, in the thread. Safe in a signal handler."""
        self._tasks.put(self._reload)

    def poll_requests_now(self) -> None:
        """Follow requests, and row updates, at once instead of with the next poll."""
        self._poll_now.set()

    def stop(self, timeout_s: float) -> None:
        """End the threads; a model that is being opened gets ``timeout_s`` to finish.

        One that takes longer is waited for when Python ends, for a minute: a thread that returns from native
        code while the interpreter ends aborts the process.
        """
        self._stopping.set()
        self._tasks.put(lambda: None)
        self._poll_now.set()
        self._polled.set()
        for thread in (self._thread, self._requests, self._rows):
            if thread.is_alive():
                thread.join(timeout_s)
            if thread.is_alive():
                atexit.register(thread.join, _LONGEST_OPENING_S)

    def _run(self) -> None:
        stop = self._stopping.is_set
        self._repository.preload(stop)
        self._report()
        while not stop():
            try:
                task = self._tasks.get(timeout=self._poll_s)
            except queue.Empty:
                self._repository.poll(stop)
                continue
            task()

    def _poll_requests(self) -> None:
        while True:
            self._poll_now.wait(_POLL_REQUESTS_S)
            self._poll_now.clear()
            if self._stopping.is_set():
                return
            if self._also_poll is not None:
                self._also_poll()
            loaded = self._repository.poll_requests()
            if loaded:
                self._tasks.put(partial(self._follow_loads, loaded))
            routed = self._repository.apply_traffic()
            if routed:
                self._tasks.put(partial(self._follow_traffic, routed))
            self._polled.set()

    def _follow_rows(self) -> None:
        """Apply row updates after each poll; a large one delays neither polls nor opening of models."""
        while True:
            self._polled.wait()
            self._polled.clear()
            if self._stopping.is_set():
                return
            self._repository.follow_row_updates(self._stopping.is_set)

    def _follow_loads(self, names: frozenset[str]) -> None:
        try:
            self._repository.follow_loads(names, self._stopping.is_set)
        except GraphboxError as error:
            logger.error("models that were loaded by request cannot be found: %s", error)

    def _follow_traffic(self, names: frozenset[str]) -> None:
        try:
            self._repository.follow_traffic(names, self._stopping.is_set)
        except GraphboxError as error:
            logger.error("canaries and shadows cannot be found: %s", error)

    def _report(self) -> None:
        if self._on_preload is None or self._stopping.is_set():
            return
        try:
            self._on_preload(self._repository.readiness())
        except Exception:  # such as a closed terminal; the models must still be followed
            logger.exception("the result of preloading was not reported")

    def _reload(self) -> None:
        try:
            self._repository.reload(self._stopping.is_set)
        except GraphboxError as error:
            logger.error("the models were not reloaded: %s", error)

"""A thread that preloads the models at start and then follows the workspace and the model folders."""

from __future__ import annotations

import logging
import queue
import threading
from collections.abc import Callable

from graphbox.errors import GraphboxError
from graphbox.server.repository import Readiness, Repository

__all__ = ["Watcher"]

logger = logging.getLogger("graphbox.server")

POLL_S = 0.5


class Watcher:
    """Preloads a repository once, then polls it until stopped, or waits for `reload`.

    Args:
        repository: the models.
        on_preload: called once, in the thread, after every model was opened or failed to open.
        follows: whether it polls; else what is served changes at `reload` alone.
    """

    def __init__(
        self,
        repository: Repository,
        on_preload: Callable[[Readiness], None] | None = None,
        *,
        follows: bool = True,
    ) -> None:
        self._repository = repository
        self._on_preload = on_preload
        self._poll_s = POLL_S if follows else None
        self._stopping = threading.Event()
        # Unlike the lock of an event, `put` may be interrupted by a signal handler that calls it.
        self._reloads: queue.SimpleQueue[bool] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="graphbox-models", daemon=True)

    def start(self) -> None:
        """Begin to preload."""
        self._thread.start()

    def reload(self) -> None:
        """Read every source again and retry what failed, in the thread. Safe in a signal handler."""
        self._reloads.put(True)

    def stop(self, timeout_s: float) -> None:
        """End the thread; a model that is being opened gets ``timeout_s`` to finish."""
        self._stopping.set()
        self._reloads.put(False)
        if self._thread.is_alive():
            self._thread.join(timeout_s)

    def _run(self) -> None:
        stop = self._stopping.is_set
        self._repository.preload(stop)
        self._report()
        while not stop():
            try:
                reload = self._reloads.get(timeout=self._poll_s)
            except queue.Empty:
                self._repository.poll(stop)
                continue
            if reload:
                self._reload()

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

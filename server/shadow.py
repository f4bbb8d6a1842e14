"""Repeats calls on shadows after they were answered, and sums the differences."""

from __future__ import annotations

import asyncio
import logging
import queue
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from graphbox.deploy.cancellation import Cancellation, ExecutionCancelledError, cancellable
from graphbox.deploy.signature import Outputs
from graphbox.errors import GraphboxError
from graphbox.server.executor import Executor
from graphbox.server.repository import Repository
from graphbox.server.shadow_comparison import compare_outputs
from graphbox.server.shadow_counters import ShadowCounters
from graphbox.server.slot import Slot
from graphbox.server.traffic import ShadowRoute
from graphbox.workspace.traffic import ShadowSums

__all__ = ["Shadows"]

logger = logging.getLogger("graphbox.server")

_MOST_QUEUED = 64
_MOST_QUEUED_BYTES = 64 * 1024 * 1024
_MOST_WAIT_S = 1.0
# An event loop that takes longer to call back has requests to answer.
_BUSY_LAG_S = 0.002
_RETRY_S = 0.005
_WRITE_INTERVAL_S = 1.0
_SAMPLED_ELEMENTS = 256


@dataclass(frozen=True, slots=True, eq=False)
class _Repeat:
    """An answered call to repeat on a shadow."""

    route: ShadowRoute
    suffix: str
    inputs: Outputs
    parameters: Mapping[str, Any]
    outputs: Outputs
    active_ns: int
    size_bytes: int
    offered_s: float


class Shadows:
    """Repeats calls on shadows, one at a time, on a thread of its own that starts with the first call.

    A call is repeated while the server is idle: no execution waits or runs on a thread, and the event loop is
    not behind. Those that wait for more than a second are dropped, as are those that find the queue full.
    After each call the thread rests for as long as the call took, so it uses half a core at most.

    Args:
        repository: has the shadows.
        executor: of the server's executions.
        write: adds the sums of a shadow to the shared ones; raises `GraphboxError`, to be tried again.
    """

    def __init__(
        self, repository: Repository, executor: Executor, write: Callable[[str, int, ShadowSums], None]
    ) -> None:
        self._repository = repository
        self._executor = executor
        self._write = write
        self._loop: asyncio.AbstractEventLoop | None = None
        self._queue: queue.SimpleQueue[_Repeat | None] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._queued = 0
        self._queued_bytes = 0
        self._counters: dict[int, ShadowCounters] = {}
        self._unwritten: dict[tuple[str, int], ShadowSums] = {}
        self._written_s = 0.0
        self._write_failed = False
        self._stopping = threading.Event()
        self._cancellation = Cancellation()
        self._thread: threading.Thread | None = None

    def offer(
        self,
        route: ShadowRoute,
        suffix: str,
        inputs: Outputs,
        parameters: Mapping[str, Any],
        outputs: Outputs,
        active_ns: int,
    ) -> None:
        """Take an answered call to repeat it, if it is in the share. On the event loop; never waits.

        Args:
            route: of the shadow.
            suffix: of the signature that was called.
            inputs: of the call; they and the outputs must stay as they are.
            parameters: of the call.
            outputs: of the active version.
            active_ns: its execution time.
        """
        if self._stopping.is_set() or not route.share.takes(None):
            return
        size_bytes = sum(map(_size_bytes, inputs.values())) + sum(map(_size_bytes, outputs.values()))
        with self._lock:
            is_full = self._queued >= _MOST_QUEUED or self._queued_bytes + size_bytes > _MOST_QUEUED_BYTES
            if not is_full:
                self._queued += 1
                self._queued_bytes += size_bytes
        if self._thread is None:
            self._loop = asyncio.get_running_loop()
            self._thread = threading.Thread(target=self._run, name="graphbox-shadow", daemon=True)
            self._thread.start()
        if is_full:
            self._count(route, ShadowSums(dropped=1))
            return
        now = time.monotonic()
        self._queue.put(_Repeat(route, suffix, inputs, parameters, outputs, active_ns, size_bytes, now))

    def stop(self, timeout_s: float) -> None:
        """Drop the calls that wait and write the sums; a running call has ``timeout_s`` to end."""
        self._stopping.set()
        self._cancellation.cancel()
        self._queue.put(None)
        if self._thread is not None:
            self._thread.join(timeout_s)

    def _run(self) -> None:
        while True:
            try:
                repeat = self._queue.get(timeout=_WRITE_INTERVAL_S)
            except queue.Empty:
                self._write_sums()
                continue
            if repeat is None or self._stopping.is_set():
                self._write_sums()
                return
            try:
                self._take(repeat)
            except Exception:  # of this module: the next call is repeated all the same
                logger.exception("a call could not be repeated on the shadow of model %s", repeat.route.name)
            with self._lock:
                self._queued -= 1
                self._queued_bytes -= repeat.size_bytes
            del repeat
            if time.monotonic() - self._written_s >= _WRITE_INTERVAL_S:
                self._write_sums()

    def _take(self, repeat: _Repeat) -> None:
        route = repeat.route
        current = self._repository.routes.get(route.name)
        if current is None or current.shadow is not route:
            return
        slot = self._wait_for_idle(repeat)
        if slot is None:
            self._count(route, ShadowSums(dropped=1))
            return
        begun = time.perf_counter()
        try:
            self._count(route, self._repeated(repeat, slot))
        except ExecutionCancelledError:
            return
        self._stopping.wait(time.perf_counter() - begun)

    def _wait_for_idle(self, repeat: _Repeat) -> Slot | None:
        """Return the shadow once the server is idle; None: it was busy for too long, or lacks the version."""
        while not self._stopping.is_set():
            if not self._is_busy():
                route = repeat.route
                try:
                    return self._repository.find(route.name, route.shadow.version)
                except GraphboxError:  # the model was unloaded
                    return None
            if time.monotonic() - repeat.offered_s > _MOST_WAIT_S:
                return None
            self._stopping.wait(_RETRY_S)
        return None

    def _is_busy(self) -> bool:
        """Return whether executions wait or run on threads, or the event loop has requests to answer."""
        if self._executor.pending or self._loop is None:
            return True
        called = threading.Event()
        try:
            self._loop.call_soon_threadsafe(called.set)
        except RuntimeError:  # the loop is closed
            return True
        return not called.wait(_BUSY_LAG_S)

    def _repeated(self, repeat: _Repeat, slot: Slot) -> ShadowSums:
        """Return the sums of one call."""
        model = slot.try_enter()
        if model is None:
            return ShadowSums(dropped=1)
        try:
            signature = model.model.signature(repeat.suffix)
            begun = time.perf_counter_ns()
            with cancellable(self._cancellation):
                answer = signature.infer(repeat.inputs, repeat.parameters)
            shadow_ns = time.perf_counter_ns() - begun
        except ExecutionCancelledError:
            raise
        except Exception as error:  # noqa: BLE001 - counted
            return _failed(error)
        finally:
            self._repository.leave(slot)
        shadow = repeat.route.shadow
        found = compare_outputs(repeat.outputs, answer, shadow.tolerance)
        prefix = repeat.suffix.removeprefix(".") + "." if repeat.suffix else ""
        return ShadowSums(
            calls=1,
            active_ns=repeat.active_ns,
            shadow_ns=shadow_ns,
            outputs={prefix + name: output for name, output in found.items()},
        )

    def _count(self, route: ShadowRoute, sums: ShadowSums) -> None:
        """Add to the sums of a shadow, of this worker and those to be written."""
        shadow = route.shadow
        with self._lock:
            counters = self._counters.get(shadow.change)
            if counters is None:
                counters = ShadowCounters(self._repository.counters, route.name, shadow.change)
                self._counters[shadow.change] = counters
            counters.add(sums)
            self._unwritten.setdefault((route.name, shadow.change), ShadowSums()).add(sums)

    def _write_sums(self) -> None:
        """Write what was counted since the last time; where that fails, it is written with the next."""
        self._written_s = time.monotonic()
        with self._lock:
            unwritten, self._unwritten = self._unwritten, {}
        for (name, change), sums in unwritten.items():
            try:
                self._write(name, change, sums)
                self._write_failed = False
            except Exception as error:  # noqa: BLE001 - no error of a database may end the thread
                if not self._write_failed:
                    logger.warning("differences of shadows cannot be written, retrying: %s", error)
                self._write_failed = True
                with self._lock:
                    sums.add(self._unwritten.get((name, change), ShadowSums()))
                    self._unwritten[name, change] = sums


def _size_bytes(array: np.ndarray[Any, Any]) -> int:
    """Return the memory of an array; of texts an estimate from the first of them."""
    if array.dtype != np.object_ or not array.size:
        return array.nbytes
    some = array.ravel()[:_SAMPLED_ELEMENTS]
    return array.nbytes + sum(map(len, some)) * -(-array.size // len(some))


def _failed(error: Exception) -> ShadowSums:
    message = error.message if isinstance(error, GraphboxError) else f"{type(error).__name__}: {error}"
    return ShadowSums(failed=1, error=message)

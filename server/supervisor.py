"""Parent of the workers of a server: holds their sockets, counters and copies of models, and restarts them.

It answers no request and imports neither a runtime nor the web framework. Each worker has a listening socket
of its own on the common port (``SO_REUSEPORT``). The parent keeps all of them open, so that connections which
the kernel gave to a worker that was killed wait for the next process. A worker that loses its parent ends.
"""

from __future__ import annotations

import contextlib
import logging
import os
import selectors
import shutil
import signal
import socket
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing
from functools import partial
from pathlib import Path
from types import FrameType

from graphbox.errors import GraphboxError
from graphbox.server.binding import Listeners
from graphbox.server.copy_registry import CopyRegistry, allow_copies
from graphbox.server.counters import create_counter_file
from graphbox.server.readiness import Readiness
from graphbox.server.settings import Settings
from graphbox.server.shared_document import create_document_file
from graphbox.server.worker_process import WorkerProcess
from graphbox.server.worker_task import LogFormat, WorkerTask

__all__ = ["supervise"]

logger = logging.getLogger("graphbox.server")

# For what a worker does after the drain: closing models, the interpreter's end.
_KILL_AFTER_DRAIN_S = 15.0


def supervise(
    settings: Settings,
    listeners: Sequence[Listeners],
    on_start: Callable[[], None],
    on_preload: Callable[[Readiness], None],
) -> None:
    """Serve with a worker for each pair of listening sockets until a signal.

    Args:
        settings: of the server, with the port that is listened on.
        listeners: of the workers; closed when no more connections are accepted.
        on_start: called once, when every worker accepts connections.
        on_preload: called once, when every worker has tried to open every model.

    Raises:
        GraphboxError: a worker cannot start; its own error where it had one.
        KeyboardInterrupt: Ctrl-C a second time; the workers were killed.
    """
    with ExitStack() as stack:
        counters = tuple(create_counter_file() for _ in listeners)
        document = create_document_file()
        for descriptor in (*counters, document):
            stack.callback(os.close, descriptor)
        state: Path | None = None
        if settings.workspace is None:
            folder = Path(tempfile.mkdtemp(prefix="graphbox-server-"))
            # Where this process is killed, a worker removes it.
            stack.callback(shutil.rmtree, folder, ignore_errors=True)
            state = folder / "state.db"
        log = LogFormat.of_this_process()
        tasks = [
            WorkerTask(settings, position, each.descriptors(), counters, state, log, document)
            for position, each in enumerate(listeners)
        ]
        allow_copies()
        Supervisor(tasks, listeners, on_start, on_preload, settings.drain_timeout_s).run()


class Supervisor:
    """Starts workers, starts them again when they end, and passes signals on to them.

    Args:
        tasks: of the workers.
        listeners: their sockets; closed when no more connections are accepted.
        on_start: called once, when every worker accepts connections.
        on_preload: called once, when every worker has tried to open every model.
        drain_timeout_s: time running requests have to finish after a signal to stop.
    """

    def __init__(
        self,
        tasks: list[WorkerTask],
        listeners: Sequence[Listeners],
        on_start: Callable[[], None],
        on_preload: Callable[[Readiness], None],
        drain_timeout_s: float,
    ) -> None:
        self._workers = [WorkerProcess(task) for task in tasks]
        self._listeners = listeners
        self._on_start = on_start
        self._on_preload = on_preload
        self._drain_timeout_s = drain_timeout_s
        self._selector = selectors.DefaultSelector()
        self._copies = CopyRegistry()
        self._has_started = False
        self._has_preloaded = False
        self._kill_at: float | None = None
        self._is_interrupted = False
        self._error: Exception | None = None

    def run(self) -> None:
        """Serve until a signal, or until no worker can be started.

        Raises:
            GraphboxError: a worker cannot start.
            KeyboardInterrupt: Ctrl-C a second time.
        """
        with self._selector, closing(self._copies), self._signals():
            try:
                for worker in self._workers:
                    self._start(worker)
                while self._is_running():
                    self._step()
            except BaseException:
                self._send(signal.SIGKILL)
                raise
            finally:
                for worker in self._workers:
                    worker.reap()
        if self._error is not None:
            raise self._error
        if self._is_interrupted:
            raise KeyboardInterrupt

    def _is_running(self) -> bool:
        return self._kill_at is None or any(worker.reports is not None for worker in self._workers)

    def _step(self) -> None:
        """Wait for reports, ends of workers and signals, and act on them."""
        for key, _ in self._selector.select(self._timeout_s()):
            if isinstance(key.data, WorkerProcess):
                if not key.data.receive():
                    self._ended(key.data)
            else:
                key.data()
        self._copies.sweep()
        if not self._has_started and all(worker.is_serving for worker in self._workers):
            self._has_started = True
            self._on_start()
        preloaded = [worker.preloaded for worker in self._workers if worker.preloaded is not None]
        if not self._has_preloaded and len(preloaded) == len(self._workers):
            self._has_preloaded = True
            self._report(Readiness.of_all(preloaded))
        now = time.monotonic()
        if self._kill_at is None:
            for worker in self._workers:
                if worker.restart_at is not None and worker.restart_at <= now:
                    self._restart(worker)
        elif now >= self._kill_at:
            logger.error("workers that did not end in time are killed")
            self._send(signal.SIGKILL)
            self._kill_at = now + _KILL_AFTER_DRAIN_S

    def _answer(self, requests: socket.socket) -> None:
        """Answer a worker that asks for a copy; one that ended in this turn has no socket any more."""
        if requests.fileno() >= 0 and not self._copies.answer(requests):
            self._selector.unregister(requests)

    def _report(self, readiness: Readiness) -> None:
        try:
            self._on_preload(readiness)
        except Exception:  # such as a closed terminal; the workers must still be watched
            logger.exception("the result of preloading was not reported")

    def _timeout_s(self) -> float | None:
        due = [worker.restart_at for worker in self._workers if self._kill_at is None]
        times = [time_s for time_s in (*due, self._kill_at, self._copies.sweep_at) if time_s is not None]
        return max(0.0, min(times) - time.monotonic()) if times else None

    def _start(self, worker: WorkerProcess) -> None:
        worker.start()
        assert worker.reports is not None  # noqa: S101 - for the type checker
        self._selector.register(worker.reports, selectors.EVENT_READ, worker)
        assert worker.copy_requests is not None  # noqa: S101 - for the type checker
        self._selector.register(
            worker.copy_requests, selectors.EVENT_READ, partial(self._answer, worker.copy_requests)
        )

    def _restart(self, worker: WorkerProcess) -> None:
        try:
            self._start(worker)
        except OSError as error:
            # The others serve; memory or processes may be free again later.
            logger.error("%s cannot be started, and is tried again: %s", self._position_text(worker), error)
            self._leave_to_others(worker)

    def _leave_to_others(self, worker: WorkerProcess) -> None:
        """Give the connections of a worker that may be away for long to others; its next process listens."""
        if any(each.is_serving for each in self._workers):
            self._listeners[worker.position].stop_listening()

    def _ended(self, worker: WorkerProcess) -> None:
        was_serving, process_id = worker.is_serving, worker.process_id
        for each in (worker.reports, worker.copy_requests):
            if each is not None and each in self._selector.get_map():
                self._selector.unregister(each)
        worker.reap()
        worker.is_serving = False
        if self._kill_at is not None:
            return
        ended = f"worker {worker.position} (process {process_id}) ended {_exit_text(worker.exit_code)}"
        serves = any(each.is_serving for each in self._workers)
        if not was_serving and not (self._has_started and serves):
            self._error = worker.error or GraphboxError(
                f"expected {self._position_text(worker)} to serve, received its end "
                f"{_exit_text(worker.exit_code)}",
                hint="its own messages are above",
            )
            self._stop()
            return
        if not was_serving:
            self._leave_to_others(worker)
        if worker.error is not None:
            logger.error("%s, and is started again: %s", ended, worker.error)
        else:
            logger.error("%s, and is started again", ended)

    def _position_text(self, worker: WorkerProcess) -> str:
        return f"worker {worker.position} of {len(self._workers)}"

    # Signals

    def _handle_signals(self, numbers: bytes) -> None:
        for number in numbers:
            if number == signal.SIGHUP:
                for worker in self._workers:
                    if worker.is_serving:  # one that is starting reads everything anew
                        worker.send_signal(signal.SIGHUP)
            elif number == signal.SIGINT and self._kill_at is not None:
                self._is_interrupted = True
                self._send(signal.SIGKILL)
            elif self._kill_at is None:
                self._stop()

    def _stop(self) -> None:
        """Let the workers complete what runs; new connections are refused."""
        for listeners in self._listeners:
            listeners.close()
        self._kill_at = time.monotonic() + self._drain_timeout_s + _KILL_AFTER_DRAIN_S
        self._send(signal.SIGTERM)

    def _send(self, number: signal.Signals) -> None:
        for worker in self._workers:
            worker.send_signal(number)

    @contextlib.contextmanager
    def _signals(self) -> Iterator[None]:
        """Handle signals during the block, in the main thread: their numbers wake up the selector."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        receiver, sender = socket.socketpair()
        with receiver, sender:
            receiver.setblocking(False)
            sender.setblocking(False)
            self._selector.register(
                receiver, selectors.EVENT_READ, lambda: self._handle_signals(receiver.recv(4096))
            )
            handled = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
            wakeup = signal.set_wakeup_fd(sender.fileno())
            before = {number: signal.signal(number, _leave_to_selector) for number in handled}
            try:
                yield
            finally:
                for number, handler in before.items():
                    signal.signal(number, handler)
                signal.set_wakeup_fd(wakeup)


def _leave_to_selector(_number: int, _frame: FrameType | None) -> None:
    """Do nothing: the number of the signal was written to the socket of `signal.set_wakeup_fd`."""


def _exit_text(code: int) -> str:
    return f"by signal {signal.Signals(-code).name}" if code < 0 else f"with exit code {code}"

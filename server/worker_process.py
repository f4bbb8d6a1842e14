"""A worker of a server, as its parent sees it: a child process, its reports, and when it is started again."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

from graphbox.server.counters import mark_ended
from graphbox.server.readiness import Readiness
from graphbox.server.worker_task import WorkerReport, WorkerTask

__all__ = ["WorkerProcess"]

_MODULE = "graphbox.server.worker"
_RECEIVE_BYTES = 65536
# A worker that ends within this time after its start waits before the next one; each time longer.
_SHORT_LIFE_S = 30.0
_FIRST_DELAY_S = 0.1
_LONGEST_DELAY_S = 30.0


class WorkerProcess:
    """One worker, through all the processes that take its place.

    Args:
        task: what the processes serve.

    Attributes:
        reports: socket on which the present process reports; None: there is no process.
        copy_requests: socket on which it asks for copies, see `graphbox.server.copy_registry`.
        is_serving: whether the present process accepts connections.
        preloaded: readiness of the first process that has tried to open every model.
        error: why the last process could not serve, where it said so.
        exit_code: of the last process; negative: minus the signal that ended it.
        restart_at: when the next process is to start, by `time.monotonic`; None: there is one.
    """

    def __init__(self, task: WorkerTask) -> None:
        self._task = task
        self._process: subprocess.Popen[bytes] | None = None
        self._received = b""
        self._started_at = 0.0
        self._short_lives = 0
        self.reports: socket.socket | None = None
        self.copy_requests: socket.socket | None = None
        self.is_serving = False
        self.preloaded: Readiness | None = None
        self.error: Exception | None = None
        self.exit_code = 0
        self.restart_at: float | None = None

    @property
    def position(self) -> int:
        """Position among the workers, from 0."""
        return self._task.worker

    @property
    def process_id(self) -> int | None:
        """Process id of the present process."""
        return None if self._process is None else self._process.pid

    def start(self) -> None:
        """Start a process.

        Raises:
            OSError: the system has no memory, process or descriptor for it; the next start is planned.
        """
        task = self._task
        try:
            self._open_process()
        except OSError:
            self._plan_start(is_short=True)
            raise
        assert self.reports is not None  # noqa: S101 - for the type checker
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):  # it ended: its exit code says so
            self.reports.sendall(task.to_line())
        self.reports.setblocking(False)
        self._started_at = time.monotonic()
        self._received = b""
        self.is_serving = False
        self.error = None
        self.restart_at = None

    def _open_process(self) -> None:
        reports, child = socket.socketpair()
        copy_requests, copy_child = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        copy_requests.setblocking(False)
        with child, copy_child:
            sockets = child.fileno(), copy_child.fileno()
            try:
                self._process = subprocess.Popen(
                    [sys.executable, "-P", "-m", _MODULE, *map(str, sockets)],
                    stdin=subprocess.DEVNULL,
                    pass_fds=(*sockets, *self._task.descriptors),
                    env={**os.environ, "PYTHONPATH": _import_path()},
                    process_group=0,  # Ctrl-C is for the parent, which tells the workers to stop
                )
            except OSError:
                reports.close()
                copy_requests.close()
                raise
        self.reports, self.copy_requests = reports, copy_requests

    def _plan_start(self, *, is_short: bool) -> None:
        """Plan the start of the next process, later after each that did not live long."""
        self._short_lives = self._short_lives + 1 if is_short else 0
        # The first one after a kill starts at once: connections wait for it.
        delay_s = _FIRST_DELAY_S * 2 ** (self._short_lives - 1) if self._short_lives > 1 else 0.0
        self.restart_at = time.monotonic() + min(delay_s, _LONGEST_DELAY_S)

    def receive(self) -> bool:
        """Take over the reports that have arrived; return whether the process still runs."""
        if self.reports is None:
            return False
        try:
            received = self.reports.recv(_RECEIVE_BYTES)
        except BlockingIOError:
            return True
        except ConnectionResetError:
            received = b""
        *lines, self._received = (self._received + received).split(b"\n")
        for line in lines:
            report = WorkerReport.of_line(line)
            self.is_serving = self.is_serving or report.started
            self.preloaded = self.preloaded or report.preloaded
            self.error = report.error or self.error
        return bool(received)

    def reap(self) -> None:
        """Wait for the end of a process that has closed its socket, and plan the start of the next one."""
        if self._process is None or self.reports is None:
            return
        self.reports.close()
        if self.copy_requests is not None:
            self.copy_requests.close()
        self.exit_code = self._process.wait()
        mark_ended(self._task.counters[self.position])
        self.reports = self.copy_requests = self._process = None
        self._plan_start(is_short=time.monotonic() - self._started_at < _SHORT_LIFE_S)

    def send_signal(self, number: signal.Signals) -> None:
        """Send a signal to the present process, if there is one."""
        if self._process is not None:
            self._process.send_signal(number)


def _import_path() -> str:
    """Return where this process imports from; an empty entry, as in notebooks, is the current folder."""
    return os.pathsep.join(each or str(Path.cwd()) for each in sys.path)

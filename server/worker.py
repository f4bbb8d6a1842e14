"""A worker process of a server: takes its task from the parent, serves, and ends when the parent is gone."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import sys
import threading
import time

from graphbox.artifact.copies import use_copies
from graphbox.artifact.shared_copies import SharedCopies
from graphbox.errors import GraphboxError
from graphbox.server.binding import Listeners
from graphbox.server.copy_registry import CopyClient
from graphbox.server.counters import Counters
from graphbox.server.process import serve_process
from graphbox.server.serving_state import ServingState
from graphbox.server.shared_document import SharedDocument
from graphbox.server.worker_task import WorkerReport, WorkerTask
from graphbox.workspace.serving import ServingRecords

__all__ = ["main"]

_RECEIVE_BYTES = 65536
_STATE_BUSY_TIMEOUT_S = 2.0
_EXIT_AFTER_DRAIN_S = 15.0


def main() -> int:
    """Serve the task that arrives on a socket; return an exit code.

    The arguments are the descriptors of that socket, and of the one that asks for shared copies.
    """
    # Ends a process that does not expect it.
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    parent = socket.socket(fileno=int(sys.argv[1]))
    task = _receive_task(parent)
    if task is None:
        return 1
    copies = socket.socket(fileno=int(sys.argv[2]))
    for descriptor in (parent.fileno(), copies.fileno(), *task.descriptors):
        os.set_inheritable(descriptor, False)
    use_copies(SharedCopies(CopyClient(copies)))
    if task.log is not None:
        task.log.start(task.worker)
    threading.Thread(
        target=_end_with_parent, args=(parent, task), name="graphbox-parent", daemon=True
    ).start()

    def report(content: WorkerReport) -> None:
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):  # the parent is gone
            parent.sendall(content.to_line())

    try:
        counters = Counters(task.counters, task.worker)
        records = ServingRecords.at(task.state, _STATE_BUSY_TIMEOUT_S) if task.state is not None else None
        with Listeners.of_descriptors(*task.listeners) as listeners:
            serve_process(
                task.settings,
                listeners,
                on_start=lambda: report(WorkerReport(started=True)),
                on_preload=lambda readiness: report(WorkerReport(preloaded=readiness)),
                counters=counters,
                state=None if records is None else ServingState(records),
                document=SharedDocument(task.document),
            )
    except GraphboxError as error:
        report(WorkerReport(error=error))
        return error.exit_code
    return 0


def _receive_task(parent: socket.socket) -> WorkerTask | None:
    """Return the task, or None where the parent ended before it had sent all of it."""
    line = b""
    while not line.endswith(b"\n"):
        received = parent.recv(_RECEIVE_BYTES)
        if not received:
            return None
        line += received
    return WorkerTask.of_line(line)


def _end_with_parent(parent: socket.socket, task: WorkerTask) -> None:
    """Wait until the parent is gone; complete running requests then, and end in any case."""
    with contextlib.suppress(ConnectionResetError):
        while parent.recv(_RECEIVE_BYTES):
            pass
    if task.state is not None:
        shutil.rmtree(task.state.parent, ignore_errors=True)
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(task.settings.drain_timeout_s + _EXIT_AFTER_DRAIN_S)
    os._exit(1)


if __name__ == "__main__":
    sys.exit(main())

"""A server of one model version in a process of its own, for measuring it."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict

from graphbox.errors import GraphboxError
from graphbox.server.settings import Settings

__all__ = ["local_server"]

_STOP_TIMEOUT_S = 30.0
_MODULE = "graphbox.server.load.local_server_process"  # not imported: only its process loads the server


@contextmanager
def local_server(settings: Settings) -> Iterator[int]:
    """Start a server on a free port of the loopback address; yield the port once every model is open.

    The process ends with the block, or with this process.

    Args:
        settings: with ``models`` and without a workspace; ``port`` is ignored.

    Raises:
        GraphboxError: the server does not start, or cannot open a model.
    """
    command = [sys.executable, "-P", "-m", _MODULE]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    stdin, stdout = process.stdin, process.stdout
    if stdin is None or stdout is None:
        raise GraphboxError("expected pipes to the server to measure, received none")
    try:
        given = asdict(settings) | {"models": [str(path.absolute()) for path in settings.models]}
        with contextlib.suppress(BrokenPipeError):  # it ended, and has printed nothing
            stdin.write(json.dumps(given) + "\n")
            stdin.flush()
        yield _port(stdout.readline(), settings)
    finally:
        with contextlib.suppress(BrokenPipeError):
            stdin.close()  # the server stops
        try:
            process.wait(_STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait(_STOP_TIMEOUT_S)
        stdout.close()


def _port(line: str, settings: Settings) -> int:
    where = ", ".join(str(path) for path in settings.models)
    if not line:
        raise GraphboxError("expected a server to measure, it ended at its start", where=where)
    report = json.loads(line)
    if report["failed"]:
        raise GraphboxError(f"expected a server to measure, received: {report['failed']}", where=where)
    port: int = report["port"]
    return port

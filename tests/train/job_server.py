"""Runs jobs in processes of their own that may die: one process imports what they need and forks for each.

Torch is imported once, and nothing is computed before a fork. The module of a kind of jobs calls
:func:`serve_jobs` as a program; a test starts it by :class:`JobServer`.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any, Self


class JobServer:
    """A process that forks for each job.

    Args:
        module: what it runs as a program.
    """

    def __init__(self, module: str) -> None:
        self._server = subprocess.Popen(
            [sys.executable, "-m", module],
            cwd=Path(__file__).parents[2],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def run(self, *, kill_after_s: float | None = None, **job: Any) -> int:
        """Return the exit code of a job; that of a signal is negative.

        Args:
            kill_after_s: kill it after so many seconds, if it has not ended then; None: never.
            **job: arguments of the job.
        """
        assert self._server.stdin is not None
        assert self._server.stdout is not None
        self._server.stdin.write(json.dumps([kill_after_s, job]) + "\n")
        self._server.stdin.flush()
        return int(self._server.stdout.readline())

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._server.stdin is not None
        assert self._server.stdout is not None
        self._server.stdin.close()
        self._server.wait(60)
        self._server.stdout.close()


def serve_jobs(run: Callable[..., None]) -> None:
    """Read jobs from standard input, a line of JSON each, and write a line with how each ended."""
    for line in sys.stdin:
        kill_after_s, job = json.loads(line)
        child = os.fork()
        if not child:
            try:
                run(**job)
            except BaseException as error:  # noqa: BLE001 - whatever it is, the child ends here
                print(f"{type(error).__name__}: {error}", file=sys.stderr, flush=True)
                os._exit(1)
            os._exit(0)
        print(os.waitstatus_to_exitcode(_status(child, kill_after_s)), flush=True)


def _status(child: int, kill_after_s: float | None) -> int:
    """Return how a child ended, killed if it had not after some time."""
    if kill_after_s is not None:
        deadline = time.monotonic() + kill_after_s
        while time.monotonic() < deadline:
            ended, status = os.waitpid(child, os.WNOHANG)
            if ended:
                return status
            time.sleep(0.001)
        os.kill(child, signal.SIGKILL)  # it is no other's: it was not waited for yet
    return os.waitpid(child, 0)[1]

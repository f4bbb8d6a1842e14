"""The command line in processes of their own, which kill themselves as a training enters a stage."""

from __future__ import annotations

import functools
import os
import signal

import graphbox.train
from graphbox.workspace import Heartbeat
from tests.cli.conftest import call_main
from tests.train.job_server import serve_jobs


def call_and_die(arguments: list[str], stage: str, times: int) -> None:
    """Call the command line with a checkpoint after each batch; die as ``stage`` is entered so many times."""
    left, beat = times, Heartbeat.beat

    def last_beat(self: Heartbeat, model: str, entered: str, **where: int) -> None:
        nonlocal left
        beat(self, model, entered, **where)
        left -= entered == stage
        if left == 0:
            os.kill(os.getpid(), signal.SIGKILL)

    Heartbeat.beat = last_beat  # type: ignore[method-assign, assignment]
    graphbox.train.fit = functools.partial(graphbox.train.fit, checkpoint_interval_s=0.0)
    outcome = call_main(arguments)
    raise RuntimeError(f"expected to die, ended with code {outcome.code}: {outcome.err}")


if __name__ == "__main__":
    serve_jobs(call_and_die)

"""Runs the command line in processes of their own, which can be killed at any time."""

from __future__ import annotations

import functools
import os

import graphbox.train.stream.factorization  # noqa: F401  (imported before the forks)
import graphbox.train.stream.follow as follow_module
from tests.cli.conftest import call_main
from tests.train.job_server import serve_jobs


def call_in(folder: str, arguments: list[str], checkpoint_interval_s: float | None = None) -> None:
    """Call the command line with a working directory, and checkpoints in the midst of chunks as often."""
    os.chdir(folder)
    if checkpoint_interval_s is not None:
        follow_module.follow = functools.partial(
            follow_module.follow, checkpoint_interval_s=checkpoint_interval_s
        )
    outcome = call_main(arguments)
    if outcome.code:
        raise RuntimeError(f"expected exit code 0, received {outcome.code}: {outcome.err}")


if __name__ == "__main__":
    serve_jobs(call_in)

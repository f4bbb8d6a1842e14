"""Memory of a training process before it trains: the interpreter and its libraries, measured in one."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Collection
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from typing import Self

from graphbox.config import model_kind
from graphbox.errors import BackendMissingError, TimeLimitError
from graphbox.memory import mapped_bytes, resident_bytes
from graphbox.train.assignment import trainer_of

_PIPELINE = (
    "graphbox.cli.app",
    "graphbox.pipeline.stages",
    "graphbox.workspace.workspace",
    "graphbox.graph.ingest",
    "graphbox.train.splitting",
)

_MEASURE_TIMEOUT_S = 600.0
"""Importing takes seconds, and minutes where packages come over a slow network."""

_MEASURE = """
import sys
from graphbox.train.plan.libraries import Libraries, load_libraries
load_libraries(sys.argv[1:])
here = Libraries.of_this_process()
print(here.resident_bytes, here.mapped_bytes)
"""


@dataclass(frozen=True)
class Libraries:
    """Memory of a process before it trains.

    Attributes:
        resident_bytes: all of it.
        mapped_bytes: the part that are pages of files, which processes share.
    """

    resident_bytes: int
    mapped_bytes: int = 0

    @classmethod
    def of_this_process(cls) -> Self:
        """Return what this process holds now."""
        return cls(resident_bytes(), mapped_bytes())


def load_libraries(kinds: Collection[str]) -> None:
    """Import all that trainings of models of these kinds import, late imports included."""
    for name in _PIPELINE:
        import_module(name)
    for kind in sorted(kinds):
        trainer_of(kind)
        for name in model_kind(kind).libraries:
            import_module(name)


def measured_libraries(kinds: Collection[str]) -> Libraries:
    """Return what a process holds that trains models of these kinds, before it does.

    Starts a process that imports what the trainings do, unless one has before.

    Raises:
        BackendMissingError: what they import is not there.
        TimeLimitError: importing it does not end.
    """
    return _libraries_of(tuple(sorted(kinds)))


@cache
def _libraries_of(kinds: tuple[str, ...]) -> Libraries:
    what = f"to import what trains {', '.join(kinds)}"
    try:
        done = subprocess.run(
            [sys.executable, "-c", _MEASURE, *kinds],
            capture_output=True,
            text=True,
            check=False,
            timeout=_MEASURE_TIMEOUT_S,
        )
    except subprocess.TimeoutExpired:
        raise TimeLimitError(
            f"expected {what}, received a timeout after {_MEASURE_TIMEOUT_S:g} seconds",
            hint="a file system that is slow or hangs may hold the packages: see which with "
            "`python -X importtime -c 'import torch'`",
        ) from None
    if done.returncode < 0:
        raise BackendMissingError(
            f"expected {what}, the process that does was ended by {_signal_name(-done.returncode)}",
            hint="SIGKILL is what the kernel sends where memory ends; `graphbox doctor` says what is there",
        )
    if done.returncode:
        last = done.stderr.strip().rpartition("\n")[2] or f"nothing but exit code {done.returncode}"
        raise BackendMissingError(
            f"expected {what}, received: {last}",
            hint="`graphbox doctor` says what is installed; training needs `pip install 'graphbox[train]'`",
        )
    resident, mapped = map(int, done.stdout.split())
    return Libraries(resident, mapped)


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:  # one of those for real time
        return f"signal {number}"

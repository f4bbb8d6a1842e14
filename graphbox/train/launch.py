"""Starts the processes of a training, listens to them, and ends them all when one of them has ended.

Each is this Python with :mod:`graphbox.train.worker`, told what to do in a line of JSON. They find each other
by a file in a folder of this user alone, and talk over the loopback interface. This process takes part in
nothing: it passes on what rank 0 says, and tells it to stop.
"""

from __future__ import annotations

import json
import os
import selectors
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from pydantic import TypeAdapter

from graphbox import errors
from graphbox.config import HbmConfig, MemoryConfig, ModelConfig, TaskConfig
from graphbox.errors import GraphboxError, ProcessLostError, UsageError
from graphbox.graph import Graph
from graphbox.native import thread_count
from graphbox.table.distributed import DEFAULT_TIMEOUT_SECONDS
from graphbox.train.loop import ProgressCallback, StopCallback, TrainProgress
from graphbox.train.tasks import Split, save_split
from graphbox.train.tracking.trackers import Tracker

_WORKER = "graphbox.train.worker"
_LOOK_SECONDS = 0.1
_GRACE_SECONDS = 10.0
"""Time that the other processes have to end and to report errors, when one has ended with an error."""

_LOOPBACK = {"GLOO_SOCKET_IFNAME": "lo", "NCCL_SOCKET_IFNAME": "lo"}


@dataclass(frozen=True)
class TrainingPhase:
    """One of the two trainings of a model with `validate_first`.

    Attributes:
        name: `first`, which learns from the training part alone, or `final`.
        most_epochs: epochs to train at most, of the schedule of all; None: all.
    """

    name: Literal["first", "final"]
    most_epochs: int | None = None


@dataclass(frozen=True)
class TrainingOptions:
    """Arguments of :func:`graphbox.train.fit` by their names, as JSON keeps them."""

    name: str
    run_folder: Path
    seed: int
    threads: int | None
    resume: bool
    checkpoint_interval_s: float
    memory: MemoryConfig
    device: str
    start_from: Path | None = None
    decided_hbm: HbmConfig | None = None
    phase: TrainingPhase | None = None

    @property
    def is_first(self) -> bool:
        """Whether this is the first of the two trainings of a model."""
        return self.phase is not None and self.phase.name == "first"

    @property
    def logged_name(self) -> str:
        """Name of figures and checkpoints: the model's, with ``:first`` of the first of two trainings.

        No model of a run file is called so.
        """
        return f"{self.name}:first" if self.is_first else self.name


OPTIONS = TypeAdapter(TrainingOptions)
"""Reads and writes options as plain values."""


def job_of(
    graph: Graph,
    split: Split | None,
    config: ModelConfig,
    task: TaskConfig | None,
    options: TrainingOptions,
    processes: int,
) -> dict[str, Any]:
    """Return what each process is told to do, as JSON keeps it; the split goes into the run's folder.

    Raises:
        UsageError: the graph is in no file.
    """
    if graph.path is None:
        raise UsageError(
            "expected a graph that each process can open, received one that is in memory alone",
            where="processes",
            hint="import it into a folder and open that, or train in one process",
        )
    run_folder, split_path = options.run_folder.absolute(), None
    if split is not None:
        split_path = run_folder / "processes" / f"{options.name}.npz"
        save_split(split, split_path)
    of_each = replace(
        options,
        run_folder=run_folder,
        threads=max(1, thread_count(options.threads) // processes),
        start_from=None if options.start_from is None else options.start_from.absolute(),
    )
    return {
        "graph": str(graph.path.absolute()),
        "version": graph.version,
        "split": None if split_path is None else str(split_path),
        "config": config.model_dump(mode="json"),
        "task": None if task is None else task.model_dump(mode="json"),
        "options": OPTIONS.dump_python(of_each, mode="json"),
        "timeout_seconds": DEFAULT_TIMEOUT_SECONDS,
    }


@dataclass
class _Worker:
    """A process: what it is called, what it said of its end, and whether it was ended because of another."""

    rank: int
    process: subprocess.Popen[bytes]
    unread: bytes = b""
    error: GraphboxError | None = None
    is_ended: bool = False


def launch(
    job: Mapping[str, Any],
    processes: int,
    *,
    progress: ProgressCallback | None,
    trackers: Sequence[Tracker],
    stop: StopCallback | None,
) -> None:
    """Run a job in several processes of :mod:`graphbox.train.worker`; return when all have ended well.

    Args:
        job: what they do, see there.
        processes: how many.
        progress: called with what rank 0 reports.
        trackers: get its figures.
        stop: asked often whether to stop.

    Raises:
        GraphboxError: what a process ended with: its own error before those of others that only lost it.
        ProcessLostError: a process ended without a word, killed say.
    """
    folder = Path(tempfile.mkdtemp(prefix="graphbox-training-"))
    workers: list[_Worker] = []
    try:
        for rank in range(processes):
            place = {"rank": rank, "size": processes, "store": str(folder / "store")}
            workers.append(_Worker(rank, _started({**job, **place}, folder)))
        _Listener(workers, progress, trackers, stop or (lambda: False)).listen()
    finally:
        for worker in workers:
            _end(worker.process)
        shutil.rmtree(folder, ignore_errors=True)
    _raise_error(workers)


def _started(job: Mapping[str, Any], folder: Path) -> subprocess.Popen[bytes]:
    process = subprocess.Popen(
        [sys.executable, "-P", "-m", _WORKER],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={**os.environ, **_LOOPBACK, "PYTHONPATH": _import_path(), "TMPDIR": str(folder)},
        start_new_session=True,  # Ctrl-C is for this process, which tells them to stop
    )
    assert process.stdin is not None  # noqa: S101 - for the type checker
    with suppress(BrokenPipeError):  # it ended: its exit code says so
        process.stdin.write(json.dumps(job).encode() + b"\n")
        process.stdin.flush()
    return process


def _import_path() -> str:
    """Return where this process imports from; an empty entry, as in notebooks, is the current folder."""
    return os.pathsep.join(each or str(Path.cwd()) for each in sys.path)


class _Listener:
    """Reads what processes say until all have ended."""

    def __init__(
        self,
        workers: Sequence[_Worker],
        progress: ProgressCallback | None,
        trackers: Sequence[Tracker],
        stop: StopCallback,
    ) -> None:
        self._workers = workers
        self._stop = stop
        self._stopped = False
        self._end_by: float | None = None
        self._hear: dict[str, Callable[[_Worker, Any], None]] = {
            "progress": lambda _, said: None if progress is None else progress(TrainProgress(**said)),
            "figures": self._hear_figures,
            "error": self._hear_error,
        }
        self._trackers = trackers

    def listen(self) -> None:
        with selectors.DefaultSelector() as selector:
            for worker in self._workers:
                assert worker.process.stdout is not None  # noqa: S101 - for the type checker
                os.set_blocking(worker.process.stdout.fileno(), False)
                selector.register(worker.process.stdout, selectors.EVENT_READ, worker)
            while selector.get_map():
                for key, _ in selector.select(_LOOK_SECONDS):
                    if not self._read(key.data):
                        selector.unregister(key.fileobj)
                self._pass_on_stop()
                self._look_after()

    def _read(self, worker: _Worker) -> bool:
        """Hear what a process said; return whether it may say more."""
        assert worker.process.stdout is not None  # noqa: S101 - for the type checker
        said = worker.process.stdout.read()
        *lines, worker.unread = (worker.unread + (said or b"")).split(b"\n")
        for line in lines:
            for kind, content in json.loads(line).items():
                self._hear[kind](worker, content)
        return said != b""

    def _hear_figures(self, _worker: _Worker, said: Mapping[str, Any]) -> None:
        for tracker in self._trackers:
            tracker.log(said["step"], said["values"])

    def _hear_error(self, worker: _Worker, said: Mapping[str, Any]) -> None:
        kind = getattr(errors, said["kind"], GraphboxError)
        worker.error = kind(said["message"], where=said["where"], hint=said["hint"])

    def _pass_on_stop(self) -> None:
        if self._stopped or not self._stop():
            return
        self._stopped = True
        for worker in self._workers:
            assert worker.process.stdin is not None  # noqa: S101 - for the type checker
            with suppress(BrokenPipeError):
                worker.process.stdin.write(b"stop\n")
                worker.process.stdin.flush()

    def _look_after(self) -> None:
        """End the others, if they do not end by themselves, when one ended with an error."""
        if self._end_by is None:
            if any(worker.process.poll() not in (None, 0) for worker in self._workers):
                self._end_by = time.monotonic() + _GRACE_SECONDS
        elif time.monotonic() > self._end_by:
            for worker in self._workers:
                if worker.process.poll() is None:
                    worker.process.kill()  # what it said comes first, and then the end of it: see listen()
                    worker.is_ended = True


def _end(process: subprocess.Popen[bytes]) -> None:
    if process.poll() is None:
        process.kill()
    process.wait()
    for stream in (process.stdin, process.stdout):
        if stream is not None and not stream.closed:
            with suppress(BrokenPipeError):
                stream.close()


def _raise_error(workers: Sequence[_Worker]) -> None:
    """Raise what went wrong first, as far as it can be told."""
    failed = [worker for worker in workers if worker.process.returncode != 0]
    if not failed:
        return
    said = [worker.error for worker in failed if worker.error is not None]
    own = [each for each in said if not isinstance(each, ProcessLostError)]
    if own:
        raise own[0]
    silent = [worker for worker in failed if worker.error is None and not worker.is_ended]
    if not silent:
        raise said[0]
    lost = ProcessLostError(
        f"{' and '.join(_ending(worker) for worker in silent)}, of {len(workers)} processes",
        where="processes",
        hint="the run resumes from its last checkpoint; where the system ended it for lack of memory, with "
        "fewer processes or smaller batches",
    )
    raise lost from (said[0] if said else None)


def _ending(worker: _Worker) -> str:
    code = worker.process.returncode
    if code >= 0:
        return f"rank {worker.rank} ended with exit code {code}"
    with suppress(ValueError):
        return f"rank {worker.rank} was ended by {signal.Signals(-code).name}"
    return f"rank {worker.rank} was ended by signal {-code}"

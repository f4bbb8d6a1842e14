"""Figures of a training, also sent to where a team collects them: TensorBoard, MLflow, Weights & Biases.

The run's own ``metrics.jsonl`` has every figure in any case. So a tracker that cannot be opened is an error
before training begins, and one that fails later is a warning: training continues.
"""

from __future__ import annotations

import logging
import queue
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol, TypeVar

from graphbox.config import TrackConfig
from graphbox.errors import BackendMissingError, GraphboxError, InterruptedRunError
from graphbox.train.tracking.services import (
    Ending,
    MLflowService,
    Point,
    TensorBoardService,
    TrackingService,
    WandbService,
    without_password,
)

Argument = TypeVar("Argument")

_log = logging.getLogger("graphbox.train")

_RETRY_S = 5.0
"""Pause after a service failed."""
_CLOSE_LIMIT_S = 75.0
"""Limit of the last calls: longer than the limits that services set themselves."""
_MOST_CAUSE_CHARACTERS = 300


class Tracker(Protocol):
    """Receives figures of a run."""

    def log(self, step: int, values: Mapping[str, float]) -> None:
        """Take figures of a step; names have the form ``model/figure``."""
        ...


class QueuedTracker:
    """Sends figures to a service from a thread of its own, and keeps those it does not take for the next try.

    Training never waits for the service: what comes while a call runs goes with the next one.

    Args:
        name: of the service, for warnings.
        service: receives the figures.
    """

    def __init__(self, name: str, service: TrackingService) -> None:
        self._name = name
        self._service = service
        self._queue: queue.SimpleQueue[Point | Ending] = queue.SimpleQueue()
        self._closing = threading.Event()
        # A daemon: a call that never returns keeps no process alive.
        self._thread = threading.Thread(target=self._send_all, name="graphbox-tracker", daemon=True)
        self._thread.start()

    def log(self, step: int, values: Mapping[str, float]) -> None:
        """Queue figures of a step."""
        self._queue.put(Point(step, time.time_ns() // 1_000_000, dict(values)))

    def close(self, ending: Ending) -> None:
        """Send what is left, and report how the training ended."""
        self._queue.put(ending)
        self._closing.set()
        self._thread.join(_CLOSE_LIMIT_S)
        if self._thread.is_alive():
            _log.warning(
                "%s did not get the last points of this training, no answer in %g seconds; metrics.jsonl "
                "has them",
                self._name,
                _CLOSE_LIMIT_S,
            )

    def _send_all(self) -> None:
        """Send points as they come, until the ending does."""
        waiting: list[Point] = []
        ending: Ending | None = None
        warned = False
        while ending is None:
            ending = self._take(waiting)
            error = _error_of(self._service.send, waiting) if waiting else None
            if error is None:
                waiting.clear()
                continue
            if not warned:
                warned = True
                _log.warning(
                    "%s takes no figures: %s; training continues, metrics.jsonl has them, and they are sent "
                    "when it is available again",
                    self._name,
                    _cause(error),
                )
            self._closing.wait(_RETRY_S)
        if waiting:
            _log.warning(
                "%s did not get the last %d points of this training; metrics.jsonl has them",
                self._name,
                len(waiting),
            )
            return
        error = _error_of(self._service.close, ending)
        if error is not None:
            _log.warning("%s was not told that the run is %s: %s", self._name, ending, _cause(error))

    def _take(self, waiting: list[Point]) -> Ending | None:
        """Wait for a point, and move all that are queued to ``waiting``; return the ending if it came."""
        item = self._queue.get()
        while isinstance(item, Point):
            waiting.append(item)
            if self._queue.empty():
                return None
            item = self._queue.get()
        return item


def _error_of(call: Callable[[Argument], None], argument: Argument) -> Exception | None:
    """Return what a call of a service raised."""
    try:
        call(argument)
    except Exception as error:  # noqa: BLE001 (packages raise anything; it is logged)
        return error
    return None


@contextmanager
def open_trackers(
    config: TrackConfig, run_path: Path, run_id: str, parameters: Mapping[str, str]
) -> Iterator[tuple[Tracker, ...]]:
    """Give the trackers that a run file asks for; at the end they are told how the block ended.

    Args:
        config: the section `track` of the run file.
        run_path: folder of the run.
        run_id: name of the run.
        parameters: what to show beside the figures.

    Raises:
        BackendMissingError: a service is not there, or its package is not installed.
        UsageError: the run file names a service that cannot be.
    """
    opened: list[QueuedTracker] = []
    ending: Ending = "failed"
    try:
        for name, where, make in _services(config, run_path, run_id, parameters):
            opened.append(QueuedTracker(name, _open(name, where, make)))
        yield tuple(opened)
        ending = "finished"
    except (InterruptedRunError, KeyboardInterrupt):
        ending = "interrupted"
        raise
    finally:
        for tracker in reversed(opened):
            tracker.close(ending)


def _services(
    config: TrackConfig, run_path: Path, run_id: str, parameters: Mapping[str, str]
) -> Iterator[tuple[str, str, Callable[[], TrackingService]]]:
    """Yield name, key in the run file and maker of each service."""
    mlflow, wandb = config.mlflow, config.wandb
    if config.tensorboard:
        yield "TensorBoard", "track.tensorboard", lambda: TensorBoardService(run_path)
    if mlflow is not None:
        yield (
            f"MLflow at {without_password(mlflow.uri)}",
            "track.mlflow",
            lambda: MLflowService(run_path, run_id, mlflow.uri, mlflow.experiment, parameters),
        )
    if wandb is not None:
        yield (
            "Weights & Biases",
            "track.wandb",
            lambda: WandbService(run_path, run_id, wandb.project, parameters),
        )


def _open(name: str, where: str, make: Callable[[], TrackingService]) -> TrackingService:
    try:
        return make()
    except GraphboxError:
        raise
    except Exception as error:
        raise BackendMissingError(
            f"expected {name} to take figures, received: {_cause(error)}",
            where=where,
            hint=f"start it, mend the section, or leave `{where}` out: metrics.jsonl of the run has every "
            "figure in any case, and a run can be resumed with or without trackers",
        ) from error


def _cause(error: BaseException) -> str:
    """Return what went wrong in one short line: what the system said, where it said something."""
    chain: list[BaseException] = []
    step: BaseException | None = error
    while step is not None and step not in chain:
        chain.append(step)
        step = step.__cause__ or step.__context__
    system = [each for each in chain if isinstance(each, OSError) and type(each).__module__ == "builtins"]
    found = system[-1] if system else error
    text = " ".join(str(found).split()) or type(found).__name__
    return text if len(text) <= _MOST_CAUSE_CHARACTERS else f"{text[:_MOST_CAUSE_CHARACTERS]} ..."

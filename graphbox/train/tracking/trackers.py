"""Figures of a training, also sent to where a team collects them: TensorBoard, MLflow, Weights & Biases.

The run's own ``metrics.jsonl`` has every figure in any case. So a tracker that cannot be opened is an error
before training begins, and one that fails later is a warning: training goes on.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol

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

__all__ = ["PatientTracker", "Tracker", "open_trackers"]

_log = logging.getLogger("graphbox.train")

_REST_PER_CALL = 20.0
"""A service is left alone for so many times as long as it took to answer, whatever it answered: it slows
training down by 5 % at most."""

_SEND_LIMIT_S = 30.0
_CLOSE_LIMIT_S = 75.0
"""How long an answer is waited for: longer than the limits that services set themselves, for those that hang
in spite of them."""

_LEAST_REST_S = 5.0
_MOST_CAUSE_CHARACTERS = 300


class Tracker(Protocol):
    """Receives figures of a run."""

    def log(self, step: int, values: Mapping[str, float]) -> None:
        """Take figures of a step; names have the form ``model/figure``."""
        ...


class PatientTracker:
    """Sends figures to a service, and keeps those it does not take until it is there again.

    Args:
        name: of the service, for the warnings.
        service: where figures go.
        clock: gives seconds.
    """

    def __init__(
        self, name: str, service: TrackingService, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._name = name
        self._service = service
        self._clock = clock
        self._waiting: list[Point] = []
        self._call: _Call | None = None
        self._sent, self._sent_at = 0, 0.0
        self._rests_until = 0.0
        self._warned = False

    def log(self, step: int, values: Mapping[str, float]) -> None:
        """Send figures of a step, or keep them for later."""
        self._waiting.append(Point(step, time.time_ns() // 1_000_000, dict(values)))
        if self._call is not None:
            self._hear(0.0)
        if self._call is None and self._clock() >= self._rests_until:
            self._send()

    def close(self, ending: Ending) -> None:
        """Send what is left, and say how the training ended."""
        if self._call is not None:
            self._hear(_SEND_LIMIT_S)
        if self._call is None and self._waiting:
            self._send()
        if self._waiting:
            _log.warning(
                "%s did not get the last %d points of this training; metrics.jsonl has them",
                self._name,
                len(self._waiting),
            )
            return
        call = _Call(lambda: self._service.close(ending))
        error = call.answer(_CLOSE_LIMIT_S)
        if error is not None:
            _log.warning("%s was not told that the run is %s: %s", self._name, ending, _cause(error))

    def _send(self) -> None:
        points = tuple(self._waiting)
        self._sent, self._sent_at = len(points), self._clock()
        self._call = _Call(lambda: self._service.send(points))
        self._hear(_SEND_LIMIT_S)

    def _hear(self, limit_s: float) -> None:
        """Wait for the answer to what was sent last; until it has come nothing else is sent."""
        assert self._call is not None  # noqa: S101 - for the type checker
        error = self._call.answer(limit_s)
        if error is not None and not self._warned:
            self._warned = True
            _log.warning(
                "%s takes no figures: %s; training goes on, metrics.jsonl has them, and they are sent "
                "when it is there again",
                self._name,
                _cause(error),
            )
        if self._call.is_alive():
            return
        self._call = None
        now = self._clock()
        rest_s = _REST_PER_CALL * (now - self._sent_at)
        self._rests_until = now + (rest_s if error is None else max(_LEAST_REST_S, rest_s))
        if error is None:
            del self._waiting[: self._sent]


class _Call(threading.Thread):
    """A call of a service, which may never answer: it keeps no process alive."""

    def __init__(self, work: Callable[[], None]) -> None:
        super().__init__(name="graphbox-tracker", daemon=True)
        self._work = work
        self._error: BaseException | None = None
        self.start()

    def run(self) -> None:
        """Call."""
        try:
            self._work()
        except BaseException as error:  # noqa: BLE001 (anything a service raises; it is told by answer())
            self._error = error

    def answer(self, limit_s: float) -> BaseException | None:
        """Return what the service raised, or a ``TimeoutError`` without an answer in time; None: nothing."""
        self.join(limit_s)
        return TimeoutError(f"no answer in {limit_s:g} seconds") if self.is_alive() else self._error


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
    opened: list[PatientTracker] = []
    ending: Ending = "failed"
    try:
        for name, where, make in _services(config, run_path, run_id, parameters):
            opened.append(PatientTracker(name, _open(name, where, make)))
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
            "figure in any case, and a run goes on with or without trackers",
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

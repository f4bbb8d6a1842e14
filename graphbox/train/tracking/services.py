"""Services that figures can be sent to: TensorBoard's files, an MLflow server or store, Weights & Biases.

Their packages are extras of their own; they are imported when a run file asks for them. Errors of theirs are
left to :mod:`graphbox.train.tracking.trackers`.
"""

from __future__ import annotations

import json
import math
import os
import re
import uuid
from collections.abc import Mapping, Sequence
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any, Literal, NamedTuple, Protocol

from graphbox.durable import write_atomically
from graphbox.errors import UsageError, missing_extra

_IDENTITY = "tracker-{name}.json"

_MLFLOW_ENVIRONMENT: Mapping[str, str] = {
    # Of the package's own 7 attempts of 120 s each a training would know nothing for a quarter of an hour.
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "2",
    "MLFLOW_HTTP_REQUEST_BACKOFF_FACTOR": "1",
    "MLFLOW_HTTP_REQUEST_TIMEOUT": "10",
    "MLFLOW_LOGGING_LEVEL": "WARNING",
    # Figures go where the user sends them, and nowhere else.
    "MLFLOW_DISABLE_TELEMETRY": "true",
}
"""Settings of MLflow where the user has none."""

_WANDB_INIT_TIMEOUT_S = 30.0
_WANDB_FINISH_TIMEOUT_S = 60.0

Ending = Literal["finished", "interrupted", "failed"]
"""Outcome of a training: completed, stopped on request, or ended by an error."""


class Point(NamedTuple):
    """Figures of a step.

    Attributes:
        step: batches trained so far.
        time_ms: milliseconds since 1970.
        values: figures by name, of the form ``model/figure``.
    """

    step: int
    time_ms: int
    values: Mapping[str, float]


class TrackingService(Protocol):
    """Receives the figures of a run; any method may raise whatever its package does."""

    def send(self, points: Sequence[Point]) -> None:
        """Take points, each with its figures; the same ones come again after an error."""
        ...

    def close(self, ending: Ending) -> None:
        """Say how the training ended."""
        ...


class TensorBoardService:
    """Writes event files into ``tensorboard/`` of the run's folder.

    Args:
        run_path: folder of the run.

    Raises:
        BackendMissingError: TensorBoard is not installed.
    """

    def __init__(self, run_path: Path) -> None:
        _require("tensorboard", "tensorboard")
        from torch.utils.tensorboard import SummaryWriter

        self._writer: Any = SummaryWriter(str(run_path / "tensorboard"))

    def send(self, points: Sequence[Point]) -> None:
        """Write figures."""
        for point in points:
            for name, value in point.values.items():
                self._writer.add_scalar(name, value, point.step, walltime=point.time_ms / 1000)

    def close(self, ending: Ending) -> None:  # noqa: ARG002 - event files have no place for it
        """Write what is left."""
        self._writer.close()


class MLflowService:
    """Sends figures to an MLflow server or store; a run that goes on stays one run there.

    Args:
        run_path: folder of the run.
        run_id: name of the run.
        uri: of the server or store.
        experiment: the experiment there.
        parameters: what to show beside the figures.

    Raises:
        BackendMissingError: MLflow is not installed.
        UsageError: the URI is none that MLflow knows.
    """

    _STATUS: Mapping[Ending, str] = {"finished": "FINISHED", "interrupted": "KILLED", "failed": "FAILED"}

    def __init__(
        self, run_path: Path, run_id: str, uri: str, experiment: str, parameters: Mapping[str, str]
    ) -> None:
        for name, value in _MLFLOW_ENVIRONMENT.items():
            os.environ.setdefault(name, value)
        mlflow = _require("mlflow", "mlflow")
        self._entities: Any = import_module("mlflow.entities")
        try:
            self._client: Any = mlflow.MlflowClient(tracking_uri=uri)
        except mlflow.exceptions.MlflowException as error:
            if error.error_code != "INVALID_PARAMETER_VALUE":
                raise
            raise UsageError(
                f"expected the URI of an MLflow server or database, received `{without_password(uri)}`",
                where="track.mlflow.uri",
                hint="like `http://host:5000` or `sqlite:///mlflow.db`",
            ) from error
        self._run = self._known_run(run_path, uri) or self._new_run(experiment, run_id, parameters)
        _keep_identity(run_path, "mlflow", {"uri": without_password(uri), "run": self._run})

    def send(self, points: Sequence[Point]) -> None:
        """Send figures; MLflow takes no NaN in all of its stores, so figures that are none are left out."""
        metrics = [
            self._entities.Metric(name, value, point.time_ms, point.step)
            for point in points
            for name, value in point.values.items()
            if math.isfinite(value)
        ]
        for start in range(0, len(metrics), 1000):  # as many as MLflow takes at once
            self._client.log_batch(self._run, metrics=metrics[start : start + 1000])

    def close(self, ending: Ending) -> None:
        """Give the run its status."""
        self._client.update_run(self._run, status=self._STATUS[ending])

    def _known_run(self, run_path: Path, uri: str) -> str | None:
        """Return the run that an earlier attempt made, running again; None where it is not there any more."""
        known = _identity(run_path, "mlflow")
        if known is None or known["uri"] != without_password(uri):
            return None
        exceptions: Any = import_module("mlflow.exceptions")
        try:
            self._client.update_run(known["run"], status="RUNNING")
        except exceptions.MlflowException as error:
            if error.error_code != "RESOURCE_DOES_NOT_EXIST":
                raise
            return None
        return known["run"]

    def _new_run(self, experiment: str, run_id: str, parameters: Mapping[str, str]) -> str:
        found = self._client.get_experiment_by_name(experiment)
        number = found.experiment_id if found is not None else self._client.create_experiment(experiment)
        created = self._client.create_run(number, run_name=run_id)
        shown = [self._entities.Param(name, value) for name, value in parameters.items()]
        self._client.log_batch(created.info.run_id, params=shown)
        return str(created.info.run_id)


class WandbService:
    """Sends figures to Weights & Biases; a run that goes on stays one run there.

    Args:
        run_path: folder of the run.
        run_id: name of the run.
        project: the project there.
        parameters: what to show beside the figures.

    Raises:
        BackendMissingError: wandb is not installed.
        UsageError: nobody is logged in, and the mode is neither offline nor disabled.
    """

    def __init__(self, run_path: Path, run_id: str, project: str, parameters: Mapping[str, str]) -> None:
        wandb: Any = _require("wandb", "wandb")
        mode = os.environ.get("WANDB_MODE", "online")
        # Without a key its package asks for one on the terminal, where nobody may be.
        if mode not in {"offline", "dryrun", "disabled"} and not wandb.login(prompt=False):
            raise UsageError(
                "expected a key of Weights & Biases, received none",
                where="track.wandb",
                hint="run `wandb login`, set WANDB_API_KEY, or keep figures here with WANDB_MODE=offline",
            )
        known = _identity(run_path, "wandb")
        if known is None or known["project"] != project:
            known = {"project": project, "run": uuid.uuid4().hex[:12]}
        limits = {"finish_timeout": _WANDB_FINISH_TIMEOUT_S}
        if "WANDB_INIT_TIMEOUT" not in os.environ:
            limits["init_timeout"] = _WANDB_INIT_TIMEOUT_S
        self._run = wandb.init(
            project=project,
            name=run_id,
            id=known["run"],
            resume="allow",
            dir=str(run_path),
            config=dict(parameters),
            settings=wandb.Settings(console="off", **limits),
        )
        _keep_identity(run_path, "wandb", known)
        # Models of a run count their steps from 0 each; W&B's own step may only rise.
        self._run.define_metric("*", step_metric="trained_batches")

    def send(self, points: Sequence[Point]) -> None:
        """Send figures."""
        for point in points:
            self._run.log({**point.values, "trained_batches": point.step, "_timestamp": point.time_ms / 1000})

    def close(self, ending: Ending) -> None:
        """Say that the run has ended; anything but its end is shown as a failure."""
        self._run.finish(exit_code={"finished": 0, "interrupted": 75, "failed": 1}[ending])


def without_password(uri: str) -> str:
    """Return a URI without the name and password in it."""
    return re.sub(r"//[^/]*@", "//", uri, count=1)


def _require(module: str, extra: str) -> ModuleType:
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        if error.name != module:
            raise
        raise missing_extra(module, extra) from error


def _identity(run_path: Path, name: str) -> dict[str, str] | None:
    """Return what a run is called at a tracker, if it was there before."""
    try:
        identity: dict[str, str] = json.loads((run_path / _IDENTITY.format(name=name)).read_text())
    except FileNotFoundError:
        return None
    return identity


def _keep_identity(run_path: Path, name: str, identity: Mapping[str, str]) -> None:
    with write_atomically(run_path / _IDENTITY.format(name=name)) as stream:
        stream.write(json.dumps(identity).encode())

"""Figures of a training, also sent to where a team collects them: TensorBoard, MLflow, Weights & Biases.

The run's own ``metrics.jsonl`` has every figure in any case. The packages of trackers are extras of their
own; they are imported when a run file asks for them.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any, Protocol

from graphbox.config import TrackConfig
from graphbox.errors import missing_extra
from graphbox.train.storage import write_atomically

__all__ = ["MLflowTracker", "TensorBoardTracker", "Tracker", "WandbTracker", "open_trackers"]

_IDENTITY = "tracker-{name}.json"


class Tracker(Protocol):
    """Receives figures of a run."""

    def log(self, step: int, values: Mapping[str, float]) -> None:
        """Take figures of a step; names have the form ``model/figure``."""
        ...

    def close(self) -> None:
        """Hand everything over; called once."""
        ...


class TensorBoardTracker:
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

    def log(self, step: int, values: Mapping[str, float]) -> None:
        """Write figures."""
        for name, value in values.items():
            self._writer.add_scalar(name, value, step)

    def close(self) -> None:
        """Write what is left."""
        self._writer.close()


class MLflowTracker:
    """Sends figures to an MLflow server or store; a run that goes on stays one run there.

    Args:
        run_path: folder of the run.
        run_id: name of the run.
        uri: of the server or store.
        experiment: the experiment there.
        parameters: what to show beside the figures.

    Raises:
        BackendMissingError: MLflow is not installed.
    """

    def __init__(
        self, run_path: Path, run_id: str, uri: str, experiment: str, parameters: Mapping[str, str]
    ) -> None:
        mlflow = _require("mlflow", "mlflow")
        self._client = mlflow.MlflowClient(tracking_uri=uri)
        known = _identity(run_path, "mlflow")
        if known is None or known["uri"] != uri:
            known = {"uri": uri, "run": self._new_run(experiment, run_id, parameters)}
            _keep_identity(run_path, "mlflow", known)
        self._run = known["run"]
        self._client.update_run(self._run, status="RUNNING")

    def log(self, step: int, values: Mapping[str, float]) -> None:
        """Send figures; MLflow takes no NaN in all of its stores, so figures that are none are left out."""
        for name, value in values.items():
            if math.isfinite(value):
                self._client.log_metric(self._run, name, value, step=step)

    def close(self) -> None:
        """Say that the run has ended."""
        self._client.update_run(self._run, status="FINISHED")

    def _new_run(self, experiment: str, run_id: str, parameters: Mapping[str, str]) -> str:
        found = self._client.get_experiment_by_name(experiment)
        number = found.experiment_id if found is not None else self._client.create_experiment(experiment)
        created = self._client.create_run(number, run_name=run_id)
        for name, value in parameters.items():
            self._client.log_param(created.info.run_id, name, value)
        return str(created.info.run_id)


class WandbTracker:
    """Sends figures to Weights & Biases; a run that goes on stays one run there.

    Args:
        run_path: folder of the run.
        run_id: name of the run.
        project: the project there.
        parameters: what to show beside the figures.

    Raises:
        BackendMissingError: wandb is not installed.
    """

    def __init__(self, run_path: Path, run_id: str, project: str, parameters: Mapping[str, str]) -> None:
        wandb = _require("wandb", "wandb")
        known = _identity(run_path, "wandb")
        if known is None or known["project"] != project:
            known = {"project": project, "run": wandb.util.generate_id()}
            _keep_identity(run_path, "wandb", known)
        self._run = wandb.init(
            project=project,
            name=run_id,
            id=known["run"],
            resume="allow",
            dir=str(run_path),
            config=dict(parameters),
        )
        # Models of a run count their steps from 0 each; W&B's own step may only rise.
        self._run.define_metric("*", step_metric="trained_batches")

    def log(self, step: int, values: Mapping[str, float]) -> None:
        """Send figures."""
        self._run.log({**values, "trained_batches": step})

    def close(self) -> None:
        """Say that the run has ended."""
        self._run.finish()


@contextmanager
def open_trackers(
    config: TrackConfig, run_path: Path, run_id: str, parameters: Mapping[str, str]
) -> Iterator[tuple[Tracker, ...]]:
    """Give the trackers that a run file asks for, and close them at the end.

    Args:
        config: the section `track` of the run file.
        run_path: folder of the run.
        run_id: name of the run.
        parameters: what to show beside the figures.

    Raises:
        BackendMissingError: the package of one is not installed; the message names the extra.
    """
    with ExitStack() as stack:
        trackers: list[Tracker] = []
        if config.tensorboard:
            trackers.append(TensorBoardTracker(run_path))
            stack.callback(trackers[-1].close)
        if config.mlflow is not None:
            mlflow = config.mlflow
            trackers.append(MLflowTracker(run_path, run_id, mlflow.uri, mlflow.experiment, parameters))
            stack.callback(trackers[-1].close)
        if config.wandb is not None:
            trackers.append(WandbTracker(run_path, run_id, config.wandb.project, parameters))
            stack.callback(trackers[-1].close)
        yield tuple(trackers)


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

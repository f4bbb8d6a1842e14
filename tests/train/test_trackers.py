"""Trackers: figures arrive, a run that goes on stays one run, and a missing package is named."""

from __future__ import annotations

import importlib.util
import warnings
from pathlib import Path
from typing import Any

import pytest

from graphbox.config.track import MLflowConfig, TrackConfig, WandbConfig
from graphbox.errors import BackendMissingError
from graphbox.train.trackers import open_trackers

needs = {
    name: pytest.mark.skipif(importlib.util.find_spec(name) is None, reason=f"{name} is not installed")
    for name in ("tensorboard", "mlflow")
}


def send(config: TrackConfig, folder: Path, *points: tuple[int, dict[str, float]]) -> None:
    with open_trackers(config, folder, "run-1", {"seed": "7"}) as trackers:
        for step, values in points:
            for tracker in trackers:
                tracker.log(step, values)


@needs["tensorboard"]
def test_tensorboard_gets_figures(tmp_path: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of the packages themselves
        send(TrackConfig(tensorboard=True), tmp_path, (1, {"m/loss": 0.5}))
        send(TrackConfig(tensorboard=True), tmp_path, (2, {"m/loss": 0.25}))  # the run goes on
        from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

        events = EventAccumulator(str(tmp_path / "tensorboard"))
        events.Reload()
    assert [(event.step, event.value) for event in events.Scalars("m/loss")] == [(1, 0.5), (2, 0.25)]


@needs["mlflow"]
def test_mlflow_gets_figures_of_one_run(tmp_path: Path) -> None:
    uri = f"sqlite:///{tmp_path / 'mlflow.db'}"
    config = TrackConfig(mlflow=MLflowConfig(uri=uri, experiment="e"))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the packages themselves
        send(config, tmp_path, (1, {"m/loss": 0.5}))
        send(config, tmp_path, (2, {"m/loss": 0.25, "m/other": float("nan")}))
        import mlflow

        client: Any = mlflow.MlflowClient(tracking_uri=uri)
        experiment = client.get_experiment_by_name("e")
        (run,) = client.search_runs([experiment.experiment_id])
        history = client.get_metric_history(run.info.run_id, "m/loss")
    assert [(point.step, point.value) for point in history] == [(1, 0.5), (2, 0.25)]
    assert (run.info.run_name, run.info.status, run.data.params) == ("run-1", "FINISHED", {"seed": "7"})


@pytest.mark.parametrize(
    ("config", "extra"),
    [
        (TrackConfig(tensorboard=True), "tensorboard"),
        (TrackConfig(mlflow=MLflowConfig(uri="http://localhost:1")), "mlflow"),
        (TrackConfig(wandb=WandbConfig()), "wandb"),
    ],
)
def test_missing_package_is_named(
    config: TrackConfig, extra: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def absent(name: str) -> None:
        raise ModuleNotFoundError(f"No module named '{name}'", name=name)

    monkeypatch.setattr("graphbox.train.trackers.import_module", absent)
    with (
        pytest.raises(BackendMissingError, match=rf"graphbox\[{extra}\]"),
        open_trackers(config, tmp_path, "run-1", {}),
    ):
        pass

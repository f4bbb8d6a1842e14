"""Trackers: figures arrive, a run that goes on stays one run, and what goes wrong stops no training."""

from __future__ import annotations

import importlib.util
import logging
import os
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from graphbox.config.track import MLflowConfig, TrackConfig, WandbConfig
from graphbox.errors import BackendMissingError, GraphboxError, InterruptedRunError, UsageError
from graphbox.train.tracking.services import Ending, Point
from graphbox.train.tracking.trackers import QueuedTracker, open_trackers

needs = {
    name: pytest.mark.skipif(importlib.util.find_spec(name) is None, reason=f"{name} is not installed")
    for name in ("tensorboard", "mlflow", "wandb", "flask_cors")
}

# Warnings of the packages themselves are not ours to mend.
pytestmark = pytest.mark.filterwarnings("ignore")

SERVER = """
import sys
from mlflow.server import app
from werkzeug.serving import make_server
server = make_server("127.0.0.1", int(sys.argv[1]), app, threaded=True)
print(server.server_port, flush=True)
server.serve_forever()
"""


def send(config: TrackConfig, folder: Path, *points: tuple[int, dict[str, float]]) -> None:
    with open_trackers(config, folder, "run-1", {"seed": "7"}) as trackers:
        for step, values in points:
            for tracker in trackers:
                tracker.log(step, values)


@needs["tensorboard"]
def test_tensorboard_gets_figures(tmp_path: Path) -> None:
    send(TrackConfig(tensorboard=True), tmp_path, (1, {"m/loss": 0.5}))
    send(TrackConfig(tensorboard=True), tmp_path, (2, {"m/loss": 0.25}))  # the run goes on
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(str(tmp_path / "tensorboard"))
    events.Reload()
    assert [(event.step, event.value) for event in events.Scalars("m/loss")] == [(1, 0.5), (2, 0.25)]


@needs["tensorboard"]
def test_files_that_cannot_be_written_are_said_before_training(tmp_path: Path) -> None:
    (tmp_path / "tensorboard").write_text("a file where the folder has to be")
    with (
        pytest.raises(BackendMissingError, match=r"expected TensorBoard to take figures, received: .*exists"),
        open_trackers(TrackConfig(tensorboard=True), tmp_path, "run-1", {}),
    ):
        pass


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

    monkeypatch.setattr("graphbox.train.tracking.services.import_module", absent)
    with (
        pytest.raises(BackendMissingError, match=rf"graphbox\[{extra}\]"),
        open_trackers(config, tmp_path, "run-1", {}),
    ):
        pass


def wait_until(is_so: Callable[[], bool]) -> None:
    """Wait for what another process or thread does; if it never does, the time limit of tests ends this."""
    while not is_so():
        time.sleep(0.02)


# ----------------------------------------------------------------------------------------- MLflow


@pytest.fixture(autouse=True)
def _environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """Give MLflow and W&B settings of a test, and take away those that opening a tracker leaves."""
    for name in list(os.environ):
        if name.startswith("WANDB_"):
            monkeypatch.delenv(name)
    for name, value in {"MAX_RETRIES": "1", "BACKOFF_FACTOR": "0", "TIMEOUT": "10"}.items():
        monkeypatch.setenv(f"MLFLOW_HTTP_REQUEST_{name}", value)
    for name in ("MLFLOW_LOGGING_LEVEL", "MLFLOW_DISABLE_TELEMETRY"):
        monkeypatch.setenv(name, {"MLFLOW_LOGGING_LEVEL": "WARNING"}.get(name, "true"))


@pytest.fixture(scope="module")
def empty_store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a database of MLflow that has its tables, which take seconds to make."""
    import mlflow

    path = tmp_path_factory.mktemp("store") / "mlflow.db"
    mlflow.MlflowClient(tracking_uri=f"sqlite:///{path}").get_experiment_by_name("none")
    return path


@pytest.fixture
def store(empty_store: Path, tmp_path: Path) -> str:
    return f"sqlite:///{shutil.copy(empty_store, tmp_path / 'mlflow.db')}"


def only_run(store: str) -> Any:
    import mlflow

    client: Any = mlflow.MlflowClient(tracking_uri=store)
    (run,) = client.search_runs([client.get_experiment_by_name("e").experiment_id])
    history = client.get_metric_history(run.info.run_id, "m/loss")
    return run, sorted((point.step, point.value) for point in history)


@needs["mlflow"]
def test_mlflow_gets_figures_of_one_run(store: str, tmp_path: Path) -> None:
    config = TrackConfig(mlflow=MLflowConfig(uri=store, experiment="e"))
    send(config, tmp_path, (1, {"m/loss": 0.5}))
    send(config, tmp_path, (2, {"m/loss": 0.25, "m/other": float("nan")}))
    run, history = only_run(store)
    assert history == [(1, 0.5), (2, 0.25)]
    assert (run.info.run_name, run.info.status, run.data.params) == ("run-1", "FINISHED", {"seed": "7"})


@needs["mlflow"]
@pytest.mark.parametrize(
    ("error", "status"),
    [
        (InterruptedRunError("stopped on request"), "KILLED"),
        (KeyboardInterrupt(), "KILLED"),
        (GraphboxError("expected a finite loss, received nan"), "FAILED"),
    ],
)
def test_mlflow_knows_how_a_run_ended(error: BaseException, status: str, store: str, tmp_path: Path) -> None:
    config = TrackConfig(mlflow=MLflowConfig(uri=store, experiment="e"))
    with pytest.raises(type(error)), open_trackers(config, tmp_path, "run-1", {}):
        raise error
    assert only_run(store)[0].info.status == status
    with open_trackers(config, tmp_path, "run-1", {}):
        assert only_run(store)[0].info.status == "RUNNING"
    assert only_run(store)[0].info.status == "FINISHED"


@needs["mlflow"]
def test_a_run_that_is_gone_from_mlflow_is_made_anew(store: str, empty_store: Path, tmp_path: Path) -> None:
    other = f"sqlite:///{shutil.copy(empty_store, tmp_path / 'other.db')}"
    send(TrackConfig(mlflow=MLflowConfig(uri=other, experiment="e")), tmp_path, (1, {"m/loss": 0.5}))
    identity = tmp_path / "tracker-mlflow.json"
    identity.write_text(identity.read_text().replace(other, store))
    send(TrackConfig(mlflow=MLflowConfig(uri=store, experiment="e")), tmp_path, (2, {"m/loss": 0.25}))
    assert only_run(store)[1] == [(2, 0.25)]


@needs["mlflow"]
@pytest.mark.parametrize(
    ("uri", "kind", "message"),
    [
        ("http://me:secret@127.0.0.1:1", BackendMissingError, "MLflow at http://127.0.0.1:1 .*refused"),
        ("sqlite:////proc/none/mlflow.db", BackendMissingError, "MLflow at sqlite:////proc/none/mlflow.db"),
        ("htp://127.0.0.1:1", UsageError, "track.mlflow.uri: expected the URI .* received `htp:"),
        ("mlruns", UsageError, "track.mlflow.uri: expected the URI .* received `mlruns`"),
    ],
)
def test_wrong_mlflow_is_said_before_training(
    uri: str, kind: type[GraphboxError], message: str, tmp_path: Path
) -> None:
    config = TrackConfig(mlflow=MLflowConfig(uri=uri))
    with pytest.raises(kind, match=message) as caught, open_trackers(config, tmp_path, "run-1", {}):
        pass
    assert caught.value.hint
    assert "secret" not in str(caught.value)


@contextmanager
def mlflow_server(store: str, folder: Path, port: int = 0) -> Iterator[tuple[subprocess.Popen[str], int]]:
    place = {"_MLFLOW_SERVER_FILE_STORE": store, "_MLFLOW_SERVER_ARTIFACT_ROOT": str(folder / "artifacts")}
    with subprocess.Popen(
        [sys.executable, "-W", "ignore", "-c", SERVER, str(port)],
        env={**os.environ, **place},
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    ) as process:
        try:
            assert process.stdout is not None
            yield process, int(process.stdout.readline())
        finally:
            process.kill()


@needs["flask_cors"]
@needs["mlflow"]
def test_a_server_that_goes_away_and_comes_back_stops_nothing(
    store: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with mlflow_server(store, tmp_path) as (server, port):
        config = TrackConfig(mlflow=MLflowConfig(uri=f"http://127.0.0.1:{port}", experiment="e"))
        with open_trackers(config, tmp_path, "run-1", {}) as (tracker,):
            tracker.log(1, {"m/loss": 0.5})
            wait_until(lambda: only_run(store)[1] == [(1, 0.5)])
            server.kill()
            server.wait()
            tracker.log(2, {"m/loss": 0.25})
            tracker.log(3, {"m/loss": 0.125})
            wait_until(lambda: "takes no figures" in caplog.text)
            assert only_run(store)[1] == [(1, 0.5)]
            with mlflow_server(store, tmp_path, port):
                assert isinstance(tracker, QueuedTracker)
                tracker.close("finished")
    run, history = only_run(store)
    assert history == [(1, 0.5), (2, 0.25), (3, 0.125)]
    assert run.info.status == "FINISHED"
    warned = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
    assert sum("takes no figures" in each for each in warned) == 1
    assert "refused" in warned[0]


# ------------------------------------------------------------------------------------------- W&B


@needs["wandb"]
def test_wandb_offline_keeps_figures_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WANDB_MODE", "offline")
    config = TrackConfig(wandb=WandbConfig(project="p"))
    send(config, tmp_path, (1, {"m/loss": 0.5}))
    (kept,) = (tmp_path / "wandb").glob("offline-run-*/run-*.wandb")
    wait_until(lambda: b"m/loss" in kept.read_bytes())  # a process of its own writes it
    identity = (tmp_path / "tracker-wandb.json").read_text()
    send(config, tmp_path, (2, {"m/loss": 0.25}))
    assert (tmp_path / "tracker-wandb.json").read_text() == identity  # one run there


@needs["wandb"]
def test_wandb_without_a_key_is_said_before_training(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    with (
        pytest.raises(UsageError, match="expected a key of Weights & Biases") as caught,
        open_trackers(TrackConfig(wandb=WandbConfig()), tmp_path, "run-1", {}),
    ):
        pass
    assert "WANDB_MODE=offline" in str(caught.value.hint)


# ------------------------------------------------------------------------------------------ queue


class Moody:
    """A service that takes figures when it is in the mood."""

    def __init__(self) -> None:
        self.taken: list[int] = []
        self.attempts = 0
        self.there = True
        self.ending: Ending | None = None
        self.before_taking: Callable[[], object] = bool
        self.before_closing: Callable[[], object] = bool

    def send(self, points: Sequence[Point]) -> None:
        self.attempts += 1
        self.before_taking()
        if not self.there:
            raise ConnectionError(f"not there, in {'long ' * 200}words")
        self.taken += [point.step for point in points]

    def close(self, ending: Ending) -> None:
        self.before_closing()
        if not self.there:
            raise ConnectionError("not there")
        self.ending = ending


class TestQueuedTracker:
    def test_what_was_not_taken_is_sent_later(
        self, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("graphbox.train.tracking.trackers._RETRY_S", 0.01)
        service = Moody()
        tracker = QueuedTracker("It", service)
        tracker.log(1, {"m/loss": 1.0})
        wait_until(lambda: service.taken == [1])
        service.there = False
        for step in (2, 3, 4):
            tracker.log(step, {"m/loss": 1.0})
            wait_until(lambda step=step: service.attempts >= step)  # type: ignore[misc]
        assert service.taken == [1]
        service.there = True
        tracker.log(5, {"m/loss": 1.0})
        tracker.close("finished")
        assert service.taken == [1, 2, 3, 4, 5]
        assert service.ending == "finished"
        (warning,) = caplog.records
        assert len(warning.getMessage()) < 600

    def test_what_was_never_taken_is_reported(self, caplog: pytest.LogCaptureFixture) -> None:
        service = Moody()
        service.there = False
        tracker = QueuedTracker("It", service)
        tracker.log(1, {"m/loss": 1.0})
        tracker.close("finished")
        assert "the last 1 points" in caplog.records[-1].getMessage()
        assert service.ending is None

    def test_an_ending_that_is_not_taken_is_reported(self, caplog: pytest.LogCaptureFixture) -> None:
        service = Moody()
        service.there = False
        QueuedTracker("It", service).close("failed")
        assert "was not told that the run is failed: not there" in caplog.records[-1].getMessage()

    def test_training_does_not_wait_for_a_service(self) -> None:
        answers = threading.Event()
        service = Moody()
        service.before_taking = answers.wait
        tracker = QueuedTracker("It", service)
        for step in range(1000):
            tracker.log(step, {"m/loss": 1.0})
        assert service.attempts <= 1
        answers.set()
        tracker.close("finished")
        assert service.taken == list(range(1000))
        assert service.attempts <= 2, "what comes during a call goes with the next"
        assert service.ending == "finished"

    @pytest.mark.parametrize("hangs", ["before_taking", "before_closing"])
    def test_a_service_that_hangs_keeps_no_training_from_ending(
        self, hangs: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("graphbox.train.tracking.trackers._CLOSE_LIMIT_S", 0.01)
        answers = threading.Event()
        service = Moody()
        setattr(service, hangs, answers.wait)
        tracker = QueuedTracker("It", service)
        tracker.log(1, {"m/loss": 1.0})
        tracker.close("finished")
        assert "no answer in 0.01 seconds" in caplog.records[-1].getMessage()
        answers.set()

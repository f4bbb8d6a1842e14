"""The thread that preloads and follows: it reports once, survives errors, and ends on request."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from graphbox.deploy import DeployedModel, open_model
from graphbox.server.readiness import Readiness
from graphbox.server.repository import Repository
from graphbox.server.watcher import Watcher
from graphbox.workspace import Workspace
from tests.server.sample_models import add_model, write_encoder, write_vectors
from tests.server.server_process import wait_until

Start = Callable[..., Watcher]


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    workspace = Workspace(tmp_path / "work")
    add_model(workspace, "companion", write_encoder)
    return workspace


@pytest.fixture
def repository(workspace: Workspace) -> Iterator[Repository]:
    repository = Repository(workspace)
    yield repository
    repository.close()


@pytest.fixture
def start(repository: Repository) -> Iterator[Start]:
    """Start watchers of the repository; they are stopped after the test."""
    started: list[Watcher] = []

    def begin(on_preload: Callable[[Readiness], None] | None = None) -> Watcher:
        started.append(Watcher(repository, on_preload))
        started[-1].start()
        return started[-1]

    yield begin
    for watcher in started:
        watcher.stop(10)
    assert not any(thread.name == "graphbox-models" for thread in threading.enumerate())


def current(repository: Repository) -> dict[str, int]:
    return {model.name: model.version for model in repository.known() if model.served}


def test_preloads_once_then_follows(workspace: Workspace, repository: Repository, start: Start) -> None:
    reports: list[Readiness] = []
    start(reports.append)
    wait_until(lambda: bool(reports), what="the report")
    assert reports == [Readiness(True, ["companion"], [], {})]
    add_model(workspace, "companion", write_encoder)
    add_model(workspace, "section", write_vectors)
    wait_until(lambda: repository.readiness().available == ["companion", "section"], 5, what="the new model")
    wait_until(lambda: current(repository)["companion"] == 2, 5, what="the new version")
    assert len(reports) == 1


def test_report_that_fails_does_not_end_it(
    workspace: Workspace, repository: Repository, start: Start, caplog: pytest.LogCaptureFixture
) -> None:
    def report(_: Readiness) -> None:
        raise BrokenPipeError

    start(report)
    wait_until(lambda: "was not reported" in caplog.text, what="the failed report")
    add_model(workspace, "companion", write_encoder)
    wait_until(lambda: current(repository)["companion"] == 2, 5, what="the new version")


def test_reload_survives_a_lost_database(
    workspace: Workspace, repository: Repository, start: Start, caplog: pytest.LogCaptureFixture
) -> None:
    watcher = start()
    database, aside = workspace.root / "graphbox.db", workspace.root / "aside"
    database.rename(aside)
    watcher.reload()
    wait_until(lambda: "the models were not reloaded" in caplog.text, what="the failed reload")
    aside.rename(database)
    add_model(workspace, "companion", write_encoder)
    wait_until(lambda: current(repository)["companion"] == 2, 5, what="the new version")


def test_stop_waits_a_limited_time_for_a_model(
    repository: Repository, start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    opening, proceed = threading.Event(), threading.Event()

    def open_slowly(path: Path, *arguments: object) -> DeployedModel:
        opening.set()
        proceed.wait(30)
        return open_model(path)

    monkeypatch.setattr("graphbox.server.slot.open_model", open_slowly)
    watcher = start()
    assert opening.wait(10)
    begun = time.monotonic()
    watcher.stop(0.1)
    assert time.monotonic() - begun < 5
    proceed.set()


def test_stop_before_start(repository: Repository) -> None:
    Watcher(repository).stop(10)

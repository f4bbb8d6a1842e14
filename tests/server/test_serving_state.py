"""Requests about models: what one process writes others see, and nothing stops while the database is away."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest

from graphbox.errors import FormatError, TimeLimitError
from graphbox.server.repository import Repository
from graphbox.server.serving_state import ServingState
from graphbox.server.settings import Settings
from graphbox.server.worker_task import LogFormat, WorkerReport, WorkerTask
from graphbox.workspace import Workspace
from graphbox.workspace.serving import ServingRecords
from tests.server.sample_models import add_model, write_encoder, write_vectors


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "state.db"


@pytest.fixture
def states(path: Path) -> list[ServingState]:
    return [ServingState(ServingRecords.at(path, 0.1)) for _ in range(2)]


def test_others_see_what_one_writes(states: list[ServingState]) -> None:
    first, second = states
    first.write("shop", unloaded=True)
    assert first.is_unloaded("shop"), "at once"
    assert not second.is_unloaded("shop")
    assert second.poll() == {"shop"}
    assert second.is_unloaded("shop")
    assert second.poll() == set(), "once"
    assert first.poll() == set(), "its own requests are no news"
    second.write("shop", unloaded=True)
    assert first.poll() == {"shop"}, "a request that repeats the last one is followed, as a load is"
    second.write("shop", unloaded=False)
    first.write("topics", unloaded=True)
    assert first.poll() == {"shop"}
    assert second.poll() == {"topics"}
    for state in states:
        assert (state.is_unloaded("shop"), state.is_unloaded("topics")) == (False, True)


def test_a_new_process_knows_earlier_requests(states: list[ServingState], path: Path) -> None:
    states[0].write("shop", unloaded=True)
    later = ServingState(ServingRecords.at(path, 0.1))
    assert later.is_unloaded("shop")
    assert later.poll() == set()


def test_one_process_alone_needs_no_database() -> None:
    state = ServingState()
    state.write("shop", unloaded=True)
    assert state.is_unloaded("shop")
    assert state.poll() == set()
    state.write("shop", unloaded=False)
    assert not state.is_unloaded("shop")


@pytest.fixture
def locked(path: Path, states: list[ServingState]) -> Iterator[sqlite3.Connection]:
    """The database locked against readers too."""
    states[0].write("shop", unloaded=True)
    states[1].poll()
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("PRAGMA journal_mode = DELETE")
        connection.execute("BEGIN EXCLUSIVE")
        yield connection


def test_locked_database(
    states: list[ServingState], locked: sqlite3.Connection, caplog: pytest.LogCaptureFixture
) -> None:
    for _ in range(3):
        assert states[1].poll() == set()
    assert states[1].is_unloaded("shop")
    with pytest.raises(TimeLimitError, match="locked"):
        states[1].write("shop", unloaded=False)
    assert states[1].is_unloaded("shop"), "a request that was not noted changes nothing"
    locked.execute("COMMIT")
    states[0].write("shop", unloaded=False)
    assert states[1].poll() == {"shop"}
    assert [record.getMessage().partition(",")[0] for record in caplog.records] == [
        "requests about models cannot be read",
        "requests about models can be read again",
    ]


def test_lost_database(states: list[ServingState], path: Path, caplog: pytest.LogCaptureFixture) -> None:
    states[0].write("shop", unloaded=True)
    states[1].poll()
    path.rename(path.with_name("aside"))
    for _ in range(3):
        assert states[1].poll() == set()
    assert states[1].is_unloaded("shop")
    with pytest.raises(FormatError, match="gone"):
        states[1].write("shop", unloaded=False)
    assert len(caplog.records) == 1


def test_removal_of_the_model_ends_the_request(tmp_path: Path) -> None:
    workspace = Workspace(tmp_path / "work")
    for name, write in (("companion", write_encoder), ("section", write_vectors)):
        add_model(workspace, name, write)
    state = ServingState(workspace.serving_records())
    state.write("companion", unloaded=True)
    version = add_model(workspace, "companion", write_encoder)
    workspace.remove_model("companion", version)
    assert state.poll() == set(), "another version is left"
    workspace.remove_model("companion")
    workspace.remove_model("section")
    assert state.poll() == {"companion"}
    assert not state.is_unloaded("companion")


def test_failed_unload_leaves_the_model_served(tmp_path: Path) -> None:
    workspace = Workspace(tmp_path / "work", busy_timeout_s=0.1)
    add_model(workspace, "companion", write_encoder)
    repository = Repository(workspace)
    repository.preload()
    with closing(sqlite3.connect(workspace.root / "graphbox.db", isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(TimeLimitError, match="locked"):
            repository.unload("companion")
        assert repository.readiness().available == ["companion"]
        other.execute("ROLLBACK")
    repository.unload("companion")
    assert repository.readiness().available == []


def other_value(value: Any) -> Any:
    """Return another value of the same type."""
    match value:
        case bool():
            return not value
        case int() | float():
            return value + 1
        case str():
            return value + "x"
        case dict():
            return {"shop": 7}
    raise AssertionError(f"expected a value of a known type, received {value!r}")


def test_settings_reach_the_worker() -> None:
    """All of them: each gets a value that is not its default."""
    explicit: dict[str, Any] = {
        "workspace": Path("/work"),
        "database_url": "sqlite:///a.db",
        "models": (Path("/a"), Path("/b")),
        "token": "a-token-long-enough-to-be-one",
        "allowed_hosts": ("a.example", "b.example"),
        "grpc_port": 7,
        "tls_certificate": Path("/certificate.pem"),
        "tls_key": Path("/key.pem"),
        "token_file": Path("/tokens.toml"),
        "max_client_rate": 1.5,
        "max_client_burst": 2,
        "max_client_pending": 3,
        "restrict": ("trace:key=/secret",),
    }
    defaults = Settings()
    values = {
        field.name: explicit.get(field.name) or other_value(getattr(defaults, field.name))
        for field in fields(Settings)
    }
    settings = Settings(**values)
    log = LogFormat(10, "%(message)s")
    task = WorkerTask(settings, 1, (5, 6), (7, 8), Path("/tmp/state.db"), log, 9)  # noqa: S108 - is not used
    line = task.to_line()
    assert line.count(b"\n") == 1
    received = WorkerTask.of_line(line)
    assert received == task
    assert all(type(getattr(received.settings, name)) is type(value) for name, value in values.items())
    alone = replace(task, settings=defaults, state=None, log=None, listeners=(5, None))
    assert WorkerTask.of_line(alone.to_line()) == alone


def test_errors_reach_the_parent() -> None:
    error = FormatError("expected a, received b", where="file", hint="repair it")
    received = WorkerReport.of_line(WorkerReport(error=error).to_line()).error
    assert isinstance(received, FormatError)
    assert (str(received), received.exit_code) == (str(error), 4)

"""A database that another connection has locked: waits are limited, and messages name the measured wait."""

from __future__ import annotations

import os
import re
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from graphbox.errors import TimeLimitError, UsageError
from graphbox.workspace import Workspace

SHORT_S = 0.5
LONG_S = 60.0


@pytest.fixture(params=["wal", "delete"])
def root(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A workspace whose database has the journal of graphbox, or that of another program."""
    root = tmp_path / "workspace"
    Workspace(root).close()
    with sqlite3.connect(root / "graphbox.db") as connection:
        assert connection.execute(f"PRAGMA journal_mode = {request.param}").fetchone() == (request.param,)
    connection.close()
    return root


@contextmanager
def locked(root: Path) -> Iterator[sqlite3.Connection]:
    """Hold the write lock of a workspace's database."""
    connection = sqlite3.connect(root / "graphbox.db", isolation_level=None, check_same_thread=False)
    connection.execute("BEGIN EXCLUSIVE")
    yield connection
    if connection.in_transaction:
        connection.execute("COMMIT")
    connection.close()


def write(workspace: Workspace) -> object:
    return workspace.new_model_path("companion")


def read(workspace: Workspace) -> object:
    return workspace.models()


def journal(root: Path) -> str:
    connection = sqlite3.connect(root / "graphbox.db")
    (mode,) = connection.execute("PRAGMA journal_mode").fetchone()
    connection.close()
    return str(mode)


def opened_with_its_journal(root: Path, timeout_s: float) -> Workspace:
    """Open a workspace; opening makes the journal WAL, so set it back."""
    before = journal(root)
    workspace = Workspace(root, busy_timeout_s=timeout_s)
    connection = sqlite3.connect(root / "graphbox.db")
    connection.execute(f"PRAGMA journal_mode = {before}")
    connection.close()
    return workspace


def check_wait(act: Callable[[], object]) -> None:
    began = time.monotonic()
    with pytest.raises(TimeLimitError, match="locked by another process") as caught:
        act()
    elapsed = time.monotonic() - began
    named = re.search(r"waited (\d+\.\d) s", caught.value.message)
    assert named is not None
    assert SHORT_S <= float(named[1]) <= elapsed + 0.05  # the message has one decimal
    assert caught.value.hint == "end the process that holds it, or try again"


def test_a_write_waits_as_long_as_it_may(root: Path) -> None:
    workspace = opened_with_its_journal(root, SHORT_S)
    with locked(root):
        check_wait(lambda: write(workspace))
    write(workspace)


def test_reads_and_openings_wait_as_long_as_they_may(tmp_path: Path) -> None:
    root = tmp_path / "workspace"
    Workspace(root).close()
    connection = sqlite3.connect(root / "graphbox.db")
    connection.execute("PRAGMA journal_mode = delete")
    connection.close()
    workspace = opened_with_its_journal(root, SHORT_S)
    with locked(root):
        check_wait(lambda: read(workspace))
        check_wait(lambda: Workspace(root, busy_timeout_s=SHORT_S))
    assert read(workspace) == []


@pytest.mark.parametrize("act", [write, read])
def test_a_lock_released_in_time(root: Path, act: Callable[[Workspace], object]) -> None:
    workspace = opened_with_its_journal(root, LONG_S)
    with locked(root) as holder:
        release = threading.Timer(SHORT_S, holder.execute, ["COMMIT"])
        release.start()
        act(workspace)
        release.join()
    assert journal(root) == "wal"


def test_a_workspace_opened_while_a_lock_is_released(root: Path) -> None:
    with locked(root) as holder:
        release = threading.Timer(SHORT_S, holder.execute, ["COMMIT"])
        release.start()
        Workspace(root, busy_timeout_s=LONG_S).close()
        release.join()


@pytest.mark.parametrize("timeout_s", [-1.0, float("nan"), float("inf")])
def test_wrong_limits(tmp_path: Path, timeout_s: float) -> None:
    with pytest.raises(UsageError, match="expected a `busy_timeout_s` of at least 0 seconds, received"):
        Workspace(tmp_path / "workspace", busy_timeout_s=timeout_s)


def test_a_stamp_differs_once_the_database_has_changed(tmp_path: Path) -> None:
    workspace = Workspace(tmp_path / "workspace", create=True)
    file = tmp_path / "workspace" / "graphbox.db"
    assert workspace.change_stamp() is None  # just made
    os.utime(file, (1e9, 1e9))
    stamp = workspace.change_stamp()
    assert stamp is not None
    workspace.active_versions()
    assert workspace.change_stamp() == stamp
    workspace.new_model_path("model")
    assert workspace.change_stamp() != stamp

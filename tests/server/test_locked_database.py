"""A workspace whose database is locked by another program while a server uses it."""

from __future__ import annotations

import sqlite3
import time
from pathlib import Path

from tests.server.sample_models import build_workspace
from tests.server.server_process import StartServer, wait_until


def locks_readers_out(connection: sqlite3.Connection) -> bool:
    """Lock the database against readers, which a WAL never does; False while the server is using it."""
    try:
        mode = connection.execute("PRAGMA journal_mode = delete").fetchone()
        connection.execute("BEGIN EXCLUSIVE")
    except sqlite3.OperationalError:
        return False
    if mode == connection.execute("PRAGMA journal_mode").fetchone() == ("delete",):
        return True
    connection.execute("ROLLBACK")
    return False


def test_requests_end_with_a_status_that_says_to_try_again(tmp_path: Path, start_server: StartServer) -> None:
    workspace = build_workspace(tmp_path / "debian")
    server = start_server(workspace=workspace.root)
    connection = sqlite3.connect(workspace.root / "graphbox.db", isolation_level=None)
    with server.client() as client:
        wait_until(lambda: locks_readers_out(connection), what="the lock")
        began = time.monotonic()
        refused = client.get("/api/v1/runs")
        elapsed = time.monotonic() - began
        connection.execute("COMMIT")
        connection.close()
        assert (refused.status_code, refused.json()["code"]) == (504, "time_limit")
        assert "locked by another process; waited 2" in refused.json()["message"]
        assert "try again" in refused.json()["hint"]
        assert 2 <= elapsed < 20
        assert client.get("/api/v1/runs").status_code == 200

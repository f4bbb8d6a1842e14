"""Fixtures: workspaces with real models, and servers for them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from graphbox.workspace import Workspace
from tests.server.sample_models import build_workspace
from tests.server.server_process import ServerProcess, StartServer, start_process


@pytest.fixture
def start_server(tmp_path: Path) -> Iterator[StartServer]:
    """Start servers with given settings; they are stopped after the test."""
    started: list[ServerProcess] = []

    def start(**settings: Any) -> ServerProcess:
        log = tmp_path / f"server-{len(started)}.log"
        server = start_process({"port": 0, **settings}, log)
        started.append(server)
        return server

    yield start
    for server in started:
        if server.process.poll() is None:
            server.process.kill()
        server.process.wait(10)
        if server.process.stdout is not None:
            server.process.stdout.close()


@pytest.fixture(scope="module")
def shared_workspace(tmp_path_factory: pytest.TempPathFactory) -> Workspace:
    """A workspace no test changes."""
    return build_workspace(tmp_path_factory.mktemp("shared") / "debian")


@pytest.fixture(scope="module")
def server(shared_workspace: Workspace, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    """A server for ``shared_workspace``, without a token."""
    log = tmp_path_factory.mktemp("log") / "server.log"
    running = start_process({"port": 0, "workspace": shared_workspace.root, "max_rows": 100}, log)
    running.wait_until_ready()
    yield running
    assert running.stop() == 0, log.read_text()
    if running.process.stdout is not None:
        running.process.stdout.close()


@pytest.fixture
def client(server: ServerProcess) -> Iterator[httpx.Client]:
    with server.client() as client:
        yield client

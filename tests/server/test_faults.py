"""A server whose disk is full, whose database is gone, or whose clock jumps: models are served as before."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest

from graphbox.workspace import Workspace
from tests.server.sample_models import (
    PACKAGES,
    add_model,
    build_workspace,
    expected_embeddings,
    write_encoder,
)
from tests.server.server_process import TOKEN, ServerProcess, StartServer, wait_until
from tests.server.test_process import infer
from tests.server.test_workers import BEARER, metric, wait_until_all_ready, workers_of

CLOCK = Path(__file__).with_name("shifted_clock.c")
DISK_BYTES = 3 << 20


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of three megabytes."""
    folder = tmp_path / "disk"
    folder.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", f"size={DISK_BYTES}", "tmpfs", str(folder)]
    if subprocess.run(command, capture_output=True, check=False).returncode != 0:
        pytest.skip("this user may not mount a file system")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)  # noqa: S607


def fill(folder: Path) -> Path:
    """Write a file until no byte is left, and return it."""
    filler = folder / "filler"
    with filler.open("wb", buffering=0) as file:
        while True:
            try:
                file.write(b"\0" * 4096)
            except OSError:
                return filler


def ask(server: ServerProcess, method: str, path: str, **options: Any) -> httpx.Response:
    """Send a request with the token, on a connection of its own."""
    return httpx.request(method, f"{server.base}{path}", headers=BEARER, timeout=30, **options)


def expect_answers(server: ServerProcess, requests: int = 20) -> None:
    """Send requests on connections of their own, which are divided among the workers."""
    for _ in range(requests):
        np.testing.assert_allclose(
            infer(server, PACKAGES, **BEARER), expected_embeddings(PACKAGES), rtol=1e-5
        )


def test_a_full_disk(start_server: StartServer, small_disk: Path, tmp_path: Path) -> None:
    workspace = build_workspace(small_disk / "debian")
    add_model(workspace, "companion", write_encoder, scale=-1.0, activate=False)
    server = start_server(workspace=workspace.root, workers=2, token=TOKEN)
    wait_until_all_ready(server)
    before = workers_of(server)
    filler = fill(small_disk)
    expect_answers(server)
    for path, body in (
        ("/api/v1/models/companion/promote", {"version": 2}),
        ("/v2/repository/models/section/unload", {}),
        ("/v2/repository/models/companion/load", {}),
    ):
        refused = ask(server, "POST", path, json=body)
        assert refused.status_code == 507, refused.text
        # Of the database, or of the audit log, which comes first.
        assert re.search("disk of the workspace's database is full|cannot be written", refused.text)
        assert str(tmp_path) not in refused.text
    # A version that was not open is read from the disk, which needs no room.
    other = ask(server, "GET", "/v2/models/companion/versions/2/ready")
    assert other.status_code == 200, other.text
    # A worker cannot start without the database. The others have its connections, which do not wait for it.
    os.kill(before[0], signal.SIGKILL)
    wait_until(lambda: "is started again: " in server.log.read_text(), what="the failed start")
    expect_answers(server)
    filler.unlink()
    wait_until(lambda: metric(server, "graphbox_workers") == 2, 60, what="the next worker")
    wait_until_all_ready(server)
    expect_answers(server)
    assert ask(server, "POST", "/v2/repository/models/section/unload", json={}).status_code == 200
    assert server.stop() == 0
    assert "Traceback" not in server.log.read_text()


def test_a_database_that_is_gone(start_server: StartServer, tmp_path: Path) -> None:
    workspace = build_workspace(tmp_path / "debian")
    server = start_server(workspace=workspace.root, workers=2, token=TOKEN)
    wait_until_all_ready(server)
    database = workspace.root / "graphbox.db"
    moved = list(workspace.root.glob("graphbox.db*"))
    for each in moved:
        each.rename(tmp_path / each.name)
    wait_until(lambda: "cannot be listed" in server.log.read_text(), what="the failed poll")
    expect_answers(server)
    for path in ("/api/v1/runs", "/api/v1/models"):
        refused = ask(server, "GET", path)
        assert refused.status_code == 422
        assert "database file is gone" in refused.json()["message"]
        assert str(tmp_path) not in refused.text
    refused = ask(server, "POST", "/v2/repository/models/section/unload", json={})
    assert refused.status_code == 422
    assert ask(server, "GET", "/v2/models/section/ready").status_code == 200
    assert not database.exists()
    os.kill(workers_of(server)[1], signal.SIGKILL)
    wait_until(lambda: "is started again: " in server.log.read_text(), what="the failed start")
    expect_answers(server)
    for each in moved:
        shutil.move(tmp_path / each.name, each)
    wait_until(lambda: ask(server, "GET", "/api/v1/runs").status_code == 200, what="the database")
    wait_until(lambda: metric(server, "graphbox_workers") == 2, 60, what="the next worker")
    wait_until_all_ready(server)
    expect_answers(server)
    assert server.stop() == 0
    assert "Traceback" not in server.log.read_text()


@pytest.fixture(scope="module")
def shifted_clock(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A library that shifts the wall clock of a process by the seconds in a file."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        pytest.skip("no C compiler")
    library = tmp_path_factory.mktemp("clock") / "shifted_clock.so"
    subprocess.run([compiler, "-shared", "-fPIC", "-O1", "-o", library, CLOCK, "-ldl"], check=True)
    return library


@pytest.mark.parametrize("shift_s", [-86_400 * 365, pytest.param(86_400 * 365, marks=pytest.mark.stress)])
def test_a_clock_that_jumps(
    start_server: StartServer,
    shifted_clock: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    shift_s: int,
) -> None:
    """Time limits, new versions, requests about models and the end do not depend on the time of day."""
    shift = tmp_path / "shift"
    shift.write_text("0")
    monkeypatch.setenv("LD_PRELOAD", str(shifted_clock))
    monkeypatch.setenv("SHIFTED_CLOCK_FILE", str(shift))
    workspace: Workspace = build_workspace(tmp_path / "debian")
    version = add_model(workspace, "companion", write_encoder, scale=-1.0, activate=False)
    server = start_server(workspace=workspace.root, workers=2, token=TOKEN, keep_alive_s=60)
    monkeypatch.delenv("LD_PRELOAD")
    wait_until_all_ready(server)
    with httpx.Client(base_url=server.base, headers=BEARER, timeout=30) as kept:
        first = kept.get("/healthz")
        shift.write_text(str(shift_s))
        wait_until(lambda: _year(kept.get("/healthz")) != _year(first), what="the clock to jump")
        body = {
            "inputs": [{"name": "id", "datatype": "BYTES", "shape": [1], "data": ["zsh"]}],
            "parameters": {"timeout": 20_000_000},
        }
        assert kept.post("/v2/models/companion/infer", json=body).status_code == 200
    expect_answers(server)
    workspace.promote_model("companion", version)
    expected = -expected_embeddings(["zsh"])
    wait_until(
        lambda: all(np.allclose(infer(server, ["zsh"], **BEARER), expected, rtol=1e-5) for _ in range(10)),
        what="the new version in every worker",
    )
    assert ask(server, "POST", "/v2/repository/models/section/unload", json={}).status_code == 200
    wait_until(
        lambda: all(ask(server, "GET", "/v2/models/section/ready").status_code != 200 for _ in range(10)),
        what="the unloading in every worker",
    )
    shift.write_text("0")
    os.kill(workers_of(server)[0], signal.SIGKILL)
    wait_until_all_ready(server)
    assert server.stop() == 0
    assert "Traceback" not in server.log.read_text()


def _year(answer: httpx.Response) -> str:
    return answer.headers["date"].split()[3]

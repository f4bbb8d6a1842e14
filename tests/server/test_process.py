"""The server process: start, refusals to start, readiness, new versions, and an orderly end."""

from __future__ import annotations

import json
import signal
import socket
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest

from graphbox.workspace import Workspace
from tests.server.sample_models import (
    DIM,
    PACKAGES,
    add_model,
    expected_embeddings,
    write_encoder,
    write_vectors,
)
from tests.server.server_process import EVERY_ADDRESS, TOKEN, ServerProcess, StartServer, wait_until


def run_to_end(**settings: Any) -> subprocess.CompletedProcess[str]:
    program = str(Path(__file__).parent / "run_server.py")
    return subprocess.run(
        [sys.executable, program, json.dumps({"port": 0, **settings}, default=str)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def infer(server: ServerProcess, ids: list[str], **headers: str) -> np.ndarray:
    body = {"inputs": [{"name": "id", "datatype": "BYTES", "shape": [len(ids)], "data": ids}]}
    url = f"{server.base}/v2/models/companion/infer"
    answer = httpx.post(url, json=body, headers=headers, timeout=30)
    assert answer.status_code == 200, answer.text
    return np.array(answer.json()["outputs"][0]["data"], np.float32).reshape(-1, DIM)


def test_port_in_use(shared_workspace: Workspace) -> None:
    with closing(socket.create_server(("127.0.0.1", 0))) as other:
        port = other.getsockname()[1]
        ended = run_to_end(workspace=shared_workspace.root, port=port)
    assert ended.returncode == 1
    assert ended.stderr == (
        f"127.0.0.1:{port}: port {port} is in use by another program\n"
        "  = help: choose another with --port, or any free one with --port 0\n"
    )


@pytest.mark.parametrize(
    ("settings", "code", "message"),
    [
        ({"host": EVERY_ADDRESS}, 2, "needs a token"),
        ({"host": "192.0.2.1", "token": TOKEN}, 2, "cannot listen there"),
        ({"workspace": "absent"}, 2, "absent"),
        ({"models": ["absent"]}, 2, "absent"),
    ],
)
def test_refusals_to_start(settings: dict[str, Any], code: int, message: str, tmp_path: Path) -> None:
    for name in ("workspace", "models"):
        if name in settings:
            settings = {name: tmp_path / "absent" if name == "workspace" else [tmp_path / "absent"]}
    ended = run_to_end(**settings)
    assert ended.returncode == code, ended.stderr
    assert message in ended.stderr
    assert "Traceback" not in ended.stderr
    assert ended.stdout == ""


def test_reachable_address_with_a_token(start_server: StartServer, shared_workspace: Workspace) -> None:
    server = start_server(workspace=shared_workspace.root, host=EVERY_ADDRESS, token=TOKEN)
    assert server.url == f"http://127.0.0.1:{server.port}/"
    assert httpx.get(f"{server.base}/healthz").status_code == 200


def test_ipv6(start_server: StartServer, shared_workspace: Workspace) -> None:
    if not socket.has_ipv6:
        pytest.skip("this machine has no IPv6")
    server = start_server(workspace=shared_workspace.root, host="::1")
    assert server.url == f"http://[::1]:{server.port}/"
    assert httpx.get(f"{server.url}healthz").status_code == 200


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_running_requests_are_finished(
    start_server: StartServer, shared_workspace: Workspace, number: signal.Signals
) -> None:
    """A request whose body is still on its way when the signal comes is answered."""
    server = start_server(workspace=shared_workspace.root)
    infer(server, ["zsh"])
    body = json.dumps(
        {"inputs": [{"name": "id", "datatype": "BYTES", "shape": [1], "data": ["zsh"]}]}
    ).encode()
    with socket.create_connection(("127.0.0.1", server.port), timeout=20) as connection:
        head = f"POST /v2/models/companion/infer HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}"
        connection.sendall(head.encode() + b"\r\n\r\n" + body[:10])
        wait_until(lambda: pending_bytes(connection) == 0, what="the request to be sent")
        time.sleep(0.2)  # until the server has read the headers; the test holds without it, too
        server.process.send_signal(number)
        wait_until(lambda: not accepts(server.port), what="the server to stop accepting")
        connection.sendall(body[10:])
        answer = b""
        while chunk := connection.recv(65536):
            answer += chunk
    assert answer.startswith(b"HTTP/1.1 200 ")
    values = json.loads(answer.partition(b"\r\n\r\n")[2])["outputs"][0]["data"]
    np.testing.assert_allclose(values, expected_embeddings(["zsh"])[0], rtol=1e-5)
    assert server.process.wait(20) == 0
    assert "Traceback" not in server.log.read_text()


def pending_bytes(connection: socket.socket) -> int:
    import array
    import fcntl
    import termios

    size = array.array("i", [0])
    fcntl.ioctl(connection.fileno(), termios.TIOCOUTQ, size)
    return size[0]


def accepts(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), timeout=5).close()
    except OSError:
        return False
    return True


def test_drain_has_an_end(start_server: StartServer, shared_workspace: Workspace) -> None:
    """A client that never sends its body cannot keep the server from stopping."""
    server = start_server(workspace=shared_workspace.root, drain_timeout_s=1)
    with socket.create_connection(("127.0.0.1", server.port), timeout=20) as connection:
        connection.sendall(
            b"POST /v2/models/companion/infer HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\n{"
        )
        wait_until(lambda: pending_bytes(connection) == 0, what="the request to be sent")
        started = time.monotonic()
        assert server.stop() == 0
    assert time.monotonic() - started < 15


def test_idle_connections_do_not_delay_the_end(
    start_server: StartServer, shared_workspace: Workspace
) -> None:
    server = start_server(workspace=shared_workspace.root)
    with server.client() as client:
        client.get("/healthz")
        started = time.monotonic()
        assert server.stop() == 0
    assert time.monotonic() - started < 8


def damage(workspace: Workspace, version: int) -> Callable[[], object]:
    """Change one bit of the ONNX file of `companion`; return what restores it."""
    onnx = workspace.model("companion", version).path / "model.onnx"
    content = onnx.read_bytes()
    changed = bytearray(content)
    changed[len(changed) // 2] ^= 1
    onnx.write_bytes(changed)
    return lambda: onnx.write_bytes(content)


def test_promoted_version_is_served_without_a_gap(start_server: StartServer, tmp_path: Path) -> None:
    """No signal, no request: the server follows the workspace."""
    workspace = Workspace(tmp_path / "work")
    add_model(workspace, "companion", write_encoder)
    version = add_model(workspace, "companion", write_encoder, scale=-1.0, activate=False)
    server = start_server(workspace=workspace.root)
    old, new = expected_embeddings(PACKAGES), -expected_embeddings(PACKAGES)
    seen: list[str] = []
    stop = threading.Event()

    def ask() -> None:
        while not stop.is_set():
            values = infer(server, PACKAGES)
            named = {"old": old, "new": new}
            seen.append(next((n for n, v in named.items() if np.allclose(values, v, rtol=1e-5)), "?"))

    asker = threading.Thread(target=ask)
    asker.start()
    try:
        wait_until(lambda: "old" in seen, what="an answer of the old version")
        workspace.promote_model("companion", version)
        wait_until(lambda: "new" in seen, 5, what="an answer of the new version")
    finally:
        stop.set()
        asker.join(30)
    first_new = seen.index("new")
    assert set(seen[:first_new]) == {"old"}
    assert set(seen[first_new:]) == {"new"}


def test_ready_once_every_model_is_open(start_server: StartServer, shared_workspace: Workspace) -> None:
    server = start_server(workspace=shared_workspace.root)
    server.wait_until_ready()
    assert httpx.get(f"{server.base}/healthz/ready").json() == {
        "ready": True,
        "available": ["companion", "numbers", "section"],
        "loading": [],
        "failed": {},
    }


def test_damaged_model_at_start(start_server: StartServer, tmp_path: Path) -> None:
    """Readiness says so before any request, and recovers after SIGHUP once the model is repaired."""
    workspace = Workspace(tmp_path / "work")
    add_model(workspace, "companion", write_encoder)
    add_model(workspace, "section", write_vectors)
    restore = damage(workspace, 1)
    server = start_server(workspace=workspace.root)
    with server.client() as client:
        wait_until(lambda: client.get("/healthz/ready").json()["available"] == ["section"], what="preloading")
        answer = client.get("/healthz/ready")
        assert answer.status_code == 503
        assert answer.json()["failed"]["companion"].startswith("version 1: expected the sha256")
        assert str(tmp_path) not in answer.text
        for path in ("/healthz", "/healthz/live", "/v2/health/live"):
            assert client.get(path).status_code == 200
        assert client.get("/v2/models/section/ready").status_code == 200
        restore()
        server.process.send_signal(signal.SIGHUP)
        server.wait_until_ready()
    np.testing.assert_allclose(infer(server, ["zsh"]), expected_embeddings(["zsh"]), rtol=1e-5)
    assert server.stop() == 0
    assert server.log.read_text().count("cannot be opened") == 1


def test_readiness_names_models_only_to_those_admitted(
    start_server: StartServer, shared_workspace: Workspace
) -> None:
    server = start_server(workspace=shared_workspace.root, token=TOKEN)
    server.wait_until_ready()
    url = f"{server.base}/healthz/ready"
    assert httpx.get(url).json() == {"ready": True, "available": [], "loading": [], "failed": {}}
    bearer = {"authorization": f"Bearer {TOKEN}"}
    assert httpx.get(url, headers=bearer).json()["available"] == ["companion", "numbers", "section"]
    assert httpx.get(url, headers={**bearer, "host": "evil.example"}).json()["available"] == []


def test_a_damaged_new_version_leaves_the_old_one(start_server: StartServer, tmp_path: Path) -> None:
    workspace = Workspace(tmp_path / "work")
    add_model(workspace, "companion", write_encoder)
    version = add_model(workspace, "companion", write_encoder, scale=-1.0, activate=False)
    damage(workspace, version)
    server = start_server(workspace=workspace.root, token=TOKEN)
    server.wait_until_ready()
    workspace.promote_model("companion", version)
    wait_until(lambda: "cannot be opened" in server.log.read_text(), what="the failed load")
    bearer = {"authorization": f"Bearer {TOKEN}"}
    with server.client(headers=bearer) as client:
        assert server.is_ready()
        answer = client.post("/v2/repository/models/companion/load")
        assert answer.status_code == 422
        assert "sha256" in answer.json()["error"]
        metadata = client.get("/v2/models/companion").json()
        assert metadata["versions"] == ["1", "2"]
        assert server.is_ready()
        assert client.get("/v2/models/companion/ready").status_code == 200
        assert client.get("/v2/models/companion/versions/2/ready").status_code == 422
        body = {"inputs": [{"name": "id", "datatype": "BYTES", "shape": [1], "data": ["zsh"]}]}
        values = client.post("/v2/models/companion/infer", json=body).json()
        np.testing.assert_allclose(values["outputs"][0]["data"], expected_embeddings(["zsh"])[0], rtol=1e-5)
        assert values["model_version"] == "1"
    assert "Traceback" not in server.log.read_text()


def test_new_models_appear_by_themselves(start_server: StartServer, tmp_path: Path) -> None:
    workspace = Workspace(tmp_path / "work")
    server = start_server(workspace=workspace.root)
    with server.client() as client:
        assert client.get("/v2/models/companion").status_code == 404
        add_model(workspace, "companion", write_encoder)
        assert client.get("/v2/models/companion").status_code == 200
        assert client.get("/v2/models/companion.onnx").status_code == 200
        wait_until(lambda: client.get("/healthz/ready").json()["available"] == ["companion"], what="the load")
        workspace.remove_model("companion")
        assert client.get("/api/v1/models").json() == []
        assert client.get("/v2/models/companion").status_code == 404


def test_a_locked_database_delays_neither_answers_nor_the_end(
    start_server: StartServer, tmp_path: Path
) -> None:
    workspace = Workspace(tmp_path / "work")
    add_model(workspace, "companion", write_encoder)
    server = start_server(workspace=workspace.root)
    server.wait_until_ready()
    with closing(sqlite3.connect(workspace.root / "graphbox.db", isolation_level=None)) as other:
        # Outside of WAL mode an exclusive transaction keeps readers out.
        wait_until(lambda: is_taken(other), what="the lock of the database")
        wait_until(lambda: "cannot be listed" in server.log.read_text(), what="the failed poll")
        infer(server, ["zsh"])
        assert server.is_ready()
        started = time.monotonic()
        assert server.stop() == 0
    assert time.monotonic() - started < 15


def is_taken(connection: sqlite3.Connection) -> bool:
    """Take the database for `connection` alone, unless another one has it open just now."""
    try:
        connection.execute("PRAGMA journal_mode = DELETE")
        connection.execute("BEGIN EXCLUSIVE")
    except sqlite3.OperationalError:
        return False
    return True


def test_a_user_without_a_home_folder(shared_workspace: Workspace, tmp_path: Path) -> None:
    """As in a container whose user is a number alone."""
    code = (
        "import os, pwd, sys, pathlib\n"
        "del os.environ['HOME']\n"
        "pwd.getpwuid = lambda number: (_ for _ in ()).throw(KeyError(number))\n"
        "try:\n    pathlib.Path.home()\nexcept RuntimeError:\n    pass\nelse:\n    sys.exit('there is one')\n"
        "from graphbox.server import Settings\nfrom graphbox.server.app import create_app\n"
        f"create_app(Settings(workspace=pathlib.Path({str(shared_workspace.root)!r})))\n"
        "from graphbox.cli.app import _write_traceback\n"
        "print(_write_traceback(['serve']))\n"
    )
    ended = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
        env={"HOME": "/", "TMPDIR": str(tmp_path)},
    )
    assert ended.stdout.startswith(f"{tmp_path}/error-")

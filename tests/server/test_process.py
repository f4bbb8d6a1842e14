"""The server process: start, refusals to start, reload, and an orderly end."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import sys
import threading
import time
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


def infer(server: ServerProcess, ids: list[str]) -> np.ndarray:
    body = {"inputs": [{"name": "id", "datatype": "BYTES", "shape": [len(ids)], "data": ids}]}
    answer = httpx.post(f"{server.base}/v2/models/companion/infer", json=body, timeout=30)
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
        ({"artifacts": ["absent"]}, 2, "absent"),
    ],
)
def test_refusals_to_start(settings: dict[str, Any], code: int, message: str, tmp_path: Path) -> None:
    for name in ("workspace", "artifacts"):
        if name in settings:
            settings = {name: tmp_path / "absent" if name == "workspace" else [tmp_path / "absent"]}
    ended = run_to_end(**settings)
    assert ended.returncode == code, ended.stderr
    assert message in ended.stderr
    assert "Traceback" not in ended.stderr
    assert ended.stdout == ""


def test_reachable_address_with_a_token(start_server: StartServer, shared_workspace: Workspace) -> None:
    server = start_server(workspace=shared_workspace.root, host=EVERY_ADDRESS, token=TOKEN)
    assert server.url == f"http://127.0.0.1:{server.port}/?token={TOKEN}"
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


def test_reload_serves_the_new_version_without_a_gap(start_server: StartServer, tmp_path: Path) -> None:
    workspace = Workspace(tmp_path / "work")
    add_model(workspace, "companion", write_encoder)
    server = start_server(workspace=workspace.root)
    old, new = expected_embeddings(PACKAGES), -expected_embeddings(PACKAGES)
    seen: list[str] = []
    stop = threading.Event()

    def ask() -> None:
        while not stop.is_set():
            values = infer(server, PACKAGES)
            seen.append(
                "old"
                if np.allclose(values, old, rtol=1e-5)
                else "new"
                if np.allclose(values, new, rtol=1e-5)
                else "?"
            )

    asker = threading.Thread(target=ask)
    asker.start()
    try:
        wait_until(lambda: "old" in seen, what="an answer of the old version")
        add_model(workspace, "companion", write_encoder, scale=-1.0)
        before = len(seen)
        wait_until(lambda: len(seen) > before + 5, what="answers before the reload")
        assert "new" not in seen, "nothing changes until it is asked for"
        server.process.send_signal(signal.SIGHUP)
        wait_until(lambda: "new" in seen, what="an answer of the new version")
    finally:
        stop.set()
        asker.join(30)
    first_new = seen.index("new")
    assert set(seen[:first_new]) == {"old"}
    assert set(seen[first_new:]) == {"new"}


def test_a_damaged_new_version_leaves_the_old_one(start_server: StartServer, tmp_path: Path) -> None:
    workspace = Workspace(tmp_path / "work")
    add_model(workspace, "companion", write_encoder)
    server = start_server(workspace=workspace.root, token=TOKEN)
    bearer = {"authorization": f"Bearer {TOKEN}"}
    version = add_model(workspace, "companion", write_encoder, scale=-1.0)
    onnx = workspace.model("companion", version).path / "model.onnx"
    content = bytearray(onnx.read_bytes())
    content[len(content) // 2] ^= 1
    onnx.write_bytes(content)
    with server.client(headers=bearer) as client:
        answer = client.post("/v2/repository/models/companion/load")
        assert answer.status_code == 422
        assert "sha256" in answer.json()["error"]
        metadata = client.get("/v2/models/companion").json()
        assert metadata["versions"] == ["1", "2"]
        assert client.get("/v2/health/ready").status_code == 200
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
        workspace.remove_model("companion")
        assert client.get("/api/v1/models").json() == []
        assert client.get("/v2/models/companion").status_code == 404

"""Requests that take long or much memory: they end when their client leaves, and give the memory back."""

from __future__ import annotations

import json
import re
import signal
import socket
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest

from graphbox.deploy import open_encoder
from graphbox.workspace import Workspace
from tests.server.sample_models import (
    PACKAGES,
    add_model,
    expected_embeddings,
    write_encoder,
    write_wide_encoder,
)
from tests.server.server_process import ServerProcess, StartServer, wait_until

MOST_ROWS = 65_536
KEPT_BYTES = 50 << 20
# Encoded at once, the largest request takes 0.7 GB for the rows of its neighbours alone.
PEAK_BYTES = 400 << 20


@pytest.fixture(scope="module")
def wide(tmp_path_factory: pytest.TempPathFactory) -> Workspace:
    workspace = Workspace(tmp_path_factory.mktemp("wide") / "workspace", create=True)
    add_model(workspace, "wide", write_wide_encoder)
    add_model(workspace, "companion", write_encoder)
    return workspace


@pytest.fixture
def server(wide: Workspace, start_server: StartServer) -> Iterator[ServerProcess]:
    running = start_server(workspace=wide.root)
    infer(running, ["p1"])
    yield running
    assert running.stop() == 0
    assert "Traceback" not in running.log.read_text()


def body_of(ids: list[str], **fields: Any) -> bytes:
    return json.dumps(
        {"inputs": [{"name": "id", "datatype": "BYTES", "shape": [len(ids)], "data": ids}], **fields}
    ).encode()


def infer(server: ServerProcess, ids: list[str], **fields: Any) -> bytes:
    url = f"{server.base}/v2/models/wide/infer"
    answer = httpx.post(url, content=body_of(ids, **fields), timeout=60)
    assert answer.status_code == 200, answer.text
    return answer.content


def memory_bytes(server: ServerProcess, field: str) -> int:
    status = Path(f"/proc/{server.process.pid}/status").read_text()
    found = re.search(rf"^{field}:\s+(\d+) kB$", status, re.MULTILINE)
    assert found is not None
    return int(found[1]) * 1024


def many_ids() -> list[str]:
    return [f"p{number}" for number in np.random.default_rng(5).integers(0, 20_000, MOST_ROWS)]


@pytest.mark.parametrize("binary", [True, False])
def test_the_largest_request_gives_its_memory_back(server: ServerProcess, binary: bool) -> None:
    before = memory_bytes(server, "VmRSS")
    for _ in range(3):
        infer(server, many_ids(), parameters={"binary_data_output": binary})
    assert memory_bytes(server, "VmHWM") < before + PEAK_BYTES
    wait_until(
        lambda: memory_bytes(server, "VmRSS") < before + KEPT_BYTES,
        what="the memory of the requests to be free",
    )


def test_vectors_do_not_depend_on_the_size_of_a_request(wide: Workspace) -> None:
    with open_encoder(wide.model("wide").path) as model:
        index = np.random.default_rng(6).integers(0, 20_000, 1000)
        together = model.encode_indices(index)
        alone = np.concatenate([model.encode_indices(index[place : place + 1]) for place in range(1000)])
    np.testing.assert_allclose(together, alone, atol=1e-5)


def metrics(server: ServerProcess) -> dict[str, float]:
    lines = httpx.get(f"{server.base}/metrics").text.splitlines()
    return {
        name: float(value) for name, _, value in (line.rpartition(" ") for line in lines if line[:1] != "#")
    }


def pending(server: ServerProcess) -> float:
    return metrics(server)["graphbox_pending_executions"]


def test_requests_end_when_their_clients_leave(server: ServerProcess) -> None:
    content = body_of(many_ids())
    head = (
        b"POST /v2/models/wide/infer HTTP/1.1\r\nHost: localhost\r\n"
        b"Content-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(content)
    )
    success = 'nv_inference_request_success{model="wide",version="1"}'
    failure = 'nv_inference_request_failure{model="wide",version="1"}'
    answered = metrics(server)[success]
    clients = [socket.create_connection(("127.0.0.1", server.port), timeout=20) for _ in range(12)]
    for client in clients:
        client.sendall(head + content)
    wait_until(lambda: pending(server) >= 12, what="the requests to be read")
    for client in clients:
        client.close()
    wait_until(lambda: pending(server) == 0, what="the requests to end")
    assert metrics(server)[success] == answered
    assert metrics(server)[failure] == 12


def test_small_requests_are_answered_while_large_ones_run(server: ServerProcess) -> None:
    content = body_of(many_ids(), parameters={"binary_data_output": True})
    head = b"POST /v2/models/wide/infer HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n"
    with httpx.Client(base_url=server.base, timeout=60) as client, ExitStack() as stack:
        for _ in range(12):
            large = stack.enter_context(socket.create_connection(("127.0.0.1", server.port), timeout=60))
            large.sendall(head % len(content) + content)
        wait_until(lambda: pending(server) >= 12, what="the requests to be read")
        for _ in range(5):
            answer = client.post("/v2/models/wide/infer", content=body_of(["p7", "p8"]))
            assert answer.status_code == 200
        # In one queue, the small ones would have waited for most of the large ones.
        assert pending(server) > 6


def test_a_time_limit_ends_a_request(server: ServerProcess) -> None:
    url = f"{server.base}/v2/models/wide/infer"
    answer = httpx.post(url, content=body_of(many_ids(), parameters={"timeout": 50_000}), timeout=60)
    assert answer.status_code == 504
    assert "expected an answer within 0.05 s" in answer.json()["error"]
    wait_until(lambda: pending(server) == 0, what="the request to end")


def test_requests_that_are_not_done_when_the_drain_ends(wide: Workspace, start_server: StartServer) -> None:
    server = start_server(workspace=wide.root, drain_timeout_s=1)
    with socket.create_connection(("127.0.0.1", server.port), timeout=20) as connection:
        connection.sendall(
            b"POST /v2/models/wide/infer HTTP/1.1\r\nHost: localhost\r\nExpect: 100-continue\r\n"
            b"Content-Length: 100\r\n\r\n"
        )
        assert connection.recv(65536).startswith(b"HTTP/1.1 100 ")
        server.process.send_signal(signal.SIGTERM)
        answer = b""
        while chunk := connection.recv(65536):
            answer += chunk
    head, _, content = answer.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 503 ")
    assert b"retry-after: 1" in head
    assert json.loads(content) == {"error": "the server is stopping and this request was not finished"}
    assert server.process.wait(20) == 0
    assert "Traceback" not in server.log.read_text()


def test_files_that_are_truncated_while_they_are_served(tmp_path: Path, start_server: StartServer) -> None:
    """A file mapped into memory would end the process here."""
    workspace = Workspace(tmp_path / "workspace", create=True)
    add_model(workspace, "companion", write_encoder)
    server = start_server(workspace=workspace.root)
    url = f"{server.base}/v2/models/companion/infer"
    answers = [httpx.post(url, content=body_of(PACKAGES)).json()["outputs"][0]["data"]]
    for file in workspace.model("companion").path.rglob("*"):
        if file.is_file():
            with file.open("r+b") as stream:
                stream.truncate(0)
    answers.append(httpx.post(url, content=body_of(PACKAGES)).json()["outputs"][0]["data"])
    expected = expected_embeddings(PACKAGES).ravel()
    for answer in answers:
        np.testing.assert_allclose(answer, expected, rtol=1e-5)
    assert httpx.get(f"{server.base}/api/v1/models/companion/neighbors?id=nginx&k=3").status_code == 200


def test_messages_hold_no_folders_of_the_machine(tmp_path: Path, start_server: StartServer) -> None:
    workspace = Workspace(tmp_path / "workspace", create=True)
    add_model(workspace, "companion", write_encoder)
    damaged = workspace.model("companion").path / "preprocess.json"
    damaged.write_bytes(damaged.read_bytes()[:-3])
    server = start_server(workspace=workspace.root)
    answers = [
        httpx.post(f"{server.base}/v2/models/companion/infer", content=body_of(["zsh"])),
        httpx.get(f"{server.base}/api/v1/models/companion/neighbors?id=zsh"),
        httpx.get(f"{server.base}/api/v1/runs/absent"),
        httpx.get(f"{server.base}/healthz/ready"),
        httpx.post(f"{server.base}/v2/repository/index"),
        httpx.get(f"{server.base}/api/v1/models"),
    ]
    assert [answer.status_code for answer in answers] == [422, 422, 404, 503, 200, 200]
    for answer in answers:
        assert str(tmp_path) not in answer.text
    assert "models/companion/1/preprocess.json" in answers[1].text
    assert str(damaged) in server.log.read_text()  # whoever runs the server finds it

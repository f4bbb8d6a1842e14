"""Row updates of served models: all workers answer with them, over REST and gRPC."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import numpy.typing as npt
import pytest

from graphbox.deploy.row_updates import RowUpdater, roll_back_rows, update_rows
from graphbox.workspace import Workspace
from tests.artifact.lookup_model import DIM
from tests.server.row_update_model import IDS, rows_workspace, tagged
from tests.server.server_process import TOKEN, ServerProcess, StartServer, wait_until
from tests.server.test_workers import BEARER, metric, wait_until_all_ready, workers_of


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    return rows_workspace(tmp_path)


def answer(client: httpx.Client, ids: list[str], model: str = "rows") -> dict[str, Any]:
    body = {"inputs": [{"name": "id", "datatype": "BYTES", "shape": [len(ids)], "data": ids}]}
    document: dict[str, Any] = client.post(f"/v2/models/{model}/infer", json=body).json()
    return document


def vectors(document: dict[str, Any]) -> npt.NDArray[np.float32]:
    (output,) = document["outputs"]
    return np.array(output["data"], np.float32).reshape(output["shape"])


def update_body(ids: list[str], rows: npt.NDArray[np.float32]) -> dict[str, Any]:
    return {
        "inputs": [
            {"name": "id", "datatype": "BYTES", "shape": [len(ids)], "data": ids},
            {"name": "vector", "datatype": "FP32", "shape": list(rows.shape), "data": rows.ravel().tolist()},
        ]
    }


def applied(server: ServerProcess) -> dict[str, float]:
    """Return the applied row update of each worker."""
    lines = httpx.get(f"{server.base}/metrics", headers=BEARER).text.splitlines()
    found = [line for line in lines if line.startswith("graphbox_rows_sequence{")]
    return {line.partition('worker="')[2].partition('"')[0]: float(line.split()[-1]) for line in found}


@pytest.fixture
def server(workspace: Workspace, start_server: StartServer) -> ServerProcess:
    started = start_server(workspace=workspace.root, token=TOKEN, workers=2)
    wait_until_all_ready(started)
    return started


@pytest.fixture
def client(server: ServerProcess) -> Iterator[httpx.Client]:
    with server.client(headers=BEARER) as client:
        yield client


def test_update_reaches_all_workers_and_is_rolled_back(
    workspace: Workspace, server: ServerProcess, client: httpx.Client
) -> None:
    before = answer(client, IDS)
    assert "parameters" not in before
    written = client.post(
        "/api/v1/models/rows/rows?table=user", json=update_body([*IDS, "new"], tagged(5, 4))
    )
    assert written.status_code == 200, written.text
    assert (written.json()["sequence"], written.json()["parent"], written.json()["rows"]) == (1, 0, 4)
    wait_until(lambda: applied(server) == {"0": 1, "1": 1}, 10, "both workers to have the update")
    for _ in range(10):  # connections go to either worker
        with server.client(headers=BEARER) as other:
            found = answer(other, [*IDS, "new", "user 4"])
            assert found["parameters"] == {"rows_sequence": 1}
            assert (vectors(found)[:4] == 5).all()
            assert (vectors(found)[4] != 5).all()
    update_rows(workspace, "rows", IDS, tagged(6), table="user")
    wait_until(lambda: applied(server) == {"0": 2, "1": 2}, 10, "both workers to have the second update")
    assert metric(server, "graphbox_rows_updated_total", model="rows", version="1") == 2 * (4 + 3)
    assert 0 < metric(server, "graphbox_rows_update_age_seconds", worker="0") < 60
    assert metric(server, "graphbox_rows_refused") == 0
    assert (vectors(answer(client, IDS)) == 6).all()
    rolled = client.post("/api/v1/models/rows/rows/rollback", json={"sequence": 0})
    assert rolled.json()["active"] == 0
    wait_until(lambda: applied(server) == {"0": 0, "1": 0}, 10, "both workers to be rolled back")
    assert (vectors(answer(client, IDS)) == vectors(before)).all()
    assert "error" in answer(client, ["new"])
    roll_back_rows(workspace, "rows", 1)
    wait_until(lambda: applied(server) == {"0": 1, "1": 1}, 10, "both workers to go to the first update")
    assert (vectors(answer(client, ["new"])) == 5).all()
    listed = client.get("/api/v1/models/rows/updates").json()
    assert (listed["active"], [each["sequence"] for each in listed["updates"]]) == (1, [2, 1])
    update_rows(workspace, "rows", IDS, tagged(7), table="user")
    listed = client.get("/api/v1/models/rows/updates").json()
    assert listed["updates"][0] | {"created_at": ""} == {
        "sequence": 3,
        "parent": 1,
        "rows": {"user": 3},
        "created_at": "",
    }


def test_late_and_killed_workers_apply_all_in_order(workspace: Workspace, start_server: StartServer) -> None:
    updater = RowUpdater(workspace, "rows")
    for tag in range(1, 8):
        updater.write({"user": (IDS[: 1 + tag % 3], tagged(tag, 1 + tag % 3))})
    server = start_server(workspace=workspace.root, token=TOKEN, workers=2)
    wait_until_all_ready(server)
    expected = np.stack([tagged(7, 1)[0], tagged(7, 1)[0], tagged(5, 1)[0]])
    with server.client(headers=BEARER) as client:
        assert (vectors(answer(client, IDS)) == expected).all()
        for pid in workers_of(server):
            updater.write({"user": (IDS[:1], tagged(8, 1))})
            os.kill(pid, signal.SIGKILL)
    expected[0] = 8
    wait_until_all_ready(server)
    wait_until(lambda: applied(server) == {"0": 9, "1": 9}, 20, "the workers that follow to have all updates")
    for _ in range(8):
        with server.client(headers=BEARER) as client:
            assert (vectors(answer(client, IDS)) == expected).all()


def test_update_as_binary_data(server: ServerProcess, client: httpx.Client) -> None:
    triton = pytest.importorskip("tritonclient.http")
    ids = triton.InferInput("id", [2], "BYTES").set_data_from_numpy(
        np.array([b"user 1", "\u00e9".encode()], object)
    )
    rows = triton.InferInput("vector", [2, DIM], "FP32").set_data_from_numpy(tagged(9, 2))
    body, length = triton.InferenceServerClient.generate_request_body([ids, rows])
    headers = {"Inference-Header-Content-Length": str(length)}
    found = client.post("/api/v1/models/rows/rows?table=user", content=body, headers=headers)
    assert found.status_code == 200, found.text
    wait_until(lambda: applied(server) == {"0": 1, "1": 1}, 10, "both workers to have the update")
    assert (vectors(answer(client, ["user 1", "\u00e9"])) == 9).all()


def test_requests_that_are_refused(workspace: Workspace, server: ServerProcess, client: httpx.Client) -> None:
    def status(path: str = "/api/v1/models/rows/rows?table=user", **changes: Any) -> int:
        body = update_body(["user 1"], tagged(1, 1)) | changes
        found = client.post(path, json=body)
        assert str(workspace.root) not in found.text
        return found.status_code

    assert status("/api/v1/models/rows/rows") == 400, "two tables"
    assert status("/api/v1/models/rows/rows?table=other") == 404
    assert status("/api/v1/models/none/rows?table=user") == 404
    assert status("/api/v1/models/rows/rows?table=user&sequence=7") == 409
    assert status(inputs=update_body(["user 1"], np.zeros((1, DIM - 1), np.float32))["inputs"]) == 400
    assert status(inputs=update_body(["a", "a"], tagged(1, 2))["inputs"]) == 422
    assert status(inputs=update_body([], tagged(1, 0))["inputs"]) == 422
    assert status(outputs=[{"name": "id"}]) == 400
    assert client.post("/api/v1/models/rows/rows/rollback", json={"sequence": 3}).status_code == 404
    with server.client() as stranger:
        assert stranger.post("/api/v1/models/rows/rows", json={}).status_code == 401
    assert client.get("/api/v1/models/rows/updates").json()["updates"] == []


def test_without_a_token_rows_are_not_updated(workspace: Workspace, start_server: StartServer) -> None:
    server = start_server(workspace=workspace.root)
    server.wait_until_ready()
    with server.client() as client:
        found = client.post("/api/v1/models/rows/rows?table=user", json=update_body(IDS, tagged(1)))
        assert found.status_code == 403
        assert client.get("/api/v1/models/rows/updates").json()["applied"] == 0


def test_joined_requests_see_one_update(workspace: Workspace, server: ServerProcess) -> None:
    updater = RowUpdater(workspace, "rows")
    updater.write({"user": (IDS, tagged(1))})
    wait_until(lambda: applied(server) == {"0": 1, "1": 1}, 10, "the first update")
    stop, errors, seen = threading.Event(), list[str](), set[int]()

    def ask() -> None:
        with server.client(headers=BEARER) as client:
            while not stop.is_set():
                document = answer(client, IDS)
                tags = set(vectors(document).ravel().tolist())
                sequence = document["parameters"]["rows_sequence"]
                if tags != {sequence}:
                    errors.append(f"{tags} with the sequence {sequence}")
                seen.add(sequence)

    threads = [threading.Thread(target=ask) for _ in range(6)]
    for thread in threads:
        thread.start()
    for tag in range(2, 10):
        updater.write({"user": (IDS, tagged(tag))})
        wait_until(lambda tag=tag: applied(server) == {"0": tag, "1": tag}, 10, "the update")  # type: ignore[misc]
    stop.set()
    for thread in threads:
        thread.join(30)
    assert not errors, errors[:3]
    assert max(seen) == 9


def test_answers_over_grpc_name_their_update(workspace: Workspace, start_server: StartServer) -> None:
    grpc = pytest.importorskip("tritonclient.grpc")
    update_rows(workspace, "rows", IDS, tagged(4), table="user")
    server = start_server(workspace=workspace.root, grpc_port=0)
    server.wait_until_ready()
    tensor = grpc.InferInput("id", [len(IDS)], "BYTES")
    tensor.set_data_from_numpy(np.array([each.encode() for each in IDS], object))
    with grpc.InferenceServerClient(server.grpc_address) as client:
        found = client.infer("rows", [tensor])
    assert found.get_response().parameters["rows_sequence"].int64_param == 1
    assert (found.as_numpy("embedding") == 4).all()


def test_poll_interval_bounds_the_delay(workspace: Workspace, server: ServerProcess) -> None:
    """The poll, not a request, makes an update visible: nobody asks the server while it is applied."""
    update_rows(workspace, "rows", IDS, tagged(3), table="user")
    deadline = time.monotonic() + 10
    while applied(server) != {"0": 1, "1": 1}:
        assert time.monotonic() < deadline
        time.sleep(0.05)

"""The audit log: every request that changes something is in it before its answer."""

from __future__ import annotations

import asyncio
import json
import signal
import sqlite3
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import grpc
import pytest

from graphbox.server.access import Scope
from graphbox.server.app import create_app
from graphbox.server.audit import AuditLog, message_of_body, plain_detail, result_of_status
from graphbox.server.grpc import inference_messages as messages
from graphbox.server.http.connection import HttpConnection
from graphbox.server.http.connections import ConnectionLimits, Connections
from graphbox.server.settings import Settings
from graphbox.workspace import Workspace
from graphbox.workspace.audit import AuditRecord, AuditRequest
from tests.server.sample_models import build_workspace, write_encoder
from tests.server.server_process import TOKEN, ServerProcess, StartServer, wait_until
from tests.server.test_tokens import bearer, write_tokens


@pytest.fixture
def workspace(tmp_path: Path) -> Iterator[Workspace]:
    with build_workspace(tmp_path / "debian") as built:
        yield built


@pytest.fixture
def server(start_server: StartServer, workspace: Workspace, tmp_path: Path) -> ServerProcess:
    file = tmp_path / "tokens.toml"
    tokens = write_tokens(file, boss=(Scope.MANAGE,), reader=(Scope.READ,))
    (tmp_path / "boss").write_text(tokens["boss"])
    (tmp_path / "reader").write_text(tokens["reader"])
    running = start_server(workspace=workspace.root, token_file=file, token=TOKEN, grpc_port=0)
    running.wait_until_ready()
    return running


def shown(record: AuditRecord) -> tuple[str, str, str | None, int | None, str]:
    request = record.request
    return request.client, request.action, request.model, request.version, record.result


def test_requests_that_change_something(server: ServerProcess, workspace: Workspace, tmp_path: Path) -> None:
    boss, reader = (bearer((tmp_path / name).read_text()) for name in ("boss", "reader"))
    with server.client(headers=boss) as client:
        path = "/v2/repository/models/companion/load"
        assert client.post(path, headers={"x-request-id": "mine"}, json={}).status_code == 200
        assert client.post("/v2/repository/models/absent/load").status_code == 404
        assert client.post("/api/v1/models/companion/promote", json={"version": 1}).status_code == 200
        assert client.post("/api/v1/models/companion/promote", json={"version": 77}).status_code == 404
        assert client.post("/v2/models/companion/infer", json={}).status_code == 403
        assert client.post(path, headers=reader).status_code == 403
        entries = client.get("/api/v1/audit").json()
        assert client.get("/api/v1/audit?limit=1&model=absent").json() == [entries[2]]
        assert client.get(f"/api/v1/audit?before={entries[2]['id']}").json() == [entries[3]]
        assert client.get(f"/api/v1/audit?before={2**53 - 1}").json() == entries
        assert client.get(f"/api/v1/audit?before={2**80}").status_code == 400
    records = workspace.audit()
    assert [shown(record) for record in records] == [
        ("boss", "promote", "companion", 77, "refused"),
        ("boss", "promote", "companion", 1, "ok"),
        ("boss", "load", "absent", None, "refused"),
        ("boss", "load", "companion", None, "ok"),
    ]
    assert records[3].request.request_id == "mine"
    assert records[3].request.address == "127.0.0.1"
    assert "absent" in (records[2].message or "")
    assert [entry["id"] for entry in entries] == [record.id for record in records]
    assert entries[0]["result"] == "refused"
    log = server.log.read_text()
    assert "promote companion version 77 by boss from 127.0.0.1: refused" in log


def test_rows_are_not_noted(server: ServerProcess, workspace: Workspace) -> None:
    """Neither vectors nor ids, whatever becomes of the request; the log has no more of them."""
    with server.client(headers=bearer(TOKEN)) as client:
        for ids in (["nginx"], ["nginx", "nginx"]):
            vectors = [0.125] * 4 * len(ids)
            inputs = [
                {"name": "id", "datatype": "BYTES", "shape": [len(ids)], "data": ids},
                {"name": "vector", "datatype": "FP32", "shape": [len(ids), 4], "data": vectors},
            ]
            content = json.dumps({"inputs": inputs}).encode()
            client.post("/api/v1/models/section/rows?table=package", content=content)
    refused, written = workspace.audit()
    assert shown(written) == ("default", "update rows", "section", None, "ok")
    assert shown(refused) == ("default", "update rows", "section", None, "refused")
    assert refused.request.detail == {"query": "table=package", "body_bytes": len(content)}
    assert set(written.request.detail) == {"query", "body_bytes"}
    assert "0.125" not in server.log.read_text()


def test_calls_that_change_something(server: ServerProcess, workspace: Workspace, tmp_path: Path) -> None:
    token = (tmp_path / "boss").read_text()
    metadata = (("authorization", f"Bearer {token}"), ("x-request-id", "mine-too"))
    with grpc.insecure_channel(server.grpc_address) as channel:
        load = channel.unary_unary(
            "/inference.GRPCInferenceService/RepositoryModelLoad",
            request_serializer=messages.RepositoryModelLoadRequest.SerializeToString,
            response_deserializer=messages.RepositoryModelLoadResponse.FromString,
        )
        load(messages.RepositoryModelLoadRequest(model_name="companion"), metadata=metadata)
        with pytest.raises(grpc.RpcError):
            load(messages.RepositoryModelLoadRequest(model_name="absent"), metadata=metadata)
    refused, loaded = workspace.audit()
    assert shown(loaded) == ("boss", "load", "companion", None, "ok")
    assert loaded.request.request_id == "mine-too"
    assert shown(refused) == ("boss", "load", "absent", None, "refused")
    assert "absent" in (refused.message or "")


def test_nothing_changes_that_cannot_be_noted(server: ServerProcess, workspace: Workspace) -> None:
    with (
        sqlite3.connect(workspace.root / "graphbox.db") as other,
        server.client(headers=bearer(TOKEN)) as client,
    ):
        other.execute("BEGIN IMMEDIATE")
        answer = client.post("/v2/repository/models/companion/unload")
        assert answer.status_code == 504
        assert "nothing was changed" in answer.json()["error"]
        assert answer.headers["retry-after"]
        promoted = client.post("/api/v1/models/companion/promote", json={"version": 1})
        assert promoted.json()["code"] == "audit_log"
        other.rollback()
        assert client.get("/v2/models/companion/ready").status_code == 200
        assert workspace.audit() == []
        assert client.post("/v2/repository/models/companion/unload").status_code == 200
    assert [shown(record) for record in workspace.audit()] == [("default", "unload", "companion", None, "ok")]


def test_a_client_that_leaves_does_not_end_its_change(server: ServerProcess, workspace: Workspace) -> None:
    import socket

    head = "POST /v2/repository/models/companion/unload HTTP/1.1\r\nhost: localhost\r\ncontent-length: 0\r\n"
    with socket.create_connection(("127.0.0.1", server.port)) as client:
        client.sendall(f"{head}authorization: Bearer {TOKEN}\r\n\r\n".encode())
    wait_until(lambda: [record.result for record in workspace.audit()] == ["ok"], 10, "the result")


def test_server_without_a_workspace_has_a_log(start_server: StartServer, tmp_path: Path) -> None:
    write_encoder(tmp_path / "models" / "companion" / "1")
    server = start_server(models=[tmp_path / "models"], token=TOKEN)
    server.wait_until_ready()
    with server.client(headers=bearer(TOKEN)) as client:
        assert client.post("/v2/repository/models/companion/unload").status_code == 200
        assert client.get("/api/v1/audit").json() == []
    assert "unload companion by default from 127.0.0.1: ok" in server.log.read_text()


@pytest.mark.parametrize("workers", [1, 2])
def test_no_request_switches_the_log_off(start_server: StartServer, tmp_path: Path, workers: int) -> None:
    """Of a server without a workspace the log is all there is."""
    write_encoder(tmp_path / "models" / "companion" / "1")
    server = start_server(models=[tmp_path / "models"], token=TOKEN, workers=workers)
    server.wait_until_ready()
    quiet = {"log_info": False, "log_warning": False, "log_error": False}
    with server.client(headers=bearer(TOKEN)) as client:
        assert client.post("/v2/logging", json=quiet).status_code == 200
        time.sleep(1.2)  # all workers have polled it
        assert client.post("/v2/repository/models/companion/unload").status_code == 200
        assert client.post("/v2/repository/models/companion/load").status_code == 200
    log = server.log.read_text()
    for action in ("log settings", "unload companion", "load companion"):
        for result in ("begun", "ok"):
            assert f"{action} by default from 127.0.0.1: {result}" in log


@pytest.mark.parametrize("depth", [3, 400, 900])
def test_nested_json_is_noted_as_text(server: ServerProcess, workspace: Workspace, depth: int) -> None:
    nested = b"[" * depth + b"]" * depth
    with server.client(headers={**bearer(TOKEN), "content-type": "application/json"}) as client:
        body = b'{"version": 1, "x": %b, "\\u0000y": "\\u0000z"}' % nested
        promoted = client.post("/api/v1/models/companion/promote", content=body)
        assert promoted.status_code == 400
        assert len(promoted.content) < 2000
        body = b'{"parameters": {"x": %b}}' % nested
        assert client.post("/v2/repository/models/companion/load", content=body).status_code == 400
        entries = client.get("/api/v1/audit").json()
    assert [entry["action"] for entry in entries] == ["load", "promote"]
    assert all(entry["result"] == "refused" for entry in entries)
    assert entries[1]["detail"][" y"] == " z"
    for value in (entries[1]["detail"]["x"], entries[0]["detail"]["parameters"]):
        assert isinstance(value, str)
    assert workspace.audit()[0].request.detail == entries[0]["detail"]


def test_details_are_scalars() -> None:
    deep: Any = []
    for _ in range(5000):
        deep = [deep]
    values = {"a": True, "b": 0.5, "c": None, "d": "x\0\ny" * 1000, "e": [1, {"f": "g"}], "h": deep}
    detail = plain_detail(values)
    assert detail["a"] is True
    assert (detail["b"], detail["c"]) == (0.5, None)
    assert isinstance(detail["d"], str)
    assert detail["d"].startswith("x  y")
    assert len(detail["d"]) < 1100
    assert detail["e"] == '[1,{"f":"g"}]'
    assert "nested too deep" in str(detail["h"])


@pytest.mark.parametrize("method", ["begin", "end"])
def test_a_defect_of_the_audit_log_is_answered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, method: str
) -> None:
    def fail(*_: Any) -> None:
        raise RecursionError("nobody expected this")

    monkeypatch.setattr(AuditLog, method, fail)
    answer = _answer_of(tmp_path, b"POST /v2/repository/models/absent/load")
    status = b"500" if method == "begin" else b"403"  # at its end the change was made: the answer is its own
    assert answer.startswith(b"HTTP/1.1 " + status)
    assert any(record.exc_info for record in caplog.records)


def _answer_of(models: Path, request_line: bytes) -> bytes:
    """Return the answer of a server in this process, whose parts a test has changed."""

    async def run() -> bytes:
        gateway = create_app(Settings(models=(models,), port=1))
        limits = ConnectionLimits(
            max_connections=8,
            max_body_bytes=1 << 20,
            max_buffered_bytes=1 << 22,
            header_timeout_s=5.0,
            body_timeout_s=5.0,
            keep_alive_s=5.0,
        )
        connections = Connections(limits)
        loop = asyncio.get_running_loop()
        listener = await loop.create_server(lambda: HttpConnection(gateway, connections), "127.0.0.1", 0)
        try:
            async with asyncio.timeout(20):
                reader, writer = await asyncio.open_connection(*listener.sockets[0].getsockname())
                writer.write(request_line + b" HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n")
                answer = await reader.read()
                writer.close()
        finally:
            listener.close()
            connections.close()
            gateway.services.executor.close()
        return answer

    return asyncio.run(run())


@pytest.mark.parametrize("chunked", [False, True])
def test_changes_take_no_large_body(server: ServerProcess, chunked: bool) -> None:
    with server.client(headers={**bearer(TOKEN), "content-type": "application/json"}) as client:
        for path in (
            "/api/v1/models/companion/promote",
            "/api/v1/models/companion/canary",
            "/api/v1/models/companion/rows/rollback",
            "/v2/repository/models/companion/load",
            "/v2/logging",
        ):
            body = json.dumps({"version": [[]] * 5000}).encode()
            answer = client.post(path, content=iter([body]) if chunked else body)
            assert answer.status_code == 413, path
            assert len(answer.content) < 1000
        body = json.dumps({f"extra{number}": "x" * 90 for number in range(150)}).encode()
        answer = client.post("/api/v1/models/companion/promote", content=body)
        assert answer.status_code == 400
        assert len(answer.content) < 4000
        assert "and 143 more" in answer.json()["message"]
        assert len(client.get("/api/v1/audit").json()) == 1
        large = b"x" * 300_000
        assert client.post("/api/v1/models/companion/rows", content=large).status_code == 400


# A server that stops amid a change


@pytest.fixture
def impatient(start_server: StartServer, workspace: Workspace) -> ServerProcess:
    running = start_server(workspace=workspace.root, token=TOKEN, grpc_port=0, drain_timeout_s=0)
    running.wait_until_ready()
    return running


@contextmanager
def held_amid_a_change(workspace: Workspace) -> Iterator[None]:
    """Lock the database once a change is in the audit log as begun; its server is told to stop meanwhile."""
    connection = sqlite3.connect(workspace.root / "graphbox.db", isolation_level=None, timeout=5)
    with closing(connection):
        deadline = time.monotonic() + 10
        while not connection.execute("SELECT count(*) FROM audit").fetchone()[0]:
            assert time.monotonic() < deadline
        connection.execute("BEGIN IMMEDIATE")
        yield
        time.sleep(0.7)
        connection.execute("ROLLBACK")


def test_a_change_that_outlasts_the_stop_is_noted_as_it_ended(
    impatient: ServerProcess, workspace: Workspace
) -> None:
    with ThreadPoolExecutor() as pool, impatient.client(headers=bearer(TOKEN)) as client:
        path = "/api/v1/models/companion/promote"
        answering = pool.submit(client.post, path, json={"version": 1})
        with held_amid_a_change(workspace):
            impatient.process.send_signal(signal.SIGTERM)
            answer = answering.result(20)
        assert answer.status_code == 503
        assert "may still be made" in answer.json()["message"]
    assert impatient.stop() == 0
    assert [shown(record) for record in workspace.audit()] == [("default", "promote", "companion", 1, "ok")]


def test_a_call_that_outlasts_the_stop_is_noted_as_it_ended(
    impatient: ServerProcess, workspace: Workspace
) -> None:
    with grpc.insecure_channel(impatient.grpc_address) as channel:
        unload = channel.unary_unary(
            "/inference.GRPCInferenceService/RepositoryModelUnload",
            request_serializer=messages.RepositoryModelUnloadRequest.SerializeToString,
            response_deserializer=messages.RepositoryModelUnloadResponse.FromString,
        )
        request = messages.RepositoryModelUnloadRequest(model_name="companion")
        answering = unload.future(request, metadata=(("authorization", f"Bearer {TOKEN}"),))
        with held_amid_a_change(workspace):
            impatient.process.send_signal(signal.SIGTERM)
            assert answering.code() is grpc.StatusCode.UNAVAILABLE
    assert impatient.stop() == 0
    assert "Traceback" not in impatient.log.read_text()
    assert [shown(record) for record in workspace.audit()] == [("default", "unload", "companion", None, "ok")]


def test_entries_of_a_workspace(tmp_path: Path) -> None:
    with Workspace(tmp_path / "work") as workspace:
        request = AuditRequest("me", "::1", "promote", "a" * 500, 3, "r" * 500, {"tolerance": 0.5})
        number = workspace.begin_audit(request)
        (begun,) = workspace.audit()
        assert (begun.id, begun.result, begun.message) == (number, "begun", None)
        assert begun.request.detail == {"tolerance": 0.5}
        assert begun.request.model == "a" * 160
        workspace.end_audit(number, "failed", "x" * 5000)
        (ended,) = workspace.audit(model="a" * 160)
        assert ended.result == "failed"
        assert ended.message == "x" * 1000
        assert workspace.audit(model="b") == []


@pytest.mark.parametrize(("status", "result"), [(200, "ok"), (303, "ok"), (404, "refused"), (504, "failed")])
def test_results_and_messages(status: int, result: str) -> None:
    assert result_of_status(status) == result
    bodies: list[tuple[Any, str | None]] = [
        (b'{"message": "why"}', "why"),
        (b'{"error": "why"}', "why"),
        (b"[]", None),
        (b"<html>", None),
        (json.dumps({"message": 5}).encode(), None),
    ]
    for body, message in bodies:
        assert message_of_body(status, body) == (message if status >= 400 else None)

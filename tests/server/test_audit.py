"""The audit log: every request that changes something is in it before its answer."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest

from graphbox.server.access import Scope
from graphbox.server.audit import message_of_body, result_of_status
from graphbox.server.grpc import inference_messages as messages
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

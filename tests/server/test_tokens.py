"""Tokens with scopes: the table of routes, the file of hashes, and what a client with a token may do."""

from __future__ import annotations

import hashlib
import json
import re
import signal
from collections.abc import Iterator
from http import HTTPStatus
from pathlib import Path
from typing import Any

import grpc
import httpx
import pytest

from graphbox.errors import GraphboxError, NotFoundError, UsageError
from graphbox.server.access import METHODS, ROUTES, Scope, access_of_method, access_of_request
from graphbox.server.app import build_api, create_app
from graphbox.server.grpc import inference_messages as messages
from graphbox.server.grpc.service import GrpcService
from graphbox.server.settings import Settings
from graphbox.server.tokens import (
    TokenEntry,
    Tokens,
    hash_of,
    new_token,
    read_token_file,
    session_key,
    token_file_text,
)
from tests.server.sample_models import build_workspace
from tests.server.server_process import TOKEN, ServerProcess, StartServer, start_process, wait_until

SCOPES = tuple(Scope)
# Of each scope, a request that is answered with it.
REQUESTS: dict[Scope, tuple[str, str, Any]] = {
    Scope.READ: ("GET", "/v2/models/companion", None),
    Scope.INFER: ("GET", "/api/v1/models/companion/neighbors?id=zsh&k=2", None),
    Scope.MANAGE: ("POST", "/v2/repository/models/companion/load", {}),
}


def bearer(token: str) -> dict[str, str]:
    return {"authorization": f"Bearer {token}"}


def write_tokens(file: Path, **scopes: tuple[Scope, ...]) -> dict[str, str]:
    """Write a file with tokens of these names and scopes; return them."""
    made = {name: new_token(name, granted) for name, granted in scopes.items()}
    beside = file.with_suffix(".new")
    beside.write_text(token_file_text(entry for _, entry in made.values()))
    beside.replace(file)
    return {name: token for name, (token, _) in made.items()}


# The table


def test_every_route_of_rest_has_a_row() -> None:
    document = build_api().openapi()
    listed = {(route.method, route.template) for route in ROUTES}
    served = {(method.upper(), path) for path, methods in document["paths"].items() for method in methods}
    assert served - listed == set()
    of_rest = {(method, path) for method, path in listed if path.startswith("/api/v1/")}
    assert of_rest - served == {("GET", "/api/v1/openapi.json")}


def test_every_method_of_grpc_has_a_row(tmp_path: Path) -> None:
    service = messages.DESCRIPTOR.services_by_name["GRPCInferenceService"]
    served = {f"/{service.full_name}/{method.name}" for method in service.methods}
    health = {"/grpc.health.v1.Health/Check", "/grpc.health.v1.Health/Watch"}
    assert set(METHODS) == served | health
    gateway = create_app(Settings(models=(tmp_path,)))
    assert set(GrpcService(gateway.services)._methods) <= set(METHODS)
    gateway.services.executor.close()


def test_every_path_of_kserve_has_a_row(tmp_path: Path) -> None:
    gateway = create_app(Settings(models=(tmp_path,)))
    kserve = gateway._kserve
    gateway.services.executor.close()
    served = {(method, "/".join(["/v2", *segments])) for segments, (method, _) in kserve._of_server.items()}
    for action, (method, _) in kserve._of_model.items():
        for base in ("/v2/models/{model}", "/v2/models/{model}/versions/{version}"):
            served.add((method, f"{base}/{action}".rstrip("/")))
    assert served - {(route.method, route.template) for route in ROUTES} == set()


def test_only_probes_and_the_form_are_open() -> None:
    assert {route.template for route in ROUTES if route.access.scope is None} == {
        "/healthz",
        "/healthz/live",
        "/healthz/ready",
        "/v2/health/live",
        "/v2/health/ready",
        "/token",
    }
    assert {path for path, access in METHODS.items() if access.scope is None} == {
        "/grpc.health.v1.Health/Check",
        "/grpc.health.v1.Health/Watch",
        "/inference.GRPCInferenceService/ServerLive",
        "/inference.GRPCInferenceService/ServerReady",
    }


def test_what_changes_something_is_recorded() -> None:
    rows = [route.access for route in ROUTES] + list(METHODS.values())
    for access in rows:
        assert (access.action is not None) <= (access.scope is Scope.MANAGE)
    unrecorded = {route.template for route in ROUTES if route.access.scope is Scope.MANAGE} - {
        route.template for route in ROUTES if route.access.action
    }
    assert unrecorded == {"/api/v1/audit"}


@pytest.mark.parametrize(
    ("method", "path", "scope"),
    [
        ("POST", b"/v2/models/a/infer", Scope.INFER),
        ("POST", b"/v2/models/a/%69nfer", Scope.INFER),
        ("POST", b"/v2/models/a/versions/3/infer", Scope.INFER),
        ("POST", b"/v2/models/a%2Finfer", Scope.MANAGE),
        ("POST", b"/v2/repository/models/a/load", Scope.MANAGE),
        ("POST", b"/v2/repository/models/a/%6Coad", Scope.MANAGE),
        ("POST", b"/v2/repository/index", Scope.READ),
        ("HEAD", b"/v2", Scope.READ),
        ("GET", b"/api/v1/models/a/neighbors", Scope.INFER),
        ("GET", b"/api/v1/models%2Fa%2Fneighbors", Scope.INFER),
        ("POST", b"/api/v1/models/a/promote", Scope.MANAGE),
        ("POST", b"/api/v1/models/a/promote/", Scope.MANAGE),
        ("POST", b"/somewhere", Scope.MANAGE),
        ("PUT", b"/v2/models/a/infer", Scope.MANAGE),
        ("GET", b"/somewhere", Scope.READ),
        ("GET", b"/assets/a.js", Scope.READ),
        ("GET", b"/", Scope.READ),
        ("GET", b"/api/v1/audit", Scope.MANAGE),
    ],
)
def test_scope_of_a_path(method: str, path: bytes, scope: Scope) -> None:
    assert access_of_request(method, path)[0].scope is scope


@pytest.mark.parametrize(
    ("method", "path", "access"),
    [
        ("GET", b"/health%7A", "open"),
        ("POST", b"/healthz", "manage"),
        ("PUT", b"/token", "manage"),
        ("GET", b"/%762/health/live", "read"),
        ("OPTIONS", b"/healthz", "read"),
        ("POST", b"/%762/models/a/infer", "manage"),
        ("POST", b"/v2/models/a%252Finfer", "manage"),
    ],
)
def test_paths_are_decoded_as_the_applications_do(method: str, path: bytes, access: str) -> None:
    found, _ = access_of_request(method, path)
    assert (found.scope or "open") == access
    assert found.action is None


def test_the_table_is_found_for_many_paths() -> None:
    for number in range(5000):
        assert access_of_request("GET", b"/%d" % number)[0].scope is Scope.READ
    assert access_of_request("GET", b"/healthz")[0].is_probe


def test_placeholders_and_unknown_methods() -> None:
    assert access_of_request("POST", b"/v2/repository/models/a%20b/load")[1] == {"model": "a b"}
    assert access_of_method("/inference.GRPCInferenceService/Other").scope is Scope.MANAGE


# The file


def test_file_has_no_secret_and_reads_as_written(tmp_path: Path) -> None:
    file = tmp_path / "tokens.toml"
    tokens = write_tokens(file, reader=(Scope.READ,), robot=(Scope.INFER, Scope.MANAGE))
    text = file.read_text()
    for token in tokens.values():
        key = session_key(token.encode()).decode()
        for secret in (token, key, hashlib.sha256(token.encode()).hexdigest()):
            assert secret not in text
    entries = read_token_file(file)
    assert [(entry.name, entry.scopes) for entry in entries] == [
        ("reader", frozenset({Scope.READ})),
        ("robot", frozenset({Scope.INFER, Scope.MANAGE})),
    ]
    assert all(entry.created is not None for entry in entries)
    accepted = Tokens(None, file)
    for name, token in tokens.items():
        for principal in (
            accepted.of_token(token.encode()),
            accepted.of_session(session_key(token.encode())),
        ):
            assert principal is not None
            assert principal.name == name
    for wrong in (b"", b"x", bytes.fromhex(entries[0].hash), entries[0].hash.encode()):
        assert accepted.of_token(wrong) is None
        assert accepted.of_session(wrong) is None


def test_the_one_token_has_all_scopes() -> None:
    principal = Tokens(TOKEN).of_token(f" {TOKEN}\n".encode())
    assert principal is not None
    assert principal.scopes == set(Scope)


HASH = hash_of(b"x" * 20).hex()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("tokens = 5", "expected tables"),
        ("not toml", "in TOML"),
        (" \n", "an empty one"),
        ("\xff", "in TOML"),
        ("[token.a]", "unknown key `token`"),
        ("[tokens.a]\nhash='00'\nscopes=['read']", "64 hexadecimal digits"),
        (f"[tokens.a]\nhash='{HASH}'", "expected `scopes`"),
        (f"[tokens.a]\nhash='{HASH}'\nscopes=[]", "expected `scopes`"),
        (f"[tokens.a]\nhash='{HASH}'\nscopes=['reed']", "read, infer, manage, received \\['reed'\\]"),
        (f"[tokens.a]\nhash='{HASH}'\nscope=['read']", "unknown key `scope`"),
        (f"[tokens.a]\nhash='{HASH}'\nscopes=['read']\ncreated=5", "expected `created`"),
        (f"[tokens.default]\nhash='{HASH}'\nscopes=['read']", "expected a name"),
        (f"[tokens.'a b']\nhash='{HASH}'\nscopes=['read']", "expected a name"),
        (
            f"[tokens.a]\nhash='{HASH}'\nscopes=['read']\n[tokens.b]\nhash='{HASH}'\nscopes=['read']",
            "the same hash",
        ),
    ],
)
def test_wrong_files(tmp_path: Path, text: str, message: str) -> None:
    file = tmp_path / "tokens.toml"
    file.write_bytes(text.encode("latin-1"))
    with pytest.raises(UsageError, match=message) as caught:
        read_token_file(file)
    assert str(file) in str(caught.value.where)


def test_missing_and_huge_files(tmp_path: Path) -> None:
    with pytest.raises(NotFoundError, match="no such token file"):
        Tokens(None, tmp_path / "absent")
    (tmp_path / "huge").write_bytes(b"#" * 2_000_000)
    with pytest.raises(UsageError, match="at most"):
        read_token_file(tmp_path / "huge")
    with pytest.raises(UsageError, match="cannot be read"):
        read_token_file(tmp_path)


def test_new_tokens_differ_and_names_are_checked() -> None:
    assert new_token("a", [Scope.READ])[0] != new_token("a", [Scope.READ])[0]
    for name in ("", "a b", "loopback", "x" * 65, "a.b"):
        with pytest.raises(UsageError, match="expected a name"):
            new_token(name, [Scope.READ])
    with pytest.raises(UsageError, match="expected a scope"):
        new_token("a", [])


def test_a_file_that_breaks_changes_nothing(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    file = tmp_path / "tokens.toml"
    token = write_tokens(file, reader=(Scope.READ,))["reader"]
    tokens = Tokens(None, file)
    for break_file in (lambda: file.write_text("broken"), file.unlink):
        break_file()
        for _ in range(3):
            tokens.reload()
        assert tokens.of_token(token.encode()) is not None
    assert len([record for record in caplog.records if "not read again" in record.message]) == 2
    file.write_text(token_file_text([TokenEntry("other", HASH, frozenset({Scope.READ}))]))
    tokens.reload()
    assert tokens.of_token(token.encode()) is None
    assert tokens.of_token(b"x" * 20) is not None


def test_a_server_needs_a_file_that_is_there(tmp_path: Path) -> None:
    with pytest.raises(GraphboxError, match="no such token file"):
        create_app(Settings(models=(tmp_path,), token_file=tmp_path / "absent"))
    Settings(host="10.0.0.1", token_file=tmp_path / "tokens.toml").check()


# A server


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("tokens") / "tokens.toml"


@pytest.fixture(scope="module")
def tokens(file: Path) -> dict[str, str]:
    return write_tokens(file, **{scope.value: (scope,) for scope in SCOPES})


@pytest.fixture(scope="module")
def guarded(
    file: Path, tokens: dict[str, str], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ServerProcess]:
    workspace = build_workspace(tmp_path_factory.mktemp("guarded") / "debian")
    log = tmp_path_factory.mktemp("log") / "guarded.log"
    settings = {"port": 0, "grpc_port": 0, "workspace": workspace.root, "token": TOKEN, "token_file": file}
    running = start_process(settings, log)
    running.wait_until_ready()
    yield running
    assert running.stop() == 0
    text = log.read_text()
    assert "Traceback" not in text
    assert not [token for token in [TOKEN, *tokens.values()] if token in text]
    if running.process.stdout is not None:
        running.process.stdout.close()


@pytest.mark.parametrize("needed", SCOPES)
def test_requests_need_their_scope(guarded: ServerProcess, tokens: dict[str, str], needed: Scope) -> None:
    method, path, body = REQUESTS[needed]
    with guarded.client() as client:
        assert client.request(method, path, json=body).status_code == 401
        assert client.request(method, path, json=body, headers=bearer(TOKEN)).status_code == 200
        for name, token in tokens.items():
            answer = client.request(method, path, json=body, headers=bearer(token))
            if name == needed:
                assert answer.status_code == 200, answer.text
                continue
            assert answer.status_code == HTTPStatus.FORBIDDEN, (name, needed)
            problem = answer.json()
            said = problem.get("message", problem.get("error"))
            assert said == f"expected a token with the scope `{needed}`, received `{name}` with {name}"


@pytest.mark.parametrize("needed", SCOPES)
def test_calls_need_their_scope(guarded: ServerProcess, tokens: dict[str, str], needed: Scope) -> None:
    calls: dict[Scope, tuple[str, Any, Any]] = {
        Scope.READ: (
            "ModelMetadata",
            messages.ModelMetadataRequest(name="companion"),
            messages.ModelMetadataResponse,
        ),
        Scope.INFER: (
            "ModelInfer",
            messages.ModelInferRequest(model_name="companion"),
            messages.ModelInferResponse,
        ),
        Scope.MANAGE: (
            "RepositoryModelLoad",
            messages.RepositoryModelLoadRequest(model_name="companion"),
            messages.RepositoryModelLoadResponse,
        ),
    }
    method, request, response = calls[needed]
    with grpc.insecure_channel(guarded.grpc_address) as channel:
        call = channel.unary_unary(
            f"/inference.GRPCInferenceService/{method}",
            request_serializer=type(request).SerializeToString,
            response_deserializer=response.FromString,
        )
        for name, token in tokens.items():
            found, text = _status(call, request, ("authorization", f"Bearer {token}"))
            if name != needed:
                assert found is grpc.StatusCode.PERMISSION_DENIED
                assert f"scope `{needed}`" in text
            else:  # this infer request lacks its inputs
                assert found in {None, grpc.StatusCode.INVALID_ARGUMENT}
        assert _status(call, request)[0] is grpc.StatusCode.UNAUTHENTICATED


@pytest.mark.parametrize("end", ["%0A", "%0a", "%0D", "%00", "%7F"])
def test_no_path_has_control_characters(guarded: ServerProcess, end: str) -> None:
    """The REST app ignores a line end behind a path: with one, a row of the table would not be found."""
    with guarded.client(headers=bearer(TOKEN)) as client:
        for route in ROUTES:
            path = re.sub(r"\{[a-z_:]+\}", "companion", route.template)
            answer = client.request(route.method, path + end)
            assert answer.status_code == 400, (route, answer.text)
            assert "without control characters" in answer.text
        assert client.get("/api/v1/audit%0A").json()["code"] == "invalid_path"


@pytest.mark.parametrize("name", ["nope", "companio"])
def test_errors_name_no_other_models(guarded: ServerProcess, tokens: dict[str, str], name: str) -> None:
    with guarded.client(headers=bearer(tokens["infer"])) as client:
        for answer in (
            client.post(f"/v2/models/{name}/infer", json={}),
            client.get(f"/api/v1/models/{name}/neighbors?id=zsh"),
        ):
            assert answer.status_code == 404
            assert "companion" not in answer.text
            assert "section" not in answer.text
    with guarded.client(headers=bearer(tokens["manage"])) as client:
        for path in (f"/v2/repository/models/{name}/load", f"/api/v1/models/{name}/promote"):
            answer = client.post(path, json={"version": 1} if "promote" in path else {})
            assert answer.status_code == 404
            assert "companion" not in answer.text
    with grpc.insecure_channel(guarded.grpc_address) as channel:
        call = _call(channel, "ModelInfer", messages.ModelInferRequest, messages.ModelInferResponse)
        request = messages.ModelInferRequest(model_name=name)
        status, text = _status(call, request, ("authorization", f"Bearer {tokens['infer']}"))
    assert status is grpc.StatusCode.NOT_FOUND
    assert "companion" not in text


SETTINGS = {
    "LogSettings": (
        messages.LogSettingsRequest(),
        messages.LogSettingsRequest(
            settings={"log_error": messages.LogSettingsRequest.SettingValue(bool_param=True)}
        ),
        messages.LogSettingsResponse,
    ),
    "TraceSetting": (
        messages.TraceSettingRequest(),
        messages.TraceSettingRequest(
            settings={"trace_rate": messages.TraceSettingRequest.SettingValue(value=["7"])}
        ),
        messages.TraceSettingResponse,
    ),
}


@pytest.mark.parametrize("method", SETTINGS)
def test_settings_are_read_and_changed_as_over_rest(
    guarded: ServerProcess, tokens: dict[str, str], method: str
) -> None:
    reading, changing, response = SETTINGS[method]
    path = {"LogSettings": "/v2/logging", "TraceSetting": "/v2/trace/setting"}[method]
    body = {"LogSettings": {"log_error": True}, "TraceSetting": {"trace_rate": "7"}}[method]
    action = {"LogSettings": "log settings", "TraceSetting": "trace setting"}[method]
    with guarded.client() as client, grpc.insecure_channel(guarded.grpc_address) as channel:

        def recorded() -> int:
            entries = client.get("/api/v1/audit", headers=bearer(TOKEN)).json()
            return len([entry for entry in entries if entry["action"] == action])

        call = _call(channel, method, type(reading), response)
        for name, token in tokens.items():
            metadata = ("authorization", f"Bearer {token}")
            before = recorded()
            read, _ = _status(call, reading, metadata)
            assert (read is None) == (name == "read")
            assert recorded() == before
            changed, _ = _status(call, changing, metadata)
            assert (changed is None) == (name == "manage")
            assert recorded() == before + (name == "manage")
            assert (client.get(path, headers=bearer(token)).status_code == 200) == (name == "read")
            posted = client.post(path, json=body, headers=bearer(token))
            assert (posted.status_code == 200) == (name == "manage")
        assert _status(call, reading)[0] is grpc.StatusCode.UNAUTHENTICATED


def _call(channel: grpc.Channel, method: str, request: Any, response: Any) -> Any:
    return channel.unary_unary(
        f"/inference.GRPCInferenceService/{method}",
        request_serializer=request.SerializeToString,
        response_deserializer=response.FromString,
    )


def _status(call: Any, request: Any, *metadata: tuple[str, str]) -> tuple[grpc.StatusCode | None, str]:
    try:
        call(request, metadata=metadata)
    except grpc.RpcError as error:
        return error.code(), error.details()
    return None, ""


def test_page_opens_with_the_scope_read(guarded: ServerProcess, tokens: dict[str, str]) -> None:
    with guarded.client() as client:
        refused = client.post("/token", data={"token": tokens["infer"]})
        assert refused.status_code == 401
        assert "lacks the scope" in refused.text
        assert "set-cookie" not in refused.headers
        assert client.post("/token", data={"token": tokens["read"]}).status_code == 303
        assert client.get("/api/v1/overview").json()["can_promote"] is False
        assert client.post("/v2/repository/models/companion/load", json={}).status_code == 403
    with guarded.client(headers=bearer(TOKEN)) as client:
        assert client.get("/api/v1/overview").json()["can_promote"] is True


@pytest.mark.parametrize("workers", [1, 2])
def test_tokens_change_while_a_server_runs(start_server: StartServer, tmp_path: Path, workers: int) -> None:
    file = tmp_path / "tokens.toml"
    old = write_tokens(file, reader=(Scope.READ,))["reader"]
    (tmp_path / "models").mkdir()
    server = start_server(models=[tmp_path / "models"], token_file=file, workers=workers)
    with server.client() as client:
        assert client.post("/token", data={"token": old}).status_code == 303
        assert client.get("/v2").status_code == 200
        new = write_tokens(file, other=(Scope.READ,))["other"]
        wait_until(lambda: _all(server, new) == {200}, 5, "the new token to be accepted")
        assert _all(server, old) == {401}
        assert client.get("/v2").status_code == 401, "the session ends with its token"
        file.write_text("broken")
        server.process.send_signal(signal.SIGHUP)
        wait_until(lambda: "not read again" in server.log.read_text(), 5, "the error in the log")
        assert _all(server, new) == {200}


def _all(server: ServerProcess, token: str) -> set[int]:
    """Statuses over several connections, which reach all workers."""
    return {httpx.get(f"{server.base}/v2", headers=bearer(token)).status_code for _ in range(12)}


def test_readiness_names_models_to_readers_alone(guarded: ServerProcess, tokens: dict[str, str]) -> None:
    path = f"{guarded.base}/healthz/ready"
    named = {
        name: json.loads(httpx.get(path, headers=bearer(token)).text)["available"]
        for name, token in tokens.items()
    }
    assert named["read"]
    assert named["infer"] == named["manage"] == []

"""Categories of requests that need a secret of their own, by the clients that Triton users have."""

from __future__ import annotations

import queue
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
import tritonclient.grpc as triton_grpc
import tritonclient.http as triton_http
from tritonclient.utils import InferenceServerException

from graphbox.errors import NotFoundError, UsageError
from graphbox.server.access import CATEGORIES, METHODS, ROUTES, access_of_method, access_of_request
from graphbox.server.restricted import Restrictions
from graphbox.workspace import Workspace
from tests.server.server_process import StartServer

SECRET = "a secret of the operators"
WORDS = SECRET.replace(" ", "-")
HEADER = {"operator-key": WORDS}
METADATA = {"triton-grpc-protocol-operator-key": WORDS}
CATEGORY_OF_PATH = {
    "GET /v2": "metadata",
    "GET /v2/health/live": "health",
    "GET /v2/health/ready": "health",
    "GET /v2/models/m": "metadata",
    "GET /v2/models/m/versions/1": "metadata",
    "GET /v2/models/m/ready": "health",
    "GET /v2/models/m/versions/1/ready": "health",
    "POST /v2/models/m/infer": "inference",
    "POST /v2/models/m/versions/1/infer": "inference",
    "POST /v2/%6dodels/m/%69nfer": "inference",
    "GET /v2/models/m/config": "model-config",
    "GET /v2/models/m/versions/1/config": "model-config",
    "GET /v2/models/m/stats": "statistics",
    "GET /v2/models/stats": "statistics",
    "POST /v2/repository/index": "model-repository",
    "POST /v2/logging/of/tomorrow": "model-repository",
    "POST /v2/repository/models/m/load": "model-repository",
    "POST /v2/repository/models/m/unload": "model-repository",
    "POST /v2/systemsharedmemory/region/r/register": "shared-memory",
    "GET /v2/cudasharedmemory/status": "shared-memory",
    "GET /v2/trace/setting": "trace",
    "POST /v2/models/m/trace/setting": "trace",
    "POST /v2/logging": "logging",
    "GET /metrics": "statistics",
    "HEAD /metrics": "statistics",
    "GET /metric%73": "statistics",
    "GET /api%2Fv1/model%73": "metadata",
    "POST /api/v1/models/m/p%72edict": "inference",
    "GET /healthz/ready": "health",
    "GET /api/v1/models": "metadata",
    "POST /api/v1/models/m/predict": "inference",
    "GET /api/v1/models/m/neighbors": "inference",
    "POST /api/v1/models/m/promote": "model-repository",
    "POST /api/v1/a/route/of/tomorrow": "model-repository",
    "GET /": None,
    "GET /assets/x.js": None,
}


@pytest.mark.parametrize(("request_line", "category"), CATEGORY_OF_PATH.items())
def test_category_of_each_path(request_line: str, category: str | None) -> None:
    method, path = request_line.split(" ")
    assert access_of_request(method, path.encode())[0].category == category


def test_every_route_and_method_of_the_protocol_has_a_category() -> None:
    for route in ROUTES:
        if route.template.startswith(("/v2", "/api")):
            assert route.access.category in CATEGORIES, route.template
    for method, access in METHODS.items():
        assert access.category in CATEGORIES, method
    assert access_of_method("/inference.GRPCInferenceService/Other").category is None


def test_requests_without_the_secret_are_refused(
    start_server: StartServer, shared_workspace: Workspace, tmp_path: Path
) -> None:
    file = tmp_path / "secret"
    file.write_text(f"{WORDS}\n")
    restrict = [f"model-repository,statistics:operator-key={file}", f"inference:client-key={file}"]
    server = start_server(workspace=shared_workspace.root, grpc_port=0, restrict=restrict)
    server.wait_until_ready()
    for module, address, operator, client_key in (
        (triton_http, server.address, HEADER, {"client-key": WORDS}),
        (triton_grpc, server.grpc_address, METADATA, {"triton-grpc-protocol-client-key": WORDS}),
    ):
        refused = {"403", "StatusCode.PERMISSION_DENIED"}
        with module.InferenceServerClient(address) as client:
            assert client.is_server_live()
            assert client.get_model_metadata("companion") is not None
            wrong = dict.fromkeys(operator, f"{WORDS}x")
            for headers in (None, wrong, client_key, {"authorization": f"Bearer {WORDS}"}):
                for call in (client.get_model_repository_index, client.get_inference_statistics):
                    with pytest.raises(InferenceServerException, match="restricted") as caught:
                        call(headers=headers)
                    assert str(caught.value.status()) in refused
                    assert WORDS not in str(caught.value)
            assert client.get_model_repository_index(headers=operator) is not None
            assert client.get_inference_statistics(headers=operator) is not None
            tensor = module.InferInput("id", [1], "BYTES").set_data_from_numpy(np.array([b"zsh"], object))
            for headers in (None, operator):
                with pytest.raises(InferenceServerException, match="restricted"):
                    client.infer("companion", [tensor], headers=headers and dict(headers))
            found: Any = client.infer("companion", [tensor], headers=dict(client_key))
            assert found.as_numpy("embedding") is not None
    with httpx.Client(base_url=server.base) as client:
        # The same by other paths.
        assert client.get("/api/v1/models/companion/neighbors", params={"id": "zsh"}).status_code == 403
        for path in ("/metrics", "/metric%73", "/%6Detrics", "/metrics?x=1"):
            assert client.get(path).status_code == 403, path
        assert client.get("/metrics%0A").status_code == 400
        assert client.get("/metrics", headers=HEADER).status_code == 200
        assert client.post("/v2/%6dodels/companion/infer").status_code == 403


def test_a_stream_is_refused_as_a_whole(
    start_server: StartServer, shared_workspace: Workspace, tmp_path: Path
) -> None:
    file = tmp_path / "secret"
    file.write_text(WORDS)
    server = start_server(workspace=shared_workspace.root, grpc_port=0, restrict=[f"inference:key={file}"])
    server.wait_until_ready()
    received: queue.Queue[Any] = queue.Queue()
    with triton_grpc.InferenceServerClient(server.grpc_address) as client:
        client.start_stream(lambda result, error: received.put(error))
        assert "restricted" in received.get(timeout=10).message()
        client.stop_stream()


def test_secrets_of_files_and_variables(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "good").write_text(WORDS)
    (tmp_path / "short").write_text("short")
    monkeypatch.setenv("OPERATOR_SECRET", WORDS)
    Restrictions([f"trace:a={tmp_path / 'good'}", "logging:b=env:OPERATOR_SECRET"])
    assert Restrictions.of([]) is None
    for text, says in (
        ("trace", "CATEGORY"),
        ("trace:=x", "CATEGORY"),
        ("trace:Key=x", "lower-case"),
        (f"tracing:key={tmp_path / 'good'}", "did you mean `trace`"),
        (f"trace:key={tmp_path / 'short'}", "at least 16 characters"),
    ):
        with pytest.raises(UsageError) as caught:
            Restrictions([text])
        assert says in str(caught.value)
    for source in (str(tmp_path / "absent"), "env:ABSENT_VARIABLE"):
        with pytest.raises(NotFoundError):
            Restrictions([f"trace:key={source}"])
    with pytest.raises(UsageError, match="trace twice"):
        Restrictions([f"trace:{name}={tmp_path / 'good'}" for name in ("a", "b")])

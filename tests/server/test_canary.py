"""Canaries: the requests they answer, on every transport and in every worker, and their failures."""

from __future__ import annotations

import json
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
import tritonclient.grpc as triton

from graphbox.server.repository import Repository
from graphbox.server.traffic import Share
from graphbox.workspace import Workspace
from tests.server.sample_models import PACKAGES, add_model, expected_embeddings, write_encoder
from tests.server.server_process import TOKEN, ServerProcess, StartServer, start_process, wait_until
from tests.server.test_process import damage
from tests.server.versioned_models import write_affine

BEARER = {"authorization": f"Bearer {TOKEN}"}
INPUTS = [{"name": "id", "datatype": "BYTES", "shape": [1], "data": ["zsh"]}]
BODY: dict[str, Any] = {"inputs": INPUTS}
TAG = 1000.0
API = "/api/v1/models/companion"


def build(root: Path, versions: int = 2) -> Workspace:
    """A workspace with versions of `companion` whose rows and ONNX parts are tagged; the first is active."""
    workspace = Workspace(root)
    for version in range(1, versions + 1):
        add_model(workspace, "companion", write_encoder, activate=False, scale=version, tag=TAG * version)
    return workspace


@pytest.fixture(scope="module")
def workspace(tmp_path_factory: pytest.TempPathFactory) -> Workspace:
    return build(tmp_path_factory.mktemp("canary") / "work")


@pytest.fixture(scope="module")
def server(workspace: Workspace, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    """Two workers; version 2 answers 30 % as canary."""
    settings = {"port": 0, "grpc_port": 0, "workspace": workspace.root, "workers": 2, "token": TOKEN}
    running = start_process(settings, tmp_path_factory.mktemp("log") / "server.log")
    wait_for_workers(running, lambda client: client.get("/healthz/ready").status_code == 200)
    with running.client(headers=BEARER) as client:
        answer = client.post(f"{API}/canary", json={"version": 2, "percent": 30})
    assert answer.json()["canary"]["percent"] == 30
    wait_for_workers(running, has_open_canary)
    yield running
    assert running.stop() == 0, running.log.read_text()
    if running.process.stdout is not None:
        running.process.stdout.close()


def wait_for_workers(server: ServerProcess, condition: Callable[[httpx.Client], bool]) -> None:
    """Wait until a condition holds on many connections: they are divided between the workers."""

    def holds() -> bool:
        for _ in range(15):
            with server.client(headers=BEARER) as client:
                if not condition(client):
                    return False
        return True

    wait_until(holds, what="all workers", timeout_s=40)


def has_open_canary(client: httpx.Client) -> bool:
    canary = client.get("/api/v1/models").json()[0]["canary"]
    return canary is not None and canary["available"]


def rest(client: httpx.Client, key: str | None = None, in_body: bool = False) -> int:
    body = {**BODY, "parameters": {"routing_key": key}} if key and in_body else BODY
    headers = {"x-routing-key": key} if key and not in_body else {}
    answer = client.post("/v2/models/companion/infer", json=body, headers=headers)
    assert answer.status_code == 200, answer.text
    return int(answer.json()["model_version"])


def noun(client: httpx.Client, key: str | None = None) -> int:
    headers = {"x-routing-key": key} if key else {}
    version: int = client.get(f"{API}/neighbors?id=zsh", headers=headers).json()["version"]
    return version


def grpc(client: Any, key: str | None = None, in_parameters: bool = False) -> int:
    tensor = triton.InferInput("id", [1], "BYTES")
    tensor.set_data_from_numpy(np.array([b"zsh"], object))
    headers = dict(BEARER)
    if key and not in_parameters:
        headers["x-routing-key"] = key
    parameters = {"routing_key": key} if key and in_parameters else None
    found = client.infer("companion", [tensor], headers=headers, parameters=parameters)
    return int(found.get_response().model_version)


def test_share_of_each_transport(server: ServerProcess) -> None:
    """Evenly spread on each connection, as each is answered by one worker."""
    with server.client(headers=BEARER) as client, triton.InferenceServerClient(server.grpc_address) as calls:
        asks: list[Callable[[], int]] = [lambda: rest(client), lambda: noun(client), lambda: grpc(calls)]
        for ask in asks:
            versions = [ask() for _ in range(100)]
            assert set(versions) == {1, 2}
            assert abs(versions.count(2) - 30) <= 6, versions


def test_keys_go_to_the_same_version_everywhere(server: ServerProcess) -> None:
    share = Share("companion", 30)
    keys = [f"user-{number}" for number in range(30)]
    expected = [2 if share.takes(key.encode()) else 1 for key in keys]
    assert set(expected) == {1, 2}
    for _ in range(3):
        with (
            server.client(headers=BEARER) as client,
            triton.InferenceServerClient(server.grpc_address) as calls,
        ):
            assert [rest(client, key) for key in keys] == expected
            assert [rest(client, key, in_body=True) for key in keys] == expected
            assert [noun(client, key) for key in keys] == expected
            assert [grpc(calls, key) for key in keys] == expected
            assert [grpc(calls, key, in_parameters=True) for key in keys] == expected


def test_large_and_compressed_requests_have_keys_too(server: ServerProcess) -> None:
    import gzip

    share = Share("companion", 30)
    with server.client(headers=BEARER) as client:
        for number in range(10):
            key = f"user-{number}"
            ids = ["zsh"] * 20_000
            inputs = [{"name": "id", "datatype": "BYTES", "shape": [len(ids)], "data": ids}]
            body = json.dumps({"inputs": inputs, "parameters": {"routing_key": key}}).encode()
            for content, headers in ((body, {}), (gzip.compress(body), {"content-encoding": "gzip"})):
                answer = client.post("/v2/models/companion/infer", content=content, headers=headers)
                assert answer.json()["model_version"] == ("2" if share.takes(key.encode()) else "1")


def test_requests_that_name_a_version_are_not_split(server: ServerProcess) -> None:
    with server.client(headers=BEARER) as client:
        for version in (1, 2):
            paths = [f"/v2/models/companion/versions/{version}/infer"] * 20
            assert {client.post(path, json=BODY).json()["model_version"] for path in paths} == {str(version)}
            assert client.get(f"{API}/neighbors?id=zsh&version={version}").json()["version"] == version
        assert client.get("/v2/models/companion").json()["versions"] == ["1", "2"]


def test_documents_are_not_split(start_server: StartServer, tmp_path: Path) -> None:
    """They are those of the active version, also where a canary with other inputs has all requests."""
    workspace = Workspace(tmp_path / "work")
    for inputs in ("x", "z"):
        add_model(workspace, "affine", write_affine, activate=False, inputs=inputs)
    workspace.set_canary("affine", 2, 100)
    server = start_server(workspace=workspace.root, grpc_port=0)
    server.wait_until_ready()
    with server.client() as client, triton.InferenceServerClient(server.grpc_address) as calls:
        wait_until(lambda: has_open_canary(client), what="the canary")
        configuration = client.get("/v2/models/affine/config").json()
        assert [each["name"] for each in configuration["input"]] == ["x"]
        assert [each["name"] for each in client.get("/v2/models/affine").json()["inputs"]] == ["x"]
        assert [each.name for each in calls.get_model_metadata("affine").inputs] == ["x"]
        assert [each.name for each in calls.get_model_config("affine").config.input] == ["x"]
        (canary,) = client.get("/v2/models/affine/versions/2").json()["inputs"]
        assert canary["name"] == "z"
        assert client.get("/v2/models/affine/ready").status_code == 200


def test_statistics_and_documents_name_the_versions(server: ServerProcess) -> None:
    with server.client(headers=BEARER) as client:
        text = client.get("/metrics").text
        assert 'graphbox_canary_percent{model="companion",version="2"} 30.0' in text
        assert 'nv_inference_request_success{model="companion",version="2"}' in text
        (model,) = client.get("/api/v1/models").json()
        assert model["canary"].keys() == {"version", "percent", "available", "unavailable_requests"}
        for key in (7, True):
            body = {**BODY, "parameters": {"routing_key": key}}
            answer = client.post("/v2/models/companion/infer", json=body)
            assert answer.status_code == 400
            assert "routing_key" in answer.text


def test_guards_of_the_routes(server: ServerProcess, workspace: Workspace, tmp_path: Path) -> None:
    with server.client(headers=BEARER) as client:
        for body, status in (
            ({"version": 1, "percent": 10}, 400),
            ({"version": 9, "percent": 10}, 404),
            ({"version": 2, "percent": 101}, 400),
            ({"version": 2}, 400),
            ({"version": 2, "percent": 10, "share": 1}, 400),
        ):
            assert client.post(f"{API}/canary", json=body).status_code == status, body
        assert client.post("/api/v1/models/shop/canary", json={"version": 1, "percent": 1}).status_code == 404
        assert client.delete("/api/v1/models/shop/shadow").status_code == 404
        assert workspace.traffic("companion").canary is not None
    settings = {"port": 0, "workspace": workspace.root}
    open_server = start_process(settings, tmp_path / "open.log")
    try:
        with open_server.client() as client:
            for path, body in (("canary", {"version": 2, "percent": 10}), ("shadow", {"version": 2})):
                answer = client.post(f"{API}/{path}", json=body)
                assert answer.status_code == 403
                assert f"graphbox models {path} companion 2" in answer.text
                assert client.delete(f"{API}/{path}").status_code == 403
    finally:
        open_server.stop()
        if open_server.process.stdout is not None:
            open_server.process.stdout.close()
    assert workspace.traffic("companion").canary is not None


def test_a_canary_that_cannot_be_opened_changes_nothing(start_server: StartServer, tmp_path: Path) -> None:
    workspace = build(tmp_path / "work")
    repair = damage(workspace, 2)
    server = start_server(workspace=workspace.root, token=TOKEN)
    server.wait_until_ready()
    with server.client(headers=BEARER) as client:
        assert client.post(f"{API}/canary", json={"version": 2, "percent": 50}).status_code == 200

        def failure() -> str | None:
            versions = client.get("/api/v1/models").json()[0]["versions"]
            found: str | None = versions[0]["failure"]
            return found

        wait_until(lambda: failure() is not None, what="the version to fail")
        assert Counter(rest(client) for _ in range(40)) == {1: 40}
        assert server.is_ready()
        canary = client.get("/api/v1/models").json()[0]["canary"]
        assert canary["available"] is False
        assert canary["unavailable_requests"] >= 20
        text = client.get("/metrics").text
        assert 'graphbox_canary_unavailable_total{model="companion",version="2"}' in text
        log = server.log.read_text()
        assert "model companion version 2 cannot be opened" in log
        assert "model companion: the canary, version 2, gets no requests" in log
        repair()
        client.post(f"{API}/canary", json={"version": 2, "percent": 50})
        wait_until(lambda: has_open_canary(client), what="the canary to be tried again")
        assert Counter(rest(client) for _ in range(40))[2] >= 15
        assert client.delete(f"{API}/canary").json() == {"canary": None, "shadow": None}
        wait_until(lambda: {rest(client) for _ in range(20)} == {1}, what="the canary to end")


class Clients:
    """Threads that check each answer: no request may fail, none mix rows and ONNX parts of versions."""

    def __init__(self, server: ServerProcess, threads: int) -> None:
        self.versions: Counter[int] = Counter()
        self.wrong: list[str] = []
        self._address = ("127.0.0.1", server.port)
        self._stop = threading.Event()
        self._threads = [threading.Thread(target=self._ask, args=(number,)) for number in range(threads)]
        self._expected = expected_embeddings(PACKAGES)

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join(60)

    def _ask(self, number: int) -> None:
        inputs = [{"name": "id", "datatype": "BYTES", "shape": [len(PACKAGES)], "data": PACKAGES}]
        body = json.dumps({"inputs": inputs})
        with closing(HTTPConnection(*self._address, timeout=30)) as connection:
            while not self._stop.is_set():
                connection.request("POST", "/v2/models/companion/infer", body, BEARER)
                answer = connection.getresponse()
                content = json.loads(answer.read())
                if answer.status != 200:
                    self.wrong.append(f"{answer.status} {content}")
                    continue
                version = int(content["model_version"])
                vectors = np.array(content["outputs"][0]["data"]).reshape(self._expected.shape)
                wanted = self._expected * version + TAG * version
                if not np.allclose(vectors, wanted, atol=1e-2):
                    self.wrong.append(f"rows of another version than {version}: {vectors[0]}")
                self.versions[version] += 1


def test_versions_change_under_load_without_a_failed_or_mixed_answer(
    start_server: StartServer, tmp_path: Path
) -> None:
    """Promotions, canaries and roll backs; every answer is of one version, rows and ONNX part alike."""
    workspace = build(tmp_path / "work", versions=3)
    server = start_server(workspace=workspace.root, token=TOKEN, workers=2)
    wait_for_workers(server, lambda client: client.get("/healthz/ready").status_code == 200)
    clients = Clients(server, threads=3)
    clients.start()
    try:
        with server.client(headers=BEARER) as client:
            for version in (2, 3, 1):
                assert client.post(f"{API}/promote", json={"version": version}).status_code == 200
                wait_for_workers(server, lambda each, version=version: rest(each) == version)  # type: ignore[misc]
            client.post(f"{API}/canary", json={"version": 3, "percent": 50})
            before = clients.versions[3]
            wait_until(lambda: clients.versions[3] > before + 50, what="answers of the canary")
            client.post(f"{API}/promote", json={"version": 3})
            wait_for_workers(server, lambda each: rest(each) == 3)
            assert client.post(f"{API}/rollback").json()["version"] == 1
            wait_for_workers(server, lambda each: rest(each) == 1)
    finally:
        clients.stop()
    assert clients.wrong == []
    assert set(clients.versions) == {1, 2, 3}
    assert server.stop() == 0


def test_removing_the_version_of_a_canary_ends_it(start_server: StartServer, tmp_path: Path) -> None:
    workspace = build(tmp_path / "work")
    workspace.set_canary("companion", 2, 50)
    server = start_server(workspace=workspace.root)
    server.wait_until_ready()
    with server.client() as client:
        wait_until(lambda: has_open_canary(client), what="the canary, set before the start")
        assert {rest(client) for _ in range(20)} == {1, 2}
        workspace.remove_model("companion", 2)
        started = time.monotonic()
        while {rest(client) for _ in range(20)} != {1}:
            assert time.monotonic() - started < 20
        assert client.get("/api/v1/models").json()[0]["canary"] is None


def test_a_server_that_does_not_follow_has_canaries_and_keeps_its_version(tmp_path: Path) -> None:
    """A promotion ends the canary of such a server, too, and it serves what was active at its start."""
    workspace = build(tmp_path / "work")
    repository = Repository(workspace)
    repository.preload()
    workspace.set_canary("companion", 2, 100)
    repository.poll_requests()
    names = repository.apply_traffic()
    assert names == {"companion"}
    repository.follow_traffic(names)
    assert repository.slot("companion", 2).state() == ("READY", "")
    route = repository.routes["companion"]
    workspace.set_shadow("companion", 2)
    repository.poll_requests()
    repository.apply_traffic()
    assert repository.routes["companion"] is not route
    workspace.promote_model("companion", 2)
    repository.poll_requests()
    repository.follow_traffic(repository.apply_traffic())
    assert repository.routes == {}
    assert repository.slot("companion").version == 1
    assert repository.slot("companion", 2).state() == ("READY", ""), "it is active, and about to be served"
    repository.reload()
    assert repository.slot("companion").version == 2
    repository.close()


def follow_requests(repository: Repository) -> None:
    """Do what the second and the first thread of a server do that does not follow its sources."""
    loaded = repository.poll_requests()
    if loaded:
        repository.follow_loads(loaded)
    names = repository.apply_traffic()
    if names:
        repository.follow_traffic(names)


@pytest.mark.parametrize("role", ["canary", "shadow"])
def test_a_canary_that_was_asked_for_by_its_number_before_stays_open(tmp_path: Path, role: str) -> None:
    workspace = build(tmp_path / "work", versions=4)
    repository = Repository(workspace)
    repository.preload()
    with repository.use("companion", 2):
        pass
    workspace.set_canary("companion", 2, 10) if role == "canary" else workspace.set_shadow("companion", 2)
    follow_requests(repository)
    for version in (3, 4, 3):
        with repository.use("companion", version):
            pass
    assert repository.slot("companion", 2).state() == ("READY", "")
    repository.close()


def test_a_model_that_is_loaded_again_has_its_canary_in_every_worker(tmp_path: Path) -> None:
    """Without following the sources, which opens canaries as well."""
    workspace = build(tmp_path / "work")
    workspace.set_canary("companion", 2, 10)
    asked, other = Repository(workspace), Repository(workspace)
    for repository in (asked, other):
        repository.preload()
    asked.unload("companion")
    follow_requests(other)
    asked.load("companion")
    follow_requests(other)
    for repository in (asked, other):
        for version in (1, 2):
            assert repository.slot("companion", version).state() == ("READY", "")
        repository.close()


def test_a_version_that_was_a_canary_is_closed(tmp_path: Path) -> None:
    workspace = build(tmp_path / "work", versions=3)
    workspace.set_canary("companion", 2, 10)
    repository = Repository(workspace)
    repository.preload()
    slot = repository.slot("companion", 2)
    assert slot.effective() is not None
    for version in (3, 1, 3):
        with repository.use("companion", version):
            pass
        with repository.use("companion", 2):
            pass
    assert slot.effective() is not None, "a canary stays open"
    workspace.end_share("companion", "canary")
    repository.poll_requests()
    repository.follow_traffic(repository.apply_traffic())
    assert slot.effective() is None
    repository.close()

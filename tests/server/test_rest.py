"""The REST interface of a workspace with real models."""

from __future__ import annotations

import asyncio
import inspect
import json
import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import onnxruntime
import pytest
from fastapi import Request, Response
from fastapi.routing import APIRoute

import graphbox
from graphbox.errors import (
    ConfigError,
    DataError,
    DoesNotFitError,
    FormatError,
    GateError,
    GraphboxError,
    InterruptedRunError,
)
from graphbox.server.access import Scope, access_of_request
from graphbox.server.app import create_app
from graphbox.server.kserve.management import Management
from graphbox.server.problem import describe_parameters
from graphbox.server.routes import answers, health, neighbors, unseen
from graphbox.server.routes import models as routes_of_models
from graphbox.server.settings import Settings
from graphbox.workspace import Workspace
from tests.server.sample_models import (
    PACKAGES,
    TARGET,
    add_model,
    expected_embeddings,
    write_encoder,
    write_wide_encoder,
)
from tests.server.server_process import TOKEN, StartServer, wait_until

API = "/api/v1"
_LISTED = "GET /api/v1/models lists what there is"


def problem(answer: httpx.Response, status: int) -> dict[str, Any]:
    """Check that an answer is a Problem and return it."""
    assert answer.status_code == status, answer.text
    body: dict[str, Any] = answer.json()
    assert set(body) == {"code", "message", "where", "hint", "choices", "request_id"}
    assert body["request_id"] == answer.headers["x-request-id"]
    return body


def expected_neighbors(query: str, count: int) -> list[tuple[str, float]]:
    scores = TARGET @ expected_embeddings([query])[0]
    scores[PACKAGES.index(query)] = -np.inf
    order = np.argsort(-scores, kind="stable")[:count]
    return [(PACKAGES[index], float(scores[index])) for index in order]


def test_overview(client: httpx.Client) -> None:
    assert client.get(f"{API}/overview").json() == {
        "version": graphbox.__version__,
        "workspace_name": "debian",
        "graphs": 1,
        "runs": 0,
        "models": 3,
        "running": 0,
        "can_promote": False,
        "follows": True,
    }


def test_graphs(client: httpx.Client) -> None:
    (graph,) = client.get(f"{API}/graphs").json()
    assert graph["name"] == "debian"
    assert graph["node_types"] == [{"name": "package", "nodes": 8}, {"name": "tag", "nodes": 3}]
    assert graph["edge_types"] == [
        {"source": "package", "relation": "depends", "target": "package", "edges": 14}
    ]


def test_models(client: httpx.Client) -> None:
    models = {model["name"]: model["versions"] for model in client.get(f"{API}/models").json()}
    assert list(models) == ["companion", "numbers", "section"]
    (version,) = models["companion"]
    assert version["served"]
    assert version["active"]
    assert (version["version"], version["kind"], version["task"]) == (1, "encoder", "companion")
    assert version["metrics"] == {"companion": {"recall@20": 0.5}}
    assert version["bench"] == [
        {
            "operation": "infer",
            "target": "onnxruntime",
            "threads": 1,
            "batch": 32,
            "p50_ms": 0.5,
            "p99_ms": 0.9,
            "rows_per_s": 64_000.0,
        }
    ]
    assert version["size_bytes"] > 0
    assert version["comparison"] is None, "it is the active one"
    assert version["running"] == {
        "adapter": "onnxruntime",
        "device": "cpu",
        "provider": "CPUExecutionProvider",
        "precision": "float32",
        "threads": 1,
        "runtime": f"onnxruntime {onnxruntime.__version__}",
        "measured_ms": {},
        "nearest": {"package": "exact"},
    }


def test_version_is_compared_with_the_active_one(start_server: StartServer, tmp_path: Path) -> None:
    workspace = Workspace(tmp_path / "workspace")
    add_model(workspace, "companion", write_encoder)
    add_model(workspace, "companion", write_encoder, scale=-1.0)
    with start_server(workspace=workspace.root).client() as client:
        (model,) = client.get(f"{API}/models").json()
        active, other = model["versions"]
        assert (active["version"], active["active"], active["comparison"]) == (2, True, None)
        sizes = {"version": other["size_bytes"], "active": active["size_bytes"]}
        assert (other["comparison"]["active"], other["comparison"]["size_bytes"]) == (2, sizes)
        assert "an earlier release made it" in other["comparison"]["not_comparable"]


@pytest.mark.parametrize("query", PACKAGES)
def test_neighbors_are_those_of_brute_force(client: httpx.Client, query: str) -> None:
    answer = client.get(f"{API}/models/companion/neighbors", params={"type": "package", "id": query, "k": 3})
    assert answer.status_code == 200, answer.text
    body = answer.json()
    assert (body["model"], body["version"]) == ("companion", 1)
    assert body["query"] == {"id": query, "type": "package"}
    expected = expected_neighbors(query, 3)
    assert [neighbor["id"] for neighbor in body["neighbors"]] == [name for name, _ in expected]
    np.testing.assert_allclose(
        [neighbor["score"] for neighbor in body["neighbors"]], [score for _, score in expected], rtol=1e-5
    )


def test_neighbors_carry_true_links(client: httpx.Client) -> None:
    answer = client.get(f"{API}/models/companion/neighbors", params={"id": "nginx", "k": 7}).json()
    links = {neighbor["id"]: neighbor["links"] for neighbor in answer["neighbors"]}
    # Edges of node 0 (nginx) in both directions, every second edge of the list held out.
    assert links["nginx-common"] == [{"relation": "depends", "direction": "out", "held_out": True}]
    assert sorted(links["nginx-extras"], key=lambda link: link["direction"]) == [
        {"relation": "depends", "direction": "in", "held_out": False},
        {"relation": "depends", "direction": "out", "held_out": False},
    ]
    assert [link["direction"] for link in links["zsh"]] == ["in"]
    assert links["curl"] == []


@pytest.mark.parametrize("k", [1, 3, 500])
def test_neighbors_without_known_links_are_the_best_of_the_rest(client: httpx.Client, k: int) -> None:
    path = f"{API}/models/companion/neighbors"
    query: dict[str, str | int] = {"id": "nginx", "k": 500}
    every = client.get(path, params=query).json()["neighbors"]
    new = client.get(path, params={**query, "k": k, "linked": False}).json()["neighbors"]
    assert any(neighbor["links"] for neighbor in every)
    assert [neighbor["id"] for neighbor in new] == [
        neighbor["id"] for neighbor in every if not neighbor["links"]
    ][:k]


def test_more_neighbors_than_there_are(client: httpx.Client) -> None:
    answer = client.get(f"{API}/models/companion/neighbors", params={"id": "zsh", "k": 500}).json()
    assert len(answer["neighbors"]) == len(PACKAGES) - 1
    assert "zsh" not in {neighbor["id"] for neighbor in answer["neighbors"]}


def test_an_id_of_several_types(client: httpx.Client) -> None:
    path = f"{API}/models/section/neighbors"
    ambiguous = problem(client.get(path, params={"id": "python"}), 400)
    assert "package, tag" in ambiguous["message"]
    assert ambiguous["code"] == "ambiguous_id"
    assert ambiguous["choices"] == ["package", "tag"]
    assert ambiguous["hint"] == "choose one: `type=package` or `type=tag`"
    tags = client.get(path, params={"id": "python", "type": "tag"}).json()
    assert {neighbor["type"] for neighbor in tags["neighbors"]} == {"tag"}
    packages = client.get(path, params={"id": "python", "type": "package"}).json()
    assert {neighbor["type"] for neighbor in packages["neighbors"]} == {"package"}
    assert tags["query_types"] == packages["query_types"] == ["package", "tag"]
    web = client.get(path, params={"id": "web"}).json()
    assert (web["query"], web["query_types"]) == ({"id": "web", "type": "tag"}, ["tag"])
    assert problem(client.get(path, params={"id": "absent"}), 404)["choices"] == []


def test_integer_ids(client: httpx.Client) -> None:
    path = f"{API}/models/numbers/neighbors"
    big = 2**53 + 1
    answer = client.get(path, params={"id": str(big), "k": 2})
    assert answer.json()["query"] == {"id": big, "type": "item"}
    assert "integer id" in problem(client.get(path, params={"id": "twelve"}), 400)["message"]
    assert problem(client.get(path, params={"id": "7"}), 404)["code"] == "not_found"
    ids = client.get(f"{API}/models/numbers/ids", params={"prefix": "12"}).json()["ids"]
    assert ids == [{"id": 12, "type": "item"}, {"id": 123, "type": "item"}]


@pytest.mark.parametrize(
    ("path", "status", "message", "hint"),
    [
        (
            "models/companien/neighbors?id=zsh",
            404,
            "no model `companien`",
            "GET /api/v1/models lists what there is",
        ),
        ("models/companion/neighbors?id=zsh&version=7", 404, "no version 7", "its versions: 1"),
        ("models/companion/neighbors?id=ngink", 404, "received `ngink`", "did you mean `nginx`?"),
        ("models/companion/neighbors?id=zsh&type=packag", 404, "expected one of", "did you mean `package`?"),
        ("models/companion/neighbors?id=zsh&k=0", 400, "greater than or equal to 1", None),
        ("models/companion/neighbors?id=zsh&k=1001", 400, "between 1 and 1000", None),
        ("models/companion/neighbors?id=zsh&k=ten", 400, "valid integer", None),
        ("models/companion/neighbors", 400, "Field required", None),
        ("models/companion/ids?limit=5000", 400, "less than or equal to 1000", None),
        ("runs/absent", 404, "absent", None),
        ("runs/absent/metrics", 404, "absent", None),
        ("events?run=absent", 404, "absent", None),
        ("events", 400, "Field required", None),
        ("nothing", 404, "Not Found", "GET /api/v1/openapi.json lists every path"),
    ],
)
def test_problems(client: httpx.Client, path: str, status: int, message: str, hint: str | None) -> None:
    body = problem(client.get(f"{API}/{path}"), status)
    assert message in body["message"]
    if hint is not None:
        assert body["hint"] == hint


def test_long_and_deep_parameters_are_cut() -> None:
    deep: Any = []
    for _ in range(5000):
        deep = [deep]
    inputs: list[Any] = [deep, [[]] * 100_000, "x" * 100_000, 10**4000, {"a": "x" * 100_000}]
    for received in inputs:
        error = {"type": "int_type", "loc": ("body", "version"), "msg": "wrong", "input": received}
        where, message = describe_parameters([error])
        assert where == "body parameter `version`"
        assert message.startswith("wrong, received ")
        assert len(message) < 200
        _, together = describe_parameters([error] * 5000)
        assert len(together) < 2000
        assert together.endswith("; and 4992 more")


def test_what_models_compute_waits_in_one_queue() -> None:
    """Routes that are no coroutines run in threads of the framework, whose queue has no end."""
    nouns = (routes_of_models, neighbors, answers, unseen)
    routes = [route for noun in nouns for route in noun.router.routes if isinstance(route, APIRoute)]
    of_models = [
        route
        for route in routes
        for method in route.methods or ()
        if access_of_request(method, route.path.encode())[0].scope is Scope.INFER
    ]
    assert len(of_models) == 5
    assert [route.path for route in of_models if not inspect.iscoroutinefunction(route.endpoint)] == []


def test_neighbors_beyond_the_queue_are_refused(start_server: StartServer, tmp_path: Path) -> None:
    write_wide_encoder(tmp_path / "models" / "wide" / "1")
    server = start_server(models=[tmp_path / "models"], max_pending=1)
    server.wait_until_ready()
    path = f"{server.base}{API}/models/wide/neighbors?id=p7&k=100"
    with ThreadPoolExecutor(16) as pool:
        received = list(pool.map(lambda _: httpx.get(path, timeout=30), range(160)))
    assert {answer.status_code for answer in received} == {200, 503}
    refused = next(answer for answer in received if answer.status_code == 503)
    assert refused.json()["code"] == "overloaded"
    assert refused.headers["retry-after"] == "1"


def test_reasons_name_no_folders(tmp_path: Path) -> None:
    workspace = Workspace(tmp_path / "work")
    add_model(workspace, "companion", write_encoder)
    gateway = create_app(Settings(workspace=workspace.root))
    services = gateway.services
    slot = services.repository.slot("companion")
    slot._failure = FormatError(f"expected a package, received {workspace.root}/packages/x")
    scope = {"type": "http", "graphbox.headers": {b"host": b"localhost"}}
    try:
        index = asyncio.run(Management(services).index(ready_only=False))
        listed = routes_of_models.models(services)
        ready = asyncio.run(health.ready(Request(scope), Response(), services))
    finally:
        services.executor.close()
    for text in (index[0]["reason"], str(listed[0].versions[0].failure), ready.failed["companion"]):
        assert "received packages/x" in text
        assert str(tmp_path) not in text


def test_wrong_parameters_are_named(client: httpx.Client) -> None:
    one = problem(client.get(f"{API}/models/companion/neighbors?id=zsh&k=ten"), 400)
    assert (one["where"], "'ten'" in one["message"]) == ("query parameter `k`", True)
    two = problem(client.get(f"{API}/models/companion/neighbors?k=ten"), 400)
    assert "query parameter `id`" in two["message"]
    assert "query parameter `k`" in two["message"]


def test_method_not_allowed(client: httpx.Client) -> None:
    answer = client.post(f"{API}/models")
    assert problem(answer, 405)["code"] == "method_not_allowed"
    assert answer.headers["allow"] == "GET"


@pytest.mark.parametrize(
    ("model", "params", "expected"),
    [
        ("companion", {"prefix": "ngi"}, ["nginx", "nginx-common", "nginx-extras"]),
        ("companion", {"prefix": "nginx-", "limit": 1}, ["nginx-common"]),
        ("companion", {"prefix": "caf\u00e9"}, ["caf\u00e9"]),
        ("companion", {"prefix": "NGINX"}, []),
        ("companion", {"prefix": ".*"}, []),
        ("section", {"prefix": "pyth"}, ["python", "python"]),
        ("section", {"prefix": "pyth", "type": "tag"}, ["python"]),
    ],
)
def test_ids_by_prefix(client: httpx.Client, model: str, params: dict[str, Any], expected: list[str]) -> None:
    body = client.get(f"{API}/models/{model}/ids", params=params).json()
    assert [entry["id"] for entry in body["ids"]] == expected


def test_all_ids_in_a_page(client: httpx.Client) -> None:
    body = client.get(f"{API}/models/companion/ids").json()
    assert sorted(entry["id"] for entry in body["ids"]) == sorted(PACKAGES)


def test_without_a_prefix_the_examples_come_first(client: httpx.Client) -> None:
    def ids(model: str, **params: Any) -> list[tuple[str, Any]]:
        body = client.get(f"{API}/models/{model}/ids", params=params).json()
        return [(entry["type"], entry["id"]) for entry in body["ids"]]

    assert ids("companion", limit=2) == [("package", "nginx-extras"), ("package", "python")]  # linked most
    # Of two types, none of them linked: the example request, then shortest first.
    assert ids("section", limit=5) == [
        ("package", "nginx"),
        ("package", "nginx-common"),
        ("package", "git"),
        ("tag", "web"),
        ("package", "zsh"),
    ]
    assert ids("section", limit=2, type="tag") == [("tag", "web"), ("tag", "shell")]
    assert ids("numbers", limit=3) == [("item", 0), ("item", -5), ("item", 12)]


def test_targets(client: httpx.Client) -> None:
    cpu = client.get(f"{API}/targets").json()[0]
    assert cpu["adapter"] == "onnxruntime"
    assert cpu["available"]
    assert cpu["device"] == "cpu"
    assert cpu["reason"] is None


def test_health(client: httpx.Client) -> None:
    for path in ("/healthz", "/healthz/live"):
        assert client.get(path).json() == {"status": "ok", "version": graphbox.__version__}


def test_request_ids(client: httpx.Client) -> None:
    given = client.get(f"{API}/overview", headers={"x-request-id": "trace-1.2_3"})
    assert given.headers["x-request-id"] == "trace-1.2_3"
    for bad in ("a b", "x" * 200, "<script>"):
        answer = client.get(f"{API}/overview", headers={"x-request-id": bad})
        assert len(answer.headers["x-request-id"]) == 16


def test_metrics(client: httpx.Client) -> None:
    client.get(f"{API}/models/companion/neighbors", params={"id": "zsh"})
    client.get(f"{API}/models/absent/neighbors", params={"id": "zsh"})
    answer = client.get("/metrics")
    assert answer.headers["content-type"].startswith("text/plain")
    route = 'route="/api/v1/models/{name}/neighbors"'
    assert f'graphbox_http_requests_total{{method="GET",{route},status="200"}}' in answer.text
    assert f'graphbox_http_requests_total{{method="GET",{route},status="404"}}' in answer.text
    assert "absent" not in answer.text


def test_openapi_is_served(client: httpx.Client) -> None:
    document = client.get(f"{API}/openapi.json").json()
    assert document["info"]["version"] == graphbox.__version__
    assert document["paths"][f"{API}/overview"]["get"]["responses"]["default"]["content"] == {
        "application/json": {"schema": {"$ref": "#/components/schemas/Problem"}}
    }


def test_run(start_server: StartServer, tmp_path: Path) -> None:
    workspace = Workspace(tmp_path / "work")
    with workspace.start_run("debian", "version: 1\nname: debian\n", "0" * 64, ["import", "train"]) as run:
        run.begin_stage("import")
        run.finish_stage("import", seconds=1.5, peak_bytes=1000, outputs={}, size_bytes=10)
        run.begin_stage("train")
        run.report({"metrics": {"section": {"skipgram": {"accuracy": 0.75}}}})
        points = [
            {
                "model": "sage",
                "step": step,
                "epoch": 0,
                "time_s": 0.1 * step,
                "values": {"loss": 1 / (step + 1)},
            }
            for step in range(3000)
        ]
        (run.path / "metrics.jsonl").write_text(
            "".join(json.dumps(point) + "\n" for point in points) + '{"model": "sage", "step": 30'
        )
        server = start_server(workspace=workspace.root)
        with server.client() as client:
            (summary,) = client.get(f"{API}/runs").json()
            assert (summary["id"], summary["state"], summary["stage"]) == (run.id, "running", "train")
            assert client.get(f"{API}/overview").json()["running"] == 1
            detail = client.get(f"{API}/runs/{run.id}").json()
            assert detail["config"] == "version: 1\nname: debian\n"
            assert detail["stages"][0] == {
                "name": "import",
                "state": "finished",
                "seconds": 1.5,
                "peak_bytes": 1000,
            }
            assert detail["report"]["metrics"] == {"section": {"skipgram": {"accuracy": 0.75}}}
            assert detail["error"] is None
            metrics = client.get(f"{API}/runs/{run.id}/metrics", params={"max_points": 100}).json()
            (series,) = metrics["series"]
            assert (series["model"], series["key"]) == ("sage", "loss")
            assert len(series["steps"]) == 100
            assert series["values"][0] == 1.0
            assert (metrics["last_line"], metrics["damaged_lines"]) == (3000, 0)


@pytest.mark.parametrize(
    ("error", "resumable"),
    [
        (InterruptedRunError("stopped"), True),
        (DataError("row 3 is damaged"), True),
        (DoesNotFitError("the disk is full"), True),
        (GateError("recall@20 dropped"), False),
        (ConfigError("a wrong key"), False),
    ],
)
def test_what_can_be_done_with_a_run_that_stopped(
    start_server: StartServer, tmp_path: Path, error: GraphboxError, resumable: bool
) -> None:
    workspace = Workspace(tmp_path / "work")
    server = start_server(workspace=workspace.root)
    with server.client() as client:
        with workspace.start_run("debian", "version: 1\n", "0" * 64, ["import"]) as run:
            run.begin_stage("import")
            detail = client.get(f"{API}/runs/{run.id}").json()
            assert (detail["resumable"], detail["removable"]) == (False, False)
            run.stop_stage("import", error, seconds=1.0, peak_bytes=1)
        detail = client.get(f"{API}/runs/{run.id}").json()
        assert (detail["resumable"], detail["removable"]) == (resumable, True)
        (run.path / "failed").mkdir()  # only training puts a batch there
        assert client.get(f"{API}/runs/{run.id}").json()["resumable"] == resumable
        shutil.rmtree(run.path)
        detail = client.get(f"{API}/runs/{run.id}").json()
        assert (detail["resumable"], detail["removable"]) == (False, True)


def test_a_training_that_diverged_is_not_resumable(start_server: StartServer, tmp_path: Path) -> None:
    workspace = Workspace(tmp_path / "work")
    server = start_server(workspace=workspace.root)
    with workspace.start_run("debian", "version: 1\n", "0" * 64, ["train"]) as run:
        run.begin_stage("train")
        (run.path / "failed").mkdir()
        run.stop_stage("train", GraphboxError("the loss is not finite"), seconds=1.0, peak_bytes=1)
    with server.client() as client:
        assert not client.get(f"{API}/runs/{run.id}").json()["resumable"]


def test_promote(start_server: StartServer, tmp_path: Path) -> None:
    workspace = Workspace(tmp_path / "work")
    add_model(workspace, "companion", write_encoder)
    add_model(workspace, "companion", write_encoder, scale=-1.0)
    write_encoder(tmp_path / "extra", name="extra", version=5)
    server = start_server(workspace=workspace.root, models=[tmp_path / "extra"], token=TOKEN)
    with server.client(headers={"authorization": f"Bearer {TOKEN}"}) as client:

        def versions(name: str) -> dict[int, dict[str, Any]]:
            models = client.get(f"{API}/models").json()
            return {v["version"]: v for m in models if m["name"] == name for v in m["versions"]}

        assert client.get(f"{API}/overview").json()["can_promote"]
        assert [version["promotable"] for version in versions("companion").values()] == [True, True]
        assert not versions("extra")[5]["promotable"]
        answer = client.post(f"{API}/models/companion/promote", json={"version": 1})
        assert answer.status_code == 200, answer.text
        assert (answer.json()["version"], answer.json()["active"]) == (1, True)
        wait_until(lambda: versions("companion")[1]["served"], 5, what="the promoted version")
        assert not versions("companion")[2]["active"]
        path = f"{API}/models/{{}}/promote".format
        assert "no version 9" in problem(client.post(path("companion"), json={"version": 9}), 404)["message"]
        assert problem(client.post(path("absent"), json={"version": 1}), 404)["code"] == "not_found"
        folder = problem(client.post(path("extra"), json={"version": 5}), 400)
        assert "comes from a folder" in folder["message"]
        for body in ({}, {"version": 0}, {"version": 1, "force": True}, {"version": "x"}):
            assert problem(client.post(path("companion"), json=body), 400)["code"] == "invalid_request"
        foreign = client.post(
            path("companion"), json={"version": 2}, headers={"origin": "http://evil.example"}
        )
        assert foreign.json()["code"] == "foreign_origin"
        (workspace.model("companion", 2).path / "manifest.json").write_text("{}")
        assert client.post(path("companion"), json={"version": 2}).status_code == 200
        wait_until(lambda: versions("companion")[2]["failure"] is not None, 5, what="the failure")
        assert versions("companion")[2]["active"]
        assert versions("companion")[1]["served"]


def test_promote_is_refused_without_a_token(client: httpx.Client) -> None:
    answer = problem(client.post(f"{API}/models/companion/promote", json={"version": 1}), 403)
    assert answer["code"] == "token_required"
    assert "graphbox models promote companion --version 1" in answer["hint"]


def test_versions_and_folders(start_server: StartServer, tmp_path: Path) -> None:
    workspace = Workspace(tmp_path / "work")
    add_model(workspace, "companion", write_encoder)
    add_model(workspace, "companion", write_encoder, scale=-1.0)
    write_encoder(tmp_path / "extra", name="extra", version=5)
    server = start_server(workspace=workspace.root, models=[tmp_path / "extra"])
    with server.client() as client:
        models = {model["name"]: model["versions"] for model in client.get(f"{API}/models").json()}
        assert [(version["version"], version["served"]) for version in models["companion"]] == [
            (2, True),
            (1, False),
        ]
        assert [(version["version"], version["served"]) for version in models["extra"]] == [(5, True)]
        answers = {
            version: client.get(
                f"{API}/models/companion/neighbors", params={"id": "nginx", "k": 7, "version": version}
            ).json()
            for version in (1, 2)
        }
        served = client.get(f"{API}/models/companion/neighbors", params={"id": "nginx", "k": 7}).json()
        extra = client.get(f"{API}/models/extra/neighbors", params={"id": "nginx", "k": 7}).json()
    assert served == answers[2]
    assert extra["neighbors"] == answers[1]["neighbors"]
    first, second = ([neighbor["id"] for neighbor in answers[version]["neighbors"]] for version in (1, 2))
    assert first == second[::-1]


def test_without_a_workspace(start_server: StartServer, tmp_path: Path) -> None:
    write_encoder(tmp_path / "model")
    server = start_server(models=[tmp_path / "model"])
    with server.client() as client:
        overview = client.get(f"{API}/overview").json()
        assert (overview["workspace_name"], overview["models"], overview["runs"]) == (None, 1, 0)
        assert client.get(f"{API}/runs").json() == []
        assert "without a workspace" in problem(client.get(f"{API}/runs/x"), 404)["message"]
        assert client.get(f"{API}/models/companion/neighbors", params={"id": "zsh"}).status_code == 200

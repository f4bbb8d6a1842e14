"""Nodes that an encoder was never given, over HTTP and on the page: what it reads, and what it answers."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest

from graphbox.deploy import DeployedEncoder, UnseenNode, open_encoder
from graphbox.deploy.signature import UNSEEN_SUFFIX
from graphbox.errors import InvalidRequestError
from graphbox.pipeline import run
from graphbox.workspace import Workspace
from tests.deploy.hostile_versions import sign
from tests.pipeline.test_export_networks import KNOWS, TASTES, USERS, run_file, write_tables
from tests.server.sample_models import add_model, write_encoder, write_vectors
from tests.server.server_process import ServerProcess, start_process, wait_until
from tests.server.test_rest import problem

ROOT = Path(__file__).resolve().parents[2]
BROWSER_TIMEOUT_S = 240
BOUGHT, KNOWN, KNOWING = "item__bought_by__user", "user__known_by__user", "user__knows__user"
WIDTH = 5
MODELS: dict[str, dict[str, Any]] = {
    "taste": {"task": "taste", "layer": "gat", "layers": 1, "relations": [KNOWS]},
    "item": {"task": "item", "layer": "sage", "layers": 1},
}


@pytest.fixture(scope="module")
def workspace(tmp_path_factory: pytest.TempPathFactory) -> Workspace:
    """A classifier and a recommender that encode unseen users, and models that encode none."""
    folder = tmp_path_factory.mktemp("tables")
    workspace = Workspace(tmp_path_factory.mktemp("workspace"))
    write_tables(folder)
    export = {name: {"model": name, "form": "encoder"} for name in MODELS}
    (folder / "run.yaml").write_text(run_file(MODELS, export))
    assert run(folder / "run.yaml", (), workspace).state == "finished"
    add_model(workspace, "companion", write_encoder)
    add_model(workspace, "section", write_vectors)
    return workspace


@pytest.fixture(scope="module")
def server(workspace: Workspace, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    log = tmp_path_factory.mktemp("log") / "server.log"
    running = start_process({"port": 0, "workspace": workspace.root, "max_rows": 100}, log)
    running.wait_until_ready()
    yield running
    assert running.stop() == 0, log.read_text()
    if running.process.stdout is not None:
        running.process.stdout.close()


@pytest.fixture
def client(server: ServerProcess) -> Iterator[httpx.Client]:
    with server.client() as client:
        yield client


def opened(workspace: Workspace, name: str) -> DeployedEncoder:
    return open_encoder(workspace.model(name, 1).path)


def path(name: str) -> str:
    return f"/api/v1/models/{name}/encode"


def described(client: httpx.Client, name: str) -> dict[str, Any]:
    answer = client.get(path(name)).raise_for_status().json()
    assert (answer["model"], answer["version"]) == (name, 1)
    unseen: dict[str, Any] = answer["unseen"]
    return unseen


def encoded(client: httpx.Client, name: str, nodes: list[Any], **query: Any) -> list[dict[str, Any]]:
    answer = client.post(path(name), json={"nodes": nodes}, params=query).raise_for_status().json()
    found: list[dict[str, Any]] = answer["nodes"]
    return found


def test_features_and_relations_are_described(client: httpx.Client) -> None:
    found = described(client, "item")
    kinds = {
        "taste": "categorical",
        "city": "categorical",
        "age": "number",
        "x": "vector",
        "words": "slots",
    }
    assert {each["name"]: each["kind"] for each in found["features"]} == kinds
    features = {each["name"]: each for each in found["features"]}
    assert features["taste"]["categories"] == [f"taste-{each}" for each in range(TASTES)]
    assert features["taste"]["num_categories"] == TASTES
    assert (features["x"]["dim"], features["age"]["dim"]) == (WIDTH, None)
    assert {each["name"]: each["node_type"] for each in found["relations"]} == {
        KNOWING: "user",
        KNOWN: "user",
        BOUGHT: "item",
    }
    assert not any(each["integer_ids"] for each in found["relations"])
    assert (found["node_type"], found["target_type"], found["classes"]) == ("user", "item", [])
    classes = described(client, "taste")["classes"]
    assert sorted(classes) == [f"taste-{each}" for each in range(TASTES)]


def test_models_that_encode_no_unseen_nodes_say_so(client: httpx.Client) -> None:
    assert described(client, "companion") is None
    assert described(client, "section") is None
    problem(client.get(path("nobody")), 404)


@pytest.mark.parametrize("name", sorted(MODELS))
def test_the_example_can_be_encoded(client: httpx.Client, workspace: Workspace, name: str) -> None:
    example = described(client, name)["example"]
    ages = np.array([float(user % 50) for user in range(USERS) if user % 13], np.float64)
    typical = np.expm1(np.log1p(ages).mean())
    assert example["features"]["age"] == pytest.approx(typical, rel=1e-3)
    assert example["features"]["x"] == [0.0] * WIDTH
    assert example["features"]["words"] == []
    assert any(example["neighbors"].values())
    assert all(len(ids) <= 5 for ids in example["neighbors"].values())
    with opened(workspace, name) as model:
        expected = model.encode_unseen([UnseenNode(**example)])
    (found,) = encoded(client, name, [example])
    np.testing.assert_allclose(found["embedding"], expected[0], atol=1e-6)
    assert found["neighbors"] == []


def test_neighbours_can_be_looked_up_by_their_type(client: httpx.Client) -> None:
    ids = "/api/v1/models/item/ids"
    found = client.get(ids, params={"type": "item", "prefix": "i1", "limit": 3}).json()["ids"]
    assert found == [{"id": f"i{each}", "type": "item"} for each in (1, 10, 11)]
    assert {each["type"] for each in client.get(ids, params={"type": "item"}).json()["ids"]} == {"item"}
    assert {each["type"] for each in client.get(ids).json()["ids"]} == {"user"}
    wrong = problem(client.get(ids, params={"type": "shop"}), 404)
    assert "one of the node types user, item, received `shop`" in wrong["message"]
    problem(client.get("/api/v1/models/item/neighbors", params={"type": "item", "id": "i1"}), 404)


def plain_ranking(workspace: Workspace, name: str, node: dict[str, Any]) -> list[tuple[Any, float]]:
    """Rank every row of the target table for a node by a plain search."""
    with opened(workspace, name) as model:
        target = model.manifest.targets["user"]
        (vector,) = model.encode_unseen([UnseenNode(**node)])
        table = model.artifact.table(target.table)
        rows = table.block(0, len(table))
        if target.score == "cosine":
            vector = vector / np.linalg.norm(vector)
            rows = rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-30)
        scores = rows @ vector
        order = np.argsort(-scores, kind="stable")
        ids = model.ids(order, model.target_type())
    return list(zip(ids, scores[order].tolist(), strict=True))


@pytest.mark.parametrize(("name", "relation"), [("item", BOUGHT), ("taste", KNOWING)])
def test_nearest_nodes_are_the_best_of_a_plain_search(
    client: httpx.Client, workspace: Workspace, name: str, relation: str
) -> None:
    example = described(client, name)["example"]
    best = plain_ranking(workspace, name, example)
    given = [identifier for identifier, _ in best[:3]]
    node = {**example, "neighbors": {relation: given}}
    expected = plain_ranking(workspace, name, node)
    alone = {**example, "neighbors": {}}
    found = encoded(client, name, [node, alone], k=6)
    assert [each["id"] for each in found[0]["neighbors"]] == [identifier for identifier, _ in expected[:6]]
    scores = [each["score"] for each in found[0]["neighbors"]]
    np.testing.assert_allclose(scores, [score for _, score in expected[:6]], atol=1e-5)
    left = [identifier for identifier, _ in expected if identifier not in given]
    found = encoded(client, name, [node, alone], k=6, linked=False)
    assert [each["id"] for each in found[0]["neighbors"]] == left[:6]
    assert {each["type"] for each in found[0]["neighbors"]} == {"item" if name == "item" else "user"}
    everything = plain_ranking(workspace, name, alone)
    assert [each["id"] for each in found[1]["neighbors"]] == [identifier for identifier, _ in everything[:6]]


def test_fewer_are_returned_where_fewer_are_left(client: httpx.Client) -> None:
    example = described(client, "item")["example"]
    items = [f"i{each}" for each in range(58)]
    node = {**example, "neighbors": {BOUGHT: items}}
    (found,) = encoded(client, "item", [node], k=10, linked=False)
    assert sorted(each["id"] for each in found["neighbors"]) == ["i58", "i59"]
    (found,) = encoded(client, "item", [node], k=100)
    assert len(found["neighbors"]) == 60


@pytest.mark.parametrize(
    ("name", "query", "status", "message"),
    [
        ("item", {"k": 1001}, 400, "expected k between 0 and 1000, received 1001"),
        ("item", {"k": -1}, 400, "greater than or equal to 0"),
        ("item", {"k": 60}, 400, "at most 100 nearest nodes in one answer, received k = 60 for 2 nodes"),
        ("companion", {}, 501, "this model encodes those of its graph alone"),
    ],
)
def test_requests_that_are_refused(
    client: httpx.Client, name: str, query: dict[str, int], status: int, message: str
) -> None:
    nodes = [described(client, "item")["example"]] * 2
    answer = client.post(path(name), json={"nodes": nodes}, params=query)
    assert message in problem(answer, status)["message"]


@pytest.mark.parametrize("k", [0, -3])
def test_k_below_one_ranks_nothing(workspace: Workspace, k: int) -> None:
    with opened(workspace, "item") as model:
        node = model.unseen_example()
        with pytest.raises(InvalidRequestError, match=f"expected k of at least 1, received {k}"):
            model.neighbors_of_unseen([node], model.encode_unseen([node]), k)


@pytest.mark.parametrize(
    ("change", "where"),
    [
        ({"features": {"age": "old"}}, "node 0, feature `age`"),
        ({"features": {"x": [1.0, 2.0]}}, "node 0, feature `x`"),
        ({"neighbors": {BOUGHT: ["i1", "nothing"]}}, f"node 0, neighbours `{BOUGHT}`"),
        ({"neighbors": {KNOWN: [7]}}, f"node 0, neighbours `{KNOWN}`"),
    ],
)
def test_an_error_names_its_field_as_the_page_looks_for_it(
    client: httpx.Client, change: dict[str, Any], where: str
) -> None:
    """The place in `web/src/features/models/new-node.ts` is compared with this text."""
    example = described(client, "item")["example"]
    node = {key: {**example[key], **change.get(key, {})} for key in ("features", "neighbors")}
    answer = client.post(path("item"), json={"nodes": [node]}, params={"k": 3})
    assert problem(answer, 400)["where"] == where


@pytest.mark.slow
def test_the_page_encodes_a_new_node(server: ServerProcess) -> None:
    if shutil.which("chromium") is None:
        pytest.skip("chromium is not installed")
    if not (ROOT / "server/static/index.html").exists():
        pytest.skip("the page is not built: make web")
    done = subprocess.run(
        ["npm", "--prefix", str(ROOT / "web"), "run", "e2e"],  # noqa: S607 (npm of the set-up)
        env={
            **os.environ,
            "PATH": f"{ROOT / '.venv' / 'bin'}:{os.environ['PATH']}",
            "GRAPHBOX_URL": server.base,
            "GRAPHBOX_UNSEEN_MODEL": "item",
        },
        check=False,
        capture_output=True,
        text=True,
        timeout=BROWSER_TIMEOUT_S,
    )
    assert done.returncode == 0, (done.stdout + done.stderr)[-6000:]


def test_lists_of_neighbours_may_be_longer_than_the_rows_of_a_request(
    client: httpx.Client, workspace: Workspace
) -> None:
    with opened(workspace, "taste") as model:
        inputs = model.signature(UNSEEN_SUFFIX).inputs
        node = model.unseen_example()
    ids = [f"u{user}" for user in range(6, 126)]  # the server takes 100 rows in a request
    tensors = []
    for name, spec in inputs.items():
        kind, _, relation = name.partition(".")
        if kind == "feature":
            value = node.features[relation]
            data = value if spec.shape[1:] else ["|".join(value) if isinstance(value, list) else value]
        elif kind == "num_neighbors":
            data = [len(ids) if relation == KNOWING else 0]
        else:
            data = ([1.0] * len(ids) if kind == "weights" else ids) if relation == KNOWING else []
        shape = [1, *spec.shape[1:]] if kind == "feature" else [len(data)]
        tensors.append({"name": name, "datatype": spec.datatype, "shape": shape, "data": data})
    answer = client.post("/v2/models/taste.unseen/infer", json={"inputs": tensors})
    expected = replace(node, neighbors={KNOWING: ids})
    with opened(workspace, "taste") as model:
        (vector,) = model.encode_unseen([expected])
    found = answer.raise_for_status().json()["outputs"][0]["data"]
    np.testing.assert_allclose(found, vector, atol=1e-6)


def test_a_damaged_version_is_unavailable_and_the_others_are_listed(
    workspace: Workspace, tmp_path: Path
) -> None:
    models = tmp_path / "models"
    for name in ("taste", "item"):
        shutil.copytree(workspace.model(name, 1).path, models / name / "1")
    damaged = models / "taste" / "1"
    bias = damaged / "unseen" / "bias.npy"
    np.save(bias, np.zeros(np.load(bias).size + 1, np.float32))
    sign(damaged)
    running = start_process({"port": 0, "models": [models]}, tmp_path / "server.log")
    try:
        with running.client() as client:

            def states() -> dict[str, str]:
                index = client.post("/v2/repository/index").raise_for_status().json()
                return {each["name"]: each["state"] for each in index}

            wait_until(lambda: "LOADING" not in states().values(), 60, "both models to be opened")
            assert states() == {
                **dict.fromkeys(
                    ("item", "item.onnx", "item.unseen", "item.nearest", "item.nearest_vectors"), "READY"
                ),
                **dict.fromkeys(("taste", "taste.onnx"), "UNAVAILABLE"),
            }
            assert client.get("/api/v1/models").status_code == 200
            assert client.get("/api/v1/models/item/encode").status_code == 200
    finally:
        running.stop()
        if running.process.stdout is not None:
            running.process.stdout.close()

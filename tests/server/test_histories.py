"""Models of sequences over HTTP: recommendations for known nodes, and for histories that requests send."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest

from graphbox.artifact import Artifact
from graphbox.deploy import UnseenNode, open_encoder
from graphbox.workspace import Workspace
from tests.export.test_sequences import HISTORIES, ITEMS, RELATION, WINDOW, export, source_of
from tests.server.sample_models import add_model, write_encoder
from tests.server.server_process import ServerProcess, start_process
from tests.server.test_rest import problem

ENCODE = "/api/v1/models/model/encode"


def write_sasrec(path: Path, *, name: str, version: int) -> Artifact:
    assert (name, version) == ("model", 1)
    return export(source_of("sasrec"), path)


@pytest.fixture(scope="module")
def workspace(tmp_path_factory: pytest.TempPathFactory) -> Workspace:
    workspace = Workspace(tmp_path_factory.mktemp("workspace"))
    add_model(workspace, "model", write_sasrec)
    add_model(workspace, "companion", write_encoder)
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


def encoded(client: httpx.Client, nodes: list[Any], **query: Any) -> list[dict[str, Any]]:
    answer = client.post(ENCODE, json={"nodes": nodes}, params=query).raise_for_status().json()
    found: list[dict[str, Any]] = answer["nodes"]
    return found


def test_histories_are_encoded_like_those_of_known_nodes(client: httpx.Client, workspace: Workspace) -> None:
    histories = [[f"i{item}" for item in each] for each in HISTORIES]
    found = encoded(client, [{"history": each} for each in histories if each])
    with open_encoder(workspace.model("model", 1).path) as model:
        known = model.encode([f"u{each}" for each in range(len(HISTORIES))])
        unseen = model.encode_unseen([UnseenNode(neighbors={RELATION: each}) for each in histories])
    np.testing.assert_allclose(unseen, known, atol=1e-5)  # those without events too
    asked = [bool(each) for each in histories]
    assert not all(asked)
    np.testing.assert_allclose([each["embedding"] for each in found], known[asked], atol=1e-5)


def test_what_comes_next_is_not_of_the_history_unless_asked(client: httpx.Client) -> None:
    history = ["i3", "i9", "i4"]
    (every,) = encoded(client, [{"history": history}], k=ITEMS)
    (others,) = encoded(client, [{"history": history}], k=ITEMS, linked=False)
    names = [each["id"] for each in every["neighbors"]]
    assert sorted(names) == sorted(f"i{each}" for each in range(ITEMS))
    assert [each["id"] for each in others["neighbors"]] == [each for each in names if each not in history]


def test_a_known_node_has_the_same_neighbours_as_its_history(client: httpx.Client) -> None:
    answer = client.get("/api/v1/models/model/neighbors", params={"id": "u4", "k": 5}).raise_for_status()
    (found,) = encoded(client, [{"history": [f"i{item}" for item in HISTORIES[4]]}], k=5)
    assert [each["id"] for each in answer.json()["neighbors"]] == [each["id"] for each in found["neighbors"]]


def test_the_last_events_of_a_long_history_are_read(client: httpx.Client, workspace: Workspace) -> None:
    history = [f"i{each % ITEMS}" for each in range(500)]
    (found,) = encoded(client, [{"history": history}])
    with open_encoder(workspace.model("model", 1).path) as model:
        expected = model.encode_unseen([UnseenNode(neighbors={RELATION: history[-WINDOW:]})])
    np.testing.assert_allclose(found["embedding"], expected[0], atol=1e-5)


@pytest.mark.parametrize(
    ("node", "message"),
    [
        ({"history": ["i1", "never-seen"]}, "never-seen"),
        ({"history": "i1"}, "expected a list of original ids"),
        ({"history": [["i1"]]}, "expected a list of original ids"),
        ({"history": ["i1"], "neighbors": {}}, "expected `history` alone"),
        ({"histories": ["i1"]}, "or a list `history`, received `histories`"),
        ({"history": []}, "at least one event"),
    ],
)
def test_histories_that_cannot_be_read_are_refused(
    client: httpx.Client, node: dict[str, Any], message: str
) -> None:
    answer = client.post(ENCODE, json={"nodes": [node]})
    refusal = problem(answer, 400)
    assert message in refusal["message"]
    assert refusal["where"] in {"node 0", "node 0, history"}


def test_a_model_that_reads_no_order_refuses_a_history(client: httpx.Client) -> None:
    answer = client.post("/api/v1/models/companion/encode", json={"nodes": [{"history": ["nginx"]}]})
    assert answer.status_code >= 400
    assert "encodes those of its graph alone" in answer.json()["message"]

"""Two towers from a run file to a server: known and new nodes of either side, and items that come later."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch

from graphbox.artifact import Artifact
from graphbox.deploy import update_rows
from graphbox.errors import NotFoundError
from graphbox.graph import Graph
from graphbox.models.graph_layers import OwnLinear
from graphbox.models.link_scorer import LinkScorer
from graphbox.pipeline import run
from graphbox.train import GraphView, load_trained
from graphbox.workspace import Workspace
from tests.cli.conftest import call_main
from tests.server.server_process import ServerProcess, start_process, wait_until

USERS, ITEMS, TASTES = 120, 80, 4

RUN_FILE: dict[str, Any] = {
    "version": 1,
    "name": "towers",
    "seed": 3,
    "threads": 1,
    "graph": {
        "name": "shop",
        "nodes": {
            "user": {"path": "user.parquet", "features": {"city": "categorical", "age": "number"}},
            "item": {"path": "item.parquet", "features": {"words": "slots", "price": "number"}},
        },
        "edges": [{"type": ["user", "bought", "item"], "path": "bought.parquet"}],
    },
    "tasks": {
        "next": {
            "kind": "recommend",
            "node_type": "user",
            "target_type": "item",
            "relations": ["bought"],
            "k": 5,
            "baselines": [],
        }
    },
    "models": {"towers": {"kind": "two_tower", "task": "next", "dim": 16, "epochs": 40, "batch_size": 128}},
    "export": {
        "people": {"model": "towers"},
        "goods": {"model": "towers", "tower": "candidate"},
        "stored": {"model": "towers", "form": "vectors"},
    },
    "bench": {"batch_sizes": [1], "seconds": 0.01},
}


def write_tables(folder: Path) -> None:
    generator = np.random.default_rng(0)
    user = generator.integers(0, USERS, 2500)
    item = user % TASTES + TASTES * generator.integers(0, ITEMS // TASTES, len(user))
    tables = {
        "user": {
            "id": [f"u{each}" for each in range(USERS)],
            "city": [f"city-{each % TASTES}" for each in range(USERS)],
            "age": generator.normal(40.0, 9.0, USERS),
        },
        "item": {
            "id": [f"i{each}" for each in range(ITEMS)],
            "words": [[f"word-{each % TASTES}", f"word-{9 + each % 5}"] for each in range(ITEMS)],
            "price": generator.random(ITEMS),
        },
        "bought": {"source": [f"u{each}" for each in user], "target": [f"i{each}" for each in item]},
    }
    for name, columns in tables.items():
        pq.write_table(pa.table(columns), folder / f"{name}.parquet")
    (folder / "run.yaml").write_text(json.dumps(RUN_FILE))


class Shop:
    """The run, what it trained, and a server of its three artifacts."""

    def __init__(self, folder: Path) -> None:
        write_tables(folder)
        self.workspace = Workspace(folder / "workspace")
        self.report = run(folder / "run.yaml", (), self.workspace)
        assert self.report.state == "finished"
        self.trained = load_trained(self.report.path, "towers")
        self.graph = Graph.open(self.workspace.root / "graphs" / "shop")
        self.server: ServerProcess = start_process(
            {"port": 0, "workspace": self.workspace.root}, folder / "server.log"
        )
        self.server.wait_until_ready()

    def ask(self, method: str, path: str, **options: Any) -> Any:
        response = httpx.request(method, f"{self.server.base}/api/v1/models/{path}", timeout=30, **options)
        assert response.status_code == 200, response.text
        return response.json()

    def encode(self, model: str, features: dict[str, Any], k: int = 0) -> Any:
        body = {"nodes": [{"features": features}]}
        (node,) = self.ask("POST", f"{model}/encode?k={k}", json=body)["nodes"]
        return node


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shop]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_STATE_HOME", str(tmp_path_factory.mktemp("state")))
        found = Shop(tmp_path_factory.mktemp("shop"))
        yield found
        assert found.server.stop() == 0
        if found.server.process.stdout is not None:
            found.server.process.stdout.close()


def taste(node: str) -> int:
    return int(node[1:]) % TASTES


def test_it_learns(shop: Shop) -> None:
    assert shop.report.metrics["next"]["towers"]["recall@5"] > 3 * 5 / ITEMS


@pytest.mark.parametrize("model", ["people", "stored"])
def test_known_users_are_answered_as_in_training(shop: Shop, model: str) -> None:
    user = shop.graph.index("user", ["u7"])
    scores = shop.trained.score(user)[0]
    best = np.argsort(-scores, kind="stable")[:5]
    answer = shop.ask("GET", f"{model}/neighbors", params={"type": "user", "id": "u7", "k": 5})["neighbors"]
    assert [each["id"] for each in answer] == shop.graph.ids("item", best).tolist()
    np.testing.assert_allclose([each["score"] for each in answer], scores[best], rtol=1e-4)


def test_new_users_and_items_are_answered_by_their_features(shop: Shop) -> None:
    found = shop.encode("people", {"city": "city-2", "age": 33.0}, k=5)["neighbors"]
    assert [taste(each["id"]) for each in found] == [2] * 5
    found = shop.encode("goods", {"words": ["word-1", "word-10"], "price": 0.4}, k=5)["neighbors"]
    assert [taste(each["id"]) for each in found] == [1] * 5
    assert [each["type"] for each in found] == ["item"] * 5


def test_a_new_node_is_what_the_network_makes_of_it(shop: Shop) -> None:
    """Without a row, features alone: by the artifact, and by the network over a graph that has the node."""
    network = shop.trained.inductive_network()
    users = np.asarray(shop.graph.feature("user", "age"))[:1]
    city = shop.graph.features("user")["city"].categories
    assert city is not None
    features = {"city": city[int(shop.graph.feature("user", "city")[0])], "age": float(users[0])}
    assert network.rows.keys() == {"user", "item"}
    parts = replace(network, rows={}).parts(GraphView(shop.graph, None))
    with torch.no_grad():
        vectors = torch.from_numpy(parts.inputs["user"][:1])
        layer, head = parts.network.graph_layer(0), parts.network.head
        assert isinstance(layer, OwnLinear)
        assert isinstance(head, LinkScorer)
        expected = head.sources(torch.relu(layer.own["user"](vectors))).numpy()[0]
    np.testing.assert_allclose(shop.encode("people", features)["embedding"], expected, rtol=1e-3, atol=1e-4)


def test_an_item_that_came_later_is_recommended(shop: Shop) -> None:
    """Encoded by its features, added by a row update, and then among the answers of users who like such."""
    vector = shop.encode("goods", {"words": ["word-3", "word-9"], "price": 0.5})["embedding"]
    unit = np.array(vector, np.float32)
    np.testing.assert_allclose(np.linalg.norm(unit), 1.0, rtol=1e-4)
    for model, table in (("people", "target"), ("stored", "target")):
        update_rows(shop.workspace, model, ["brand new"], unit[None], table=table)

        def answers(user: str, model: str = model) -> list[str]:
            path, query = f"{model}/neighbors", {"type": "user", "id": user, "k": ITEMS + 1}
            return [each["id"] for each in shop.ask("GET", path, params=query)["neighbors"]]

        wait_until(lambda: "brand new" in answers("u3"), what="the row update")
        near, far = answers("u3").index("brand new"), answers("u1").index("brand new")
        assert near < ITEMS // 2 < far
    unseen = shop.encode("people", {"city": "city-3", "age": 40.0}, k=ITEMS + 1)["neighbors"]
    assert "brand new" in [each["id"] for each in unseen][: ITEMS // 2]


def test_the_stored_network_embeds_the_graph_as_training_did(shop: Shop) -> None:
    """As `graphbox embed --graph` does of one that has grown."""
    network = shop.trained.inductive_network()
    everything = network.over(shop.graph)
    np.testing.assert_allclose(
        everything.embeddings["user"], shop.trained.embeddings["user"], rtol=1e-4, atol=1e-5
    )
    assert everything.target is not None
    assert shop.trained.target is not None
    np.testing.assert_allclose(everything.target, shop.trained.target, rtol=1e-4, atol=1e-5)


def test_predict_says_that_towers_predict_no_classes(shop: Shop, tmp_path: Path) -> None:
    (tmp_path / "users.csv").write_text("city,age\ncity-1,30\n")
    rows, found = tmp_path / "users.csv", tmp_path / "found.parquet"
    outcome = call_main(["-C", shop.workspace.root, "predict", "people", "--input", rows, "-o", found])
    assert outcome.code == 2
    assert "expected a network that classifies nodes, received one of links" in outcome.err
    assert "graphbox embed" in outcome.err


def test_new_ids_of_queries_are_refused_with_what_to_do(shop: Shop) -> None:
    row = np.zeros((1, shop.trained.embeddings["user"].shape[1]), np.float32)
    table = next(name for name, spec in opened(shop).manifest.tables.items() if spec.node_type == "user")
    with pytest.raises(NotFoundError, match="received `newcomer` of `user`") as caught:
        update_rows(shop.workspace, "people", ["newcomer"], row, table=table)
    assert "ask for others by their features" in str(caught.value.hint)


def opened(shop: Shop) -> Artifact:
    return Artifact.open(shop.workspace.model("people").path)

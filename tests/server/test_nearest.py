"""Nearest nodes over REST, HTTP and gRPC of a server whose model has an index."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import numpy.typing as npt
import pytest
import tritonclient.grpc as triton_grpc
import tritonclient.http as triton_http

from graphbox.deploy import DeployedEncoder, open_encoder
from graphbox.errors import UsageError
from graphbox.server import Settings
from tests.deploy.nearest_models import DIM, clustered, wait_for_index, write_items
from tests.server.server_process import ServerProcess, start_process, wait_until

PATH = "/api/v1/models/shop/neighbors"
K = 10


@pytest.fixture(scope="module")
def version(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_items(tmp_path_factory.mktemp("models") / "shop" / "1").path


@pytest.fixture(scope="module")
def model(version: Path) -> Iterator[DeployedEncoder]:
    with open_encoder(version, "onnxruntime", nearest="index") as opened:
        assert wait_for_index(opened, "item") == wait_for_index(opened, "user") == "index"
        yield opened


@pytest.fixture(scope="module")
def server(
    version: Path, model: DeployedEncoder, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ServerProcess]:
    """A server that loads the index that ``model`` has built."""
    log = tmp_path_factory.mktemp("log") / "server.log"
    models = [str(version.parent.parent)]
    running = start_process({"port": 0, "grpc_port": 0, "models": models, "nearest": "index"}, log)
    running.wait_until_ready()

    def states() -> dict[str, str]:
        (listed,) = httpx.get(f"{running.base}/api/v1/models").json()
        found: dict[str, str] = listed["versions"][0]["running"]["nearest"]
        return found

    wait_until(lambda: states() == {"item": "index", "user": "index"}, what="the index")
    yield running
    assert running.stop() == 0, log.read_text()
    assert "Traceback" not in log.read_text()
    if running.process.stdout is not None:
        running.process.stdout.close()


@pytest.fixture
def client(server: ServerProcess) -> Iterator[httpx.Client]:
    with server.client() as client:
        yield client


def ids(found: dict[str, Any]) -> list[Any]:
    return [each["id"] for each in found["neighbors"]]


def test_one_node(client: httpx.Client, model: DeployedEncoder) -> None:
    found = client.get(PATH, params={"id": "1003", "k": K}).json()
    index, score = model.neighbors([1003], K, node_type="user")
    assert ids(found) == model.ids(index[0], "item")
    np.testing.assert_allclose([each["score"] for each in found["neighbors"]], score[0], rtol=1e-6)
    assert any(each["links"] for each in found["neighbors"])
    deny = ids(found)[::2]
    left = client.get(PATH, params={"id": "1003", "k": K // 2, "deny": [*deny, "no such item"]}).json()
    assert ids(left) == ids(found)[1::2]
    allow = ["item-00005", ids(found)[3], "item-00009"]
    few = client.get(PATH, params={"id": "1003", "k": K, "allow": allow, "deny": "item-00009"}).json()
    assert ids(few) == [ids(found)[3], "item-00005"]
    new = client.get(PATH, params={"id": "1003", "k": K, "linked": False}).json()
    assert len(ids(new)) == K
    assert not any(each["links"] for each in new["neighbors"])


def test_queries_of_ids_and_of_vectors(client: httpx.Client, model: DeployedEncoder) -> None:
    vector = clustered(1, 9)[0]
    queries = [
        {"id": "item-00042"},
        {"vector": vector.tolist(), "type": "user", "deny": []},
        {"id": 1003, "type": "user", "allow": ["item-00005", "item-00006"]},
        {"vector": vector.tolist(), "allow": []},
    ]
    found = client.post(PATH, params={"k": K}, json={"queries": queries})
    assert found.status_code == 200, found.text
    answers = found.json()["queries"]
    index, _ = model.neighbors(["item-00042"], K)
    assert ids(answers[0]) == model.ids(index[0])
    ((near, score),) = model.nearest.nearest(vector[None], K, "user")
    assert ids(answers[1]) == model.ids(near)
    np.testing.assert_allclose([each["score"] for each in answers[1]["neighbors"]], score, rtol=1e-6)
    assert sorted(ids(answers[2])) == ["item-00005", "item-00006"]
    assert ids(answers[3]) == []
    assert client.post(PATH, json={"queries": []}).json()["queries"] == []


@pytest.mark.parametrize(
    ("query", "message"),
    [
        ({}, "either `id` or `vector`"),
        ({"id": "item-00001", "vector": [0.0] * DIM}, "either `id` or `vector`"),
        ({"id": 1.5}, "an original id"),
        ({"id": "nobody"}, "nobody"),
        ({"vector": [1.0] * (DIM - 1)}, f"a vector of {DIM} finite numbers"),
        ({"vector": [1e300] * DIM}, f"a vector of {DIM} finite numbers"),
        ({"vector": ["1"] * DIM}, "a list of numbers"),
        ({"vector": [1.0] * DIM, "type": "shop"}, "one of the node types item, user"),
        ({"id": "item-00001", "type": 7}, "a string"),
        ({"id": "item-00001", "allow": "item-00002"}, "a list of original ids"),
        ({"id": "item-00001", "deny": [None]}, "a list of original ids"),
        ({"id": "item-00001", "except": []}, "received `except`"),
    ],
)
def test_wrong_queries(client: httpx.Client, query: dict[str, Any], message: str) -> None:
    answer = client.post(PATH, json={"queries": [{"id": "item-00001"}, query]})
    assert answer.status_code == 400, answer.text
    assert message in answer.json()["message"]
    assert "query 1" in answer.json()["where"]


@pytest.mark.parametrize(
    ("params", "queries"), [({"k": 0}, 1), ({"k": 1_001}, 1), ({"k": 1_000}, 70), ({"k": "ten"}, 1)]
)
def test_too_many_neighbors(client: httpx.Client, params: dict[str, Any], queries: int) -> None:
    assert (
        client.post(PATH, params=params, json={"queries": [{"id": "item-00001"}] * queries}).status_code
        == 400
    )


def inputs(module: Any, arrays: dict[str, npt.NDArray[Any]]) -> list[Any]:
    names = {"O": "BYTES", "i": "INT64", "f": "FP32"}
    return [
        module.InferInput(name, list(array.shape), names[array.dtype.kind]).set_data_from_numpy(array)
        for name, array in arrays.items()
    ]


def texts(values: list[str]) -> npt.NDArray[Any]:
    return np.array([each.encode() for each in values], object)


@pytest.mark.parametrize("protocol", ["http", "grpc"])
def test_triton_clients(server: ServerProcess, model: DeployedEncoder, protocol: str) -> None:
    module: Any = triton_http if protocol == "http" else triton_grpc
    with module.InferenceServerClient(
        server.address if protocol == "http" else server.grpc_address
    ) as client:
        vectors = clustered(3, 9)
        given = inputs(module, {"vector": vectors})
        found = client.infer("shop.nearest_vectors", given, parameters={"k": K})
        for row, (index, score) in enumerate(model.nearest.nearest(vectors, K, "item")):
            assert [each.decode() for each in found.as_numpy("neighbor")[row]] == model.ids(index)
            np.testing.assert_array_equal(found.as_numpy("score")[row], score)
        assert found.as_numpy("count").tolist() == [K] * 3
        lists = {
            "id": texts(["item-00001", "item-00002"]),
            "allow": texts(["item-00003", "item-00004"]),
            "num_allow": np.array([2, -1]),
            "deny": texts(["item-00003"]),
            "num_deny": np.array([1, 0]),
        }
        found = client.infer("shop.nearest", inputs(module, lists), parameters={"k": 3})
        assert found.as_numpy("count").tolist() == [1, 3]
        assert found.as_numpy("neighbor")[0].tolist() == [b"item-00004", b"", b""]
        with pytest.raises(Exception, match="missing: vector"):
            client.infer("shop.nearest_vectors", inputs(module, {"num_deny": np.array([0])}))


def test_the_protocol_lists_the_signatures(client: httpx.Client) -> None:
    metadata = client.get("/v2/models/shop.nearest_vectors").json()
    assert [each["name"] for each in metadata["inputs"]] == [
        "vector",
        "allow",
        "num_allow",
        "deny",
        "num_deny",
    ]
    assert [each["name"] for each in metadata["outputs"]] == ["neighbor", "score", "count"]
    configured = client.get("/v2/models/shop.nearest/config").json()["input"]
    assert [each["name"] for each in configured if not each.get("optional")] == ["id"]


def test_an_unknown_setting_is_refused() -> None:
    unknown: Any = "indx"
    with pytest.raises(UsageError, match="expected auto, exact, index, received 'indx'") as error:
        Settings(nearest=unknown).check()
    assert "index" in str(error.value.hint)


def test_recall_is_in_the_metrics(client: httpx.Client) -> None:
    def metric(name: str) -> float:
        line = f'graphbox_nearest_{name}_total{{model="shop",version="1"}} '
        text = client.get("/metrics").text
        return float(text.partition(line)[2].partition("\n")[0] or 0)

    client.get(PATH, params={"id": "1003", "k": K})  # the first query is sampled, whichever test sent it
    wait_until(lambda: metric("sampled_queries") >= 1, what="a sampled query")
    assert metric("sampled_neighbors") >= 1
    assert 0.9 <= metric("found_neighbors") / metric("sampled_neighbors") <= 1

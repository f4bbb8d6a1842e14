"""The KServe routes against the client Triton users have, unmodified."""

from __future__ import annotations

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import numpy as np
import numpy.typing as npt
import pytest
import tritonclient.http as triton
from tritonclient.utils import InferenceServerException

from tests.server.sample_models import DIM, PACKAGES, ROWS, expected_embeddings
from tests.server.server_process import TOKEN, ServerProcess, StartServer

Feeds = dict[str, npt.NDArray[Any]]


@pytest.fixture
def triton_client(server: ServerProcess) -> Iterator[Any]:
    with triton.InferenceServerClient(server.address) as client:
        yield client


def id_input(ids: list[str], binary: bool = True) -> Any:
    tensor = triton.InferInput("id", [len(ids)], "BYTES")
    tensor.set_data_from_numpy(np.array([name.encode() for name in ids], dtype=object), binary_data=binary)
    return tensor


def onnx_inputs(feeds: Feeds, binary: bool = True) -> list[Any]:
    inputs = []
    for name, array in feeds.items():
        kind = "FP32" if array.dtype == np.float32 else "INT64"
        tensor = triton.InferInput(name, list(array.shape), kind)
        inputs.append(tensor.set_data_from_numpy(array, binary_data=binary))
    return inputs


def onnx_feeds(queries: int = 2) -> Feeds:
    random = np.random.default_rng(3)
    return {
        "rows": random.standard_normal((5, DIM)).astype(np.float32),
        "own": random.integers(0, 5, queries),
        "neighbors": random.integers(0, 5, (queries, 1, 3)),
        "weights": random.random((queries, 1, 3)).astype(np.float32),
    }


def onnx_reference(feeds: Feeds) -> npt.NDArray[np.float32]:
    rows = feeds["rows"]
    result = rows[feeds["own"]] + np.einsum("nrf,nrfd->nd", feeds["weights"], rows[feeds["neighbors"]])
    return np.asarray(result, dtype=np.float32)


def test_server_metadata_and_health(triton_client: Any) -> None:
    assert triton_client.is_server_live()
    assert triton_client.is_server_ready()
    metadata = triton_client.get_server_metadata()
    assert metadata["name"] == "graphbox"
    assert {"binary_tensor_data", "statistics", "model_repository"} <= set(metadata["extensions"])


@pytest.mark.parametrize("version", ["", "1"])
def test_model_metadata(triton_client: Any, version: str) -> None:
    assert triton_client.is_model_ready("companion", version)
    metadata = triton_client.get_model_metadata("companion", version)
    assert metadata == {
        "name": "companion",
        "versions": ["1"],
        "platform": "graphbox",
        "inputs": [{"name": "id", "datatype": "BYTES", "shape": [-1]}],
        "outputs": [{"name": "embedding", "datatype": "FP32", "shape": [-1, DIM]}],
    }
    config = triton_client.get_model_config("companion", version)
    assert config["max_batch_size"] == 0
    assert config["input"] == [{"name": "id", "data_type": "TYPE_STRING", "dims": [-1]}]
    bare = triton_client.get_model_metadata("companion.onnx", version)
    assert bare["platform"] == "onnxruntime_onnx"
    assert {tensor["name"] for tensor in bare["inputs"]} == {"rows", "own", "neighbors", "weights"}
    properties = triton_client.get_model_config("companion.onnx", version)["parameters"]
    assert properties.keys() == {"max_rows", "model_sha256", "precision", "intra_op_thread_count"}
    assert properties["precision"] == {"string_value": "float32"}
    assert properties["intra_op_thread_count"] == {"string_value": "1"}


def test_integer_ids_are_int64(triton_client: Any) -> None:
    assert triton_client.get_model_metadata("numbers")["inputs"][0]["datatype"] == "INT64"
    ids = np.array([2**53 + 1, -5, 0], dtype=np.int64)
    for binary in (True, False):
        tensor = triton.InferInput("id", [3], "INT64").set_data_from_numpy(ids, binary_data=binary)
        result = triton_client.infer("numbers", [tensor])
        np.testing.assert_array_equal(
            result.as_numpy("embedding"), np.eye(5, DIM, dtype=np.float32)[[2, 1, 0]]
        )


def test_models_that_are_not_there(triton_client: Any) -> None:
    assert not triton_client.is_model_ready("absent")
    assert not triton_client.is_model_ready("companion", "9")
    assert not triton_client.is_model_ready("section.onnx")
    with pytest.raises(InferenceServerException, match="GET /api/v1/models lists what there is"):
        triton_client.get_model_metadata("companien")
    with pytest.raises(InferenceServerException, match="no version 9"):
        triton_client.get_model_metadata("companion", "9")


@pytest.mark.parametrize("binary_input", [True, False])
@pytest.mark.parametrize("binary_output", [True, False, None])
def test_embeddings_of_original_ids(
    triton_client: Any, binary_input: bool, binary_output: bool | None
) -> None:
    ids = ["nginx", "zsh", "caf\u00e9", "nginx"]
    outputs = (
        None
        if binary_output is None
        else [triton.InferRequestedOutput("embedding", binary_data=binary_output)]
    )
    result = triton_client.infer(
        "companion", [id_input(ids, binary_input)], outputs=outputs, request_id="r-1"
    )
    np.testing.assert_allclose(result.as_numpy("embedding"), expected_embeddings(ids), rtol=1e-5)
    response = result.get_response()
    assert (response["id"], response["model_name"], response["model_version"]) == ("r-1", "companion", "1")
    assert response["outputs"][0]["shape"] == [4, DIM]


@pytest.mark.parametrize("binary", [True, False])
def test_bare_onnx_part(triton_client: Any, binary: bool) -> None:
    feeds = onnx_feeds(3)
    result = triton_client.infer("companion.onnx", onnx_inputs(feeds, binary), model_version="1")
    np.testing.assert_allclose(result.as_numpy("embedding"), onnx_reference(feeds), rtol=1e-5)


def test_odd_json_length_before_binary_tensors(triton_client: Any) -> None:
    """Tensors at odd addresses of the body are read right."""
    for padding in range(9):
        feeds = onnx_feeds(2)
        result = triton_client.infer("companion.onnx", onnx_inputs(feeds), request_id="x" * padding)
        np.testing.assert_allclose(result.as_numpy("embedding"), onnx_reference(feeds), rtol=1e-5)


@pytest.mark.parametrize("request_algorithm", ["gzip", "deflate", None])
@pytest.mark.parametrize("response_algorithm", ["gzip", "deflate", None])
def test_compression(
    triton_client: Any, request_algorithm: str | None, response_algorithm: str | None
) -> None:
    ids = PACKAGES * 12
    result = triton_client.infer(
        "companion",
        [id_input(ids)],
        request_compression_algorithm=request_algorithm,
        response_compression_algorithm=response_algorithm,
    )
    np.testing.assert_allclose(result.as_numpy("embedding"), expected_embeddings(ids), rtol=1e-5)


@pytest.mark.parametrize(
    ("accepted", "encoding"),
    [
        ("gzip, deflate", "gzip"),
        ("gzip;q=0.5", "gzip"),
        ("gzip;q=0, deflate", "deflate"),
        ("gzip;q=0", None),
        ("deflate; q=0.0, gzip; q=0", None),
        ("identity", None),
    ],
)
def test_encodings_that_clients_accept(server: ServerProcess, accepted: str, encoding: str | None) -> None:
    data = PACKAGES * 12
    body = {"inputs": [{"name": "id", "datatype": "BYTES", "shape": [len(data)], "data": data}]}
    with server.client(headers={"accept-encoding": accepted}) as client:
        answer = client.post("/v2/models/companion/infer", json=body)
    assert answer.status_code == 200
    assert answer.headers.get("content-encoding") == encoding
    assert answer.json()["outputs"][0]["shape"] == [len(data), DIM]


def test_node_type_parameter(triton_client: Any) -> None:
    vectors = {}
    for node_type in ("package", "tag"):
        result = triton_client.infer("section", [id_input(["python"])], parameters={"node_type": node_type})
        vectors[node_type] = result.as_numpy("embedding")
    assert not np.array_equal(vectors["package"], vectors["tag"])
    default = triton_client.infer("section", [id_input(["python"])]).as_numpy("embedding")
    np.testing.assert_array_equal(default, vectors["package"])
    with pytest.raises(InferenceServerException, match="expected one of the node types package, tag"):
        triton_client.infer("section", [id_input(["python"])], parameters={"node_type": "source"})


def test_unknown_ids_are_named(triton_client: Any) -> None:
    with pytest.raises(InferenceServerException) as caught:
        triton_client.infer("companion", [id_input(["zsh", "ngink"])])
    assert caught.value.status() == "400"
    assert "`ngink`" in caught.value.message()
    assert "did you mean `nginx`?" in caught.value.message()


def test_empty_batch(triton_client: Any) -> None:
    for binary in (True, False):
        result = triton_client.infer("companion", [id_input([], binary)])
        assert result.as_numpy("embedding").shape == (0, DIM)
    feeds = onnx_feeds(0)
    assert triton_client.infer("companion.onnx", onnx_inputs(feeds)).as_numpy("embedding").shape == (0, DIM)


def test_repository_index(triton_client: Any) -> None:
    index = {model["name"]: model for model in triton_client.get_model_repository_index()}
    nearest = {
        name + suffix
        for name in ("companion", "section", "numbers")
        for suffix in (".nearest", ".nearest_vectors")
    }
    assert set(index) == {"companion", "companion.onnx", "section", "numbers", *nearest}
    triton_client.infer("companion", [id_input(["zsh"])])
    index = {model["name"]: model for model in triton_client.get_model_repository_index()}
    assert index["companion"] == {"name": "companion", "version": "1", "state": "READY", "reason": ""}


def test_load_needs_a_token(triton_client: Any) -> None:
    with pytest.raises(InferenceServerException) as caught:
        triton_client.load_model("companion")
    assert caught.value.status() == "403"


def test_extensions_that_are_not_offered(triton_client: Any) -> None:
    assert triton_client.get_system_shared_memory_status() == []
    triton_client.unregister_system_shared_memory()
    triton_client.unregister_cuda_shared_memory()
    with pytest.raises(InferenceServerException) as caught:
        triton_client.register_system_shared_memory("a", "/graphbox_a", 10)
    assert caught.value.status() == "400"


def test_statistics_equal_what_the_client_counted(start_server: StartServer, shared_workspace: Any) -> None:
    server = start_server(workspace=shared_workspace.root)
    with triton.InferenceServerClient(server.address) as client:
        for size in (1, 3, 3):
            client.infer("companion", [id_input(PACKAGES[:size])])
        client.infer("companion.onnx", onnx_inputs(onnx_feeds(2)))
        for _ in range(2):
            with pytest.raises(InferenceServerException):
                client.infer("companion", [id_input(["absent"])])
        (companion,) = client.get_inference_statistics("companion", "1")["model_stats"]
        everything = client.get_inference_statistics()["model_stats"]
        metrics = httpx.get(f"{server.base}/metrics").text
    assert (companion["name"], companion["version"]) == ("companion", "1")
    assert companion["inference_count"] == 7
    assert companion["execution_count"] == 3
    stats = companion["inference_stats"]
    assert {name: stats[name]["count"] for name in ("success", "fail", "compute_infer")} == {
        "success": 3,
        "fail": 2,
        "compute_infer": 3,
    }
    parts = sum(stats[name]["ns"] for name in ("queue", "compute_input", "compute_infer", "compute_output"))
    assert 0 < parts <= stats["success"]["ns"]
    assert [batch["batch_size"] for batch in companion["batch_stats"]] == [1, 3]
    assert {model["name"] for model in everything} == {"companion", "companion.onnx"}
    assert 'nv_inference_request_success{model="companion",version="1"} 3.0' in metrics
    assert 'nv_inference_request_failure{model="companion",version="1"} 2.0' in metrics
    assert 'nv_inference_count{model="companion.onnx",version="1"} 2.0' in metrics


def test_no_request_gets_rows_of_another(server: ServerProcess) -> None:
    """Rows are tagged by their values; many clients at once each get their own back."""

    def ask(seed: int) -> bool:
        random = np.random.default_rng(seed)
        with httpx.Client(base_url=server.base) as client:
            for _ in range(25):
                ids = [PACKAGES[index] for index in random.integers(0, len(PACKAGES), random.integers(1, 40))]
                body = {"inputs": [{"name": "id", "datatype": "BYTES", "shape": [len(ids)], "data": ids}]}
                answer = client.post("/v2/models/companion/infer", json=body).json()
                values = np.array(answer["outputs"][0]["data"], np.float32).reshape(-1, DIM)
                if not np.allclose(values, expected_embeddings(ids), rtol=1e-5):
                    return False
        return True

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(ask, range(8)))


def test_token(start_server: StartServer, shared_workspace: Any) -> None:
    server = start_server(workspace=shared_workspace.root, token=TOKEN)
    server.wait_until_ready()
    with triton.InferenceServerClient(server.address) as client:
        assert client.is_server_live()
        with pytest.raises(InferenceServerException) as caught:
            client.get_server_metadata()
        assert caught.value.status() == "401"
        bearer = {"Authorization": f"Bearer {TOKEN}"}
        assert client.get_server_metadata(headers=bearer)["name"] == "graphbox"
        result = client.infer("companion", [id_input(["zsh"])], headers=bearer)
        np.testing.assert_allclose(result.as_numpy("embedding"), expected_embeddings(["zsh"]), rtol=1e-5)
        client.unload_model("companion", headers=bearer)
        assert not client.is_model_ready("companion", headers=bearer)
        assert client.is_model_ready("section", headers=bearer)
        assert client.is_server_ready()
        index = {model["name"]: model for model in client.get_model_repository_index(headers=bearer)}
        assert (index["companion"]["state"], index["companion"]["reason"]) == ("UNAVAILABLE", "unloaded")
        client.load_model("companion", headers=bearer)
        assert client.is_model_ready("companion", headers=bearer)


def test_models_are_never_taken_from_a_request(start_server: StartServer, shared_workspace: Any) -> None:
    server = start_server(workspace=shared_workspace.root, token=TOKEN)
    with triton.InferenceServerClient(server.address) as client:
        bearer = {"Authorization": f"Bearer {TOKEN}"}
        for options in (
            {"config": json.dumps({"name": "x"})},
            {"config": "{}", "files": {"file:1/model.onnx": b"x"}},
        ):
            with pytest.raises(InferenceServerException) as caught:
                client.load_model("companion", headers=bearer, **options)
            assert caught.value.status() == "400"


def test_raw_rows_reach_the_model_unchanged(triton_client: Any) -> None:
    """One query, weight 1 on one neighbour: the answer is the sum of two known rows, bit for bit."""
    feeds: Feeds = {
        "rows": ROWS,
        "own": np.array([4]),
        "neighbors": np.array([[[6, 0, 0]]]),
        "weights": np.array([[[1, 0, 0]]], np.float32),
    }
    result = triton_client.infer("companion.onnx", onnx_inputs(feeds))
    np.testing.assert_array_equal(result.as_numpy("embedding")[0], ROWS[4] + ROWS[6])

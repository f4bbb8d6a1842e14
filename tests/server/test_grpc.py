"""The KServe protocol over gRPC against the clients that Triton users have, unmodified."""

from __future__ import annotations

import asyncio
import queue
import signal
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import grpc
import httpx
import numpy as np
import numpy.typing as npt
import pytest
import tritonclient.grpc as triton
import tritonclient.grpc.aio as triton_aio
from tritonclient.utils import InferenceServerException

from graphbox.server.grpc.health_messages import HealthCheckRequest, HealthCheckResponse
from graphbox.workspace import Workspace
from tests.server.sample_models import (
    DIM,
    PACKAGES,
    ROWS,
    add_model,
    build_workspace,
    expected_embeddings,
    write_wide_encoder,
)
from tests.server.server_process import TOKEN, ServerProcess, StartServer, start_process, wait_until

BEARER = {"authorization": f"Bearer {TOKEN}"}
SLOW_ROWS = 65_536
Feeds = dict[str, npt.NDArray[Any]]


@pytest.fixture(scope="module")
def workspace(tmp_path_factory: pytest.TempPathFactory) -> Workspace:
    built = build_workspace(tmp_path_factory.mktemp("grpc") / "debian")
    add_model(built, "wide", write_wide_encoder)
    return built


@pytest.fixture(scope="module")
def server(workspace: Workspace, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    log = tmp_path_factory.mktemp("log") / "server.log"
    # No refusals on a busy machine.
    settings = {"port": 0, "grpc_port": 0, "workspace": workspace.root, "max_queue_ms": 30_000}
    running = start_process(settings, log)
    running.wait_until_ready()
    yield running
    assert running.stop() == 0, log.read_text()
    assert "Traceback" not in log.read_text()
    if running.process.stdout is not None:
        running.process.stdout.close()


@pytest.fixture
def client(server: ServerProcess) -> Iterator[Any]:
    with triton.InferenceServerClient(server.grpc_address) as client:
        yield client


def id_input(ids: list[str]) -> Any:
    tensor = triton.InferInput("id", [len(ids)], "BYTES")
    return tensor.set_data_from_numpy(np.array([name.encode() for name in ids], dtype=object))


def embeddings(client: Any, ids: list[str], **options: Any) -> npt.NDArray[np.float32]:
    found: npt.NDArray[np.float32] = client.infer("companion", [id_input(ids)], **options).as_numpy(
        "embedding"
    )
    return found


def slow_ids() -> list[str]:
    return [f"p{number}" for number in np.random.default_rng(5).integers(0, 20_000, SLOW_ROWS)]


def status_of(caught: pytest.ExceptionInfo[InferenceServerException]) -> str:
    return str(caught.value.status())


def counts(server: ServerProcess, model: str) -> tuple[int, int]:
    """Successes and failures of a model."""
    stats = httpx.get(f"{server.base}/v2/models/{model}/stats").json()["model_stats"][0]["inference_stats"]
    return stats["success"]["count"], stats["fail"]["count"]


def test_health_and_metadata(client: Any) -> None:
    assert client.is_server_live()
    assert client.is_server_ready()
    metadata = client.get_server_metadata()
    assert metadata.name == "graphbox"
    assert {"binary_tensor_data", "statistics", "model_repository"} <= set(metadata.extensions)
    for version in ("", "1"):
        assert client.is_model_ready("companion", version)
        found = client.get_model_metadata("companion", version, as_json=True)
        assert found == {
            "name": "companion",
            "versions": ["1"],
            "platform": "graphbox",
            "inputs": [{"name": "id", "datatype": "BYTES", "shape": ["-1"]}],
            "outputs": [{"name": "embedding", "datatype": "FP32", "shape": ["-1", str(DIM)]}],
        }
    config = client.get_model_config("companion.onnx").config
    assert config.max_batch_size == 0
    assert config.parameters["precision"].string_value == "float32"
    assert [str(each.data_type) for each in config.input] == ["11", "9", "9", "11"]


def test_models_that_are_not_there(client: Any) -> None:
    for name, version, says in (
        ("companien", "", "GET /api/v1/models lists what there is"),
        ("companion", "9", "no version 9"),
        ("companion", "latest", "versions are numbers"),
        ("section.onnx", "", "section"),
    ):
        for call in (client.get_model_metadata, client.get_model_config):
            with pytest.raises(InferenceServerException, match=says) as caught:
                call(name, version)
            assert status_of(caught) == "StatusCode.NOT_FOUND"
    with pytest.raises(InferenceServerException) as caught:
        client.get_model_metadata("../companion")
    assert status_of(caught) == "StatusCode.INVALID_ARGUMENT"


def test_embeddings_of_original_ids(client: Any) -> None:
    ids = ["nginx", "zsh", "caf\u00e9", "nginx"]
    for outputs in (None, [triton.InferRequestedOutput("embedding")]):
        result = client.infer("companion", [id_input(ids)], outputs=outputs, request_id="r-1")
        np.testing.assert_allclose(result.as_numpy("embedding"), expected_embeddings(ids), rtol=1e-5)
        response = result.get_response()
        assert (response.id, response.model_name, response.model_version) == ("r-1", "companion", "1")
        assert list(response.outputs[0].shape) == [4, DIM]
    assert embeddings(client, []).shape == (0, DIM)


def test_bare_onnx_part(client: Any) -> None:
    feeds: Feeds = {
        "rows": ROWS,
        "own": np.array([4]),
        "neighbors": np.array([[[6, 0, 0]]]),
        "weights": np.array([[[1, 0, 0]]], np.float32),
    }
    inputs = [
        triton.InferInput(name, list(array.shape), "FP32" if array.dtype == np.float32 else "INT64")
        for name, array in feeds.items()
    ]
    for tensor, array in zip(inputs, feeds.values(), strict=True):
        tensor.set_data_from_numpy(array)
    result = client.infer("companion.onnx", inputs, model_version="1")
    np.testing.assert_array_equal(result.as_numpy("embedding")[0], ROWS[4] + ROWS[6])


def test_parameters_and_unknown_ids(client: Any) -> None:
    vectors = [
        client.infer("section", [id_input(["python"])], parameters={"node_type": node_type}).as_numpy(
            "embedding"
        )
        for node_type in ("package", "tag")
    ]
    assert not np.array_equal(*vectors)
    with pytest.raises(InferenceServerException, match="did you mean `nginx`") as caught:
        embeddings(client, ["zsh", "ngink"])
    assert status_of(caught) == "StatusCode.INVALID_ARGUMENT"
    np.testing.assert_allclose(
        embeddings(client, ["zsh"], priority=3), expected_embeddings(["zsh"]), rtol=1e-5
    )


def test_error_texts_equal_those_of_rest(client: Any, server: ServerProcess) -> None:
    for ids, outputs in ((["ngink"], []), (["zsh"], ["embeding"])):
        body = {
            "inputs": [{"name": "id", "datatype": "BYTES", "shape": [len(ids)], "data": ids}],
            "outputs": [{"name": name} for name in outputs],
        }
        rest = httpx.post(f"{server.base}/v2/models/companion/infer", json=body).json()["error"]
        with pytest.raises(InferenceServerException) as caught:
            client.infer(
                "companion",
                [id_input(ids)],
                outputs=[triton.InferRequestedOutput(name) for name in outputs],
            )
        assert caught.value.message() == rest


@pytest.mark.parametrize("algorithm", ["gzip", "deflate"])
def test_compression(client: Any, algorithm: str) -> None:
    ids = PACKAGES * 40
    found = embeddings(client, ids, compression_algorithm=algorithm)
    np.testing.assert_allclose(found, expected_embeddings(ids), rtol=1e-5)


def test_repository_and_statistics(client: Any) -> None:
    embeddings(client, ["zsh"])
    index = {model.name: model.state for model in client.get_model_repository_index().models}
    assert index["companion"] == "READY"
    statistics = client.get_inference_statistics("companion").model_stats[0]
    assert statistics.inference_stats.success.count >= 1
    assert "companion" in {each.name for each in client.get_inference_statistics().model_stats}
    for call in (client.load_model, client.unload_model):
        with pytest.raises(InferenceServerException) as caught:
            call("companion")
        assert status_of(caught) == "StatusCode.PERMISSION_DENIED"


def test_calls_are_counted(client: Any, server: ServerProcess) -> None:
    def count(status: str) -> float:
        name = "/inference.GRPCInferenceService/ModelInfer"
        start = f'graphbox_grpc_requests_total{{method="{name}",status="{status}"}} '
        lines = httpx.get(f"{server.base}/metrics").text.splitlines()
        return sum(float(line.removeprefix(start)) for line in lines if line.startswith(start))

    before = count("OK"), count("INVALID_ARGUMENT")
    embeddings(client, ["zsh"])
    with pytest.raises(InferenceServerException):
        embeddings(client, ["absent"])
    assert (count("OK"), count("INVALID_ARGUMENT")) == (before[0] + 1, before[1] + 1)


def test_extensions_that_are_not_offered(client: Any) -> None:
    assert not client.get_system_shared_memory_status().regions
    assert not client.get_cuda_shared_memory_status().regions
    client.unregister_system_shared_memory()
    client.unregister_cuda_shared_memory()
    with pytest.raises(InferenceServerException) as caught:
        client.register_system_shared_memory("a", "/a", 10)
    assert status_of(caught) == "StatusCode.INVALID_ARGUMENT"


def test_stream(client: Any) -> None:
    """Responses come in the order of the requests; an error ends one request alone."""
    received: queue.Queue[tuple[Any, Any]] = queue.Queue()
    client.start_stream(lambda result, error: received.put((result, error)))
    asked = [[PACKAGES[number % 8]] * (number % 5 + 1) for number in range(200)]
    asked[17] = ["absent"]
    for number, ids in enumerate(asked):
        client.async_stream_infer("companion", [id_input(ids)], request_id=str(number))
    for number, ids in enumerate(asked):
        result, error = received.get(timeout=30)
        if ids == ["absent"]:
            assert "absent" in error.message()
            continue
        assert error is None, error.message()
        assert result.get_response().id == str(number)
        assert result.get_response().parameters["triton_final_response"].bool_param
        np.testing.assert_allclose(result.as_numpy("embedding"), expected_embeddings(ids), rtol=1e-5)
    client.stop_stream()


def test_asyncio_client(server: ServerProcess) -> None:
    async def ask() -> None:
        async with triton_aio.InferenceServerClient(server.grpc_address) as client:
            assert await client.is_server_ready()
            results = await asyncio.gather(
                *(client.infer("companion", [id_input([name])]) for name in PACKAGES * 8)
            )
            for name, result in zip(PACKAGES * 8, results, strict=True):
                np.testing.assert_allclose(
                    result.as_numpy("embedding"), expected_embeddings([name]), rtol=1e-5
                )

            async def requests() -> Any:
                for name in PACKAGES:
                    yield {"model_name": "companion", "inputs": [id_input([name])], "request_id": name}

            names = []
            async for result, error in client.stream_infer(requests()):
                assert error is None
                names.append(result.get_response().id)
            assert names == PACKAGES

    asyncio.run(ask())


def test_no_request_gets_rows_of_another(server: ServerProcess) -> None:
    """Rows are tagged by their values; many clients at once each get their own back."""

    def ask(seed: int) -> bool:
        random = np.random.default_rng(seed)
        with triton.InferenceServerClient(server.grpc_address) as client:
            for _ in range(10):
                ids = [PACKAGES[index] for index in random.integers(0, len(PACKAGES), random.integers(1, 40))]
                if not np.allclose(embeddings(client, ids), expected_embeddings(ids), rtol=1e-5):
                    return False
        return True

    with ThreadPoolExecutor(64) as pool:
        assert all(pool.map(ask, range(64)))


def test_large_requests_and_answers(client: Any) -> None:
    ids = slow_ids()[:20_000]
    found = client.infer("wide", [id_input(ids)]).as_numpy("embedding")
    again = client.infer("wide", [id_input(ids[:3])]).as_numpy("embedding")
    assert found.shape[0] == 20_000
    np.testing.assert_allclose(found[:3], again, rtol=1e-4)


def test_deadlines_and_timeouts(client: Any, server: ServerProcess) -> None:
    before = counts(server, "wide")
    with pytest.raises(InferenceServerException, match=r"Deadline|within") as caught:
        client.infer("wide", [id_input(slow_ids())], client_timeout=0.05)
    assert status_of(caught) == "StatusCode.DEADLINE_EXCEEDED"
    with pytest.raises(InferenceServerException, match=r"within 0\.001 s") as caught:
        client.infer("wide", [id_input(slow_ids())], timeout=1000)
    assert status_of(caught) == "StatusCode.DEADLINE_EXCEEDED"
    wait_until(lambda: counts(server, "wide")[1] > before[1], what="the end of a late call")
    assert counts(server, "wide")[0] == before[0]


def test_cancelled_calls_end(client: Any, server: ServerProcess) -> None:
    before = counts(server, "wide")
    done = threading.Event()
    context = client.async_infer("wide", [id_input(slow_ids())], callback=lambda result, error: done.set())
    time.sleep(0.1)
    context.cancel()
    assert done.wait(10)
    wait_until(lambda: counts(server, "wide")[1] == before[1] + 1, what="the end of a cancelled call")
    pending = "graphbox_pending_executions"
    wait_until(
        lambda: all(
            float(line.rpartition(" ")[2]) == 0
            for line in httpx.get(f"{server.base}/metrics").text.splitlines()
            if line.startswith(pending)
        ),
        what="no execution to be left",
    )


def raw_call(channel: grpc.Channel, path: str, message: bytes, **options: Any) -> bytes:
    method = channel.unary_unary(path)
    found: bytes = method(message, timeout=10, **options)
    return found


def test_health_protocol(server: ServerProcess) -> None:
    with grpc.insecure_channel(server.grpc_address) as channel:
        check = "/grpc.health.v1.Health/Check"
        for service in ("", "inference.GRPCInferenceService"):
            request = HealthCheckRequest(service=service).SerializeToString()
            answer = HealthCheckResponse.FromString(raw_call(channel, check, request))
            assert answer.status == HealthCheckResponse.ServingStatus.SERVING
        with pytest.raises(grpc.RpcError) as caught:
            raw_call(channel, check, HealthCheckRequest(service="other").SerializeToString())
        assert caught.value.code() is grpc.StatusCode.NOT_FOUND
        watch = channel.unary_stream("/grpc.health.v1.Health/Watch")(b"", timeout=10)
        assert HealthCheckResponse.FromString(next(watch)).status == HealthCheckResponse.ServingStatus.SERVING
        watch.cancel()


def test_unknown_methods_and_messages(server: ServerProcess) -> None:
    with grpc.insecure_channel(server.grpc_address) as channel:
        with pytest.raises(grpc.RpcError) as caught:
            raw_call(channel, "/inference.GRPCInferenceService/Nothing", b"")
        assert caught.value.code() is grpc.StatusCode.UNIMPLEMENTED
        for method in ("ModelInfer", "ModelMetadata"):
            with pytest.raises(grpc.RpcError, match="protocol buffers") as caught:
                raw_call(channel, f"/inference.GRPCInferenceService/{method}", b"\xff" * 9)
            assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT


def test_limits_of_messages(start_server: StartServer, workspace: Workspace) -> None:
    server = start_server(workspace=workspace.root, grpc_port=0, max_body_bytes=100_000)
    with triton.InferenceServerClient(server.grpc_address) as client:
        for algorithm in (None, "gzip"):  # as sent, and a small message that grows
            with pytest.raises(InferenceServerException, match="at most 100000 bytes") as caught:
                embeddings(client, ["nginx"] * 20_000, compression_algorithm=algorithm)
            assert status_of(caught) == "StatusCode.RESOURCE_EXHAUSTED"
        np.testing.assert_allclose(embeddings(client, ["zsh"]), expected_embeddings(["zsh"]), rtol=1e-5)


def test_token(start_server: StartServer, workspace: Workspace) -> None:
    server = start_server(workspace=workspace.root, grpc_port=0, token=TOKEN)
    server.wait_until_ready()
    with triton.InferenceServerClient(server.grpc_address) as client:
        assert client.is_server_live()
        assert client.is_server_ready()
        for headers in (None, {"authorization": "Bearer something-else"}, {"authorization": TOKEN}):
            with pytest.raises(InferenceServerException, match="expected the token") as caught:
                client.get_server_metadata(headers=headers)
            assert status_of(caught) == "StatusCode.UNAUTHENTICATED"
            with pytest.raises(InferenceServerException) as caught:
                client.infer("companion", [id_input(["zsh"])], headers=headers)
            assert status_of(caught) == "StatusCode.UNAUTHENTICATED"
        found = client.infer("companion", [id_input(["zsh"])], headers=BEARER).as_numpy("embedding")
        np.testing.assert_allclose(found, expected_embeddings(["zsh"]), rtol=1e-5)
        received: queue.Queue[tuple[Any, Any]] = queue.Queue()
        client.start_stream(lambda result, error: received.put((result, error)))
        assert "expected the token" in received.get(timeout=10)[1].message()
        client.stop_stream()
        client.unload_model("companion", headers=BEARER)
        assert not client.is_model_ready("companion", headers=BEARER)
        with pytest.raises(InferenceServerException, match="was unloaded") as caught:
            client.infer("companion", [id_input(["zsh"])], headers=BEARER)
        assert status_of(caught) == "StatusCode.UNAVAILABLE"
        client.load_model("companion", headers=BEARER)
        assert client.is_model_ready("companion", headers=BEARER)
        with pytest.raises(InferenceServerException, match="no model files or settings") as caught:
            client.load_model("companion", headers=BEARER, config="{}")
        assert status_of(caught) == "StatusCode.INVALID_ARGUMENT"


def test_stop_completes_calls(start_server: StartServer, workspace: Workspace) -> None:
    """A running call is answered; a stream without requests ends, with a reason."""
    server = start_server(workspace=workspace.root, grpc_port=0)
    server.wait_until_ready()
    results: queue.Queue[tuple[Any, Any]] = queue.Queue()
    streamed: queue.Queue[tuple[Any, Any]] = queue.Queue()
    with (
        triton.InferenceServerClient(server.grpc_address) as client,
        triton.InferenceServerClient(server.grpc_address) as streaming,
    ):
        embeddings(client, ["zsh"])
        client.async_infer(
            "wide",
            [id_input(slow_ids()[:30_000])],
            callback=lambda result, error: results.put((result, error)),
        )
        streaming.start_stream(lambda result, error: streamed.put((result, error)))
        streaming.async_stream_infer("companion", [id_input(["zsh"])])
        assert streamed.get(timeout=30)[1] is None
        server.process.send_signal(signal.SIGTERM)
        result, error = results.get(timeout=30)
        assert error is None, error.message()
        assert result.as_numpy("embedding").shape[0] == 30_000
        assert "the server is stopping" in streamed.get(timeout=10)[1].message()
    assert server.process.wait(20) == 0
    assert "Traceback" not in server.log.read_text()


def test_workers_share_the_port(start_server: StartServer, workspace: Workspace) -> None:
    server = start_server(workspace=workspace.root, grpc_port=0, workers=2)
    server.wait_until_ready()

    def ask(name: str) -> bool:
        with triton.InferenceServerClient(server.grpc_address) as client:
            return np.allclose(embeddings(client, [name]), expected_embeddings([name]), rtol=1e-5)

    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(ask, PACKAGES * 4))
    assert server.stop() == 0


def test_port_in_use(start_server: StartServer, server: ServerProcess, tmp_path: Path) -> None:
    port = int(server.grpc_address.rpartition(":")[2])
    with pytest.raises(AssertionError, match=f"port {port} is in use"):
        start_server(models=[tmp_path], grpc_port=port)

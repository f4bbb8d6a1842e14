"""The classification extension, by the clients that Triton users have, against NumPy."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import tritonclient.grpc as triton_grpc
import tritonclient.grpc.aio as triton_grpc_aio
import tritonclient.http as triton_http
import tritonclient.http.aio as triton_http_aio
from tritonclient.utils import InferenceServerException

from graphbox.deploy import open_encoder
from graphbox.errors import InvalidRequestError
from graphbox.server.kserve.classification import classified, count_of
from graphbox.workspace import Workspace
from tests.deploy.browser_models import write_classifier
from tests.server.sample_models import DIM, PACKAGES, expected_embeddings
from tests.server.server_process import ServerProcess, StartServer, start_process


@pytest.fixture(scope="module")
def server(shared_workspace: Workspace, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    log = tmp_path_factory.mktemp("log") / "server.log"
    running = start_process({"port": 0, "grpc_port": 0, "workspace": shared_workspace.root}, log)
    running.wait_until_ready()
    yield running
    assert running.stop() == 0, log.read_text()
    if running.process.stdout is not None:
        running.process.stdout.close()


def asked(module: Any, ids: list[str], **options: Any) -> dict[str, Any]:
    tensor = module.InferInput("id", [len(ids)], "BYTES")
    tensor.set_data_from_numpy(np.array([each.encode() for each in ids], object))
    output = module.InferRequestedOutput("embedding", **options)
    return {"model_name": "companion", "inputs": [tensor], "outputs": [output]}


def check(found: npt.NDArray[Any], ids: list[str], count: int) -> None:
    """Compare classes with a reference: each row's values, highest first."""
    expected = expected_embeddings(ids)
    assert found.shape == (len(ids), min(count, DIM))
    for texts, row in zip(found, expected, strict=True):
        # The HTTP client gives texts of JSON as they are.
        parts = [(text if isinstance(text, str) else text.decode()).split(":") for text in texts]
        values, indices = [float(part[0]) for part in parts], [int(part[1]) for part in parts]
        assert all(len(part) == 2 for part in parts), "this model has no labels"
        np.testing.assert_allclose(values, np.sort(row)[::-1][: len(values)], atol=1e-5)
        np.testing.assert_allclose(row[indices], values, atol=1e-5)
        assert len(set(indices)) == len(indices)


@pytest.mark.parametrize("count", [1, 2, DIM, 100])
def test_classes_over_both_transports(server: ServerProcess, count: int) -> None:
    for ids in (PACKAGES[:5], PACKAGES[:1]):
        with triton_http.InferenceServerClient(server.address) as client:
            for binary in (True, False):
                request = asked(triton_http, ids, class_count=count, binary_data=binary)
                check(client.infer(**request).as_numpy("embedding"), ids, count)
        with triton_grpc.InferenceServerClient(server.grpc_address) as client:
            check(
                client.infer(**asked(triton_grpc, ids, class_count=count)).as_numpy("embedding"), ids, count
            )


def test_classes_by_asyncio_clients(server: ServerProcess) -> None:
    async def ask(module: Any, address: str) -> None:
        async with module.InferenceServerClient(address) as client:
            found = await client.infer(**asked(module, PACKAGES[:3], class_count=2))
            check(found.as_numpy("embedding"), PACKAGES[:3], 2)

    asyncio.run(ask(triton_http_aio, server.address))
    asyncio.run(ask(triton_grpc_aio, server.grpc_address))


def test_many_rows_are_classified_on_a_thread(server: ServerProcess) -> None:
    ids = PACKAGES * 2000
    with triton_http.InferenceServerClient(server.address) as client:
        check(client.infer(**asked(triton_http, ids, class_count=3)).as_numpy("embedding"), ids, 3)
    with triton_grpc.InferenceServerClient(server.grpc_address) as client:
        check(client.infer(**asked(triton_grpc, ids, class_count=3)).as_numpy("embedding"), ids, 3)


def test_no_rows_have_no_classes(server: ServerProcess) -> None:
    with triton_http.InferenceServerClient(server.address) as client:
        found = client.infer(**asked(triton_http, [], class_count=2)).as_numpy("embedding")
    assert found.shape == (0, 2)


def test_extensions_are_listed(server: ServerProcess) -> None:
    with triton_http.InferenceServerClient(server.address) as client:
        extensions = set(client.get_server_metadata()["extensions"])
    assert {"classification", "logging", "trace", "schedule_policy"} <= extensions
    assert not {"system_shared_memory", "cuda_shared_memory", "sequence"} & extensions


def test_output_without_an_order_is_refused(server: ServerProcess) -> None:
    tensor = triton_http.InferInput("id", [1], "BYTES").set_data_from_numpy(np.array([b"zsh"], object))
    output = triton_http.InferRequestedOutput("neighbor", class_count=1)
    with (
        triton_http.InferenceServerClient(server.address) as client,
        pytest.raises(InferenceServerException, match="whose values have no order"),
    ):
        client.infer("companion.nearest", [tensor], outputs=[output])


@pytest.mark.parametrize(
    "dtype", [np.uint8, np.uint64, np.int8, np.int64, np.float16, np.float32, np.float64]
)
def test_order_of_each_datatype(dtype: type[Any]) -> None:
    generator = np.random.default_rng(5)
    if np.issubdtype(dtype, np.integer):
        limits = np.iinfo(dtype)
        values = generator.integers(limits.min, limits.max, (40, 9), dtype=dtype, endpoint=True)
        values[0, :2] = limits.min, limits.max
    else:
        values = generator.standard_normal((40, 9)).astype(dtype)
    values[:, 4] = values[:, 3]  # of equal ones the first comes first
    for count in (1, 4, 20):
        found = classified(values, count, (), has_rows=True)
        assert found.shape == (40, min(count, 9))
        for texts, row in zip(found, values.tolist(), strict=True):
            order = sorted(range(9), key=lambda index: (-row[index], index))[:count]
            form = "%f:%d" if isinstance(row[0], float) else "%d:%d"
            assert [text.decode() for text in texts] == [form % (row[index], index) for index in order]


def test_labels_and_values_that_are_no_numbers() -> None:
    row = np.array([np.nan, 0.5, np.inf, -np.inf], np.float32)
    found = classified(row, 9, ("a", "b:c", "d"), has_rows=False)
    assert found.tolist() == [b"inf:2:d", b"0.500000:1:b:c", b"-inf:3", b"nan:0:a"]
    assert classified(np.empty((0, 3), np.float32), 2, (), has_rows=True).shape == (0, 2)
    assert classified(np.empty((2, 0), np.float32), 2, (), has_rows=True).shape == (2, 0)


@pytest.mark.parametrize("count", [-1, True, "2", 2.0, None, 2**32])
def test_number_of_classes(count: object) -> None:
    with pytest.raises(InvalidRequestError, match=r"outputs\[0\]\.parameters\.classification"):
        count_of({"classification": count}, "FP32", "outputs[0]")


def test_labels_of_a_classifier(start_server: StartServer, tmp_path: Path) -> None:
    write_classifier(tmp_path / "colours" / "1")
    server = start_server(models=[tmp_path], grpc_port=0)
    server.wait_until_ready()
    ids = np.array([-5, 0, 3])
    with open_encoder(tmp_path / "colours" / "1") as model:
        expected = model.infer({"id": ids})["probability"]
    names = ("<b>red</b>", "green", "blue")
    for module, address in ((triton_http, server.address), (triton_grpc, server.grpc_address)):
        tensor = module.InferInput("id", [3], "INT64").set_data_from_numpy(ids)
        outputs = [
            module.InferRequestedOutput("probability", class_count=2),
            module.InferRequestedOutput("embedding", class_count=1),
        ]
        with module.InferenceServerClient(address) as client:
            result = client.infer("colours", [tensor], outputs=outputs)
        for texts, row in zip(result.as_numpy("probability"), expected, strict=True):
            order = np.argsort(-row, kind="stable")[:2]
            assert [text.decode() for text in texts] == [
                f"{row[index]:.6f}:{index}:{names[index]}" for index in order
            ]
        # Coordinates of a vector have no names.
        assert all(text.count(b":") == 1 for text in result.as_numpy("embedding").ravel())

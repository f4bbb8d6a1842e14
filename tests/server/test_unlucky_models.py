"""Models that are unloaded, removed or loaded again and again while they are asked, and odd datatypes."""

from __future__ import annotations

import json
import shutil
import struct
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import grpc
import httpx
import numpy as np
import pytest

from graphbox.artifact import Artifact, ArtifactWriter, TensorsForm, TensorSpec
from graphbox.artifact.manifest import Datatype
from graphbox.deploy.onnx_writer import Node, write_onnx
from graphbox.server.grpc.inference_messages import ModelInferRequest
from graphbox.workspace import Workspace
from tests.server import http2_frames as http2
from tests.server.sample_models import (
    add_model,
    build_workspace,
    write_wide_encoder,
)
from tests.server.server_process import TOKEN, ServerProcess, StartServer, wait_until
from tests.server.test_faults import ask, expect_answers
from tests.server.test_workers import BEARER, metric

DATATYPES: dict[Datatype, Any] = {
    "INT8": np.int8,
    "UINT8": np.uint8,
    "INT32": np.int32,
    "INT64": np.int64,
    "FP16": np.float16,
    "FP32": np.float32,
    "FP64": np.float64,
    "BOOL": np.bool_,
}
FIELDS = {"INT8": "int_contents", "UINT8": "uint_contents", "INT32": "int_contents"}


def write_datatypes(path: Path, *, name: str = "types", version: int = 1) -> Artifact:
    """A model for each datatype would be many: one that returns the input of each as it is."""
    dtypes = {datatype.lower(): dtype for datatype, dtype in DATATYPES.items()}
    nodes = [Node("Identity", [name], [f"{name}_out"]) for name in dtypes]
    content = write_onnx(
        nodes,
        {name: (dtype, ["n"]) for name, dtype in dtypes.items()},
        {f"{name}_out": (dtype, ["n"]) for name, dtype in dtypes.items()},
    )
    inputs = [TensorSpec(name=each.lower(), datatype=each, shape=(-1,)) for each in DATATYPES]
    outputs = [TensorSpec(name=f"{each.lower()}_out", datatype=each, shape=(-1,)) for each in DATATYPES]
    with ArtifactWriter(path) as writer:
        writer.set_onnx(content, opset=20, precision="float32", inputs=inputs, outputs=outputs)
        writer.set_preprocess(TensorsForm())
        writer.set_example(
            [{"name": each.lower(), "datatype": each, "shape": [1], "data": [1]} for each in DATATYPES]
        )
        return writer.commit(name=name, version=version, kind="tensors", task=None, dim=1, targets={})


def typed_request(datatype: str, element: Any, named: str | None = None) -> bytes:
    """Return a request with ones, and ``element`` as that of one datatype, as JSON text."""
    inputs: list[dict[str, Any]] = []
    for each in DATATYPES:
        value = element if each == datatype else (True if each == "BOOL" else 1)
        shown = named if named is not None and each == datatype else each
        inputs.append({"name": each.lower(), "datatype": shown, "shape": [1], "data": [value]})
    return json.dumps({"inputs": inputs}).encode()


@pytest.fixture
def typed(start_server: StartServer, tmp_path: Path) -> ServerProcess:
    workspace = Workspace(tmp_path / "types")
    add_model(workspace, "types", write_datatypes)
    server = start_server(workspace=workspace.root, grpc_port=0)
    server.wait_until_ready()
    return server


def test_elements_at_and_beyond_the_limits_of_their_datatype(typed: ServerProcess) -> None:
    cases = [
        ("INT8", 127, 127),
        ("INT8", 300, None),
        ("INT8", -129, None),
        ("UINT8", 255, 255),
        ("UINT8", 256, None),
        ("UINT8", -1, None),
        ("INT32", 2**31 - 1, 2**31 - 1),
        ("INT32", 2**31, None),
        ("INT64", 2**53 + 1, 2**53 + 1),
        ("INT64", -(2**63), -(2**63)),
        ("INT64", 2**63, None),
        ("INT64", 1.5, None),
        ("FP16", 0.5, 0.5),
        ("FP16", 65504, 65504),
        ("FP16", 65520, None),
        ("FP32", 1e39, None),
        ("FP64", 1e308, 1e308),
        ("BOOL", True, True),
        ("BOOL", 1, None),
    ]
    with typed.client() as client:
        for datatype, element, expected in cases:
            answer = client.post("/v2/models/types/infer", content=typed_request(datatype, element))
            shown = f"{element} as {datatype}: {answer.text}"
            assert answer.status_code == (400 if expected is None else 200), shown
            if expected is not None:
                outputs = {each["name"]: each["data"] for each in answer.json()["outputs"]}
                assert outputs[f"{datatype.lower()}_out"] == [expected], shown
        for named in ("BF16", "FP8", "int8", "STRING"):
            answer = client.post("/v2/models/types/infer", content=typed_request("FP16", 1, named))
            assert answer.status_code == 400
            assert f"expected datatype FP16, received {named}" in answer.json()["error"]


def test_elements_beyond_their_datatype_in_messages(typed: ServerProcess) -> None:
    with grpc.insecure_channel(typed.grpc_address) as channel:
        infer = channel.unary_unary(http2.INFER)
        for datatype, element in (("INT8", 300), ("INT8", -129), ("UINT8", 256)):
            tensor = {"name": datatype.lower(), "datatype": datatype, "shape": [1]}
            request = ModelInferRequest(model_name="types", inputs=[tensor])
            getattr(request.inputs[0].contents, FIELDS[datatype]).append(element)
            with pytest.raises(grpc.RpcError) as caught:
                infer(request.SerializeToString(), timeout=20)
            assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT
            assert f"expected {datatype} elements between" in caught.value.details()


def wide_request(rows: int) -> tuple[bytes, dict[str, str]]:
    """Return a request for many rows, which takes seconds, and its headers."""
    raw = b"".join(
        struct.pack("<I", len(each)) + each for each in (b"p%d" % (i % 20_000) for i in range(rows))
    )
    entry = {"name": "id", "datatype": "BYTES", "shape": [rows], "parameters": {"binary_data_size": len(raw)}}
    wanted = [{"name": "embedding", "parameters": {"binary_data": True}}]
    head = json.dumps({"inputs": [entry], "outputs": wanted}).encode()
    return head + raw, {"inference-header-content-length": str(len(head))}


def test_unloading_during_inference(start_server: StartServer, tmp_path: Path) -> None:
    """The request that runs is completed on the files it began with; the next one is refused."""
    workspace = build_workspace(tmp_path / "debian")
    add_model(workspace, "wide", write_wide_encoder)
    server = start_server(workspace=workspace.root, token=TOKEN, max_queue_ms=60_000)
    server.wait_until_ready()
    body, headers = wide_request(30_000)
    url = f"{server.base}/v2/models/wide/infer"
    with ThreadPoolExecutor(2) as pool:
        running = [
            pool.submit(httpx.post, url, content=body, headers={**BEARER, **headers}, timeout=120)
            for _ in range(2)
        ]
        wait_until(lambda: metric(server, "graphbox_pending_executions") > 0, what="a running request")
        assert ask(server, "POST", "/v2/repository/models/wide/unload", json={}).status_code == 200
        # The second one may come after it.
        statuses = [each.result().status_code for each in running]
    assert set(statuses) <= {200, 503}
    assert 200 in statuses
    assert httpx.post(url, content=body, headers={**BEARER, **headers}, timeout=60).status_code == 503
    assert ask(server, "POST", "/v2/repository/models/wide/load", json={}).status_code == 200
    assert ask(server, "GET", "/v2/models/wide/ready").status_code == 200
    expect_answers(server, 3)
    assert "Traceback" not in server.log.read_text()


def test_the_same_model_loaded_by_many_at_once(start_server: StartServer, tmp_path: Path) -> None:
    workspace = build_workspace(tmp_path / "debian")
    server = start_server(workspace=workspace.root, token=TOKEN)
    server.wait_until_ready()
    path = "/v2/repository/models/companion"
    assert ask(server, "POST", f"{path}/unload", json={}).status_code == 200
    begin = threading.Barrier(8)

    def load(_: int) -> int:
        begin.wait(30)
        return ask(server, "POST", f"{path}/load", json={}).status_code

    with ThreadPoolExecutor(8) as pool:
        assert set(pool.map(load, range(8))) == {200}
    expect_answers(server)
    assert "Traceback" not in server.log.read_text()


def test_a_model_whose_files_are_removed_while_it_is_served(
    start_server: StartServer, tmp_path: Path
) -> None:
    workspace = build_workspace(tmp_path / "debian")
    server = start_server(workspace=workspace.root, token=TOKEN)
    server.wait_until_ready()
    shutil.rmtree(workspace.model("companion", 1).path)
    expect_answers(server)
    # Whatever makes the server list its models again, it has no other version to serve.
    workspace.promote_model("section", 1)
    assert ask(server, "POST", "/v2/repository/models/companion/load", json={}).status_code == 200
    expect_answers(server)
    assert ask(server, "GET", "/healthz/ready").json()["ready"]
    assert "Traceback" not in server.log.read_text()


@pytest.mark.parametrize(
    "cycles", [5, pytest.param(1000, marks=[pytest.mark.stress, pytest.mark.timeout(1800)])]
)
def test_loading_and_unloading_keeps_memory(start_server: StartServer, tmp_path: Path, cycles: int) -> None:
    workspace = build_workspace(tmp_path / "debian")
    server = start_server(workspace=workspace.root, token=TOKEN)
    server.wait_until_ready()
    process = Path(f"/proc/{server.process.pid}")

    def anonymous_mb() -> float:
        lines = process.joinpath("status").read_text().splitlines()
        return next(int(line.split()[1]) / 1024 for line in lines if line.startswith("RssAnon"))

    def cycle(count: int) -> None:
        for _ in range(count):
            for verb in ("unload", "load"):
                answer = ask(server, "POST", f"/v2/repository/models/companion/{verb}", json={})
                assert answer.status_code == 200, answer.text

    cycle(5)
    megabytes, descriptors = anonymous_mb(), len(list(process.joinpath("fd").iterdir()))
    cycle(cycles)
    assert anonymous_mb() - megabytes < 16
    assert len(list(process.joinpath("fd").iterdir())) <= descriptors + 4
    expect_answers(server)

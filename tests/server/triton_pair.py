"""A real Triton and a graphbox server with the same models, and what each of them answers to a request."""

from __future__ import annotations

import gzip
import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc
import httpx
import numpy as np
from google.protobuf.json_format import MessageToDict
from tritonclient.grpc import service_pb2 as pb
from tritonclient.utils import deserialize_bytes_tensor

from benchmarks import serving_triton_model
from benchmarks.serving_systems import free_port
from tests.deploy.triton_server import triton_server
from tests.server.server_process import TOKEN, start_process
from tests.server.triton_corpus import HEADER_LENGTH, MAX_ROWS, Case, onnx_models

__all__ = ["Answer", "Server", "pair"]

_DTYPES = {"FP32": np.float32, "INT32": np.int32}
_TIMEOUT_S = 20.0
_CONFIGURATION = """backend: "python"
max_batch_size: {rows}
input [ {{ name: "input" data_type: TYPE_{datatype} dims: [{inputs}] }} ]
output [ {{ name: "output" data_type: TYPE_{datatype} dims: [3] }} ]
instance_group [ {{ kind: KIND_CPU count: 1 }} ]
parameters {{ key: "joins" value {{ string_value: "true" }} }}
"""


@dataclass(frozen=True)
class Answer:
    """The status of an answer, and its content without what differs between two good ones.

    Attributes:
        status: of HTTP or gRPC, as text.
        content: JSON; of an error its text.
    """

    status: str
    content: Any

    @property
    def is_good(self) -> bool:
        return self.status in {"200", "OK"}


class Server:
    """A running server.

    Args:
        url: of REST.
        grpc_address: host and port.
        token: sent with each request; None: none.
    """

    def __init__(self, url: str, grpc_address: str, token: str | None = None) -> None:
        bearer = {} if token is None else {"authorization": f"Bearer {token}"}
        self.http = httpx.Client(base_url=url, timeout=_TIMEOUT_S, headers=bearer)
        self.channel = grpc.insecure_channel(grpc_address)
        self._metadata = list(bearer.items())

    def close(self) -> None:
        """Close the connections."""
        self.http.close()
        self.channel.close()

    def rest(self, case: Case) -> Answer:
        """Send a case over REST."""
        assert case.path is not None
        request = self.http.build_request(case.method, "/", content=case.body, headers=case.headers)
        # As it is: httpx would resolve dots.
        request.url = self.http.base_url.copy_with(raw_path=case.path.encode())
        if "accept-encoding" not in {name.lower() for name in case.headers}:
            request.headers.pop("accept-encoding", None)
        response = self.http.send(request)
        length = response.headers.get(HEADER_LENGTH)
        if response.status_code != 200:
            return Answer(str(response.status_code), _error_text(response.content))
        return Answer("200", _document(case, response.content, length))

    def grpc(self, case: Case) -> Answer:
        """Send a case over gRPC."""
        method = self.channel.unary_unary(f"/inference.GRPCInferenceService/{case.call}")
        try:
            message = method(case.message, timeout=_TIMEOUT_S, metadata=self._metadata)
        except grpc.RpcError as error:
            return Answer(error.code().name, error.details())
        return Answer("OK", _of_message(case, message))


@contextmanager
def pair(folder: Path) -> Iterator[tuple[Server, Server]]:
    """Start Triton and graphbox with the models of the corpus; give them, Triton first."""
    models = onnx_models()
    repository, workspace = folder / "repository", folder / "workspace"
    for name, content in models.items():
        version = repository / name / "1"
        version.mkdir(parents=True)
        (version / "model.onnx").write_bytes(content)
        shutil.copyfile(serving_triton_model.__file__, version / "model.py")
        datatype, inputs = ("FP32", 4) if name == "mlp" else ("INT32", 3)
        text = _CONFIGURATION.format(rows=MAX_ROWS, datatype=datatype, inputs=inputs)
        (repository / name / "config.pbtxt").write_text(text)
        command = ["-m", "graphbox", "-C", str(workspace), "models", "add", name, str(version / "model.onnx")]
        subprocess.run([sys.executable, *command], check=True, capture_output=True)
    with ExitStack() as stack:
        port = free_port()
        options = [
            "--model-control-mode=explicit",
            "--load-model=*",
            f"--trace-config=triton,file={folder}/trace",
        ]
        url = stack.enter_context(triton_server(repository, folder / "triton.log", port, options))
        settings = {
            "port": 0,
            "grpc_port": 0,
            "workspace": workspace,
            "max_rows": MAX_ROWS,
            "token": TOKEN,
            "shared_memory": True,
        }
        ours = start_process(settings, folder / "graphbox.log")
        stack.callback(ours.stop)
        assert ours.process.stdout is not None
        stack.callback(ours.process.stdout.close)
        ours.wait_until_ready()
        servers = Server(url, f"127.0.0.1:{port}"), Server(ours.base, ours.grpc_address, TOKEN)
        for server in servers:
            stack.callback(server.close)
        yield servers


def _error_text(content: bytes) -> str:
    try:
        return str(json.loads(content)["error"])
    except (ValueError, KeyError, TypeError):
        return content.decode(errors="replace")


def _document(case: Case, content: bytes, header_length: str | None) -> Any:
    """Return the JSON of a good answer; of inference the tensors as lists."""
    if not content:
        return None
    if case.compare != "infer":
        return json.loads(content)
    if content[:2] == b"\x1f\x8b":
        content = gzip.decompress(content)
    length = len(content) if header_length is None else int(header_length)
    message, raw, offset = json.loads(content[:length]), content[length:], 0
    for output in message["outputs"]:
        parameters = output.pop("parameters", {})
        size = parameters.pop("binary_data_size", None)
        if size is not None:
            output["data"] = _values(raw[offset : offset + size], output["datatype"])
            output["binary"] = True
            offset += size
        if parameters:
            output["parameters"] = parameters
    assert offset == len(raw)
    return message


def _values(raw: bytes, datatype: str) -> list[Any]:
    if datatype == "BYTES":
        return [element.decode() for element in deserialize_bytes_tensor(raw)]
    values: list[Any] = np.frombuffer(raw, _DTYPES[datatype]).tolist()
    return values


def _of_message(case: Case, encoded: bytes) -> Any:
    assert case.call is not None
    name = "ModelInferResponse" if case.call == "ModelInfer" else f"{case.call}Response"
    message = getattr(pb, name).FromString(encoded)
    document = MessageToDict(
        message, preserving_proto_field_name=True, always_print_fields_with_no_presence=True
    )
    if case.call == "ModelInfer":
        document.pop("raw_output_contents", None)
        for output, raw in zip(document["outputs"], message.raw_output_contents, strict=True):
            output["data"] = _values(raw, output["datatype"])
    return document

"""The malformed requests of REST over gRPC: the same mistakes have the status that corresponds."""

from __future__ import annotations

import json
import re
import struct
from collections.abc import Iterator
from typing import Any
from urllib.parse import unquote

import grpc
import numpy as np
import pytest

from graphbox.server.grpc import inference_messages as messages
from graphbox.server.grpc.inference_messages import InferParameter, ModelInferRequest
from graphbox.workspace import Workspace
from tests.server.bad_request_cases import CASES, HEADER_LENGTH, Case
from tests.server.server_process import TOKEN, ServerProcess, start_process

SERVICE = "/inference.GRPCInferenceService/"
INFER = re.compile(r"/v2/models/([^/]+)(?:/versions/([^/]+))?/infer")
CHANGE = re.compile(r"/v2/repository/models/([^/]+)/(load|unload)")
READY = re.compile(r"/v2/models/([^/]+)/ready")
STATUSES = {
    200: grpc.StatusCode.OK,
    400: grpc.StatusCode.INVALID_ARGUMENT,
    404: grpc.StatusCode.NOT_FOUND,
    413: grpc.StatusCode.RESOURCE_EXHAUSTED,
    504: grpc.StatusCode.DEADLINE_EXCEEDED,
}
FIELDS = {"BYTES": "bytes_contents", "INT64": "int64_contents", "FP32": "fp32_contents"}
# A message of protocol buffers cannot make these mistakes, and Python's would hide them: other values are
# taken for numbers, and tensors have no announced sizes.
ONLY_IN_JSON = frozenset(
    {
        *("booleans as data", "nested data", "true as size", "key twice", "key twice in an input"),
        *("byte order mark", "binary size too small", "binary size too large", "binary size negative"),
        *("binary size no number", "binary size true", "binary size a fraction"),
        *("binary bytes without a tensor", "binary and data", "binary size without header length"),
    }
)
# Cases that have another status here, and why.
DIFFERENT: dict[str, tuple[grpc.StatusCode, str]] = {
    # JSON is limited to a megabyte, messages to the size of a body: the id itself is too long.
    "id of 1 MB": (grpc.StatusCode.INVALID_ARGUMENT, "texts of at most 1024 bytes"),
    # Values that JSON lacks, and messages have.
    **dict.fromkeys(("NaN literal", "infinite literal", "1e999", "beyond FP32"), (grpc.StatusCode.OK, "")),
    # Outputs are always raw.
    "binary_data no boolean": (grpc.StatusCode.OK, ""),
}


@pytest.fixture(scope="module")
def guarded(shared_workspace: Workspace, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    """A server with a token, so that the calls which need one can be tried too."""
    log = tmp_path_factory.mktemp("log") / "server.log"
    settings = {
        "port": 0,
        "grpc_port": 0,
        "workspace": shared_workspace.root,
        "token": TOKEN,
        "max_rows": 100,
    }
    server = start_process(settings, log)
    server.wait_until_ready()
    yield server
    assert server.stop() == 0
    assert server.process.stdout is not None
    server.process.stdout.close()
    assert "Traceback" not in log.read_text()


@pytest.fixture(scope="module")
def channel(guarded: ServerProcess) -> Iterator[grpc.Channel]:
    with grpc.insecure_channel(guarded.grpc_address) as channel:
        yield channel


def call(channel: grpc.Channel, method: str, content: bytes) -> tuple[grpc.StatusCode, str, bytes]:
    """Return status, text and message of a call whose message is sent as it is."""
    metadata = (("authorization", f"Bearer {TOKEN}"),)
    try:
        answer = channel.unary_unary(SERVICE + method)(content, metadata=metadata, timeout=30)
    except grpc.RpcError as error:
        return error.code(), str(error.details()), b""
    return grpc.StatusCode.OK, "", answer


def twin_of(case: Case) -> tuple[str, bytes] | None:
    """Return method and message of the call that makes the mistake of a case; None: none can."""
    if case.name in ONLY_IN_JSON or "Content-Encoding" in case.headers:
        return None
    if case.method == "GET" and (ready := READY.fullmatch(case.path)):
        return "ModelReady", messages.ModelReadyRequest(name=unquote(ready[1])).SerializeToString()
    change, infer = CHANGE.fullmatch(case.path), INFER.fullmatch(case.path)
    if case.method == "POST" and change is not None:
        return _change(change[2], unquote(change[1]), case.content())
    if case.method == "POST" and infer is not None:
        return _infer(case, infer[1], infer[2] or "")
    return None


def _change(verb: str, name: str, body: bytes) -> tuple[str, bytes] | None:
    if len(body) > 10_000 or (body and b'"a"' in body):  # a large body, a key twice
        return None
    if verb == "unload":
        return "RepositoryModelUnload", messages.RepositoryModelUnloadRequest(
            model_name=name
        ).SerializeToString()
    request = messages.RepositoryModelLoadRequest(model_name=name)
    for key in json.loads(body or b"{}").get("parameters", {}):
        request.parameters[key].string_param = "x"
    return "RepositoryModelLoad", request.SerializeToString()


def _infer(case: Case, name: str, version: str) -> tuple[str, bytes] | None:
    if case.headers.get(HEADER_LENGTH) == "0" or len(case.content()) > 50_000_000:
        return None
    try:
        request = _infer_message(case)
    except (AttributeError, KeyError, RecursionError, TypeError, ValueError):  # a mistake of JSON
        return None
    request.model_name, request.model_version = name, version
    return "ModelInfer", request.SerializeToString()


def _infer_message(case: Case) -> ModelInferRequest:
    """Return a case as a message: with contents, or raw contents where a tensor follows the JSON."""
    length = case.headers.get(HEADER_LENGTH)
    body = case.content()
    if length is not None and int(length) > len(body):
        raise ValueError(length)
    tree = json.loads((body if length is None else body[: int(length)]) or b"{}")
    if tree.keys() - {"id", "inputs", "outputs", "parameters"}:
        raise KeyError("a field that no message has")
    rest = b"" if length is None else body[int(length) :]
    request = ModelInferRequest(id=tree.get("id", ""))
    _add_parameters(request.parameters, tree.get("parameters", {}))
    for entry in tree.get("inputs", []):
        _add_input(request, entry, rest, raw=length is not None)
    for wanted in tree.get("outputs", []):
        output = request.outputs.add(name=wanted["name"])
        _add_parameters(output.parameters, wanted.get("parameters", {}))
    return request


def _add_input(request: ModelInferRequest, entry: dict[str, Any], rest: bytes, *, raw: bool) -> None:
    parameters = dict(entry.get("parameters", {}))
    size = parameters.pop("binary_data_size", None)
    if entry.keys() - {"name", "datatype", "shape", "data", "parameters"}:
        raise KeyError("a field that no message has")
    tensor = request.inputs.add(name=entry["name"], datatype=entry["datatype"], shape=entry["shape"])
    _add_parameters(tensor.parameters, parameters)
    if raw:
        request.raw_input_contents.append(rest if size is not None else _raw(entry))
    elif "data" in entry:
        elements = [each.encode() if isinstance(each, str) else each for each in entry["data"]]
        getattr(tensor.contents, FIELDS.get(entry["datatype"], "fp32_contents")).extend(elements)
    if not raw and size is not None:
        request.raw_input_contents.append(b"")


def _raw(entry: dict[str, Any]) -> bytes:
    if entry["datatype"] == "BYTES":
        return b"".join(struct.pack("<I", len(each.encode())) + each.encode() for each in entry["data"])
    return np.array(entry["data"], np.int64 if entry["datatype"] == "INT64" else np.float32).tobytes()


def _add_parameters(target: Any, parameters: dict[str, Any]) -> None:
    kinds = {bool: "bool_param", int: "int64_param", str: "string_param", float: "double_param"}
    for key, value in parameters.items():
        target[key].CopyFrom(InferParameter(**{kinds[type(value)]: value}))


def both_contents() -> ModelInferRequest:
    """Return a request whose tensor is in its contents and in the raw contents."""
    tensor = {"name": "id", "datatype": "BYTES", "shape": [1], "contents": {"bytes_contents": [b"zsh"]}}
    raw = struct.pack("<I", 3) + b"zsh"
    return ModelInferRequest(model_name="companion", inputs=[tensor], raw_input_contents=[raw])


def fewer_raw_contents() -> ModelInferRequest:
    """Return a request with two tensors and the raw contents of one."""
    tensors = [{"name": name, "datatype": "BYTES", "shape": [1]} for name in ("id", "id")]
    return ModelInferRequest(model_name="companion", inputs=tensors, raw_input_contents=[b"\3\0\0\0zsh"])


def length_prefix(announced: int) -> ModelInferRequest:
    """Return a request for an element of another length than is announced."""
    tensor = {"name": "id", "datatype": "BYTES", "shape": [1]}
    raw = struct.pack("<I", announced) + b"zsh"
    return ModelInferRequest(model_name="companion", inputs=[tensor], raw_input_contents=[raw])


OWN_MISTAKES: dict[str, tuple[ModelInferRequest, str]] = {
    "raw and typed contents": (both_contents(), "received both"),
    "raw contents of some tensors": (fewer_raw_contents(), "raw contents for each of the 2 inputs"),
    "length prefix too short": (length_prefix(2), "after them"),
    "length prefix too long": (length_prefix(4), "expected 4 bytes for element 0, received 3"),
    "length prefix of 4 GB": (length_prefix(2**32 - 1), "elements of at most 1048576 bytes"),
    "no contents": (
        ModelInferRequest(model_name="companion", inputs=[{"name": "id", "datatype": "BYTES", "shape": [1]}]),
        "expected 1 elements",
    ),
}

TWINS = [case for case in CASES if twin_of(case) is not None]


@pytest.mark.parametrize("case", TWINS, ids=lambda case: case.name)
def test_call(channel: grpc.Channel, case: Case) -> None:
    twin = twin_of(case)
    assert twin is not None
    status, text, answer = call(channel, *twin)
    expected, says = DIFFERENT.get(case.name, (STATUSES[case.status], ""))
    assert status is expected, text
    assert says in text
    if status is grpc.StatusCode.OK:
        assert answer or twin[0] != "ModelInfer"
    else:
        assert 0 < len(text) < 600


@pytest.mark.parametrize("mistake", [*OWN_MISTAKES])
def test_mistakes_of_messages(channel: grpc.Channel, mistake: str) -> None:
    request, says = OWN_MISTAKES[mistake]
    status, text, _ = call(channel, "ModelInfer", request.SerializeToString())
    assert status is grpc.StatusCode.INVALID_ARGUMENT, text
    assert says in text


def test_what_has_no_twin_is_known() -> None:
    """So that a case does not lose its twin by an accident of the conversion."""
    infers = [case for case in CASES if INFER.fullmatch(case.path) and case.method == "POST"]
    missing = {case.name for case in infers if case not in TWINS} - ONLY_IN_JSON
    assert missing == {name for group in WITHOUT_TWIN.values() for name in group}


WITHOUT_TWIN: dict[str, tuple[str, ...]] = {
    "JSON": (
        *("not JSON", "truncated JSON", "JSON array", "lone surrogate", "invalid UTF-8", "many lists"),
        *("deep nesting in data", "deep nesting elsewhere", "deep nesting below the parser's limit"),
    ),
    "types": (
        *(
            "inputs no list",
            "input no object",
            "name no string",
            "unknown field",
            "unknown field of an input",
        ),
        *("nested wrongly", "nested too short", "size beyond 64 bits", "fraction as size", "shape no list"),
        *(
            "strings as data",
            "null as data",
            "one null",
            "data no list",
            "fractions as INT64",
            "beyond INT64",
        ),
        *("a priority of 2^64", "outputs no list", "output no object", "parameters no object"),
        *("parameter is an object", "id no string", "numbers as ids"),
    ),
    "the length of the JSON": (
        *("header length beyond the body", "header length -1", "header length 2^64", "header length text"),
        *("header length in other digits", "header length of 5000 digits", "header length cuts the JSON"),
    ),
    "a body that is one tensor": (
        *("header length 0", "raw id", "raw id that is unknown", "raw integers"),
        *("raw bytes that are no integers", "more raw rows than allowed"),
    ),
    "encodings of HTTP": (
        *("gzip", "deflate", "gzip garbage", "gzip truncated", "gzip with a tail", "encoding br"),
        "two encodings",
    ),
    "messages of 60 MB, which take seconds": ("binary id of 60 MB", "id of 60 MB"),
}

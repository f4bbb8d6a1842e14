"""Requests to send: valid ones, each with some random damage.

A *framed* request is complete and well-formed as HTTP or HTTP/2, so it has exactly one answer. In the others
the bytes on the wire are damaged: they may be no request, several, or the beginning of one.
"""

from __future__ import annotations

import gzip
import json
import random
import struct
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from google.protobuf.message import Message

from graphbox.server.grpc import inference_messages
from graphbox.server.grpc.health_messages import HealthCheckRequest
from tests.server import http2_frames as http2
from tests.server.fuzz.mutations import (
    HOSTILE_TEXTS,
    mutated_bytes,
    mutated_headers,
    mutated_json,
    mutated_message,
)
from tests.server.sample_models import DIM
from tests.server.server_process import TOKEN

__all__ = [
    "CONTROL_BODY",
    "CONTROL_PATH",
    "GrpcCase",
    "RestCase",
    "damaged_grpc_case",
    "damaged_rest_case",
    "grpc_case",
    "rest_case",
]

CONTROL_PATH = "/v2/models/companion/infer"
CONTROL_BODY = {"inputs": [{"name": "id", "datatype": "BYTES", "shape": [2], "data": ["zsh", "nginx"]}]}
Json = Any


@dataclass(frozen=True)
class RestCase:
    """A request of HTTP/1.1.

    Attributes:
        data: the bytes to send.
        is_framed: whether there is exactly one answer.
        is_control: whether the request is undamaged: `CONTROL_BODY` to `CONTROL_PATH`.
    """

    data: bytes
    is_framed: bool
    is_control: bool = False


@dataclass(frozen=True)
class GrpcCase:
    """A call.

    Attributes:
        headers: of the call.
        content: its message, with the five bytes in front, or several of them.
        is_framed: whether it is sent by well-formed frames.
        frames: the damaged frames, where it is not; without the preface.
        is_control: whether the call is undamaged: that of `CONTROL_BODY`.
    """

    headers: dict[str, str]
    content: bytes
    is_framed: bool = True
    frames: bytes = b""
    is_control: bool = False


def _entry(name: str, datatype: str, shape: list[int], data: Json) -> dict[str, Json]:
    return {"name": name, "datatype": datatype, "shape": shape, "data": data}


_ROWS = (np.arange(5 * DIM, dtype=np.float32) / 8).tolist()
_TENSORS = [
    _entry("rows", "FP32", [5, DIM], _ROWS),
    _entry("own", "INT64", [2], [1, 2]),
    _entry("neighbors", "INT64", [2, 1, 3], [1, 2, 0, 3, 4, 0]),
    _entry("weights", "FP32", [2, 1, 3], [0.5, 0.5, 0, 0.5, 0.5, 0]),
]
_VISITS = [
    _entry("country", "BYTES", [2], ["nl", "de"]),
    _entry("tags", "BYTES", [2], ["1|2", ""]),
    _entry("age", "INT64", [2], [7, 30]),
    _entry("price", "FP32", [2], [0.75, 2.5]),
]
_INFERENCES: dict[str, dict[str, Json]] = {
    "companion": {**CONTROL_BODY, "id": "r1", "outputs": [{"name": "embedding"}]},
    "companion.onnx": {"inputs": _TENSORS, "parameters": {"priority": 3, "timeout": 60_000_000}},
    "section": {
        "inputs": [_entry("id", "BYTES", [1], ["python"])],
        "parameters": {"node_type": "tag"},
        "outputs": [{"name": "embedding", "parameters": {"binary_data": True}}],
    },
    "numbers": {"inputs": [_entry("id", "INT64", [3], [0, -5, 2**53 + 1])]},
    "numbers.nearest": {
        "inputs": [
            _entry("id", "INT64", [2], [0, 12]),
            _entry("allow", "INT64", [3], [0, 12, 123]),
            _entry("num_allow", "INT64", [2], [1, 2]),
        ],
        "parameters": {"k": 2},
    },
    "section.nearest_vectors": {
        "inputs": [_entry("vector", "FP32", [1, DIM], [0.5, 0.25, 1, -1])],
        "parameters": {"k": 3, "node_type": "package"},
    },
    "visits": {"inputs": _VISITS},
    "likes": {
        "inputs": [_entry("id", "INT64", [1], [10]), _entry("relation", "BYTES", [1], ["likes"])],
        "parameters": {"k": 2, "asked": "tail", "known": True},
    },
    "select": {
        "inputs": [_entry("rows", "FP32", [2, 2], [1, 2, 3, 4]), _entry("positions", "INT64", [2], [1, 0])]
    },
}
_NOUNS: tuple[tuple[str, Json], ...] = (
    ("/api/v1/models/section/neighbors?k=3", {"queries": [{"id": "python", "type": "tag", "deny": ["web"]}]}),
    ("/api/v1/models/companion/neighbors?k=2", {"queries": [{"vector": [1, 0, 0, 2], "allow": ["zsh"]}]}),
    ("/api/v1/models/visits/predict", {"rows": [{"country": "nl", "tags": [1, 2], "age": 7, "price": None}]}),
    ("/api/v1/models/companion/encode?k=3", {"nodes": [{"features": {}, "neighbors": {}}]}),
    ("/v2/repository/index", {"ready": True}),
    ("/v2/repository/models/select/load", {"parameters": {}}),
    ("/v2/systemsharedmemory/region/x/register", {"key": "/x", "offset": 0, "byte_size": 8}),
    ("/v2/logging", {"log_verbose_level": 1}),
)
_GETS = (
    *("/v2", "/v2/health/ready", "/v2/models/companion", "/v2/models/companion/config", "/v2/models/stats"),
    *("/v2/models/companion/versions/1/ready", "/v2/models/visits/stats", "/healthz/ready", "/api/v1/models"),
    "/api/v1/models/section/neighbors?id=python&type=tag&k=3&linked=false&allow=web&deny=shell",
    "/api/v1/models/section/ids?type=package&prefix=ng&limit=5",
    "/api/v1/models/likes/answers?relation=likes&head=10&k=2&known=true",
    *("/api/v1/models/likes/relations", "/api/v1/models/numbers/example?version=1", "/api/v1/overview"),
    *("/api/v1/runs", "/api/v1/runs/x/metrics?max_points=5", "/api/v1/graphs", "/"),
)


def rest_case(source: random.Random) -> RestCase:
    """Return a framed request of REST."""
    draw = source.random()
    if draw < 0.02:
        body = json.dumps(CONTROL_BODY).encode()
        return RestCase(_request("POST", CONTROL_PATH, body, []), is_framed=True, is_control=True)
    if draw < 0.15:
        return RestCase(_request("GET", _mutated_path(source.choice(_GETS), source), b"", []), is_framed=True)
    if draw < 0.25:
        path, message = source.choice(_NOUNS)
        if path.endswith("/load") and source.random() < 0.98:  # each reads a model anew
            path, message = _NOUNS[0]
        if source.random() < 0.2:
            path = _mutated_path(path, source)
        return RestCase(_request("POST", path, mutated_json(message, source), []), is_framed=True)
    name = source.choice([*_INFERENCES])
    path = f"/v2/models/{name}/infer"
    if source.random() < 0.05:
        path = _mutated_path(path, source)
    body, headers = source.choice(_DAMAGES)(_INFERENCES[name], source)
    method = source.choice(("POST",) * 40 + ("GET", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE"))
    return RestCase(_request(method, path, body, headers), is_framed=True)


def damaged_rest_case(source: random.Random) -> RestCase:
    """Return bytes that were a request."""
    return RestCase(mutated_bytes(_valid_request(source), source, 6), is_framed=False)


def damaged_grpc_case(source: random.Random) -> GrpcCase:
    """Return frames that were a call."""
    case = grpc_case(source)
    return GrpcCase(case.headers, b"", False, mutated_bytes(_frames(case.headers, case.content), source, 6))


def grpc_case(source: random.Random) -> GrpcCase:
    """Return a framed call of gRPC."""
    draw = source.random()
    if draw < 0.02:
        content = http2.message(_MESSAGES[0].SerializeToString())
        return GrpcCase(_call_headers(http2.INFER), content, is_control=True)
    if draw < 0.7:
        message = _infer_message(source)
        path = http2.INFER
    elif draw < 0.8:
        requests = [http2.message(_infer_message(source)) for _ in range(source.choice((0, 1, 2, 5)))]
        return GrpcCase(_call_headers(http2.STREAM), b"".join(requests))
    else:
        path, message = _management_call(source)
    content = http2.message(message)
    headers = _call_headers(path)
    if source.random() < 0.08:
        further = mutated_headers({"grpc-timeout": "10S", "user-agent": "fuzz"}, source)
        headers |= {name.lower(): value for name, value in further if name.lower() not in _NOT_OF_HTTP2}
        headers["grpc-timeout"] = source.choice(("10S", "0n", "-1S", "99999999H", "1", "S", "123456789m", ""))
    if source.random() < 0.05:
        content = mutated_bytes(content, source, 2)
    if source.random() < 0.05:
        headers["grpc-encoding"] = source.choice(("gzip", "deflate", "identity", "snappy", ""))
        content = b"\x01" + struct.pack(">I", len(message)) + message
        if source.random() < 0.7:
            packed = gzip.compress(message, 1)
            content = b"\x01" + struct.pack(">I", len(packed)) + packed
    return GrpcCase(headers, content)


_NOT_OF_HTTP2 = {"connection", "expect", "authorization", "content-type"}


def _frames(headers: dict[str, str], content: bytes) -> bytes:
    head = http2.frame(http2.HEADERS, http2.fields(headers), flags=http2.END_HEADERS, stream=1)
    return head + http2.frame(http2.DATA, content, flags=http2.END_STREAM, stream=1)


def _call_headers(path: str) -> dict[str, str]:
    return http2.call_headers(path, authorization=f"Bearer {TOKEN}")


def _request(method: str, path: str, body: bytes, headers: list[tuple[str, str]]) -> bytes:
    """Return a request whose length is right, whatever else is."""
    lines = [f"{method} {path} HTTP/1.1", "Host: localhost", f"Authorization: Bearer {TOKEN}"]
    lines += [f"{name}: {value}" for name, value in headers]
    lines += [f"Content-Length: {len(body)}", "", ""]
    return "\r\n".join(lines).encode("latin-1", "replace") + body


def _valid_request(source: random.Random) -> bytes:
    if source.random() < 0.5:
        body = json.dumps(CONTROL_BODY).encode()
        return _request("POST", CONTROL_PATH, body, [("Content-Type", "application/json")])
    chunks = (
        b"".join(b"4\r\n%b\r\n" % piece for piece in (b'{"in', b"puts", b'": 5')) + b"1\r\n}\r\n0\r\n\r\n"
    )
    head = f"POST {CONTROL_PATH} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {TOKEN}\r\n"
    return (head + "Transfer-Encoding: chunked\r\nX: y\r\n\r\n").encode() + chunks


def _mutated_path(path: str, source: random.Random) -> str:
    """Return a path that can stand in a request line."""
    changed = mutated_bytes(path.encode(), source, 3).decode("latin-1")
    if source.random() < 0.3:
        pieces = path.split("/")
        pieces[source.randrange(1, len(pieces))] = source.choice(HOSTILE_TEXTS)
        changed = "/".join(pieces)
    escaped = "".join(
        each if "!" <= each <= "~" else "".join(f"%{b:02x}" for b in each.encode()) for each in changed
    )
    return "/" + escaped.lstrip("/")


def _json_damage(message: Json, source: random.Random) -> tuple[bytes, list[tuple[str, str]]]:
    return mutated_json(message, source), []


def _header_damage(message: Json, source: random.Random) -> tuple[bytes, list[tuple[str, str]]]:
    body = json.dumps(message).encode()
    headers = {"Accept-Encoding": "gzip", "Content-Type": "application/json", "X-Request-Id": "r1"}
    return body, [(name, value) for name, value in mutated_headers(headers, source) if name != "Connection"]


def _binary_damage(message: Json, source: random.Random) -> tuple[bytes, list[tuple[str, str]]]:
    """Return a request whose tensors follow the JSON, in which JSON, length, or tensors are damaged."""
    message = json.loads(json.dumps(message))
    raw = b""
    for entry in message["inputs"]:
        content = _raw(entry["datatype"], entry.pop("data"))
        if source.random() < 0.3:
            content = mutated_bytes(content, source, 2)
        size = len(content) + (source.choice((-1, 1, 4)) if source.random() < 0.1 else 0)
        entry["parameters"] = {"binary_data_size": size}
        raw += content
    text = json.dumps(message).encode() if source.random() < 0.7 else mutated_json(message, source)
    length = len(text) + (source.choice((-2, 1, 9)) if source.random() < 0.1 else 0)
    return text + raw, [("Inference-Header-Content-Length", str(length))]


def _raw_damage(message: Json, source: random.Random) -> tuple[bytes, list[tuple[str, str]]]:
    """Return the bytes of the first tensor alone."""
    entry = message["inputs"][0]
    content = _raw(entry["datatype"], entry["data"])
    body = content if source.random() < 0.3 else mutated_bytes(content, source)
    return body, [("Inference-Header-Content-Length", "0")]


def _compressed_damage(message: Json, source: random.Random) -> tuple[bytes, list[tuple[str, str]]]:
    text = mutated_json(message, source)
    encoding = source.choice(("gzip", "deflate"))
    body = gzip.compress(text, 1) if encoding == "gzip" else zlib.compress(text, 1)
    return (mutated_bytes(body, source) if source.random() < 0.7 else body), [("Content-Encoding", encoding)]


_Damage = Callable[[Json, random.Random], tuple[bytes, list[tuple[str, str]]]]
_DAMAGES: tuple[_Damage, ...] = (
    *(_json_damage,) * 6,
    *(_header_damage, _binary_damage, _binary_damage, _raw_damage, _compressed_damage),
)


def _raw(datatype: str, data: Json) -> bytes:
    """Return a tensor as bytes."""
    if datatype == "BYTES":
        encoded = [each.encode() for each in data]
        return b"".join(struct.pack("<I", len(each)) + each for each in encoded)
    return np.array(data, np.int64 if datatype == "INT64" else np.float32).tobytes()


_CONTENTS = {"BYTES": "bytes_contents", "INT64": "int64_contents", "FP32": "fp32_contents"}


def _as_message(name: str, *, raw: bool) -> inference_messages.ModelInferRequest:
    message = _INFERENCES[name]
    request = inference_messages.ModelInferRequest(model_name=name, id=str(message.get("id", "")))
    for entry in message["inputs"]:
        tensor = request.inputs.add(name=entry["name"], datatype=entry["datatype"], shape=entry["shape"])
        if raw:
            request.raw_input_contents.append(_raw(entry["datatype"], entry["data"]))
        else:
            data = [each.encode() if isinstance(each, str) else each for each in entry["data"]]
            getattr(tensor.contents, _CONTENTS[entry["datatype"]]).extend(data)
    for key, value in message.get("parameters", {}).items():
        kind = {str: "string_param", bool: "bool_param"}.get(type(value), "int64_param")
        setattr(request.parameters[key], kind, value)
    return request


_MESSAGES = [_as_message(name, raw=raw) for name in _INFERENCES for raw in (True, False)]


def _infer_message(source: random.Random) -> bytes:
    request: Message = source.choice(_MESSAGES)
    if source.random() > 0.05:
        request = mutated_message(request, source)
    content: bytes = request.SerializeToString()
    return mutated_bytes(content, source, 3) if source.random() < 0.25 else content


_MANAGEMENT: tuple[tuple[str, Message], ...] = tuple(
    (f"/inference.GRPCInferenceService/{name}", getattr(inference_messages, f"{name}Request")(**fields))
    for name, fields in (
        ("ServerLive", {}),
        ("ServerReady", {}),
        ("ServerMetadata", {}),
        ("ModelReady", {"name": "companion"}),
        ("ModelMetadata", {"name": "likes", "version": "1"}),
        ("ModelConfig", {"name": "visits"}),
        ("ModelStatistics", {"name": "companion"}),
        ("RepositoryIndex", {"ready": True}),
        ("SystemSharedMemoryRegister", {"name": "x", "key": "/x", "byte_size": 8}),
        ("SystemSharedMemoryStatus", {}),
        ("CudaSharedMemoryUnregister", {}),
        ("TraceSetting", {}),
        ("LogSettings", {}),
    )
)


def _management_call(source: random.Random) -> tuple[str, bytes]:
    path, message = source.choice((*_MANAGEMENT, ("/grpc.health.v1.Health/Check", HealthCheckRequest())))
    if message.DESCRIPTOR.fields:
        message = mutated_message(message, source)
    content: bytes = message.SerializeToString()
    if source.random() < 0.1:
        path = _mutated_path(path, source)
    return path, mutated_bytes(content, source, 2) if source.random() < 0.2 else content

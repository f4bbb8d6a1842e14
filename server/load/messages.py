"""Infer requests of a load test: read from a file or from the server, brought to a batch size, encoded."""

from __future__ import annotations

import http.client
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from http import HTTPStatus
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode, urlsplit

import numpy as np
import orjson

from graphbox.artifact.protobuf import integer_field, message_field, text_field, varint
from graphbox.errors import (
    BackendMissingError,
    DataError,
    GraphboxError,
    InvalidRequestError,
    NotFoundError,
    UsageError,
)
from graphbox.server.kserve.tensors import DATATYPES, Tensor, decode_json, encode_binary
from graphbox.server.load.plan import Protocol
from graphbox.server.routes import API_PREFIX

__all__ = [
    "Address",
    "Message",
    "check_answers",
    "encode",
    "exchange",
    "metadata",
    "read_json",
    "read_requests",
    "served_requests",
    "with_batch",
]

_TIMEOUT_S = 30.0
_MOST_ROTATIONS = 64


@dataclass(frozen=True)
class Address:
    """A model of a server.

    Attributes:
        host, port, tls: of the server.
        model: its name.
        version: None: the one that is served by default.
        token: bearer token, if the server needs one.
    """

    host: str
    port: int
    tls: bool
    model: str
    version: int | None = None
    token: str | None = field(default=None, repr=False)

    @classmethod
    def parse(cls, url: str, model: str, version: int | None = None, token: str | None = None) -> Address:
        """Return the address of a model at ``http://HOST:PORT`` or ``https://HOST:PORT``.

        Raises:
            UsageError: the URL has another form.
        """
        try:
            parts = urlsplit(url)
            port = parts.port
        except ValueError as error:
            raise UsageError(f"expected a URL, received {url!r:.200}: {error}", where="--url") from error
        has_more = parts.path.strip("/") or parts.query or parts.fragment or parts.username is not None
        if parts.scheme not in {"http", "https"} or not parts.hostname or has_more:
            raise UsageError(
                f"expected http://HOST:PORT or https://HOST:PORT, received {url!r:.200}", where="--url"
            )
        tls = parts.scheme == "https"
        return cls(parts.hostname, port or (443 if tls else 80), tls, model, version, token)

    @property
    def path(self) -> str:
        """Path of the model in the KServe protocol."""
        version = "" if self.version is None else f"/versions/{self.version}"
        return f"/v2/models/{quote(self.model, safe='')}{version}"

    @property
    def authority(self) -> str:
        """Value of the Host header."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"

    @property
    def headers(self) -> dict[str, str]:
        """Headers of every request."""
        found = {"Host": self.authority}
        return found if self.token is None else found | {"Authorization": f"Bearer {self.token}"}


@dataclass(frozen=True)
class Message:
    """Inputs and parameters of one infer request.

    Attributes:
        inputs: tensors by name. Arrays of objects are BYTES with ``bytes`` elements; for JSON also texts,
            or any values that JSON has.
        datatypes: of the inputs, KServe names.
        parameters: of the request.
    """

    inputs: Mapping[str, Tensor]
    datatypes: Mapping[str, str]
    parameters: Mapping[str, Any] = field(default_factory=dict)


def read_requests(path: Path) -> list[Message]:
    """Read infer requests in JSON: one, or one on each line.

    Raises:
        NotFoundError: there is no such file.
        DataError: the file is no such request.
    """
    try:
        text = path.read_bytes()
    except OSError as error:
        raise NotFoundError(
            f"expected a file with a request, cannot read it: {error.strerror}", where=str(path)
        ) from error
    try:
        documents = [orjson.loads(text)]
    except orjson.JSONDecodeError:
        try:
            documents = [orjson.loads(line) for line in text.splitlines() if line.strip()]
        except orjson.JSONDecodeError as error:
            raise DataError(
                f"expected an infer request in JSON, or one on each line, received other text: {error}",
                where=str(path),
            ) from error
    return [_message(document, str(path)) for document in documents]


def served_requests(address: Address) -> list[Message]:
    """Return the example request of a served model.

    A graphbox server has it. Of another server's models it is made up by the metadata: random numbers of the
    declared types, free dimensions of 1.

    Raises:
        BackendMissingError: the server cannot be reached.
        NotFoundError: it has no such model.
        UsageError: the model takes texts, which cannot be made up.
        GraphboxError: the server refuses.
    """
    version = "" if address.version is None else "?" + urlencode({"version": address.version})
    example = f"{API_PREFIX}/models/{quote(address.model, safe='')}/example{version}"
    status, document = _get(address, example)
    if status == HTTPStatus.OK and isinstance(document, dict) and document.get("inputs"):
        return [_message(document, example)]
    return [_made_up(metadata(address), address.model)]


def metadata(address: Address) -> Mapping[str, Any]:
    """Return the metadata of a model.

    Raises:
        GraphboxError: see `served_requests`.
    """
    status, document = _get(address, address.path)
    if status == HTTPStatus.OK and isinstance(document, dict) and "inputs" in document:
        return document
    kind = NotFoundError if status == HTTPStatus.NOT_FOUND else GraphboxError
    raise kind(
        f"expected the metadata of the model, received status {status}: {str(document)[:500]}",
        where=f"{address.authority}{address.path}",
    )


def with_batch(messages: Sequence[Message], batch: int, declared: Mapping[str, Any]) -> list[Message]:
    """Return requests of ``batch`` rows each, whose rows are those of given requests, over and over.

    Args:
        messages: requests.
        batch: rows of each request that is returned.
        declared: metadata of the model: an input has rows where its first dimension is free.

    Raises:
        UsageError: the model has no batches, or inputs of one request have different numbers of rows.
    """
    has_rows = {each["name"] for each in declared["inputs"] if each["shape"][:1] == [-1]}
    first = messages[0]
    names = [name for name in first.inputs if name in has_rows]
    counts = {name: sum(len(each.inputs[name]) for each in messages) for name in names}
    if not counts or len(set(counts.values())) != 1 or not min(counts.values()):
        raise UsageError(
            f"expected a model whose inputs have the same rows, received {counts or 'none with rows'}",
            where="--batch",
            hint="give whole requests by --request FILE, without --batch",
        )
    count = next(iter(counts.values()))
    rows = {name: np.concatenate([each.inputs[name] for each in messages]) for name in counts}
    found = []
    for number in range(min(count // math.gcd(count, batch), _MOST_ROTATIONS)):
        chosen = (number * batch + np.arange(batch)) % count
        inputs = dict(first.inputs) | {name: values[chosen] for name, values in rows.items()}
        found.append(Message(inputs, first.datatypes, first.parameters))
    return found


def check_answers(address: Address, request: bytes) -> None:
    """Send a request once over HTTP.

    Raises:
        BackendMissingError: the server cannot be reached.
        GraphboxError: it refuses the request.
    """
    status, answer = exchange(address, request)
    if status != HTTPStatus.OK:
        kind = NotFoundError if status == HTTPStatus.NOT_FOUND else GraphboxError
        raise kind(
            f"expected an answer to measure, received status {status}: "
            f"{answer.decode(errors='replace')[:500]}",
            where=f"{address.authority}{address.path}/infer",
        )


def encode(message: Message, address: Address, protocol: Protocol) -> bytes:
    """Return the bytes of a request: a whole HTTP request, or a message `ModelInferRequest` for gRPC."""
    if protocol == "grpc":
        return _encode_grpc(message, address)
    headers, body = _http_parts(message, address, protocol)
    headers["Content-Length"] = str(len(body))
    lines = [f"POST {address.path}/infer HTTP/1.1", *(f"{name}: {value}" for name, value in headers.items())]
    return "\r\n".join((*lines, "", "")).encode("latin-1") + body


def _http_parts(message: Message, address: Address, protocol: Protocol) -> tuple[dict[str, str], bytes]:
    """Return headers and body of a request over HTTP."""
    entries, tail = [], []
    for name, values in message.inputs.items():
        entry: dict[str, Any] = {
            "name": name,
            "datatype": message.datatypes[name],
            "shape": list(values.shape),
        }
        if protocol == "binary":
            content = bytes(encode_binary(values))
            entry["parameters"] = {"binary_data_size": len(content)}
            tail.append(content)
        elif values.dtype == np.object_:
            entry["data"] = [each.decode() if isinstance(each, bytes) else each for each in values.ravel()]
        else:
            entry["data"] = values.ravel().tolist()
        entries.append(entry)
    document: dict[str, Any] = {"inputs": entries}
    parameters = dict(message.parameters)
    headers = {**address.headers, "Content-Type": "application/json"}
    if protocol == "binary":
        parameters["binary_data_output"] = True
    if parameters:
        document["parameters"] = parameters
    body = orjson.dumps(document)
    if protocol == "binary":
        headers["Content-Type"] = "application/octet-stream"
        headers["Inference-Header-Content-Length"] = str(len(body))
        body = b"".join((body, *tail))
    return headers, body


def _message(document: Any, where: str) -> Message:
    """Read a request from parsed JSON."""
    inputs, datatypes = {}, {}
    try:
        for entry in document["inputs"]:
            name, datatype = entry["name"], entry["datatype"]
            shape = [int(size) for size in entry["shape"]]
            inputs[name] = decode_json(entry["data"], datatype, shape, f"input `{name}`")
            datatypes[name] = datatype
        parameters = dict(document.get("parameters") or {})
        outcome = Message(inputs, datatypes, parameters)
    except InvalidRequestError as error:
        raise DataError(error.message, where=f"{where}, {error.where}") from error
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise DataError(
            "expected an infer request: inputs, each with name, datatype, shape and data; "
            f"received another document ({type(error).__name__}: {error})",
            where=where,
        ) from error
    if not inputs:
        raise DataError("expected a request with inputs, received one without", where=where)
    return outcome


def _made_up(declared: Mapping[str, Any], model: str) -> Message:
    generator = np.random.default_rng(0)
    inputs, datatypes = {}, {}
    for entry in declared["inputs"]:
        name, datatype = entry["name"], entry["datatype"]
        if datatype not in DATATYPES or datatype == "BYTES":
            raise UsageError(
                f"expected inputs of numbers or an example request of `{model}`, "
                f"received input `{name}` of {datatype}",
                hint="give a request by --request FILE",
            )
        shape = [1 if size < 0 else size for size in entry["shape"]]
        dtype = DATATYPES[datatype]
        values = generator.standard_normal(shape) if dtype.kind == "f" else np.zeros(shape)
        inputs[name] = values.astype(dtype)
        datatypes[name] = datatype
    return Message(inputs, datatypes)


def _encode_grpc(message: Message, address: Address) -> bytes:
    """Encode ``inference.ModelInferRequest`` of KServe's grpc_predict_v2.proto, with raw contents."""
    parts = [text_field(1, address.model)]
    if address.version is not None:
        parts.append(text_field(2, str(address.version)))
    for name, value in message.parameters.items():
        parts.append(message_field(4, text_field(1, name) + message_field(2, _parameter(value))))
    for name, values in message.inputs.items():
        shape = message_field(3, b"".join(varint(size) for size in values.shape))
        parts.append(message_field(5, text_field(1, name) + text_field(2, message.datatypes[name]) + shape))
    parts += (message_field(7, bytes(encode_binary(values))) for values in message.inputs.values())
    return b"".join(parts)


def _parameter(value: Any) -> bytes:
    """Encode ``InferParameter``."""
    if isinstance(value, bool):
        return integer_field(1, int(value))
    return integer_field(2, value) if isinstance(value, int) else text_field(3, str(value))


def read_json(address: Address, path: str) -> Any:
    """Return the JSON document of a path.

    Raises:
        BackendMissingError: the server cannot be reached.
        GraphboxError: it refuses, or answers something else.
    """
    status, document = _get(address, path)
    if status != HTTPStatus.OK or document is None:
        raise GraphboxError(
            f"expected a JSON document, received status {status}: {str(document)[:500]}",
            where=f"{address.authority}{path}",
        )
    return document


def _get(address: Address, path: str) -> tuple[int, Any]:
    """Return status and JSON document of a path; None where the answer is no JSON."""
    headers = "".join(f"{name}: {value}\r\n" for name, value in address.headers.items())
    status, content = exchange(address, f"GET {path} HTTP/1.1\r\n{headers}\r\n".encode("latin-1"))
    try:
        return status, orjson.loads(content)
    except orjson.JSONDecodeError:
        return status, None


def exchange(address: Address, request: bytes) -> tuple[int, bytes]:
    """Send one whole HTTP request; return status and body of the answer.

    Raises:
        BackendMissingError: the server cannot be reached.
    """
    kind = http.client.HTTPSConnection if address.tls else http.client.HTTPConnection
    connection = kind(address.host, address.port, timeout=_TIMEOUT_S)
    try:
        connection.connect()
        connection.send(request)
        answer = http.client.HTTPResponse(connection.sock, method=request[:4].split()[0].decode())
        answer.begin()
        return answer.status, answer.read()
    except (OSError, http.client.HTTPException) as error:
        raise BackendMissingError(
            f"expected a server on {address.authority}, cannot reach it: {error}", where="--url"
        ) from error
    finally:
        connection.close()

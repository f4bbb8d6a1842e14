"""Client of the KServe v2 protocol over HTTP, with the binary tensor extension.

graphbox, Triton and KServe's own servers implement it. Tensors are little-endian bytes after the JSON.
Answers are validated: shapes, datatypes and sizes come from another machine.

Protocol: kserve/open-inference-protocol, specification/protocol/inference_rest.md; extensions:
triton-inference-server/server, docs/protocol/extension_binary_data.md and extension_model_configuration.md.
"""

from __future__ import annotations

import functools
import hashlib
import http.client
import math
import os
import queue
import socket
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any, TypeVar
from urllib.parse import urlsplit

import numpy as np
import numpy.typing as npt
import orjson
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from graphbox.artifact import TensorSpec, inspect_onnx
from graphbox.deploy.adapters.results import written
from graphbox.deploy.protocol import DTYPE_OF, UNKNOWN_PRECISION, Effective, Feeds, Package
from graphbox.deploy.signature import DIGEST_PROPERTY, PRECISION_PROPERTY, THREADS_PROPERTY
from graphbox.errors import (
    BackendMissingError,
    GraphboxError,
    InvalidRequestError,
    TimeLimitError,
    UnsupportedError,
    UsageError,
)

__all__ = [
    "PROBE_TIMEOUT_S",
    "TOKEN_VARIABLE",
    "Configuration",
    "KServeProgram",
    "KServeServer",
    "digest_of",
]

TOKEN_VARIABLE = "GRAPHBOX_REMOTE_TOKEN"  # noqa: S105 - a name
"""Environment variable with the bearer token for every server that is named."""

PROBE_TIMEOUT_S = 2.0
_CONNECT_TIMEOUT_S = 5.0
_ANSWER_TIMEOUT_S = 60.0
_MAX_ANSWER_BYTES = 1 << 31
_MAX_ERROR_CHARACTERS = 600
_HEADER_LENGTH = "Inference-Header-Content-Length"
_BINARY = "application/octet-stream"
_JSON = "application/json"
_CLIENT_ERROR, _SERVER_ERROR = 400, 500
_NO_ACCESS = frozenset({HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN})


class _Message(BaseModel):
    """Part of an answer; unknown fields are ignored."""

    model_config = ConfigDict(extra="ignore", frozen=True)


class _Server(_Message):
    name: str
    version: str = ""


class _Tensor(_Message):
    name: str
    datatype: str
    shape: list[int]


class _Model(_Message):
    platform: str = ""
    inputs: list[_Tensor]
    outputs: list[_Tensor]


class _Text(_Message):
    string_value: str = ""


class Configuration(_Message):
    """Configuration of a model in a server (Triton's model configuration extension).

    Attributes:
        backend: ``python`` or ``onnxruntime`` in Triton.
        parameters: by name; see `graphbox.deploy.signature`.
    """

    backend: str = ""
    parameters: dict[str, _Text] = Field(default_factory=dict)

    def property(self, name: str) -> str:
        """Return a parameter; empty if it is missing."""
        found = self.parameters.get(name)
        return found.string_value if found else ""

    @functools.cached_property
    def threads(self) -> int:
        """Threads of one call; 0: unknown."""
        text = self.property(THREADS_PROPERTY)
        return int(text) if text.isascii() and text.isdigit() and len(text) < 6 else 0


class _BinarySize(_Message):
    binary_data_size: int | None = Field(default=None, ge=0)


class _Output(_Message):
    name: str
    datatype: str
    shape: list[int]
    parameters: _BinarySize = _BinarySize()


class _Answer(_Message):
    outputs: list[_Output]


AnyMessage = TypeVar("AnyMessage", bound=_Message)


@dataclass(frozen=True)
class _Response:
    status: int
    body: bytes
    header_length: str | None


class KServeServer:
    """Client of one server with a pool of connections, one for each concurrent call.

    Args:
        url: ``http://HOST:PORT`` or ``https://...``, with the path that precedes ``/v2`` if there is one.
        timeout_s: longest wait for the next byte of an answer.

    Raises:
        UsageError: the URL or the token is malformed.
    """

    def __init__(self, url: str, timeout_s: float = _ANSWER_TIMEOUT_S) -> None:
        self.url = url.rstrip("/")
        self._timeout_s = timeout_s
        try:
            parts = urlsplit(self.url)
            port = parts.port
        except ValueError as error:
            raise UsageError(f"expected a URL, received {url!r:.200}: {error}") from error
        if parts.scheme not in {"http", "https"} or not parts.hostname or parts.query or parts.fragment:
            raise UsageError(f"expected http://HOST:PORT or https://HOST:PORT, received {url!r:.200}")
        if parts.username is not None:
            raise UsageError(f"expected a URL without a password, which {TOKEN_VARIABLE} replaces")
        self._connection: type[http.client.HTTPConnection] = (
            http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
        )
        self._address = (parts.hostname, port)
        self._prefix = parts.path
        self._headers = _authorization()
        self._idle: queue.LifoQueue[http.client.HTTPConnection] = queue.LifoQueue()
        self._is_closed = False

    def runtime(self) -> str:
        """Return name and version of the server.

        Raises:
            GraphboxError: the server refuses, or answers something else.
        """
        found = self.read("/v2", _Server)
        return f"{found.name} {found.version}".strip()

    def check_ready(self, model: str = "") -> None:
        """Check that the server, and optionally one of its models, is ready.

        Args:
            model: its path from ``/v2`` on; empty: check the server only.

        Raises:
            GraphboxError: not ready, or the server cannot be reached.
        """
        asked = {"/v2/health/ready": "the server"}
        if model:
            asked[f"{model}/ready"] = "the model"
        for path, what in asked.items():
            response = self.request("GET", path)
            if response.status in _NO_ACCESS:
                raise self.refusal(path, response)
            if response.status != HTTPStatus.OK:
                raise BackendMissingError(f"{what} at {self.url}{path} is not ready: {_error_text(response)}")

    def read(self, path: str, kind: type[AnyMessage]) -> AnyMessage:
        """Return the JSON of a path.

        Raises:
            GraphboxError: the server refuses, or answers something else.
        """
        response = self.request("GET", path)
        if response.status != HTTPStatus.OK:
            raise self.refusal(path, response)
        return self.parsed(path, response.body, kind)

    def configuration(self, model: str) -> Configuration:
        """Return the configuration of a model; empty if the server lacks the extension."""
        response = self.request("GET", f"{model}/config")
        if response.status != HTTPStatus.OK:
            return Configuration()
        return self.parsed(f"{model}/config", response.body, Configuration)

    def parsed(self, path: str, content: bytes, kind: type[AnyMessage]) -> AnyMessage:
        """Parse and validate a message.

        Raises:
            UnsupportedError: the content is not such a message.
        """
        try:
            return kind.model_validate_json(content)
        except ValidationError as error:
            first = error.errors()[0]
            where = ".".join(str(part) for part in first["loc"])
            raise UnsupportedError(
                f"expected an answer of the KServe protocol v2, received another one: {where or 'the body'}: "
                f"{first['msg']}",
                where=f"{self.url}{path}",
            ) from error

    def request(
        self, method: str, path: str, body: bytes = b"", headers: Mapping[str, str] | None = None
    ) -> _Response:
        """Send a request and return the answer, whatever its status.

        Raises:
            BackendMissingError: the server cannot be reached, or closes the connection.
            TimeLimitError: it does not answer in time.
        """
        while True:
            connection, is_new = self._lent(path)
            try:
                response = self._exchanged(connection, method, path, body, headers)
            except TimeoutError:
                connection.close()
                raise TimeLimitError(
                    f"waited {self._timeout_s:g} s for the answer to {method} {self.url}{path}",
                ) from None
            except (OSError, http.client.HTTPException) as error:
                connection.close()
                if not is_new:  # the server closed an idle connection; requests have no side effects: retry
                    continue
                raise BackendMissingError(
                    f"expected an answer to {method} {self.url}{path}, received {type(error).__name__}: "
                    f"{error}"
                ) from error
            except BaseException:
                connection.close()
                raise
            if self._is_closed:
                connection.close()
            elif connection.sock is not None:  # None: the server asked for a new connection per request
                self._idle.put(connection)
            return response

    def _lent(self, path: str) -> tuple[http.client.HTTPConnection, bool]:
        """Return a connection, and whether it is a new one."""
        try:
            return self._idle.get_nowait(), False
        except queue.Empty:
            pass
        connect_s = min(_CONNECT_TIMEOUT_S, self._timeout_s)
        connection = self._connection(*self._address, timeout=connect_s)
        try:
            connection.connect()
        except TimeoutError:
            raise TimeLimitError(f"waited {connect_s:g} s for a connection to {self.url}{path}") from None
        except (OSError, UnicodeError) as error:  # UnicodeError: no name of a host
            raise BackendMissingError(
                f"cannot connect to {self.url}: {getattr(error, 'strerror', None) or error}"
            ) from error
        assert isinstance(connection.sock, socket.socket)  # noqa: S101 - it is connected
        connection.sock.settimeout(self._timeout_s)
        return connection, True

    def _exchanged(
        self,
        connection: http.client.HTTPConnection,
        method: str,
        path: str,
        body: bytes,
        headers: Mapping[str, str] | None,
    ) -> _Response:
        sent = {**self._headers, **(headers or {})}
        connection.request(method, f"{self._prefix}{path}", body or None, sent)
        response = connection.getresponse()
        is_bounded = response.length is not None and response.length <= _MAX_ANSWER_BYTES
        content = response.read(None if is_bounded else _MAX_ANSWER_BYTES)
        if not response.isclosed():
            raise http.client.HTTPException(f"an answer of more than {_MAX_ANSWER_BYTES} bytes")
        return _Response(response.status, content, response.getheader(_HEADER_LENGTH))

    def refusal(self, path: str, response: _Response) -> GraphboxError:
        """Return the error for an answer with an error status."""
        text, where = _error_text(response), f"{self.url}{path}"
        if response.status in _NO_ACCESS:
            hint = f"set {TOKEN_VARIABLE} to a token of the server"
            return BackendMissingError(f"the server refuses access: {text}", where=where, hint=hint)
        if response.status in {HTTPStatus.NOT_FOUND, HTTPStatus.SERVICE_UNAVAILABLE}:
            return BackendMissingError(f"the server does not have the model: {text}", where=where)
        if _CLIENT_ERROR <= response.status < _SERVER_ERROR:
            return InvalidRequestError(f"the server refused the request: {text}", where=where)
        return GraphboxError(f"the server failed: {text}", where=where)

    def close(self) -> None:
        """Close idle connections; those in use are closed when their call ends."""
        self._is_closed = True
        while True:
            try:
                self._idle.get_nowait().close()
            except queue.Empty:
                return


class KServeProgram:
    """Model in a server; ``run`` is thread-safe.

    Args:
        server: closed with the program.
        path: of the model, from ``/v2`` on.
        package: the model that the server is expected to run.

    Raises:
        UnsupportedError: the server's model has other tensors or another digest.
        GraphboxError: the server cannot be reached, or refuses.
    """

    def __init__(self, server: KServeServer, path: str, package: Package) -> None:
        self._server = server
        self._path = path
        summary = inspect_onnx(package.model, "the model")
        self.inputs: Sequence[TensorSpec] = summary.input_tensors
        self.outputs: Sequence[TensorSpec] = summary.output_tensors
        runtime = server.runtime()
        found = server.read(path, _Model)
        configuration = server.configuration(path)
        where = f"{server.url}{path}"
        _check_tensors("inputs", self.inputs, found.inputs, where)
        _check_tensors("outputs", self.outputs, found.outputs, where)
        digest = configuration.property(DIGEST_PROPERTY)
        if digest and digest != digest_of(package.model):
            raise UnsupportedError(
                f"expected a server of the same ONNX file, {digest_of(package.model)[:12]}, received one of "
                f"{digest[:12]}",
                where=where,
                hint="the server runs another version of the model: name its version in the URL",
            )
        self.effective: Effective = {
            "provider": found.platform or configuration.backend or "unknown",
            "device": package.device.name,
            "precision": configuration.property(PRECISION_PROPERTY) or UNKNOWN_PRECISION,
            "threads": configuration.threads,
            "fallback_nodes": [],  # the device is the server, all of it
            "runtime": runtime,
        }

    def run(self, feeds: Feeds, out: Feeds | None = None) -> dict[str, npt.NDArray[Any]]:
        """Run the model; see `graphbox.deploy.protocol.Program.run`.

        Raises:
            InvalidRequestError: the server refuses the feeds.
            BackendMissingError: the server or its model is gone.
            TimeLimitError: it does not answer in time.
            UnsupportedError: its answer contradicts its metadata.
        """
        path = f"{self._path}/infer"
        header, body = self._encoded(feeds)
        headers = {"Content-Type": _BINARY, _HEADER_LENGTH: str(len(header))}
        response = self._server.request("POST", path, header + body, headers)
        if response.status != HTTPStatus.OK:
            raise self._server.refusal(path, response)
        found = self._decoded(path, response)
        return {tensor.name: written(found[tensor.name], tensor.name, out) for tensor in self.outputs}

    def _encoded(self, feeds: Feeds) -> tuple[bytes, bytes]:
        """Return the JSON and the bytes of a request."""
        inputs, parts = [], []
        for tensor in self.inputs:
            array = feeds[tensor.name]
            part = array.astype(array.dtype.newbyteorder("<"), copy=False).tobytes()
            parts.append(part)
            inputs.append(
                {
                    "name": tensor.name,
                    "shape": list(array.shape),
                    "datatype": tensor.datatype,
                    "parameters": {"binary_data_size": len(part)},
                }
            )
        outputs = [{"name": tensor.name, "parameters": {"binary_data": True}} for tensor in self.outputs]
        return orjson.dumps({"inputs": inputs, "outputs": outputs}), b"".join(parts)

    def _decoded(self, path: str, response: _Response) -> dict[str, npt.NDArray[Any]]:
        """Return the outputs by name, each checked against the model."""
        length = _header_length(response)
        answer = self._server.parsed(path, response.body[:length], _Answer)
        expected = {tensor.name: tensor for tensor in self.outputs}
        found: dict[str, npt.NDArray[Any]] = {}
        offset = length
        for output in answer.outputs:
            tensor = expected.pop(output.name, None)
            size = output.parameters.binary_data_size
            if tensor is None or not _is_of(tensor, output) or size is None:
                raise _unlike(self._server.url + path, output)
            dtype = DTYPE_OF[tensor.datatype]
            if size != math.prod(output.shape) * dtype.itemsize or offset + size > len(response.body):
                raise _unlike(self._server.url + path, output)
            values = np.frombuffer(response.body, dtype.newbyteorder("<"), size // dtype.itemsize, offset)
            found[output.name] = values.astype(dtype).reshape(output.shape)
            offset += size
        if expected or offset != len(response.body):
            raise UnsupportedError(
                f"expected the outputs {sorted(tensor.name for tensor in self.outputs)} and {offset} bytes, "
                f"received {sorted(found)} and {len(response.body)} bytes",
                where=self._server.url + path,
            )
        return found

    def close(self) -> None:
        """Close the connections; the model stays loaded in the server."""
        self._server.close()


def digest_of(model: bytes) -> str:
    """Return the SHA-256 of an ONNX file."""
    return hashlib.sha256(model).hexdigest()


def _authorization() -> dict[str, str]:
    token = os.environ.get(TOKEN_VARIABLE, "").strip()
    if not token:
        return {}
    if not (token.isascii() and token.isprintable()):
        raise UsageError("expected a token of printable ASCII characters", where=TOKEN_VARIABLE)
    return {"Authorization": f"Bearer {token}"}


def _error_text(response: _Response) -> str:
    """Return the status and the server's error message."""
    try:
        content = orjson.loads(response.body)
        text = str(content["error"] if isinstance(content["error"], str) else content)
    except (orjson.JSONDecodeError, KeyError, TypeError):
        text = response.body[:_MAX_ERROR_CHARACTERS].decode("utf-8", "replace")
    return f"{response.status} {' '.join(text.split())[:_MAX_ERROR_CHARACTERS]}".strip()


def _check_tensors(role: str, expected: Sequence[TensorSpec], found: Sequence[_Tensor], where: str) -> None:
    wanted = {tensor.name: (tensor.datatype, tuple(tensor.shape)) for tensor in expected}
    received = {tensor.name: (tensor.datatype, tuple(tensor.shape)) for tensor in found}
    if wanted != received:
        raise UnsupportedError(
            f"expected a model with the {role} {_listed(wanted)}, the server's has {_listed(received)}",
            where=where,
            hint="the server runs another model or version",
        )


def _listed(tensors: Mapping[str, tuple[str, tuple[int, ...]]]) -> str:
    return ", ".join(f"{name} {kind} {list(shape)}" for name, (kind, shape) in sorted(tensors.items()))


def _header_length(response: _Response) -> int:
    """Return the size of the JSON; without the header, the body is JSON only."""
    text = response.header_length
    if text is None:
        return len(response.body)
    if not (text.isascii() and text.isdigit() and len(text) < 20 and int(text) <= len(response.body)):
        raise UnsupportedError(
            f"expected at most the {len(response.body)} bytes of the answer, received {text[:40]!r}",
            where=_HEADER_LENGTH,
        )
    return int(text)


def _is_of(tensor: TensorSpec, output: _Output) -> bool:
    return (
        output.datatype == tensor.datatype
        and len(output.shape) == len(tensor.shape)
        and all(got >= 0 and want in {-1, got} for want, got in zip(tensor.shape, output.shape, strict=True))
    )


def _unlike(where: str, output: _Output) -> UnsupportedError:
    size = output.parameters.binary_data_size
    return UnsupportedError(
        "expected each output of the model once, as bytes after the JSON, received "
        f"`{output.name}` {output.datatype} {output.shape} with "
        f"{'no' if size is None else size} bytes",
        where=where,
    )

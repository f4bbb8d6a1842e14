"""Routes of the KServe protocol, a plain ASGI callable: inference is the hot path of the server."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any
from urllib.parse import unquote

import orjson

from graphbox.artifact import check_name
from graphbox.deploy.cancellation import Cancellation
from graphbox.deploy.signature import SUFFIXES, WHOLE
from graphbox.errors import GraphboxError, InvalidRequestError, NotFoundError, UsageError
from graphbox.server.asgi import Receive, Scope, Send
from graphbox.server.body import json_too_large, parse_object, read_body
from graphbox.server.kserve import schema
from graphbox.server.kserve.codec import (
    HEADER_LENGTH,
    InferRequest,
    InferResponse,
    RequestLimits,
    compress,
    decode_request,
    decompress,
    encode_response,
)
from graphbox.server.kserve.endpoint import Endpoint
from graphbox.server.kserve.tensors import Tensor
from graphbox.server.problem import ClientLeftError, RefusedError, kserve_error
from graphbox.server.services import Services
from graphbox.server.slot import ServedModel, Slot
from graphbox.server.telemetry import InferenceTimes, ModelStatistics

__all__ = ["KServe"]

# Bodies up to this size are parsed on the event loop.
_SMALL_BODY_BYTES = 16 * 1024
# Of requests that name a model or a setting.
_MAX_MESSAGE_BYTES = 16 * 1024
_HEADER_LENGTH = HEADER_LENGTH.lower().encode()
_JSON = b"application/json"


@dataclass(slots=True)
class Call:
    """One request whose body has not been read."""

    method: str
    headers: Mapping[bytes, bytes]
    receive: Receive

    def header(self, name: bytes) -> str:
        """Return a header, empty when it is missing."""
        return self.headers.get(name, b"").decode("latin-1")


@dataclass(slots=True)
class Answer:
    """The response to one request."""

    body: bytes
    status: int = 200
    headers: tuple[tuple[bytes, bytes], ...] = ((b"content-type", _JSON),)


@dataclass(slots=True)
class Named:
    """A model of the protocol: a slot of the repository, and the suffix of one of its signatures."""

    name: str
    slot: Slot
    suffix: str

    @property
    def statistics(self) -> ModelStatistics:
        """Statistics of this model."""
        return self.slot.statistics[self.suffix]

    def endpoint(self, model: ServedModel) -> Endpoint:
        """Return the endpoint of the open model.

        Raises:
            NotFoundError: the model has no such signature.
        """
        return model.endpoint(self.suffix)


Handler = Callable[[Call, str, str | None], Awaitable[Answer]]


class KServe:
    """ASGI callable for every path under ``/v2``."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self._repository = services.repository
        self._executor = services.executor
        self._settings = services.settings
        self._of_server: dict[tuple[str, ...], tuple[str, Callable[[Call], Awaitable[Answer]]]] = {
            (): ("GET", self._server_metadata),
            ("health", "live"): ("GET", self._healthy),
            ("health", "ready"): ("GET", self._is_ready),
            ("models", "stats"): ("GET", self._all_statistics),
            ("repository", "index"): ("POST", self._index),
        }
        self._of_model: dict[str, tuple[str, Handler]] = {
            "": ("GET", self._metadata),
            "ready": ("GET", self._ready),
            "config": ("GET", self._configuration),
            "stats": ("GET", self._model_statistics),
            "infer": ("POST", self._infer),
        }

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        call = Call(scope["method"], scope["graphbox.headers"], receive)
        try:
            answer = await self._route(call, scope)
        except ClientLeftError:
            return
        except GraphboxError as error:
            answer = Answer(kserve_error(self._services.public_text(_one_line(error))), error.http_status)
        headers = [*answer.headers, (b"content-length", str(len(answer.body)).encode())]
        await send({"type": "http.response.start", "status": answer.status, "headers": headers})
        await send({"type": "http.response.body", "body": answer.body})

    async def _route(self, call: Call, scope: Scope) -> Answer:
        segments = _segments(scope)
        of_server = self._of_server.get(segments)
        if of_server is not None:
            scope["graphbox.route"] = "/".join(["/v2", *segments])
            _expect_method(call, of_server[0])
            return await of_server[1](call)
        scope["graphbox.route"] = "unmatched"
        match segments:
            case ["models", name, "versions", version, *rest] if len(rest) <= 1:
                return await self._route_model(call, scope, name, version, rest)
            case ["models", name, *rest] if len(rest) <= 1:
                return await self._route_model(call, scope, name, None, rest)
            case ["repository", "models", name, ("load" | "unload") as verb]:
                scope["graphbox.route"] = f"/v2/repository/models/{{model}}/{verb}"
                _expect_method(call, "POST")
                return await self._load(call, name, verb)
            case ["systemsharedmemory" | "cudasharedmemory", *rest]:
                scope["graphbox.route"] = f"/v2/{segments[0]}"
                return _shared_memory(call, rest)
            case ["logging" | "trace", *_]:
                scope["graphbox.route"] = f"/v2/{segments[0]}"
                raise RefusedError(
                    HTTPStatus.NOT_IMPLEMENTED, "unsupported", f"the {segments[0]} extension is not offered"
                )
        raise _unknown_path()

    async def _route_model(
        self, call: Call, scope: Scope, name: str, version: str | None, rest: list[str]
    ) -> Answer:
        action = rest[0] if rest else ""
        handler = self._of_model.get(action)
        if handler is None or (rest and not action):
            raise _unknown_path()
        scope["graphbox.route"] = "/v2/models/{model}" + (f"/{action}" if action else "")
        _expect_method(call, handler[0])
        return await handler[1](call, name, version)

    # Server

    async def _server_metadata(self, _call: Call) -> Answer:
        return _json(schema.server_metadata())

    async def _healthy(self, _call: Call) -> Answer:
        return Answer(b"", headers=())

    async def _is_ready(self, _call: Call) -> Answer:
        ready = self._repository.readiness().ready
        return Answer(b"", HTTPStatus.OK if ready else HTTPStatus.SERVICE_UNAVAILABLE, headers=())

    async def _all_statistics(self, _call: Call) -> Answer:
        return _json(schema.model_statistics(self.statistics()))

    async def _index(self, call: Call) -> Answer:
        wanted = await self._json_object(call)
        ready_only = wanted.get("ready", False)
        if not isinstance(ready_only, bool):
            raise InvalidRequestError(f"expected true or false, received {ready_only!r:.64}", where="ready")
        known = await self._executor.run(self._repository.known)
        return _json(
            [
                {
                    "name": model.name + suffix,
                    "version": str(model.version),
                    "state": model.state,
                    "reason": model.reason,
                }
                for model in known
                for suffix in model.suffixes
                if model.current and (model.state == "READY" or not ready_only)
            ]
        )

    async def _load(self, call: Call, name: str, verb: str) -> Answer:
        _check_model_name(name)
        base, suffix = _split_name(name)
        if suffix and self._repository.has(base) and not self._repository.has(name):
            raise InvalidRequestError(
                f"expected a model of the repository: `{name}` is a part of `{base}`, "
                "loaded and unloaded with it",
                hint=f"POST /v2/repository/models/{base}/{verb}",
            )
        message = await self._json_object(call)
        parameters = message.get("parameters") or {}
        refused = (
            [key for key in parameters if key != "unload_dependents"]
            if isinstance(parameters, dict)
            else ["?"]
        )
        if refused or message.keys() - {"parameters"}:
            raise InvalidRequestError(
                "expected no model files or settings: models come from the workspace, never from a request",
                where="parameters",
            )
        if self._services.settings.token is None:
            raise RefusedError(
                HTTPStatus.FORBIDDEN,
                "token_required",
                f"{verb} is refused on a server without a token",
                hint="start it with --token; a version that is promoted is served without a request",
            )
        act = self._repository.load if verb == "load" else self._repository.unload
        await self._executor.run(lambda: act(name))
        return Answer(b"", headers=())

    def statistics(self) -> Iterator[tuple[str, str, ModelStatistics]]:
        """Yield name, version and statistics of every model that was asked something."""
        for slot in self._repository.slots():
            for suffix, statistics in slot.statistics.items():
                if suffix == WHOLE or statistics.used:
                    yield slot.name + suffix, str(slot.version), statistics

    # One model

    async def _metadata(self, _call: Call, name: str, version: str | None) -> Answer:
        named, model = await self._enter(name, version)
        try:
            versions = (
                [named.slot.version] if version is not None else self._repository.versions(named.slot.name)
            )
            return _json(schema.model_metadata(name, versions, named.endpoint(model).signature))
        finally:
            self._repository.leave(named.slot)

    async def _ready(self, _call: Call, name: str, version: str | None) -> Answer:
        named, model = await self._enter(name, version)
        try:
            named.endpoint(model)
            return Answer(b"", headers=())
        finally:
            self._repository.leave(named.slot)

    async def _configuration(self, _call: Call, name: str, version: str | None) -> Answer:
        named, model = await self._enter(name, version)
        try:
            return _json(
                schema.model_configuration(
                    name, named.endpoint(model).signature, self._settings.rows_limit(named.slot.name)
                )
            )
        finally:
            self._repository.leave(named.slot)

    async def _model_statistics(self, _call: Call, name: str, version: str | None) -> Answer:
        named = await self._named(name, version)
        return _json(schema.model_statistics([(name, str(named.slot.version), named.statistics)]))

    async def _infer(self, call: Call, name: str, version: str | None) -> Answer:
        started = time.perf_counter_ns()
        named, model = await self._enter(name, version)
        try:
            answer, rows, times = await self._answer(call, named, model, started)
        except Exception:
            named.statistics.failed(time.perf_counter_ns() - started)
            raise
        finally:
            self._repository.leave(named.slot)
        named.statistics.succeeded(rows, times)
        return answer

    async def _answer(
        self, call: Call, named: Named, model: ServedModel, started: int
    ) -> tuple[Answer, int, InferenceTimes]:
        endpoint = named.endpoint(model)
        request, read = await self._read_request(call, named, endpoint)
        decoded = time.perf_counter_ns()
        cancellation = Cancellation(request.timeout_s, (decoded - started) / 1e9)
        work = endpoint.signature.work(request.inputs)

        def execute() -> tuple[int, int, int, InferResponse]:
            begun = time.perf_counter_ns()
            try:
                tensors = endpoint.run(request.inputs, request.parameters)
            finally:  # a refusal may take longer than an answer: it looks for ids that are alike
                ended = time.perf_counter_ns()
                endpoint.cost.observe(work, ended - begun)
            cancellation.check()
            response = encode_response(named.name, str(named.slot.version), request, tensors)
            return begun, ended, _rows(tensors), response

        if endpoint.cost.is_short(work):
            begun, ended, rows, response = execute()
        else:
            begun, ended, rows, response = await self._executor.run_while_connected(
                call.receive, execute, cancellation, long=endpoint.cost.is_long(work)
            )
        answer = _infer_answer(response, call.header(b"accept-encoding"))
        finished = time.perf_counter_ns()
        return (
            answer,
            rows,
            InferenceTimes(
                total_ns=finished - started,
                queue_ns=begun - decoded,
                input_ns=decoded - read,
                infer_ns=ended - begun,
                output_ns=finished - ended,
            ),
        )

    async def _read_request(self, call: Call, named: Named, endpoint: Endpoint) -> tuple[InferRequest, int]:
        """Return the request, and when its body was complete."""
        limits = self._limits(named)
        encoding = call.header(b"content-encoding").strip().lower()
        header_length = call.headers.get(_HEADER_LENGTH)
        is_json = header_length is None and not encoding
        if is_json and int(call.headers.get(b"content-length", b"0")) > limits.max_json_bytes:
            raise json_too_large(limits.max_json_bytes)  # before it is read
        body = await read_body(call.receive)
        read = time.perf_counter_ns()

        def decode() -> InferRequest:
            return decode_request(
                decompress(body, encoding, self._settings.max_body_bytes),
                None if header_length is None else header_length.decode("latin-1"),
                endpoint.signature,
                limits,
            )

        if len(body) <= _SMALL_BODY_BYTES and not encoding:
            return decode(), read
        return await self._executor.run_while_connected(call.receive, decode), read

    def _limits(self, named: Named) -> RequestLimits:
        return RequestLimits(self._settings.rows_limit(named.slot.name), self._settings.max_json_bytes)

    # Names

    async def _enter(self, name: str, version: str | None) -> tuple[Named, ServedModel]:
        """Return a model and count a user of it; open it on a thread when it is not open."""
        named = await self._named(name, version)
        model = named.slot.try_enter()
        if model is None:
            model = await self._executor.run(named.slot.enter)
        return named, model

    async def _named(self, name: str, version: str | None) -> Named:
        number = _version_number(name, version)
        slot = self._repository.find(name, number)
        if slot is not None:
            return Named(name, slot, WHOLE)
        base, suffix = _split_name(name)
        if suffix and not self._repository.has(name):
            slot = self._repository.find(base, number)
            if slot is not None:
                return Named(name, slot, suffix)
        _check_model_name(name)
        return await self._executor.run(lambda: self._look_up(name, number))

    def _look_up(self, name: str, number: int | None) -> Named:
        try:
            return Named(name, self._repository.slot(name, number), WHOLE)
        except NotFoundError:
            base, suffix = _split_name(name)
            if not suffix or self._repository.has(name):
                raise
            return Named(name, self._repository.slot(base, number), suffix)

    async def _json_object(self, call: Call) -> dict[str, Any]:
        encoding = call.header(b"content-encoding").strip().lower()
        body = await read_body(call.receive)
        if len(body) > _MAX_MESSAGE_BYTES:
            raise json_too_large(_MAX_MESSAGE_BYTES)
        content = decompress(body, encoding, _MAX_MESSAGE_BYTES)
        return parse_object(content, _MAX_MESSAGE_BYTES) if content else {}


def _segments(scope: Scope) -> tuple[str, ...]:
    """Return the parts of the path after ``/v2``, each decoded once, so that ``%2F`` separates nothing."""
    raw = scope.get("raw_path") or scope["path"].encode()
    parts = raw.decode("latin-1").split("/")[2:]
    return tuple(map(unquote, parts)) if b"%" in raw else tuple(parts)


def _expect_method(call: Call, method: str) -> None:
    if call.method != method:
        raise RefusedError(
            HTTPStatus.METHOD_NOT_ALLOWED,
            "method_not_allowed",
            f"expected the method {method}, received {call.method}",
            headers={"allow": method},
        )


def _unknown_path() -> NotFoundError:
    return NotFoundError("no such path in the KServe protocol v2")


def _split_name(name: str) -> tuple[str, str]:
    """Return a model's name and the suffix of a signature; the suffix is empty where there is none."""
    for suffix in SUFFIXES:
        if name.endswith(suffix):
            return name.removesuffix(suffix), suffix
    return name, WHOLE


def _check_model_name(name: str) -> None:
    try:
        check_name(name, "model name")
    except UsageError as error:
        raise InvalidRequestError(error.message) from error


def _version_number(name: str, version: str | None) -> int | None:
    if version is None:
        return None
    if not (version.isascii() and version.isdigit() and len(version) < 10):
        raise NotFoundError(f"the model `{name[:128]}` has no version {version[:64]!r}: versions are numbers")
    return int(version)


def _shared_memory(call: Call, rest: list[str]) -> Answer:
    """Answer as a server in which no region is registered, nor can be."""
    verb = rest[-1] if rest else ""
    if verb == "status":
        _expect_method(call, "GET")
        return Answer(b"[]")
    if verb == "unregister":
        _expect_method(call, "POST")
        return Answer(b"", headers=())
    if verb == "register":
        _expect_method(call, "POST")
        raise InvalidRequestError(
            "shared memory is not offered by this server", hint="send tensors in the body"
        )
    raise _unknown_path()


def _json(value: Any) -> Answer:
    return Answer(orjson.dumps(value))


def _rows(tensors: Mapping[str, Tensor]) -> int:
    """Return the first size of the first output, for statistics."""
    shape = next(iter(tensors.values())).shape
    return shape[0] if shape else 1


def _infer_answer(response: InferResponse, accept_encoding: str) -> Answer:
    body, encoding = compress(response.body, accept_encoding)
    headers = [(b"content-type", _JSON if response.header_length is None else b"application/octet-stream")]
    if response.header_length is not None:
        headers.append((b"inference-header-content-length", str(response.header_length).encode()))
    if encoding is not None:
        headers.append((b"content-encoding", encoding.encode()))
    return Answer(body, headers=tuple(headers))


def _one_line(error: GraphboxError) -> str:
    where = f"{error.where}: " if error.where else ""
    hint = f"; {error.hint}" if error.hint else ""
    return f"{where}{error.message}{hint}"

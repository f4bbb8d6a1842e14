"""Routes of the KServe protocol over HTTP: inference is the hot path of the server."""

from __future__ import annotations

import asyncio
import contextlib
import re
import time
from collections.abc import Awaitable, Callable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any, Literal
from urllib.parse import unquote

import orjson

from graphbox.deploy.cancellation import Cancellation
from graphbox.errors import GraphboxError, InvalidRequestError, NotFoundError
from graphbox.server.batching import Call, Outcome
from graphbox.server.body import Body, json_too_large, parse_object
from graphbox.server.defects import answer_defect
from graphbox.server.http.exchange import Exchange
from graphbox.server.inference import Lease
from graphbox.server.kserve.codec import (
    HEADER_LENGTH,
    InferRequest,
    InferResponse,
    compress,
    decode_request,
    decompress,
    encode_response,
    routing_key_in,
)
from graphbox.server.kserve.management import Management
from graphbox.server.kserve.outputs import SMALL_DELIVERY_BYTES
from graphbox.server.kserve.rest_extensions import ExtensionRoute, ExtensionRoutes
from graphbox.server.kserve.shared_memory import names_region
from graphbox.server.kserve.tensors import Tensor
from graphbox.server.problem import RefusedError, kserve_error, one_line
from graphbox.server.services import Services
from graphbox.server.traffic import ROUTING_KEY_HEADER

__all__ = ["KServe"]

# On the event loop, bodies up to this size are parsed; outputs up to these are written as text, or copied.
_SMALL_BODY_BYTES = 96 * 1024
_SMALL_TEXT_BYTES = 64 * 1024
_SMALL_ANSWER_BYTES = 1024 * 1024
# Of requests that name a model or a setting.
_MAX_MESSAGE_BYTES = 16 * 1024
_HEADER_LENGTH = HEADER_LENGTH.lower().encode()
_JSON_HEADERS = ((b"content-type", b"application/json"),)
_BINARY = (b"content-type", b"application/octet-stream")
_INFER_PATH = re.compile(rb"/v2/models/([A-Za-z0-9_.-]+)(?:/versions/([0-9]+))?/infer")
_INFER_ROUTE = "/v2/models/{model}/infer"


@dataclass(slots=True)
class Answer:
    """The response to one request."""

    body: bytes | list[bytes | memoryview]
    status: int = 200
    headers: tuple[tuple[bytes, bytes], ...] = _JSON_HEADERS


Handler = Callable[[Exchange, str, str | None], Awaitable[Answer]]


class KServe:
    """Answers every path under ``/v2``."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self._management = Management(services)
        self._inference = services.inference
        self._executor = services.executor
        self._settings = services.settings
        self._regions = services.shared_memory
        self._traces = services.trace_settings
        self._extensions = ExtensionRoutes(services)
        self._of_server: dict[tuple[str, ...], tuple[str, Callable[[Exchange], Awaitable[Answer]]]] = {
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
        }

    def admit(self, exchange: Exchange) -> None:
        """Refuse a large infer request before its body is read: its JSON is too large, or too much waits.

        Raises:
            RefusedError: 413 or 503.
        """
        headers = exchange.headers
        length = int(headers.get(b"content-length", b"0"))
        is_json = _HEADER_LENGTH not in headers and b"content-encoding" not in headers
        if is_json and length > self._settings.max_json_bytes:
            raise json_too_large(self._settings.max_json_bytes)
        if length <= _SMALL_BODY_BYTES:
            return
        match = _INFER_PATH.fullmatch(exchange.path)
        if match is not None and exchange.method == "POST":
            version = match[2].decode() if match[2] else None
            # Other errors are those of the request, once it is there.
            with contextlib.suppress(GraphboxError):
                exchange.announcement = self._inference.announce(match[1].decode(), version, length)

    def answer_now(self, exchange: Exchange) -> bool:
        """Answer a request for inference without a task, if it is one that allows that; return whether it is.

        Such a request is small, uncompressed, and for an open model. Its answer may follow later.
        """
        match = _INFER_PATH.fullmatch(exchange.path)
        if match is None or exchange.method != "POST":
            return False
        if len(exchange.body) > _SMALL_BODY_BYTES or b"content-encoding" in exchange.headers:
            return False
        if self._regions is not None and names_region(exchange.body):
            return False
        name, version = match[1].decode(), match[2].decode() if match[2] else None
        exchange.route = _INFER_ROUTE
        try:
            key = None
            if version is None and self._inference.splits_requests:
                key = self._routing_key(exchange, exchange.body)
            lease = self._inference.enter_now(name, version, key)
            if lease is None:
                return False
        except GraphboxError as error:
            self._answer_error(exchange, error)
            return True
        self._infer_now(exchange, lease)
        return True

    def refuse(self, exchange: Exchange, refusal: RefusedError) -> None:
        """Answer a request that was refused."""
        headers = [(name.encode(), value.encode()) for name, value in refusal.headers.items()]
        exchange.respond(refusal.status, [*_JSON_HEADERS, *headers], kserve_error(refusal.message))

    async def answer(self, exchange: Exchange) -> None:
        """Answer any request."""
        try:
            answer = await self._route(exchange)
        except GraphboxError as error:
            self._answer_error(exchange, error)
            return
        if answer is not None:
            exchange.respond(answer.status, answer.headers, answer.body)

    def _answer_error(self, exchange: Exchange, error: GraphboxError) -> None:
        body = kserve_error(self._services.public_text(one_line(error)))
        headers = (*_JSON_HEADERS, (b"retry-after", b"1")) if error.http_status == 503 else _JSON_HEADERS
        exchange.respond(error.http_status, headers, body)

    async def _route(self, exchange: Exchange) -> Answer | None:
        segments = _segments(exchange)
        of_server = self._of_server.get(segments)
        if of_server is not None:
            exchange.route = "/".join(["/v2", *segments])
            _expect_method(exchange, of_server[0])
            return await of_server[1](exchange)
        exchange.route = "unmatched"
        extension = self._extensions.find(segments)
        if extension is not None:
            return await self._extend(exchange, extension)
        match segments:
            case ["models", name, "versions", version, *rest] if len(rest) <= 1:
                return await self._route_model(exchange, name, version, rest)
            case ["models", name, *rest] if len(rest) <= 1:
                return await self._route_model(exchange, name, None, rest)
            case ["repository", "models", name, ("load" | "unload") as verb]:
                exchange.route = f"/v2/repository/models/{{model}}/{verb}"
                _expect_method(exchange, "POST")
                return await self._change(exchange, name, "load" if verb == "load" else "unload")
        raise _unknown_path()

    async def _route_model(
        self, exchange: Exchange, name: str, version: str | None, rest: list[str]
    ) -> Answer | None:
        action = rest[0] if rest else ""
        if action == "infer":
            exchange.route = _INFER_ROUTE
            _expect_method(exchange, "POST")
            await self._infer_later(exchange, name, version)
            return None
        handler = self._of_model.get(action)
        if handler is None or (rest and not action):
            raise _unknown_path()
        exchange.route = "/v2/models/{model}" + (f"/{action}" if action else "")
        _expect_method(exchange, handler[0])
        return await handler[1](exchange, name, version)

    # Server

    async def _server_metadata(self, _exchange: Exchange) -> Answer:
        return _json(self._management.server_metadata())

    async def _healthy(self, _exchange: Exchange) -> Answer:
        return Answer(b"", headers=())

    async def _is_ready(self, _exchange: Exchange) -> Answer:
        ready = self._management.is_ready()
        return Answer(b"", HTTPStatus.OK if ready else HTTPStatus.SERVICE_UNAVAILABLE, headers=())

    async def _all_statistics(self, _exchange: Exchange) -> Answer:
        return _json(self._management.all_statistics())

    async def _index(self, exchange: Exchange) -> Answer:
        ready_only = (await self._json_object(exchange)).get("ready", False)
        if not isinstance(ready_only, bool):
            raise InvalidRequestError(f"expected true or false, received {ready_only!r:.64}", where="ready")
        return _json(await self._management.index(ready_only=ready_only))

    async def _change(self, exchange: Exchange, name: str, verb: Literal["load", "unload"]) -> Answer:
        message = await self._json_object(exchange)
        parameters = message.pop("parameters", None) or {}
        names = [*message, *(parameters if isinstance(parameters, dict) else ["parameters"])]
        await self._management.change(name, verb, names)
        return Answer(b"", headers=())

    async def _extend(self, exchange: Exchange, route: ExtensionRoute) -> Answer:
        exchange.route = route.template
        answer = route.answers.get(exchange.method)
        if answer is None:
            raise _wrong_method(exchange, *route.answers)
        message = await self._json_object(exchange) if exchange.method == "POST" else {}
        found = await answer(message)
        return Answer(b"", headers=()) if found is None else _json(found)

    # One model

    async def _metadata(self, _exchange: Exchange, name: str, version: str | None) -> Answer:
        return _json(await self._management.metadata(name, version))

    async def _ready(self, _exchange: Exchange, name: str, version: str | None) -> Answer:
        await self._management.check_ready(name, version)
        return Answer(b"", headers=())

    async def _configuration(self, _exchange: Exchange, name: str, version: str | None) -> Answer:
        return _json(await self._management.configuration(name, version))

    async def _model_statistics(self, _exchange: Exchange, name: str, version: str | None) -> Answer:
        return _json(await self._management.model_statistics(name, version))

    # Inference

    async def _infer_later(self, exchange: Exchange, name: str, version: str | None) -> None:
        """Open the model and decode the request, on threads as far as needed, then run it."""
        key = None
        if version is None and self._inference.splits_requests:
            key = await self._routing_key_of_large(exchange)
        lease = await self._inference.enter(name, version, key)
        try:
            request = await self._decode_large(exchange, lease)
        except asyncio.CancelledError:
            self._give_up(exchange, lease, None)
            raise
        except Exception as error:  # noqa: BLE001 - answered
            self._fail(exchange, lease, error)
            return
        self._run(exchange, lease, request)

    async def _routing_key_of_large(self, exchange: Exchange) -> bytes | None:
        """Return the routing key of a request; its body is decompressed on a thread."""
        encoding = exchange.header(b"content-encoding").strip().lower()
        if not encoding or ROUTING_KEY_HEADER in exchange.headers:
            return self._routing_key(exchange, exchange.body)
        limit_bytes = self._settings.max_body_bytes
        return await self._executor.run(
            lambda: self._routing_key(exchange, decompress(exchange.body, encoding, limit_bytes))
        )

    def _routing_key(self, exchange: Exchange, body: Body) -> bytes | None:
        """Return the routing key of the header, else of the parameters; None: the request has none."""
        key = exchange.headers.get(ROUTING_KEY_HEADER)
        if key:
            return key
        length = exchange.headers.get(_HEADER_LENGTH)
        header_length = None if length is None else length.decode("latin-1")
        return routing_key_in(body, header_length, self._settings.max_json_bytes)

    def _infer_now(self, exchange: Exchange, lease: Lease) -> None:
        try:
            request = self._decode(exchange, lease, exchange.body)
        except Exception as error:  # noqa: BLE001 - answered
            self._fail(exchange, lease, error)
            return
        self._run(exchange, lease, request)

    async def _decode_large(self, exchange: Exchange, lease: Lease) -> InferRequest:
        encoding = exchange.header(b"content-encoding").strip().lower()
        body = exchange.body
        reads_region = self._regions is not None and names_region(body)
        if len(body) <= _SMALL_BODY_BYTES and not encoding and not reads_region:
            return self._decode(exchange, lease, body)
        limit_bytes = self._settings.max_body_bytes
        return await self._executor.run(
            lambda: self._decode(exchange, lease, decompress(body, encoding, limit_bytes))
        )

    def _decode(self, exchange: Exchange, lease: Lease, body: Body) -> InferRequest:
        length = exchange.headers.get(_HEADER_LENGTH)
        header_length = None if length is None else length.decode("latin-1")
        return decode_request(body, header_length, lease.signature, lease.limits, lease.heads, self._regions)

    def _run(self, exchange: Exchange, lease: Lease, request: InferRequest) -> None:
        """Run a decoded request; the answer follows."""
        exchange.lease = lease
        call = Call(
            request.inputs,
            request.parameters,
            request.timeout_s,
            request.priority,
            exchange.started_ns,
            exchange.received_ns,
            time.perf_counter_ns(),
        )
        if exchange.announcement is not None:
            exchange.announcement.arrived(lease.work_ns(call))
        try:
            lease.submit(call, lambda outcome: self._finish(exchange, lease, request, call, outcome))
        except Exception as error:  # noqa: BLE001 - answered
            self._fail(exchange, lease, error)
            return
        exchange.on_left = lambda: self._give_up(exchange, lease, call)

    def _finish(
        self, exchange: Exchange, lease: Lease, request: InferRequest, call: Call, outcome: Outcome
    ) -> None:
        """Encode the outcome of a call and send it."""
        outputs = outcome.outputs
        if outputs is None:
            self._fail(exchange, lease, outcome.error)
            return
        accepted = exchange.headers.get(b"accept-encoding", b"").decode("latin-1")

        def encode() -> Answer:
            sequence = outcome.rows_sequence
            found = encode_response(lease.name, lease.version, request, outputs, sequence)
            return _infer_answer(found, accepted)

        def send(found: Callable[[], Answer]) -> None:
            try:
                answer, rows = found(), _rows(outputs)
            except Exception as error:  # noqa: BLE001 - answered
                self._fail(exchange, lease, error)
                return
            lease.answered(call, outcome, rows)
            if self._traces.sampler is not None:
                self._traces.sampler.answered(lease.name, lease.version, request.id or "", call, outcome)
            if exchange.trace is not None:
                exchange.trace.executed(
                    lease.name, lease.version, call.decoded_ns, outcome.begun_ns, outcome.ended_ns
                )
            lease.leave()
            exchange.on_left = None
            exchange.respond(answer.status, answer.headers, answer.body)

        if _is_encoded_soon(request, outputs, accepted):
            send(encode)
            return
        loop = asyncio.get_running_loop()
        try:
            encoding = self._executor.submit(encode, Cancellation())
        except RefusedError as refusal:
            self._fail(exchange, lease, refusal)
            return

        def send_unless_left(done: Future[Answer]) -> None:
            if not exchange.is_answered and not done.cancelled():
                send(done.result)

        # Last: it may have ended by now, and the callback runs at once.
        encoding.add_done_callback(lambda done: loop.call_soon_threadsafe(send_unless_left, done))

    def _fail(self, exchange: Exchange, lease: Lease, error: Exception | None) -> None:
        """Count and answer a request that is refused or failed."""
        lease.failed(exchange.started_ns)
        lease.leave()
        exchange.on_left = None
        if isinstance(error, GraphboxError):
            self._answer_error(exchange, error)
        elif isinstance(error, RefusedError):
            self.refuse(exchange, error)
        elif error is not None:
            answer_defect(exchange, error)

    def _give_up(self, exchange: Exchange, lease: Lease, call: Call | None) -> None:
        """Count a request whose client has left."""
        if call is not None:
            call.cancel()
        lease.failed(exchange.started_ns)
        lease.leave()

    async def _json_object(self, exchange: Exchange) -> dict[str, Any]:
        encoding = exchange.header(b"content-encoding").strip().lower()
        if len(exchange.body) > _MAX_MESSAGE_BYTES:
            raise json_too_large(_MAX_MESSAGE_BYTES)
        content = decompress(exchange.body, encoding, _MAX_MESSAGE_BYTES)
        return parse_object(content, _MAX_MESSAGE_BYTES) if content else {}


def _segments(exchange: Exchange) -> tuple[str, ...]:
    """Return the parts of the path after ``/v2``, each decoded once, so that ``%2F`` separates nothing."""
    parts = exchange.path.decode("latin-1").split("/")[2:]
    return tuple(map(unquote, parts)) if b"%" in exchange.path else tuple(parts)


def _expect_method(exchange: Exchange, method: str) -> None:
    if exchange.method != method:
        raise _wrong_method(exchange, method)


def _wrong_method(exchange: Exchange, *allowed: str) -> RefusedError:
    return RefusedError(
        HTTPStatus.METHOD_NOT_ALLOWED,
        "method_not_allowed",
        f"expected the method {' or '.join(allowed)}, received {exchange.method}",
        headers={"allow": ", ".join(allowed)},
    )


def _unknown_path() -> NotFoundError:
    return NotFoundError("no such path in the KServe protocol v2")


def _json(value: Any) -> Answer:
    return Answer(orjson.dumps(value))


def _is_encoded_soon(request: InferRequest, outputs: Mapping[str, Tensor], accept_encoding: str) -> bool:
    """Return whether the answer is encoded in tenths of a millisecond: bytes are copied, text is made."""
    if request.options:
        return sum(outputs[name].nbytes for name in request.options) <= SMALL_DELIVERY_BYTES
    text_bytes = copied_bytes = 0
    for wanted in request.outputs:
        size = outputs[wanted.name].nbytes if wanted.name in outputs else 0
        copied_bytes += size
        if not wanted.binary or accept_encoding:
            text_bytes += size
    return text_bytes <= _SMALL_TEXT_BYTES and copied_bytes <= _SMALL_ANSWER_BYTES


def _rows(tensors: Mapping[str, Tensor]) -> int:
    """Return the first size of the first output, for statistics."""
    shape = next(iter(tensors.values())).shape
    return shape[0] if shape else 1


def _infer_answer(response: InferResponse, accept_encoding: str) -> Answer:
    headers: tuple[tuple[bytes, bytes], ...] = _JSON_HEADERS
    if response.header_length is not None:
        headers = (_BINARY, (b"inference-header-content-length", b"%d" % response.header_length))
    if not accept_encoding:
        return Answer(response.pieces, headers=headers)
    body, encoding = compress(b"".join(response.pieces), accept_encoding)
    if encoding is not None:
        headers = (*headers, (b"content-encoding", encoding.encode()))
    return Answer(body, headers=headers)

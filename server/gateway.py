"""Outermost ASGI callable: admits or refuses a request, then passes it to KServe or to the REST app."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import re
import time
from http import HTTPStatus

from fastapi.responses import Response

from graphbox.server.asgi import ASGIApp, Message, Receive, Scope, Send
from graphbox.server.auth import refuse_foreign_origin
from graphbox.server.page import TOKEN_PATH, page_redirect, refused_page
from graphbox.server.problem import RefusedError, defect_body, kserve_error, refusal_response
from graphbox.server.services import Services

__all__ = ["Gateway"]

logger = logging.getLogger("graphbox.server")
access_logger = logging.getLogger("graphbox.server.access")

_REQUEST_ID = re.compile(rb"[A-Za-z0-9._-]{1,128}")
# Health checks come from probes that have neither the name nor the token; they reveal nothing.
_OPEN_PATHS = frozenset(
    {"/healthz", "/healthz/live", "/healthz/ready", "/v2/health/live", "/v2/health/ready"}
)
_BODY_COMPLETE = -1.0
_MAX_LENGTH_DIGITS = 20
# A connection closed while its client still sends is reset, and the client never reads the answer.
_DISCARD_S = 2.0
_SECURITY_HEADERS: list[tuple[bytes, bytes]] = [
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-resource-policy", b"same-origin"),
]


class Gateway:
    """ASGI application in front of the two others.

    It gives every request an id, refuses foreign hosts, foreign origins and requests without the token,
    limits the body in bytes and time, and counts answers. Paths under ``/v2`` go to ``kserve``, the rest to
    ``api``.

    Attributes:
        services: the parts of the server.
    """

    def __init__(self, services: Services, *, api: ASGIApp, kserve: ASGIApp) -> None:
        settings = services.settings
        self.services = services
        self._max_body_bytes = settings.max_body_bytes
        self._api = api
        self._kserve = kserve
        self._host_rule = services.host_rule
        self._token_rule = services.token_rule

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request, or pass on the lifespan."""
        if scope["type"] == "lifespan":
            await self._api(scope, receive, send)
        elif scope["type"] == "http":
            await _Exchange(self, scope, receive, send).answer()
        else:
            raise RuntimeError(f"expected an HTTP request, received {scope['type']}")

    def admit(self, scope: Scope, headers: dict[bytes, bytes]) -> None:
        """Reject a request from a foreign host or origin, with too large a body, or without the token.

        Raises:
            RefusedError: the request is refused.
        """
        path = scope["path"]
        if path in _OPEN_PATHS:
            return
        self._host_rule.check(headers.get(b"host"))
        refuse_foreign_origin(scope["method"], headers)
        length = headers.get(b"content-length", b"0")
        if len(length) > _MAX_LENGTH_DIGITS or not length.isdigit() or int(length) > self._max_body_bytes:
            raise too_large(self._max_body_bytes)
        if self._token_rule is not None and path != TOKEN_PATH:
            self._token_rule.check(headers)

    async def dispatch(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Hand an admitted request to the application its path belongs to."""
        path = scope["path"]
        if path == "/v2" or path.startswith("/v2/"):
            await self._kserve(scope, receive, send)
        else:
            await self._api(scope, receive, send)


class _Exchange:
    """One request and its answer."""

    __slots__ = (
        "_body_bytes",
        "_body_deadline",
        "_gateway",
        "_receive",
        "_request_id",
        "_scope",
        "_send",
        "_status",
    )

    def __init__(self, gateway: Gateway, scope: Scope, receive: Receive, send: Send) -> None:
        self._gateway = gateway
        self._scope = scope
        self._receive = receive
        self._send = send
        self._status = 0
        self._body_bytes = 0
        self._body_deadline: float | None = None
        self._request_id = b""

    async def answer(self) -> None:
        """Admit and dispatch the request; count it; turn a defect into a 500 with a request id."""
        started = time.perf_counter()
        headers: dict[bytes, bytes] = dict(self._scope["headers"])
        given = headers.get(b"x-request-id", b"")
        self._request_id = given if _REQUEST_ID.fullmatch(given) else os.urandom(8).hex().encode()
        request_id = self._request_id.decode()
        self._scope["graphbox.request_id"] = request_id
        self._scope["graphbox.headers"] = headers
        try:
            self._gateway.admit(self._scope, headers)
            await self._gateway.dispatch(self._scope, self._limited_receive, self._identified_send)
        except RefusedError as refusal:
            await self._refuse(refusal, headers)
        except asyncio.CancelledError:
            # The drain is over. Raised further, it would be answered by plain text and logged as a defect.
            if not self._gateway.services.stopping.is_set():
                raise
            if not self._status:
                await self._refuse(_stopping(), headers)
        except Exception:
            logger.exception("request %s: %s %s failed", request_id, self._scope["method"], self._raw_path())
            if not self._status:
                answer = Response(defect_body(request_id), status_code=500, media_type="application/json")
                await answer(self._scope, self._receive, self._identified_send)
        finally:
            self._count(time.perf_counter() - started)

    async def _refuse(self, refusal: RefusedError, headers: dict[bytes, bytes]) -> None:
        request_id = self._request_id.decode()
        path = self._scope["path"]
        is_browser = b"text/html" in headers.get(b"accept", b"")
        to_page = page_redirect(self._scope) if is_browser and refusal.code == "token_required" else None
        if path == "/" and is_browser:
            answer = refused_page(refusal)
        elif to_page is not None:  # where the form for the token is
            answer = to_page
        elif path.startswith("/v2"):
            answer = Response(
                kserve_error(refusal.message), refusal.status, refusal.headers, media_type="application/json"
            )
        else:
            answer = refusal_response(refusal, request_id)
        has_body = headers.get(b"content-length", b"0") != b"0" or b"transfer-encoding" in headers
        is_unread = has_body and self._body_deadline != _BODY_COMPLETE
        if is_unread:
            # The rest of the body is not read: the connection cannot carry another request.
            answer.headers["connection"] = "close"
        if is_unread and not self._gateway.services.stopping.is_set():
            await self._answer_and_discard_body(answer)
        else:
            await answer(self._scope, self._receive, self._identified_send)

    async def _answer_and_discard_body(self, answer: Response) -> None:
        """Send the whole answer, then read and drop the body for a while before the connection closes."""
        await self._identified_send(
            {"type": "http.response.start", "status": answer.status_code, "headers": answer.raw_headers}
        )
        await self._send({"type": "http.response.body", "body": answer.body, "more_body": True})
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_DISCARD_S):
                while (await self._receive()).get("more_body", False):
                    pass
        await self._send({"type": "http.response.body", "body": b""})

    async def _limited_receive(self) -> Message:
        settings = self._gateway.services.settings
        loop = asyncio.get_running_loop()
        if self._body_deadline is None:
            self._body_deadline = loop.time() + settings.body_timeout_s
        elif self._body_deadline == _BODY_COMPLETE:  # the next message is the end of the connection
            return await self._receive()
        try:
            async with asyncio.timeout_at(self._body_deadline):
                message = await self._receive()
        except TimeoutError:
            raise RefusedError(
                HTTPStatus.REQUEST_TIMEOUT,
                "body_timeout",
                f"expected the whole body within {settings.body_timeout_s:g} s,"
                f" received {self._body_bytes} bytes",
            ) from None
        self._body_bytes += len(message.get("body", b""))
        if self._body_bytes > settings.max_body_bytes:
            raise too_large(settings.max_body_bytes)
        if not message.get("more_body", False):
            self._body_deadline = _BODY_COMPLETE
        return message

    async def _identified_send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self._status = message["status"]
            message["headers"] = [
                *message.get("headers", ()),
                (b"x-request-id", self._request_id),
                *_SECURITY_HEADERS,
            ]
        await self._send(message)

    def _raw_path(self) -> str:
        # Still percent-encoded, so that a path cannot forge lines of the log.
        return bytes(self._scope.get("raw_path") or self._scope["path"].encode()).decode("latin-1")

    def _count(self, seconds: float) -> None:
        method = self._scope["method"]
        self._gateway.services.telemetry.request(method, route_of(self._scope), self._status, seconds)
        if access_logger.isEnabledFor(logging.INFO):
            access_logger.info(
                "%s %s %d %.1f ms %s",
                method,
                self._raw_path(),
                self._status,
                seconds * 1e3,
                self._request_id.decode(),
            )


def route_of(scope: Scope) -> str:
    """Return the pattern of the route that answered: metrics need few labels."""
    if "graphbox.route" in scope:
        return str(scope["graphbox.route"])
    return str(getattr(scope.get("route"), "path", "unmatched"))


def _stopping() -> RefusedError:
    return RefusedError(
        HTTPStatus.SERVICE_UNAVAILABLE,
        "stopping",
        "the server is stopping and this request was not finished",
        hint="send it again",
        headers={"connection": "close", "retry-after": "1"},
    )


def too_large(limit_bytes: int) -> RefusedError:
    """Return the refusal of a body that is too large."""
    return RefusedError(
        HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
        "body_too_large",
        f"expected a body of at most {limit_bytes} bytes, received a larger one",
    )

"""Admits or refuses each request, then passes it to KServe or to the REST app."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Coroutine

from graphbox.server.asgi import ASGIApp, Scope
from graphbox.server.auth import refuse_foreign_origin
from graphbox.server.defects import answer_defect
from graphbox.server.http.asgi_runner import AsgiRunner, scope_of
from graphbox.server.http.exchange import Exchange
from graphbox.server.kserve.rest import KServe
from graphbox.server.page import TOKEN_PATH, page_redirect, refused_page
from graphbox.server.problem import RefusedError, refusal_response, too_large
from graphbox.server.services import Services

__all__ = ["Gateway"]

access_logger = logging.getLogger("graphbox.server.access")

# Health checks come from probes that have neither the name nor the token; they reveal nothing.
_OPEN_PATHS = frozenset(
    {b"/healthz", b"/healthz/live", b"/healthz/ready", b"/v2/health/live", b"/v2/health/ready"}
)
_TOKEN_PATH = TOKEN_PATH.encode()
_MAX_LENGTH_DIGITS = 20


class Gateway:
    """Refuses foreign hosts and origins, too large bodies, and requests without the token; counts answers.

    Paths under ``/v2`` go to `KServe`, the rest to the REST app.

    Attributes:
        services: the parts of the server.
    """

    def __init__(self, services: Services, *, api: ASGIApp, kserve: KServe) -> None:
        self.services = services
        self._max_body_bytes = services.settings.max_body_bytes
        self._api = AsgiRunner(api)
        self._kserve = kserve
        self._host_rule = services.host_rule
        self._token_rule = services.token_rule
        self._tasks: set[asyncio.Task[None]] = set()

    async def start(self) -> None:
        """Start the REST app, and with it the watcher of the models."""
        await self._api.start()

    async def stop(self) -> None:
        """Stop the REST app; running requests have ended by then."""
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._api.stop()

    def admit(self, exchange: Exchange) -> None:
        """Reject a request from a foreign host or origin, with too large a body, or without the token.

        Raises:
            RefusedError: the request is refused.
        """
        path, headers = exchange.path, exchange.headers
        if path in _OPEN_PATHS:
            return
        self._host_rule.check(headers.get(b"host"))
        refuse_foreign_origin(exchange.method, headers)
        length = headers.get(b"content-length")
        if length is not None and (
            len(length) > _MAX_LENGTH_DIGITS or not length.isdigit() or int(length) > self._max_body_bytes
        ):
            raise too_large(self._max_body_bytes)
        if self._token_rule is not None and path != _TOKEN_PATH:
            self._token_rule.check(headers)
        if path.startswith(b"/v2/"):
            self._kserve.admit(exchange)

    def refuse(self, exchange: Exchange, refusal: RefusedError) -> None:
        """Answer a request that was refused."""
        request_id = exchange.request_id.decode()
        is_browser = b"text/html" in exchange.headers.get(b"accept", b"")
        to_page = None
        if is_browser and refusal.code == "token_required":
            to_page = page_redirect(scope_of(exchange))
        if exchange.path == b"/" and is_browser:
            answer = refused_page(refusal)
        elif to_page is not None:  # where the form for the token is
            answer = to_page
        elif exchange.path.startswith(b"/v2"):
            self._kserve.refuse(exchange, refusal)
            return
        else:
            answer = refusal_response(refusal, request_id)
        headers = [(name, value) for name, value in answer.raw_headers if name != b"content-length"]
        exchange.respond(answer.status_code, headers, bytes(answer.body))

    def answer(self, exchange: Exchange) -> None:
        """Hand an admitted request to the application its path belongs to."""
        path = exchange.path
        if path.startswith(b"/v2") and (len(path) == 3 or path[3:4] == b"/"):
            if not self._kserve.answer_now(exchange):
                self._run(exchange, self._kserve.answer(exchange))
        else:
            self._run(exchange, self._answer_api(exchange))

    def answered(self, exchange: Exchange) -> None:
        """Count a request."""
        seconds = (time.perf_counter_ns() - exchange.started_ns) / 1e9
        status = exchange.status
        route = exchange.route if exchange.scope is None else _route_of(exchange.scope)
        self.services.telemetry.request(exchange.method, route, status, seconds)
        if access_logger.isEnabledFor(logging.INFO):
            access_logger.info(
                "%s %s %d %.1f ms %s",
                exchange.method,
                # Still percent-encoded, so that a path cannot forge lines of the log.
                exchange.path.decode("latin-1"),
                status,
                seconds * 1e3,
                exchange.request_id.decode(),
            )

    async def _answer_api(self, exchange: Exchange) -> None:
        scope = scope_of(exchange)
        scope["graphbox.request_id"] = exchange.request_id.decode()
        scope["graphbox.headers"] = exchange.headers
        exchange.scope = scope
        await self._api.answer(exchange, scope)

    def _run(self, exchange: Exchange, answering: Coroutine[None, None, None]) -> None:
        task = asyncio.get_running_loop().create_task(self._finish(exchange, answering))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        exchange.on_left = lambda: _cancel(task)

    async def _finish(self, exchange: Exchange, answering: Coroutine[None, None, None]) -> None:
        """Await an answer; turn a defect into a 500 with a request id."""
        try:
            await answering
        except RefusedError as refusal:
            self.refuse(exchange, refusal)
        except asyncio.CancelledError:
            # The client has left, or the server stops.
            if not exchange.is_answered and not exchange.client_left:
                raise
        except Exception as error:  # noqa: BLE001 - answered
            answer_defect(exchange, error)


def _cancel(task: asyncio.Task[None]) -> None:
    task.cancel()


def _route_of(scope: Scope) -> str:
    """Return the pattern of the route that answered: metrics need few labels."""
    return str(getattr(scope.get("route"), "path", "unmatched"))

"""Admits or refuses each request, then passes it to KServe or to the REST app."""

from __future__ import annotations

import asyncio
import logging
import re
import time
from collections.abc import Coroutine
from http import HTTPStatus

from graphbox.errors import GraphboxError
from graphbox.server.access import access_of_request, is_kserve_path
from graphbox.server.asgi import ASGIApp, Scope
from graphbox.server.audit import audited_request, message_of_body, result_of_status
from graphbox.server.auth import refuse_foreign_origin
from graphbox.server.defects import answer_defect
from graphbox.server.http.asgi_runner import AsgiRunner, scope_of
from graphbox.server.http.exchange import AnswerBody, Exchange, Headers
from graphbox.server.kserve.rest import KServe
from graphbox.server.logs import AccessEntry, access_logger, log_access
from graphbox.server.page import page_redirect, refused_page
from graphbox.server.problem import RefusedError, refusal_response, too_large
from graphbox.server.services import Services
from graphbox.workspace.audit import AuditRequest

__all__ = ["Gateway"]

logger = logging.getLogger("graphbox.server")

# The REST app ignores a line end behind a path, which the table of access does not.
_CONTROL_CHARACTER = re.compile(rb"[\x00-\x1f\x7f]|%(?:[01][0-9a-f]|7f)", re.IGNORECASE)
_MAX_LENGTH_DIGITS = 20


class Gateway:
    """Admits requests, notes those that change something in the audit log, counts and logs all of them.

    Refused are foreign hosts and origins, too large bodies, requests whose token lacks the scope of their
    route, and clients that send too much.

    Paths under ``/v2`` go to `KServe`, the rest to the REST app.

    Attributes:
        services: the parts of the server.
    """

    def __init__(self, services: Services, *, api: ASGIApp, kserve: KServe) -> None:
        self.services = services
        self._api = AsgiRunner(api)
        self._kserve = kserve
        self._host_rule = services.host_rule
        self._token_rule = services.token_rule
        self._limits = services.client_limits
        self._restrictions = services.restrictions
        self._tracing = services.tracing
        self._tasks: set[asyncio.Task[None]] = set()

    async def start(self) -> None:
        """Start the REST app, and with it the watcher of the models."""
        await self._api.start()

    async def stop(self) -> None:
        """Stop the REST app; running requests have ended by then."""
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._api.stop()

    def admit(self, exchange: Exchange) -> None:
        """Reject a request: restricted, of a foreign origin, too large, without the scope, or one too many.

        Raises:
            RefusedError: the request is refused.
        """
        path, headers = exchange.path, exchange.headers
        if _CONTROL_CHARACTER.search(path) is not None:
            raise _invalid_path(path)
        access, exchange.placeholders = access_of_request(exchange.method, path)
        exchange.access = access
        if self._restrictions is not None:
            self._restrictions.check_request(access.category, headers)
        if access.max_body_bytes is not None:
            exchange.max_body_bytes = min(exchange.max_body_bytes, access.max_body_bytes)
        if access.is_probe:
            _check_length(exchange)
            return
        self._host_rule.check(headers.get(b"host"))
        refuse_foreign_origin(exchange.method, headers)
        _check_length(exchange)
        if self._token_rule is not None and access.scope is not None:
            exchange.principal = self._token_rule.check(headers, access.scope)
        if self._limits is not None:
            exchange.client_state = self._limits.take(exchange.principal, _address(exchange))
        if is_kserve_path(path):
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
        elif is_kserve_path(exchange.path):
            self._kserve.refuse(exchange, refusal)
            return
        else:
            answer = refusal_response(refusal, request_id)
        headers = [(name, value) for name, value in answer.raw_headers if name != b"content-length"]
        exchange.respond(answer.status_code, headers, bytes(answer.body))

    def answer(self, exchange: Exchange) -> None:
        """Hand an admitted request to the application its path belongs to."""
        if exchange.client_state is not None and not self._begin_waiting(exchange):
            return
        if self._tracing is not None:
            headers = exchange.headers
            exchange.trace = self._tracing.begin(
                headers.get(b"traceparent", b""), headers.get(b"tracestate", b""), exchange.started_ns
            )
        if is_kserve_path(exchange.path):
            if not self._kserve.answer_now(exchange):
                self._run(exchange, self._kserve.answer(exchange))
        else:
            self._run(exchange, self._answer_api(exchange))

    def answered(self, exchange: Exchange) -> None:
        """Count a request."""
        seconds = (time.perf_counter_ns() - exchange.started_ns) / 1e9
        route = exchange.route if exchange.scope is None else _route_of(exchange.scope)
        self.services.telemetry.request(exchange.method, route, exchange.status, seconds)
        if exchange.waiting_state is not None and self._limits is not None:
            self._limits.end(exchange.waiting_state)
            exchange.waiting_state = None
        if exchange.trace is not None:
            self._end_trace(exchange, route)
        if access_logger.isEnabledFor(logging.INFO):
            _log_exchange(exchange, route, seconds)

    def _begin_waiting(self, exchange: Exchange) -> bool:
        """Count a request among those of its client that wait; return whether it was not refused."""
        if self._limits is None or exchange.client_state is None:
            return True
        try:
            self._limits.begin(exchange.client_state)
        except RefusedError as refusal:
            self.refuse(exchange, refusal)
            return False
        exchange.waiting_state = exchange.client_state
        return True

    def _end_trace(self, exchange: Exchange, route: str) -> None:
        trace, exchange.trace = exchange.trace, None
        if self._tracing is None or trace is None:
            return
        attributes: dict[str, str | int] = {
            "http.request.method": exchange.method,
            "http.route": route,
            "http.response.status_code": exchange.status,
            "url.path": exchange.path.decode("latin-1"),
            "url.scheme": exchange.scheme,
            "client.address": _address(exchange),
            "graphbox.request_id": exchange.request_id.decode(),
        }
        failed = exchange.status >= 500 or not exchange.status
        self._tracing.end(
            trace, f"{exchange.method} {route}", attributes, f"status {exchange.status}" if failed else None
        )

    async def _answer_api(self, exchange: Exchange) -> None:
        scope = scope_of(exchange)
        scope["graphbox.request_id"] = exchange.request_id.decode()
        scope["graphbox.headers"] = exchange.headers
        scope["graphbox.principal"] = exchange.principal
        exchange.scope = scope
        await self._api.answer(exchange, scope)

    def _run(self, exchange: Exchange, answering: Coroutine[None, None, None]) -> None:
        action = exchange.access.action if exchange.access is not None else None
        running = (
            self._finish(exchange, answering) if action is None else self._record(exchange, answering, action)
        )
        task = asyncio.get_running_loop().create_task(running)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        if action is None:  # what changes something ends, and is noted, whoever waits for it
            exchange.on_left = lambda: _cancel(task)

    async def _record(self, exchange: Exchange, answering: Coroutine[None, None, None], action: str) -> None:
        """Answer a request that changes something; note it before it begins, and again before its answer."""
        try:
            request = audited_request(exchange, action)
            number = await self.services.executor.run(lambda: self.services.audit.begin(request))
        except (GraphboxError, RefusedError) as error:
            self.refuse(exchange, error if isinstance(error, RefusedError) else _not_noted(error))
        except Exception as error:  # noqa: BLE001 - answered
            answer_defect(exchange, error)
        else:
            await self._change(exchange, answering, request, number)
        finally:
            answering.close()  # where the request was not noted, it does not run

    async def _change(
        self,
        exchange: Exchange,
        answering: Coroutine[None, None, None],
        request: AuditRequest,
        number: int | None,
    ) -> None:
        """Answer a request whose entry is in the audit log; note the result before its answer."""
        held: list[tuple[int, Headers, AnswerBody]] = []
        exchange.on_answer = lambda *answer: held.append(answer)
        exchange.status = 0  # a server that stops may have refused the request by now: it runs, and is noted
        try:
            await self._finish(exchange, answering)
        finally:
            exchange.on_answer = None
        if not held:  # it was streamed, or failed amid its answer
            return
        status, headers, body = held[-1]
        try:
            whole = body if isinstance(body, bytes) else b"".join(body)
            result, message = result_of_status(status), message_of_body(status, whole)
            await self.services.executor.run(
                lambda: self.services.audit.end(number, request, result, message)
            )
        except Exception as error:  # the change is made, and its entry says `begun`
            expected = isinstance(error, GraphboxError | RefusedError)
            logger.error(
                "the result of request %s is not in the audit log: %s",
                request.request_id,
                error,
                exc_info=None if expected else error,
            )
        exchange.respond(status, headers, body)

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


def _check_length(exchange: Exchange) -> None:
    """Refuse a body by its length, before any of it is read; the connection counts what comes in chunks."""
    length = exchange.headers.get(b"content-length")
    if length is not None and (
        len(length) > _MAX_LENGTH_DIGITS or not length.isdigit() or int(length) > exchange.max_body_bytes
    ):
        raise too_large(exchange.max_body_bytes)


def _invalid_path(path: bytes) -> RefusedError:
    return RefusedError(
        HTTPStatus.BAD_REQUEST,
        "invalid_path",
        f"expected a path without control characters, received {path[:256].decode('latin-1')!r}",
        hint="leave out line ends and other characters from %00 to %1F, and %7F",
    )


def _cancel(task: asyncio.Task[None]) -> None:
    task.cancel()


def _not_noted(error: GraphboxError) -> RefusedError:
    return RefusedError(
        HTTPStatus(error.http_status),
        "audit_log",
        "the audit log of the workspace cannot be written, and nothing was changed",
        hint="try again; the server's log has the reason",
        headers={"retry-after": "1"},
    )


def _address(exchange: Exchange) -> str:
    return exchange.client[0] if exchange.client else ""


def _log_exchange(exchange: Exchange, route: str, seconds: float) -> None:
    lease, scope = exchange.lease, exchange.scope
    values = {} if scope is None else scope.get("path_params", {})
    log_access(
        AccessEntry(
            exchange.method,
            exchange.path.decode("latin-1"),
            route,
            exchange.status,
            seconds,
            exchange.request_id.decode(),
            exchange.principal.name if exchange.principal is not None else _address(exchange),
            lease.name if lease is not None else values.get("name"),
            lease.version if lease is not None else None,
            exchange.sent_bytes,
        )
    )


def _route_of(scope: Scope) -> str:
    """Return the pattern of the route that answered: metrics need few labels."""
    return str(getattr(scope.get("route"), "path", "unmatched"))

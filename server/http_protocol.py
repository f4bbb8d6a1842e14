"""HTTP connections: limits on the headers, on the time they take, and on the number of connections."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any, cast

from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol

from graphbox.server.problem import problem_body

__all__ = ["ConnectionLimits", "limited_protocol"]

MAX_HEADER_BYTES = 64 * 1024
MAX_HEADERS = 100


@dataclass(eq=False)
class ConnectionLimits:
    """Limits that all connections of a server share.

    Attributes:
        max_connections: most open connections. For a new one, the connection that was idle longest is closed,
            or else the one that has sent its body longest; where all are answered, the new one gets 503.
        header_timeout_s: time a client has to send the request line and the headers.
        idle: connections without a request, the one that was idle longest first.
        receiving: connections whose body is not complete, the one that began first, first.
    """

    max_connections: int
    header_timeout_s: float
    idle: OrderedDict[LimitedProtocol, None] = field(default_factory=OrderedDict)
    receiving: OrderedDict[LimitedProtocol, None] = field(default_factory=OrderedDict)

    def make_room(self) -> bool:
        """Close the connection that waits longest for its client; return whether there was one."""
        waiting = self.idle or self.receiving
        if waiting:
            waiting.popitem(last=False)[0].transport.close()
            return True
        return False

    def forget(self, connection: LimitedProtocol) -> None:
        """Note that a connection does not wait for its client any more."""
        self.idle.pop(connection, None)
        self.receiving.pop(connection, None)


class LimitedProtocol(HttpToolsProtocol):
    """Closes connections whose headers come too slowly, are too large or are too many.

    uvicorn by itself waits for headers without end, and keeps as many as a client sends.
    """

    limits: ConnectionLimits

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._header_timer: asyncio.TimerHandle | None = None
        self._received_bytes = 0
        self._headers_complete = False
        self._header_count = 0
        self._header_bytes = 0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Wait for the first request, or refuse the connection where no other can be closed for it."""
        super().connection_made(transport)
        limits = self.limits
        if len(self.connections) > limits.max_connections and not limits.make_room():
            self._refuse(
                HTTPStatus.SERVICE_UNAVAILABLE,
                "overloaded",
                f"all {limits.max_connections} connections of this server have a running request",
                b"retry-after: 1\r\n",
            )
            return
        limits.idle[self] = None
        self._await_headers()

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop waiting."""
        self.limits.forget(self)
        self._stop_waiting()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Parse ``data``; until the headers are complete, their time and size are limited."""
        super().data_received(data)
        if self.transport.is_closing():
            return
        # The cycle is None until the first headers are complete, unlike its annotation.
        cycle = cast("Any", self.cycle)
        if self._headers_complete and cycle is not None and not cycle.response_complete:
            return
        if self._header_timer is None:
            self._await_headers()
        self._received_bytes += len(data)
        if self._received_bytes > MAX_HEADER_BYTES:
            self._refuse_headers()

    def on_message_begin(self) -> None:
        """Begin to count headers."""
        self._headers_complete = False
        self._header_count = self._header_bytes = 0
        super().on_message_begin()

    def on_header(self, name: bytes, value: bytes) -> None:
        """Add one header, or one trailer of a chunked body."""
        self._header_count += 1
        self._header_bytes += len(name) + len(value)
        if self._header_count > MAX_HEADERS or self._header_bytes > MAX_HEADER_BYTES:
            raise ValueError("too many headers")  # ends in `send_400_response`
        super().on_header(name, value)

    def on_headers_complete(self) -> None:
        """Start the request."""
        self._stop_waiting()
        self.limits.forget(self)
        self.limits.receiving[self] = None
        self._headers_complete = True
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        """Start to wait for the server instead of the client."""
        self.limits.receiving.pop(self, None)
        super().on_message_complete()

    def on_response_complete(self) -> None:
        """Count the connection as idle again, unless the next request is here already."""
        super().on_response_complete()
        cycle = cast("Any", self.cycle)
        if cycle.response_complete and not self.transport.is_closing():
            self.limits.forget(self)
            self.limits.idle[self] = None

    def send_400_response(self, msg: str) -> None:
        """Refuse a request that is no HTTP, or has too many headers."""
        if self._header_count > MAX_HEADERS or self._header_bytes > MAX_HEADER_BYTES:
            self._refuse_headers()
        else:
            self._refuse(HTTPStatus.BAD_REQUEST, "invalid_http", f"expected an HTTP/1.1 request: {msg}")

    def _await_headers(self) -> None:
        self._header_timer = self.loop.call_later(self.limits.header_timeout_s, self._time_out)

    def _stop_waiting(self) -> None:
        self._received_bytes = 0
        if self._header_timer is not None:
            self._header_timer.cancel()
            self._header_timer = None

    def _time_out(self) -> None:
        if not self.transport.is_closing():
            self._refuse(
                HTTPStatus.REQUEST_TIMEOUT,
                "header_timeout",
                f"expected a request within {self.limits.header_timeout_s:g} s",
            )

    def _refuse_headers(self) -> None:
        self._refuse(
            HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE,
            "headers_too_large",
            f"expected at most {MAX_HEADERS} headers of together {MAX_HEADER_BYTES} bytes",
        )

    def _refuse(self, status: HTTPStatus, code: str, message: str, headers: bytes = b"") -> None:
        body = problem_body(code, message, "")
        self.transport.write(
            STATUS_LINE[status]
            + headers
            + b"content-type: application/json\r\nconnection: close\r\ncontent-length: "
            + str(len(body)).encode()
            + b"\r\n\r\n"
            + body
        )
        self.transport.close()


def limited_protocol(max_connections: int, header_timeout_s: float) -> type[LimitedProtocol]:
    """Return the protocol class of one server, whose connections share these limits."""
    limits = ConnectionLimits(max_connections, header_timeout_s)
    return type("LimitedProtocol", (LimitedProtocol,), {"limits": limits})

"""Limits on what a client may do before its request is complete: time and size of the headers."""

from __future__ import annotations

import asyncio
from typing import Any, cast

from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol

__all__ = ["limited_protocol"]

MAX_HEADER_BYTES = 64 * 1024


class LimitedProtocol(HttpToolsProtocol):
    """Closes connections whose headers come too slowly or are too large.

    uvicorn waits for ever for the rest of a header, so that a few thousand clients that send one
    byte a minute would use up its connections.
    """

    header_timeout_s: float

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._header_timer: asyncio.TimerHandle | None = None
        self._header_bytes = 0
        self._headers_complete = False

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Start to wait for the first request."""
        super().connection_made(transport)
        self._await_headers()

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop waiting."""
        self._stop_waiting()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Parse what came; where that is not yet a whole header, the clock runs on."""
        super().data_received(data)
        if self.transport.is_closing():
            return
        # The cycle is None until the first headers are complete, whatever its annotation says.
        cycle = cast("Any", self.cycle)
        if self._headers_complete and cycle is not None and not cycle.response_complete:
            return
        if self._header_timer is None:
            self._await_headers()
        self._header_bytes += len(data)
        if self._header_bytes > MAX_HEADER_BYTES:
            self._refuse(431, f"expected headers of at most {MAX_HEADER_BYTES} bytes")

    def on_message_begin(self) -> None:
        """Note that headers begin."""
        self._headers_complete = False
        super().on_message_begin()

    def on_header(self, name: bytes, value: bytes) -> None:
        """Keep one header, unless together they are too large."""
        super().on_header(name, value)
        if sum(len(key) + len(text) for key, text in self.headers) > MAX_HEADER_BYTES:
            raise ValueError("headers too large")  # the parser turns this into a 400

    def on_headers_complete(self) -> None:
        """Stop the clock and start the request."""
        self._stop_waiting()
        self._headers_complete = True
        super().on_headers_complete()

    def _await_headers(self) -> None:
        self._header_timer = self.loop.call_later(self.header_timeout_s, self._time_out)

    def _stop_waiting(self) -> None:
        self._header_bytes = 0
        if self._header_timer is not None:
            self._header_timer.cancel()
            self._header_timer = None

    def _time_out(self) -> None:
        if not self.transport.is_closing():
            self._refuse(408, f"expected a request within {self.header_timeout_s:g} s")

    def _refuse(self, status: int, message: str) -> None:
        body = message.encode()
        self.transport.write(
            STATUS_LINE[status]
            + b"content-type: text/plain; charset=utf-8\r\nconnection: close\r\ncontent-length: "
            + str(len(body)).encode()
            + b"\r\n\r\n"
            + body
        )
        self.transport.close()


def limited_protocol(timeout_s: float) -> type[LimitedProtocol]:
    """Return the protocol class that gives a client ``timeout_s`` seconds to send its headers."""
    return type("LimitedProtocol", (LimitedProtocol,), {"header_timeout_s": timeout_s})

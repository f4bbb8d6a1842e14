"""HTTP/1.1 client connection that sends requests as they are and looks at the status of the answers only."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from http import HTTPStatus
from typing import cast

import httptools

__all__ = ["HttpConnection"]

Answered = Callable[["HttpConnection", int], None]


class HttpConnection(asyncio.Protocol):
    """One connection with at most one request in flight.

    Args:
        answered: called with the status of each complete answer to a request; it may send the next one.
        lost: called when the connection ends.
    """

    __slots__ = ("_answered", "_closes", "_lost", "_parser", "_transport", "due_ns", "sent_ns")

    def __init__(self, answered: Answered, lost: Callable[[HttpConnection], None]) -> None:
        self._answered = answered
        self._lost = lost
        self._parser = httptools.HttpResponseParser(self)
        self._transport: asyncio.Transport | None = None
        self._closes = False
        self.due_ns = 0  # intended time of the request in flight
        self.sent_ns = 0  # 0: none is in flight

    @property
    def is_open(self) -> bool:
        """Whether a request can be sent."""
        return self._transport is not None and not self._closes

    def send(self, request: bytes, due_ns: int, now_ns: int) -> None:
        """Send a request that was due at a time."""
        self.due_ns = due_ns
        self.sent_ns = now_ns
        cast("asyncio.Transport", self._transport).write(request)

    def abort(self) -> None:
        """Close the connection without waiting; nothing can be sent any more."""
        self._closes = True
        if self._transport is not None:
            self._transport.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Called by the event loop."""
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        """Called by the event loop."""
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError:
            self.abort()  # the request in flight counts as one whose connection was lost

    def on_message_complete(self) -> None:
        """Called by the parser."""
        parser = self._parser
        status = parser.get_status_code()
        if status < HTTPStatus.OK:
            return
        if not self.sent_ns:  # of an idle connection that the server gives up
            self.abort()
            return
        if not parser.should_keep_alive():
            self.abort()
        self._answered(self, status)

    def connection_lost(self, error: Exception | None) -> None:  # noqa: ARG002 - of the interface
        """Called by the event loop."""
        self._transport = None
        self._lost(self)

"""One HTTP/1.1 connection: requests in, answers out, in order."""

from __future__ import annotations

import asyncio
import itertools
import os
import re
import time
from collections import deque
from collections.abc import Sequence
from http import HTTPStatus
from typing import cast

import httptools

from graphbox.server.defects import answer_defect
from graphbox.server.http.connections import Connections, Phase
from graphbox.server.http.exchange import Application, Exchange
from graphbox.server.http.refusals import body_timeout, refuse_repeated, stopping, too_many_bodies
from graphbox.server.problem import RefusedError, problem_body, too_large

__all__ = ["REQUEST_ID", "HttpConnection", "next_request_id"]

MAX_HEADER_BYTES = 64 * 1024
MAX_HEADERS = 100
# Requests that wait for the answer to an earlier one of the same connection.
_MAX_PIPELINED = 64
_FRAMING_HEADERS = frozenset({b"content-length", b"transfer-encoding"})
REQUEST_ID = re.compile(rb"[A-Za-z0-9._-]{1,128}")
# The first half tells processes apart, the second half requests.
_ID_OF_PROCESS = os.urandom(4).hex().encode()
_request_numbers = itertools.count(1)


class HttpConnection(asyncio.Protocol):
    """Reads requests whole and passes them to an application one at a time.

    Args:
        application: answers the requests.
        connections: all connections of the server, with their limits.
        scheme: ``http`` or ``https``.
    """

    def __init__(self, application: Application, connections: Connections, scheme: str = "http") -> None:
        self.scheme = scheme
        self.client: tuple[str, int] | None = None
        self._application = application
        self._connections = connections
        self._limits = connections.limits
        self._parser = httptools.HttpRequestParser(self)
        self._transport: asyncio.Transport = cast("asyncio.Transport", None)  # set by `connection_made`
        self._phase = Phase.ANSWERING
        self._waiting: deque[Exchange] = deque()
        self._current: Exchange | None = None
        # Of the request that is being read.
        self._incoming: Exchange | None = None
        self._is_reading = False
        self._target = b""
        self._header_list: list[tuple[bytes, bytes]] = []
        self._header_count = 0
        self._header_bytes = 0
        self._unparsed_bytes = 0
        self._body = bytearray()
        self._first_body = b""
        self._body_bytes = 0
        # Of a refused request whose connection stays: what is left of its body.
        self._skipped_bytes = 0
        self._is_deaf = False
        self._has_progress = False
        # Whether a request was begun since bytes were received last: one at a time, others have their turns.
        self._has_begun = False
        self._unsent_bytes = 0
        self._is_paused = False
        self._drained: asyncio.Future[None] | None = None
        self.is_last = False

    # asyncio.Protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Wait for the first request, or refuse the connection where no other can be closed for it."""
        self._transport = cast("asyncio.Transport", transport)
        self.is_last = self._connections.is_stopping
        peer = transport.get_extra_info("peername")
        self.client = (str(peer[0]), int(peer[1])) if isinstance(peer, tuple) and len(peer) >= 2 else None
        if not self._connections.add(self):
            most = self._limits.max_connections
            message = f"all {most} connections of this server have a running request"
            self._answer_alone(HTTPStatus.SERVICE_UNAVAILABLE, "overloaded", message, b"retry-after: 1\r\n")
            return
        self._move(Phase.HEADERS)

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - of the interface
        """Tell those that answer that nobody is there any more."""
        self._is_deaf = True
        self._connections.remove(self, self._phase)
        self._phase = Phase.ANSWERING
        self._forget_body()
        self._resume_drained()
        left = ([self._current] if self._current else []) + list(self._waiting)
        self._waiting.clear()
        self._current = None
        for exchange in left:
            exchange.leave()
            self._release(exchange)
            self._application.answered(exchange)

    def data_received(self, data: bytes) -> None:
        """Parse ``data`` and pass on the requests that are complete."""
        if self._is_deaf:
            return
        self._has_progress = self._has_begun = False
        left: bytes | memoryview = data
        try:
            while left and not self._is_deaf:
                left = self._skip(left) if self._skipped_bytes else self._feed(left)
        except httptools.HttpParserError as error:
            if not self._is_deaf:
                self._refuse_text(error)
                return
        # Bytes of headers, chunk sizes and trailers, which are kept until they are complete.
        self._unparsed_bytes = 0 if self._has_progress else self._unparsed_bytes + len(data)
        if self._unparsed_bytes > MAX_HEADER_BYTES and not self._is_deaf:
            self._refuse_headers()
        elif self._phase is not Phase.DISCARDING:
            self._settle()

    def eof_received(self) -> bool:
        """Close the connection."""
        return False

    def pause_writing(self) -> None:
        """Stop reading: the client does not read its answers."""
        self._is_paused = True
        self._transport.pause_reading()
        self._drained = asyncio.get_running_loop().create_future()
        if self._phase is not Phase.DISCARDING:
            self._move(Phase.WRITING)

    def resume_writing(self) -> None:
        """Read on."""
        self._is_paused = False
        self._resume_drained()
        if self._phase is Phase.WRITING and not self._transport.is_closing():
            self._move(Phase.ANSWERING)
            if self._current is None:
                self._next()
            elif not self._waiting:
                self._transport.resume_reading()
        elif self._phase is Phase.DISCARDING:
            self._transport.resume_reading()

    # Of the parser

    def on_message_begin(self) -> None:
        """Begin a request; end the packet where an earlier answer is the last one."""
        if self._is_deaf:
            raise ValueError("nothing more is answered")  # ends in `data_received`
        self._is_reading = True
        self._target = b""
        self._header_list = []
        self._header_count = self._header_bytes = 0

    def on_url(self, url: bytes) -> None:
        """Add to the target of the request."""
        self._target += url
        self._header_bytes += len(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        """Add one header, or one trailer of a chunked body."""
        self._header_count += 1
        self._header_bytes += len(name) + len(value)
        if self._header_count > MAX_HEADERS or self._header_bytes > MAX_HEADER_BYTES:
            raise ValueError("too many headers")  # ends in `_refuse_text`
        if self._incoming is None:  # trailers say nothing that is used here
            self._header_list.append((name.lower(), value))

    def on_headers_complete(self) -> None:
        """Admit or refuse the request."""
        self._has_progress = True
        if self._is_deaf:
            return  # an earlier answer was the last one, and the rest of the packet is parsed
        if self._incoming is not None:
            return  # its body follows: see `_feed`
        target = self._target
        if not target.startswith(b"/"):
            target = _origin_form(target)
        exchange = Exchange(self, target, self._header_list)
        parser = self._parser
        exchange.method = parser.get_method().decode("latin-1")
        exchange.version = parser.get_http_version()
        exchange.keeps_alive = parser.should_keep_alive()
        exchange.max_body_bytes = self._limits.max_body_bytes
        given = exchange.headers.get(b"x-request-id")
        exchange.request_id = given if given and REQUEST_ID.fullmatch(given) else next_request_id()
        self._incoming = exchange
        try:
            if len(exchange.headers) != len(self._header_list):
                refuse_repeated(self._header_list)
            self._application.admit(exchange)
        except RefusedError as refusal:
            self._refuse(exchange, refusal)
            return
        except Exception as error:  # noqa: BLE001 - answered
            exchange.keeps_alive = False
            self._current = exchange
            self._move(Phase.DISCARDING)
            answer_defect(exchange, error)
            return
        if exchange.headers.get(b"expect", b"").lower() == b"100-continue" and not self._is_busy():
            self._transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")

    def on_body(self, data: bytes) -> None:
        """Add a piece of the body."""
        self._has_progress = True
        exchange = self._incoming
        if exchange is None or self._phase is Phase.DISCARDING:
            if self._skipped_bytes:
                self._skipped_bytes -= len(data)
            return
        size = len(data)
        self._body_bytes += size
        self._connections.buffered_bytes += size
        if self._body_bytes > exchange.max_body_bytes:
            self._refuse(exchange, too_large(exchange.max_body_bytes))
        elif self._connections.buffered_bytes > self._limits.max_buffered_bytes:
            self._refuse(exchange, too_many_bodies())
        elif not self._first_body:
            self._first_body = data
        else:
            # Grows in place: to join pieces at the end would copy a large body at once.
            if not self._body:
                self._body += self._first_body
            self._body += data

    def on_message_complete(self) -> None:
        """Pass on the request, or keep it until the earlier ones are answered."""
        if self._parser.should_upgrade() and self._incoming is not None and _has_body(self._incoming):
            return  # its body follows: see `_feed`
        self._is_reading = False
        self._has_progress = True
        exchange, self._incoming = self._incoming, None
        if self._phase is Phase.DISCARDING:
            self._skipped_bytes = 0
            if exchange is not None and exchange.keeps_alive and not self.is_last:
                self._move(Phase.IDLE)
            else:
                self.close()
            return
        if self._is_deaf:
            return
        if exchange is None:  # refused, and answered
            if self._current is None and not self._is_paused:
                self._move(Phase.IDLE)
            return
        exchange.body = self._body or self._first_body
        exchange.counted_bytes, self._body_bytes = self._body_bytes, 0
        self._forget_body()
        exchange.received_ns = time.perf_counter_ns()
        if not self._is_busy():
            self._pass_on(exchange)
        else:
            self._keep(exchange)

    # Of an exchange

    @property
    def is_closing(self) -> bool:
        """Whether nothing reaches the client any more."""
        return self._transport.is_closing()

    @property
    def has_waiting(self) -> bool:
        """Whether further requests of a pipeline wait for their answers."""
        return bool(self._waiting)

    def standing_headers(self) -> bytes:
        """Return the headers that every answer has."""
        return self._connections.standing_headers

    def write(self, data: bytes) -> None:
        """Send bytes of the current answer."""
        self._transport.write(data)

    def write_pieces(self, pieces: Sequence[bytes | memoryview]) -> None:
        """Send bytes of the current answer by one call to the system, without joining them."""
        self._transport.writelines(pieces)

    async def drain(self) -> None:
        """Return when more may be written, or the client has left."""
        if self._drained is not None:
            await asyncio.shield(self._drained)

    def complete(self, exchange: Exchange) -> None:
        """Continue with the next request after the answer to this one."""
        self._release(exchange)
        self._application.answered(exchange)
        if exchange is self._current:
            self._current = None
        if self._phase is Phase.DISCARDING:
            return
        if not exchange.keeps_alive:
            self.close()
        elif not self._is_paused:
            self._next()

    def abort(self) -> None:
        """Close the connection at once."""
        self._is_deaf = True
        self._transport.abort()

    # Of the other connections

    def stop(self) -> None:
        """Close the connection if it is idle; else its next answer is the last."""
        self.is_last = True
        if self._current is None and not self._waiting and not self._is_reading:
            self.close()

    def close(self) -> None:
        """Close the connection after what was written is sent, for which the client has some time."""
        self._is_deaf = True
        self._transport.close()
        if self._transport.get_write_buffer_size():
            self._move(Phase.WRITING)

    def drop(self) -> None:
        """Refuse the running request and close the connection."""
        exchange = self._current or self._incoming
        if exchange is not None and not exchange.is_answered:
            exchange.cancel()
            # Of a change that runs, the audit log takes the answer; this one is for the client.
            taken, exchange.on_answer = exchange.on_answer, None
            if exchange.status and taken is None:
                self.abort()
            else:
                exchange.keeps_alive = False
                self._application.refuse(exchange, stopping(exchange))
            if taken is not None:
                exchange.on_answer, exchange.status = taken, 0
        self.close()

    def time_out(self, phase: Phase) -> None:
        """End a wait that took too long."""
        self._phase = Phase.ANSWERING
        if phase is Phase.HEADERS and not self.is_closing:
            limit_s = self._limits.header_timeout_s
            message = f"expected a request within {limit_s:g} s"
            self._answer_alone(HTTPStatus.REQUEST_TIMEOUT, "header_timeout", message)
        elif phase is Phase.BODY and self._incoming is not None:
            self._refuse(self._incoming, body_timeout(self._limits.body_timeout_s, self._body_bytes))
            self.close()
        elif phase is Phase.WRITING:
            self._wait_on_or_abort()
        else:
            self.close()

    # Inside

    def _settle(self) -> None:
        """Note what the connection waits for after some bytes were read."""
        is_answering = self._current is not None or bool(self._waiting)
        if is_answering or self._is_paused or self._transport.is_closing():
            if is_answering and (self._waiting or self._is_reading) and not self._is_paused:
                self._transport.pause_reading()
            return
        if self._incoming is not None:
            if self._phase is not Phase.BODY:
                self._move(Phase.BODY)
        elif self._phase is not Phase.HEADERS and (self._is_reading or self._phase is not Phase.IDLE):
            self._move(Phase.HEADERS)

    def _is_busy(self) -> bool:
        """Return whether a request has to wait: for others, for the client to read, or for the next turn.

        Answered as they are parsed, the thousands of requests of one packet would hold up everybody.
        """
        return self._current is not None or self._is_paused or self._has_begun or bool(self._waiting)

    def _keep(self, exchange: Exchange) -> None:
        """Keep a request until the earlier ones are answered."""
        self._waiting.append(exchange)
        if len(self._waiting) >= _MAX_PIPELINED:
            self._is_deaf = self.is_last = True
        if self._current is None and not self._is_paused and len(self._waiting) == 1:
            if self._phase is not Phase.ANSWERING:
                self._move(Phase.ANSWERING)
            self._next()

    def _pass_on(self, exchange: Exchange) -> None:
        self._current = exchange
        self._has_begun = True
        if self._phase is not Phase.ANSWERING:
            self._move(Phase.ANSWERING)
        try:
            if exchange.refusal is None:
                self._application.answer(exchange)
            else:
                self._application.refuse(exchange, exchange.refusal)
        except Exception as error:  # noqa: BLE001 - answered
            answer_defect(exchange, error)

    def _next(self) -> None:
        """Answer the next request that waits, or wait for one."""
        if self._waiting:
            # Not at once: each answer would be deeper in the stack than the one before.
            asyncio.get_running_loop().call_soon(self._pass_on_waiting)
            return
        if self.is_last:
            self.close()
            return
        if self._incoming is not None:
            self._move(Phase.BODY)
        else:
            self._move(Phase.HEADERS if self._is_reading else Phase.IDLE)
        self._transport.resume_reading()

    def _pass_on_waiting(self) -> None:
        if self._is_paused or self._transport.is_closing():
            return
        if self._waiting and self._current is None:
            self._pass_on(self._waiting.popleft())

    def _refuse(self, exchange: Exchange, refusal: RefusedError) -> None:
        """Refuse a request; with a body that is not read to its end, the connection carries no other one."""
        has_body = _has_body(exchange)
        if not has_body and self._is_busy():
            exchange.refusal = refusal.with_traceback(None)  # in its turn, by `on_message_complete`
            return
        if self._current is not None or self._waiting:
            # Earlier ones of a pipeline are answered, this one is not.
            self._is_deaf = self.is_last = True
            return
        left_bytes = None if self._has_begun else self._bytes_to_skip(exchange, refusal)
        self._current = exchange
        self._has_begun = True
        self._forget_body()
        if not has_body:
            self._incoming = None  # `on_message_complete` has nothing to pass on
            self._application.refuse(exchange, refusal)
            return
        exchange.keeps_alive = left_bytes is not None
        self._skipped_bytes = left_bytes or 0
        self._move(Phase.DISCARDING)
        self._application.refuse(exchange, refusal)
        if self._connections.is_stopping:
            self.close()

    def _bytes_to_skip(self, exchange: Exchange, refusal: RefusedError) -> int | None:
        """Return the rest of a refused body after which the connection carries on; None: it does not.

        Under overload, to connect again would cost as much as to drop some hundred kilobytes.
        """
        headers = exchange.headers
        if refusal.status != HTTPStatus.SERVICE_UNAVAILABLE or not exchange.keeps_alive:
            return None
        length = headers.get(b"content-length", b"")
        if not length.isdigit() or b"expect" in headers:
            return None
        return max(0, int(length) - self._body_bytes)

    def _feed(self, data: bytes | memoryview) -> bytes | memoryview:
        """Parse ``data``; return what follows a request to change the protocol.

        To what such a request asks for, the server does not change. The parser ends there, even before a
        body: another one reads it, after a head that says how long it is.

        Raises:
            httptools.HttpParserError: it is no HTTP, or nothing more is answered.
        """
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade as upgrade:
            self._parser = httptools.HttpRequestParser(self)
            if self._incoming is not None and not self._skipped_bytes:
                self._parser.feed_data(_head_of_body(self._incoming))
            return memoryview(data)[upgrade.args[0] :]
        return b""

    def _skip(self, data: bytes | memoryview) -> bytes | memoryview:
        """Drop what belongs to a refused body; return what follows it."""
        self._has_progress = True
        left_bytes = self._skipped_bytes - len(data)
        if left_bytes > 0:
            self._skipped_bytes = left_bytes
            return b""
        rest = data[self._skipped_bytes :]
        self._skipped_bytes = 0
        self._parser = httptools.HttpRequestParser(self)  # the other one waits for the body
        self._incoming = None
        self._is_reading = False
        if self.is_last:
            self.close()
            return b""
        self._move(Phase.IDLE)
        return rest

    def _refuse_text(self, error: Exception) -> None:
        """Refuse what is no HTTP, or has too many headers."""
        if self._header_count > MAX_HEADERS or self._header_bytes > MAX_HEADER_BYTES:
            self._refuse_headers()
        else:
            self._answer_alone(
                HTTPStatus.BAD_REQUEST, "invalid_http", f"expected an HTTP/1.1 request: {error}"
            )

    def _refuse_headers(self) -> None:
        self._answer_alone(
            HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE,
            "headers_too_large",
            f"expected at most {MAX_HEADERS} headers of together {MAX_HEADER_BYTES} bytes",
        )

    def _answer_alone(self, status: HTTPStatus, code: str, message: str, headers: bytes = b"") -> None:
        """Refuse what is no request, and close the connection."""
        self._is_deaf = True
        if self._phase is Phase.DISCARDING:
            return  # its request is refused already; the rest of the body is dropped until the timer ends
        if self._current is not None or self._waiting:
            self.is_last = True  # the client would take it for the answer to an earlier request
            return
        body = problem_body(code, message, "")
        head = f"HTTP/1.1 {status.value} {status.phrase}\r\n".encode() + headers
        self._transport.write(
            head
            + b"content-type: application/json\r\nconnection: close\r\ncontent-length: "
            + str(len(body)).encode()
            + b"\r\n\r\n"
            + body
        )
        self.close()

    def _wait_on_or_abort(self) -> None:
        """Give a client that has read something since the last look as much time again."""
        unsent_bytes = self._transport.get_write_buffer_size()
        if unsent_bytes < self._unsent_bytes:
            self._move(Phase.WRITING)
        else:
            self.abort()

    def _release(self, exchange: Exchange) -> None:
        """Count the body of a request no more."""
        self._connections.buffered_bytes -= exchange.counted_bytes
        exchange.counted_bytes = 0

    def _forget_body(self) -> None:
        self._connections.buffered_bytes -= self._body_bytes
        self._body_bytes = 0
        self._first_body = b""
        if self._body:
            self._body = bytearray()

    def _move(self, phase: Phase) -> None:
        self._connections.move(self, self._phase, phase)
        self._phase = phase
        if phase is Phase.WRITING:
            self._unsent_bytes = self._transport.get_write_buffer_size()

    def _resume_drained(self) -> None:
        if self._drained is not None:
            if not self._drained.done():
                self._drained.set_result(None)
            self._drained = None


def _has_body(exchange: Exchange) -> bool:
    headers = exchange.headers
    return headers.get(b"content-length", b"0") != b"0" or b"transfer-encoding" in headers


def _head_of_body(exchange: Exchange) -> bytes:
    framing = [b"%b: %b\r\n" % header for header in exchange.header_list if header[0] in _FRAMING_HEADERS]
    return b"POST / HTTP/1.1\r\n%b\r\n" % b"".join(framing)


def _origin_form(target: bytes) -> bytes:
    """Return path and query of a target that is a whole address; of any other one, nothing matches."""
    try:
        parsed = httptools.parse_url(target)
    except httptools.HttpParserInvalidURLError:
        return b"/" + target
    path: bytes = parsed.path or b"/"
    return path + b"?" + parsed.query if parsed.query else path


def next_request_id() -> bytes:
    """Return an id for a request that has none."""
    return b"%b%08x" % (_ID_OF_PROCESS, next(_request_numbers))

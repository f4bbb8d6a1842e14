"""Connections that send a case and report how the server answered it."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Generic, Self, TypeVar, cast

import hpack
import httptools

from tests.server import http2_frames as http2
from tests.server.fuzz.cases import GrpcCase, RestCase

__all__ = ["MALFORMED", "Answer", "CaseConnection", "GrpcClient", "RestClient"]

MALFORMED = -2
"""Status of bytes that are no answer."""

_LARGEST_WINDOW = (1 << 31) - 1
_MOST_CALLS = 2000
# Every server takes frames of this size.
_FRAME_BYTES = 1 << 14

AnyCase = TypeVar("AnyCase", RestCase, GrpcCase)


@dataclass
class Answer:
    """The answer to one request.

    Attributes:
        status: of HTTP, or of gRPC; -1: the connection was closed without one.
        text: body of HTTP, or ``grpc-message``.
        messages: messages of gRPC.
    """

    status: int = -1
    text: bytes = b""
    messages: list[bytes] = field(default_factory=list)


class CaseConnection(asyncio.Protocol, Generic[AnyCase]):
    """A connection with one case at a time. Belongs to the thread of its event loop."""

    def __init__(self) -> None:
        self.answers: list[Answer] = []
        self.is_open = False
        self._transport: asyncio.Transport = cast("asyncio.Transport", None)
        self._done: asyncio.Future[None] | None = None
        self._until_closed = False
        self._has_ended = False
        self._is_usable = asyncio.Event()

    @classmethod
    async def open(cls, host: str, port: int) -> Self:
        """Connect."""
        _, connection = await asyncio.get_running_loop().create_connection(cls, host, port)
        await connection._is_usable.wait()
        return connection

    async def ask(self, case: AnyCase, timeout_s: float, pause_s: float = 0.0) -> list[Answer]:
        """Send a case, and return its answers: of a framed one exactly one, unless the connection was closed.

        Args:
            case: what to send.
            timeout_s: time for the answer, or for the end of the connection after damaged bytes.
            pause_s: time after damaged bytes, before the announcement that no more follow.

        Raises:
            TimeoutError: the server did neither.
        """
        self.answers = []
        self._done = asyncio.get_running_loop().create_future()
        self._until_closed = not case.is_framed
        if not self.is_open:
            self._settle()
        self._send(case)
        if self._until_closed:
            await asyncio.sleep(pause_s)
            if self.is_open:
                self._has_ended = True
                self._transport.write_eof()
        await asyncio.wait_for(self._done, timeout_s)
        return self.answers

    def close(self) -> None:
        """Close the connection."""
        self.is_open = False
        self._transport.close()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Called by the event loop."""
        self._transport = cast("asyncio.Transport", transport)
        self.is_open = True
        self._is_usable.set()

    def connection_lost(self, exc: Exception | None) -> None:
        """Called by the event loop."""
        self.is_open = False
        self._is_usable.set()
        self._settle()

    def eof_received(self) -> bool:
        """Called by the event loop."""
        return False

    def _send(self, case: AnyCase) -> None:
        raise NotImplementedError

    def _answered(self, answer: Answer) -> None:
        self.answers.append(answer)
        if not self._until_closed:
            self._settle()

    def _write(self, data: bytes) -> None:
        """Send what belongs to the connection, as long as it may be sent."""
        if self.is_open and not self._has_ended:
            self._transport.write(data)

    def _settle(self) -> None:
        if self._done is not None and not self._done.done():
            self._done.set_result(None)


class RestClient(CaseConnection[RestCase]):
    """A connection of HTTP/1.1."""

    def __init__(self) -> None:
        super().__init__()
        self._parser = httptools.HttpResponseParser(self)
        self._body: list[bytes] = []

    def data_received(self, data: bytes) -> None:
        """Called by the event loop."""
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError as error:
            self._answered(Answer(MALFORMED, f"{error}: {data[:200]!r}".encode()))
            self.close()

    def on_body(self, data: bytes) -> None:
        """Called by the parser."""
        self._body.append(data)

    def on_message_complete(self) -> None:
        """Called by the parser."""
        status = self._parser.get_status_code()
        if status >= 200:
            if not self._parser.should_keep_alive():
                self.close()
            self._answered(Answer(status, b"".join(self._body)))
        self._body = []

    def _send(self, case: RestCase) -> None:
        self._transport.write(case.data)


class GrpcClient(CaseConnection[GrpcCase]):
    """A connection of HTTP/2."""

    def __init__(self) -> None:
        super().__init__()
        self._received = bytearray()
        self._decoder = hpack.Decoder()
        self._next_stream = 1
        self._answer = Answer()
        self._data = b""
        self._unacknowledged_bytes = 0
        self._handlers: dict[int, Callable[[http2.Frame], None]] = {
            http2.HEADERS: self._on_headers,
            http2.DATA: self._on_data,
            http2.SETTINGS: self._on_settings,
            http2.PING: self._on_ping,
            http2.RST_STREAM: self._on_reset,
            http2.GOAWAY: self._on_goaway,
        }

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Called by the event loop."""
        super().connection_made(transport)
        self._is_usable.clear()  # until the server says how much it takes
        settings = http2.frame(http2.SETTINGS, struct.pack(">HI", 4, _LARGEST_WINDOW))
        window = http2.frame(http2.WINDOW_UPDATE, struct.pack(">I", _LARGEST_WINDOW - 65535))
        self._transport.write(http2.PREFACE + settings + window)

    def data_received(self, data: bytes) -> None:
        """Called by the event loop."""
        self._received += data
        complete = bytes(self._received)
        for each in http2.frames_of(complete):
            del self._received[: 9 + len(each.payload)]
            handler = self._handlers.get(each.kind)
            if handler is not None:
                handler(each)

    def _send(self, case: GrpcCase) -> None:
        stream, self._next_stream = self._next_stream, self._next_stream + 2
        self._answer, self._data = Answer(), b""
        if not case.is_framed:
            self._transport.write(case.frames)
            return
        head = http2.frame(http2.HEADERS, http2.fields(case.headers), flags=http2.END_HEADERS, stream=stream)
        content, pieces = case.content, [head]
        while len(content) > _FRAME_BYTES:
            pieces.append(http2.frame(http2.DATA, content[:_FRAME_BYTES], stream=stream))
            content = content[_FRAME_BYTES:]
        pieces.append(http2.frame(http2.DATA, content, flags=http2.END_STREAM, stream=stream))
        self._transport.write(b"".join(pieces))

    def _on_headers(self, frame: http2.Frame) -> None:
        fields = {str(name): str(value) for name, value in self._decoder.decode(frame.payload)}
        status = fields.get("grpc-status")
        if status is not None:
            self._answer.status = int(status)
            self._answer.text = fields.get("grpc-message", "").encode()
        elif fields.get(":status") not in {"200", None}:
            self._answer.status = int(fields[":status"])  # of HTTP: no call of gRPC
        if frame.flags & http2.END_STREAM:
            self._end()

    def _on_data(self, frame: http2.Frame) -> None:
        self._data += frame.payload
        self._unacknowledged_bytes += len(frame.payload)
        while len(self._data) >= 5 and len(self._data) - 5 >= int.from_bytes(self._data[1:5]):
            size = int.from_bytes(self._data[1:5])
            self._answer.messages.append(self._data[5 : 5 + size])
            self._data = self._data[5 + size :]
        if self._unacknowledged_bytes > 1 << 20:
            update = struct.pack(">I", self._unacknowledged_bytes)
            self._write(http2.frame(http2.WINDOW_UPDATE, update))
            self._unacknowledged_bytes = 0
        if frame.flags & http2.END_STREAM:
            self._end()

    def _on_settings(self, frame: http2.Frame) -> None:
        if not frame.flags & 1:
            self._write(http2.frame(http2.SETTINGS, flags=1))
            self._is_usable.set()

    def _on_ping(self, frame: http2.Frame) -> None:
        if not frame.flags & 1:
            self._write(http2.frame(http2.PING, frame.payload, flags=1))

    def _on_reset(self, frame: http2.Frame) -> None:
        # After the answer, it says that the rest of the request is not wanted.
        if frame.stream == self._next_stream - 2:
            self._end()

    def _on_goaway(self, _frame: http2.Frame) -> None:
        if not self._until_closed and self._answer.status < 0:
            self._settle()
        self.close()

    def _end(self) -> None:
        if not any(self._answer is each for each in self.answers):
            self._answered(self._answer)
        if self._next_stream > 2 * _MOST_CALLS:
            self.close()

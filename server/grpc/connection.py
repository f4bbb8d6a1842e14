"""One HTTP/2 connection that carries calls of gRPC."""

from __future__ import annotations

import asyncio
import time
from http import HTTPStatus
from typing import Any, cast

from graphbox import _http2
from graphbox.server.grpc.call import GrpcCall
from graphbox.server.grpc.service import (
    INFER_PATH,
    MAX_SMALL_MESSAGE_BYTES,
    STREAM_PATH,
    WATCH_PATH,
    GrpcService,
)
from graphbox.server.grpc.status import OVERLOADED, Status, status_of
from graphbox.server.grpc.stream import InferStream
from graphbox.server.http.connections import Connections, Phase
from graphbox.server.problem import RefusedError

__all__ = ["GrpcConnection"]

MAX_HEADER_BYTES = 16 * 1024
MAX_CALLS = 256
# A client watches the server as a whole, or this many of its services.
MAX_WATCHES = 4
# Of one connection: its largest messages, and what streams may send ahead.
_BUFFERED_MESSAGES = 2
_AHEAD_BYTES = 16 * 1024 * 1024
# Answers that the client does not take: above this, its requests wait.
_MAX_QUEUED_BYTES = 4 * 1024 * 1024
_OUTPUT_BYTES = 256 * 1024
_TICK_S = 1.0
# Between the announcement that the connection ends and its end, for calls that are under way.
_NOTICE_S = 0.1


class GrpcConnection(asyncio.Protocol):
    """Reads calls and passes them to a service; sends their answers once in each turn of the event loop.

    Args:
        service: answers the calls.
        connections: all connections of the server, with their limits.
    """

    def __init__(self, service: GrpcService, connections: Connections) -> None:
        limits = connections.limits
        self._service = service
        self._connections = connections
        self._loop = asyncio.get_running_loop()
        self._session = _http2.Http2Session(
            streaming_paths=[STREAM_PATH],
            large_paths=[INFER_PATH],
            announce_calls=service.needs_admission,
            max_concurrent_calls=MAX_CALLS,
            max_header_bytes=MAX_HEADER_BYTES,
            max_message_bytes=limits.max_body_bytes,
            max_small_message_bytes=min(MAX_SMALL_MESSAGE_BYTES, limits.max_body_bytes),
            max_buffered_bytes=_BUFFERED_MESSAGES * limits.max_body_bytes + _AHEAD_BYTES,
        )
        self._transport: asyncio.Transport = cast("asyncio.Transport", None)  # set by `connection_made`
        self._calls: dict[int, GrpcCall] = {}
        self._streams: dict[int, InferStream] = {}
        # Calls, with their messages, that wait until the client has taken answers.
        self._delayed: dict[GrpcCall, bytes] = {}
        self._delayed_bytes = 0
        self._is_delaying = False
        # Of complete messages whose calls are not answered.
        self._held_bytes = 0
        self._answering = 0
        self._watches = 0
        # Streams and sizes of requests that are answered.
        self._processed: list[tuple[int, int]] = []
        self._phase = Phase.ANSWERING
        self._buffered_bytes = 0
        self._is_writing_paused = False
        self._is_reading_paused = False
        self._is_flush_scheduled = False
        self._is_closed = False
        self._is_stopping = False
        self._is_announced = False
        self.address = ""
        self._ticker: asyncio.TimerHandle | None = None
        # When the client last took a part of an answer, sent anything, and was asked for a sign of life.
        self._sent_bytes = 0
        self._taken_s = self._received_s = self._loop.time()
        self._pinged_s: float | None = None

    # asyncio.Protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Wait for the first call, or refuse the connection where no other can be closed for it."""
        self._transport = cast("asyncio.Transport", transport)
        peer = transport.get_extra_info("peername")
        self.address = str(peer[0]) if isinstance(peer, tuple) and peer else ""
        if not self._connections.add(self):
            self.close()
            return
        self._move(Phase.HEADERS)

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - of the interface
        """Give up all calls."""
        self._is_closed = True
        self._connections.remove(self, self._phase)
        self._phase = Phase.ANSWERING
        if self._ticker is not None:
            self._ticker.cancel()
        for call in list(self._calls.values()):
            self._leave(call)
        self._connections.buffered_bytes -= self._buffered_bytes
        self._buffered_bytes = 0

    def data_received(self, data: bytes) -> None:
        """Parse ``data`` and pass on the calls that are complete."""
        if self._is_closed:
            return
        self._received_s = self._loop.time()
        self._pinged_s = None
        self._is_flush_scheduled = True  # by this function, at its end
        events = self._session.receive(data)
        if events and self._phase is Phase.IDLE:
            self._move(Phase.IDLE)  # from now: calls that are refused at once are calls, too
        self._handle(events, time.perf_counter_ns())
        self._count_buffered()
        self._flush()

    def eof_received(self) -> bool:
        """Close the connection: a client that sends no more reads no more."""
        return False

    def pause_writing(self) -> None:
        """Stop reading and writing: the client does not read its answers."""
        self._is_writing_paused = True
        self._move(Phase.WRITING)
        self._pause_reading()

    def resume_writing(self) -> None:
        """Read and write on."""
        self._is_writing_paused = False
        if self._is_closed:
            self._move(Phase.DISCARDING)
            return
        self._move(Phase.ANSWERING)
        self._taken_s = self._loop.time()
        self._tick_later()
        self._flush()
        self._resume_reading()

    # Of a call

    def header(self, stream: int, name: str) -> bytes:
        """Return a header of a call, empty where it is missing."""
        return self._session.header(stream, name)

    def answer(self, call: GrpcCall, message: bytes, encoding: str) -> None:
        """Send the only message of an answer."""
        self._session.answer(call.stream, message, encoding)
        self._end(call, Status.OK)

    def send(self, call: GrpcCall, message: bytes) -> None:
        """Send one of several messages of an answer."""
        self._session.send(call.stream, message)
        self._flush_soon()

    def processed(self, call: GrpcCall, message_bytes: int) -> None:
        """Note that a request of a stream is answered: another one may be read."""
        if not self._processed:
            self._loop.call_soon(self._read_on)
        self._processed.append((call.stream, message_bytes))

    def hold(self, call: GrpcCall, size_bytes: int) -> None:
        """Count further bytes of a call that is not answered, until `release` or its end.

        Raises:
            RefusedError: 503, the messages of all connections take too much.
        """
        if self._calls.get(call.stream) is not call:
            return
        call.held_bytes += size_bytes
        self._count_held(size_bytes)
        limit_bytes = self._connections.limits.max_buffered_bytes
        # What the session has, it has since it was counted last.
        others_bytes = self._connections.buffered_bytes - self._buffered_bytes
        if others_bytes + self._session.buffered_bytes + self._held_bytes > limit_bytes:
            raise _too_many_messages(limit_bytes)

    def release(self, call: GrpcCall, size_bytes: int) -> None:
        """Count bytes of a call no more."""
        size_bytes = min(size_bytes, call.held_bytes)
        call.held_bytes -= size_bytes
        self._count_held(-size_bytes)

    def has_to_wait(self) -> bool:
        """Return whether no request is to begin, because the client does not take the answers it has."""
        self._is_delaying |= self._session.queued_bytes > _MAX_QUEUED_BYTES
        return self._is_delaying

    def finish(self, call: GrpcCall, status: Status, text: str) -> None:
        """End an answer."""
        self._session.finish(call.stream, status, text)
        self._end(call, status)

    def fail(self, call: GrpcCall, error: BaseException) -> None:
        """End an answer with the status of an error."""
        status, text = status_of(error, self._service.services.public_text, call.method)
        self.finish(call, status, text)

    # Of the other connections

    def stop(self) -> None:
        """Announce the end of the connection; a moment later, close it as soon as its calls are answered."""
        if self._is_closed or self._is_announced:
            return
        self._is_announced = True
        self._session.shut_down(last=False)
        self._flush()
        self._loop.call_later(_NOTICE_S, self._stop_calls)

    def close(self) -> None:
        """Close the connection at once, to make room for another one."""
        if self._transport.get_write_buffer_size():  # the client does not read, and a close waits for it
            self.abort()
            return
        self._is_closed = True
        self._session.shut_down(last=True)
        self._write(self._session.output(_OUTPUT_BYTES))
        self._transport.close()

    def abort(self) -> None:
        """Close the connection at once, with what is unsent."""
        self._is_closed = True
        self._transport.abort()

    def drop(self) -> None:
        """Refuse running calls and close the connection."""
        for call in list(self._calls.values()):
            on_left = call.on_left
            call.finish(Status.UNAVAILABLE, "the server is stopping and this call was not finished")
            if on_left is not None:
                on_left()
        self._end_connection()

    def time_out(self, phase: Phase) -> None:
        """End a wait that took too long."""
        self._phase = Phase.ANSWERING
        if phase is Phase.WRITING and not self._is_writing_paused and not self._is_closed:
            self._move(Phase.WRITING)  # `_is_taking` knows whether the client takes its answers
        elif phase in {Phase.WRITING, Phase.DISCARDING}:
            self._is_closed = True
            self._transport.abort()
        else:
            self._end_connection()

    # Inside

    def _handle(self, events: list[tuple[Any, ...]], now_ns: int) -> None:
        for event in events:
            kind, stream = event[0], event[1]
            if kind == _http2.CALL:
                _, _, path, timeout_ns, message, compressed = event
                call = self._calls.get(stream)
                if call is None:
                    if self._service.needs_admission:  # it was opened before, and refused
                        continue
                    call = self._calls[stream] = GrpcCall(self, stream, path, now_ns, timeout_ns)
                call.started_ns = now_ns
                self._receive(call, message, compressed=compressed)
            elif kind == _http2.OPENED:
                self._open(GrpcCall(self, stream, event[2], now_ns, event[3]))
            elif kind == _http2.CLOSED:
                if stream in self._calls:
                    self._leave(self._calls[stream])
            elif kind == _http2.REFUSED:
                self._refused(stream, event[2], Status(event[3]), now_ns)
            elif stream in self._streams:
                self._handle_stream(self._streams[stream], event)

    def _handle_stream(self, stream: InferStream, event: tuple[Any, ...]) -> None:
        if event[0] == _http2.HALF_CLOSED:
            stream.half_close()
            return
        stream.receive(event[2], compressed=event[3])

    def _receive(self, call: GrpcCall, message: bytes, *, compressed: bool) -> None:
        """Pass on a call with its only message."""
        if compressed:
            call.encoding = _encoding_of(call)
        try:
            self.hold(call, len(message))
        except RefusedError as refusal:
            call.fail(refusal)
            return
        if not self.has_to_wait():
            self._begin(call, message)
            return
        most_bytes = _BUFFERED_MESSAGES * self._connections.limits.max_body_bytes
        if self._delayed_bytes + len(message) > most_bytes:
            text = "the client of this connection does not take its answers"
            call.finish(Status.RESOURCE_EXHAUSTED, text)
            return
        self._delayed[call] = message
        self._delayed_bytes += len(message)
        call.limit_time()

    def _begin(self, call: GrpcCall, message: bytes) -> None:
        """Answer a call, now or later."""
        if call.method != WATCH_PATH:
            self._answering += 1
        elif self._watches < MAX_WATCHES:
            self._watches += 1
        else:
            text = f"expected at most {MAX_WATCHES} watches in one connection, received one more"
            call.finish(Status.RESOURCE_EXHAUSTED, f"{text}: end another one first")
            return
        call.is_begun = True
        self._service.answer(call, message)
        if call.method == WATCH_PATH:
            self.release(call, call.held_bytes)  # its message is read, and it may last for days

    def _refused(self, stream: int, path: str, status: Status, now_ns: int) -> None:
        """Count a call that the session has refused, and give it up."""
        call = self._calls.get(stream)
        if call is None:
            self._service.count(GrpcCall(self, stream, path, now_ns, None), status)
            return
        call.leave()
        self._forget(call, status)

    def _open(self, call: GrpcCall) -> None:
        """Admit or refuse a call before its messages."""
        self._calls[call.stream] = call
        try:
            self._service.admit(call)
        except RefusedError as refusal:
            call.fail(refusal)
            return
        if call.method == STREAM_PATH:
            call.encoding = _encoding_of(call)
            self._streams[call.stream] = InferStream(self._service.services, call)
            call.limit_time()

    def _leave(self, call: GrpcCall) -> None:
        """Give up a call that its client has left."""
        call.leave()
        self._forget(call, Status.CANCELLED)

    def _end(self, call: GrpcCall, status: Status) -> None:
        """Forget a call that is answered, and send what is to be sent."""
        self._forget(call, status)
        self._flush_soon()

    def _forget(self, call: GrpcCall, status: Status) -> None:
        if self._calls.pop(call.stream, None) is None:
            return
        self._streams.pop(call.stream, None)
        self._delayed_bytes -= len(self._delayed.pop(call, b""))
        self.release(call, call.held_bytes)
        if call.is_begun:
            if call.method == WATCH_PATH:
                self._watches -= 1
            else:
                self._answering -= 1
        self._service.count(call, status)

    def _flush_soon(self) -> None:
        if not self._is_flush_scheduled:
            self._is_flush_scheduled = True
            self._loop.call_soon(self._flush)

    def _flush(self) -> None:
        """Send what the session has, as far as the client reads."""
        self._is_flush_scheduled = False
        if self._is_closed:
            return
        session = self._session
        while not self._is_writing_paused:
            data = session.output(_OUTPUT_BYTES)
            if not data:
                break
            self._write(data)
        if self._is_delaying and session.queued_bytes <= _MAX_QUEUED_BYTES:
            self._begin_delayed()
        if (self._is_stopping and not session.open_calls) or (session.failure and session.is_finished):
            self._end_connection()
        self._settle()

    def _settle(self) -> None:
        """Note what the connection waits for: where that is its client, it makes way for others."""
        if self._is_closed or self._is_writing_paused:
            return
        if self._answering or any(stream.is_running for stream in self._streams.values()):
            phase = Phase.ANSWERING
        elif self._session.queued_bytes:
            phase = Phase.WRITING
        elif self._session.open_calls:
            phase = Phase.WATCHING
        else:
            phase = Phase.IDLE
        if phase is self._phase:
            return
        if self._phase in {Phase.IDLE, Phase.HEADERS}:
            self._taken_s = self._received_s
            self._tick_later()
        self._move(phase)

    def _end_connection(self) -> None:
        """Send the end of the session, and wait for the client to close the connection.

        Closed here while the client still sends, it is reset, and the client loses the last answers.
        """
        if self._is_closed or self._transport.is_closing():
            return
        self._is_closed = True
        self._session.shut_down(last=True)
        self._write(self._session.output(_OUTPUT_BYTES))
        if not self._transport.can_write_eof():
            self._transport.close()
            return
        self._transport.write_eof()
        if self._is_reading_paused:
            self._transport.resume_reading()
        self._move(Phase.DISCARDING)

    def _write(self, data: bytes) -> None:
        if data:
            self._transport.write(data)

    def _count_buffered(self) -> None:
        """Count what is being received; refuse calls where it is too much for all connections together."""
        buffered = self._session.buffered_bytes + self._held_bytes
        grown = buffered - self._buffered_bytes
        if not grown:
            return
        self._buffered_bytes = buffered
        connections = self._connections
        connections.buffered_bytes += grown
        if grown > 0 and connections.buffered_bytes > connections.limits.max_buffered_bytes:
            text = "the messages that are being received take all the memory this server gives them"
            refused = self._session.refuse_incomplete(-1, Status.RESOURCE_EXHAUSTED, text)
            self._handle(refused, time.perf_counter_ns())
            self._count_buffered()

    def _count_held(self, grown_bytes: int) -> None:
        """Count complete messages; `_count_buffered` counts the others."""
        self._held_bytes += grown_bytes
        self._buffered_bytes += grown_bytes
        self._connections.buffered_bytes += grown_bytes

    def _pause_reading(self) -> None:
        if not self._is_reading_paused and not self._is_closed:
            self._is_reading_paused = True
            self._transport.pause_reading()

    def _resume_reading(self) -> None:
        if not self._is_reading_paused or self._is_writing_paused or self._is_closed:
            return
        self._is_reading_paused = False
        self._transport.resume_reading()

    def _begin_delayed(self) -> None:
        """Begin the requests that waited for the client to take answers."""
        self._is_delaying = False
        for stream in list(self._streams.values()):
            stream.begin_waiting()
        while self._delayed and not self.has_to_wait():
            call = next(iter(self._delayed))
            message = self._delayed.pop(call)
            self._delayed_bytes -= len(message)
            call.end()  # its timer
            self._begin(call, message)
        self._count_buffered()

    def _read_on(self) -> None:
        """Take the requests that were kept back until earlier ones of their streams were answered."""
        processed, self._processed = self._processed, []
        if self._is_closed:
            return
        now_ns = time.perf_counter_ns()
        for stream, message_bytes in processed:
            self._handle(self._session.processed(stream, message_bytes), now_ns)
        self._count_buffered()
        self._flush_soon()  # windows

    def _stop_calls(self) -> None:
        """Reject further calls, and end streams after the requests they have."""
        if self._is_closed:
            return
        self._is_stopping = True
        self._session.shut_down(last=True)
        for stream in list(self._streams.values()):
            stream.stop()
        self._flush()

    def _tick_later(self) -> None:
        if self._ticker is None:
            self._ticker = self._loop.call_later(_TICK_S, self._tick)

    def _tick(self) -> None:
        """End what does not come, or is not taken, for as long as there are calls."""
        self._ticker = None
        if self._is_closed or self._is_writing_paused:
            return
        if not self._session.open_calls:
            return
        if not self._is_taking() or not self._is_alive():
            return
        limit_s = self._connections.limits.body_timeout_s
        text = f"expected the message within {limit_s:g} s"
        refused = self._session.refuse_incomplete(int(limit_s * 1e9), Status.DEADLINE_EXCEEDED, text)
        self._handle(refused, time.perf_counter_ns())
        self._count_buffered()
        self._flush()
        self._tick_later()

    def _is_taking(self) -> bool:
        """End the connection where the client has taken nothing of its answers for too long."""
        now_s, sent_bytes = self._loop.time(), self._session.sent_bytes
        if sent_bytes != self._sent_bytes or not self._session.queued_bytes:
            self._sent_bytes = sent_bytes
            self._taken_s = now_s
        elif now_s - self._taken_s > self._connections.limits.body_timeout_s:
            self._end_connection()
            return False
        return True

    def _is_alive(self) -> bool:
        """Ask a client that is silent for a sign of life; end the connection where none comes."""
        now_s, limits = self._loop.time(), self._connections.limits
        if self._pinged_s is None:
            if now_s - self._received_s > limits.keep_alive_s:
                self._pinged_s = now_s
                self._session.ping()
        elif now_s - self._pinged_s > limits.header_timeout_s:
            self.abort()
            return False
        return True

    def _move(self, phase: Phase) -> None:
        self._connections.move(self, self._phase, phase)
        self._phase = phase


def _too_many_messages(limit_bytes: int) -> RefusedError:
    return RefusedError(
        HTTPStatus.SERVICE_UNAVAILABLE,
        OVERLOADED,
        f"the messages of calls that are not answered take the {limit_bytes} bytes this server gives them:"
        " try again in a second",
    )


def _encoding_of(call: GrpcCall) -> str:
    """Return the compression of messages that are marked as compressed."""
    return call.header("grpc-encoding").decode("latin-1") or "identity"

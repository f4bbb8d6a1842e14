"""A ModelStreamInfer call: requests in, responses out in the same order."""

from __future__ import annotations

import time
from collections import deque

from graphbox.server.grpc.call import GrpcCall
from graphbox.server.grpc.codec import encode_stream_error, encode_stream_response
from graphbox.server.grpc.inferring import Inferring
from graphbox.server.grpc.status import OVERLOADED, Status, status_of
from graphbox.server.inference import Lease
from graphbox.server.problem import RefusedError
from graphbox.server.services import Services
from graphbox.server.tracing import RequestTrace

__all__ = ["InferStream"]

# Enough for them to be joined; a stream that sends without waiting is slowed down rather than refused.
_MAX_RUNNING = 16


class _Place:
    """The place of one request among the responses of its stream."""

    __slots__ = ("_stream", "encoding", "inferring", "lease", "message", "message_bytes", "response", "trace")

    def __init__(self, stream: InferStream, message: bytes, encoding: str) -> None:
        self._stream = stream
        self.message = message
        self.message_bytes = len(message)
        self.encoding = encoding
        self.inferring: Inferring | None = None
        self.response: bytes | None = None
        self.lease: Lease | None = None
        self.trace: RequestTrace | None = None

    def start(self, services: Services, call: GrpcCall) -> None:
        """Begin to answer the request."""
        if self.inferring is None and call.client_state is not None and services.client_limits is not None:
            try:
                services.client_limits.take(call.principal, call.address)
            except RefusedError as refusal:
                self.fail(refusal)
                return
        if services.tracing is not None:
            self.trace = services.tracing.begin(
                call.header("traceparent"), call.header("tracestate"), time.perf_counter_ns()
            )
        self.inferring = Inferring(services, self, time.perf_counter_ns(), None, self.encoding)
        self.inferring.start(self.message)

    def answer(self, message: bytes, _encoding: str) -> None:
        """Keep the response until its turn."""
        self._end(encode_stream_response(message))

    def fail(self, error: BaseException) -> None:
        """Keep the error, which ends this request alone."""
        if isinstance(error, RefusedError) and error.code == OVERLOADED and self._stream.wait_again(self):
            return
        request_id = "" if self.inferring is None else self.inferring.request_id
        self._end(encode_stream_error(self._stream.text_of(error), request_id))

    def header(self, name: str) -> bytes:
        """Return a header of the stream's call, empty where it is missing."""
        return self._stream.header(name)

    def _end(self, response: bytes) -> None:
        self.response = response
        self.message = b""
        self._stream.ended(self)


class InferStream:
    """The requests of one stream that are not answered yet.

    Args:
        services: the parts of the server.
        call: the call.
    """

    def __init__(self, services: Services, call: GrpcCall) -> None:
        self._services = services
        self._call = call
        self._places: deque[_Place] = deque()
        self._waiting: deque[_Place] = deque()
        self._running = 0
        self._is_starting = False
        self._is_half_closed = False
        self._is_stopping = False
        call.on_left = self.leave

    def receive(self, message: bytes, *, compressed: bool) -> None:
        """Take a request; none after `stop`."""
        if self._is_stopping:
            return
        place = _Place(self, message, self._call.encoding if compressed else "")
        self._places.append(place)
        self._waiting.append(place)
        self.begin_waiting()

    def half_close(self) -> None:
        """End the answer after the requests so far: the client sends no more."""
        self._is_half_closed = True
        self._send_ready()

    def stop(self) -> None:
        """End the answer after the requests so far: the server stops."""
        self._is_stopping = True
        self._send_ready()

    def leave(self) -> None:
        """Give up all requests."""
        places = list(self._places)
        self._places.clear()
        self._waiting.clear()
        for place in places:
            if place.response is None and place.inferring is not None:
                place.inferring.leave()

    def ended(self, place: _Place) -> None:
        """Note that a request has its response; send those whose turn it is, and start others."""
        if place.trace is not None and self._services.tracing is not None:
            attributes = {"rpc.system": "grpc", "rpc.method": self._call.method}
            self._services.tracing.end(place.trace, f"{self._call.method} request", attributes)
        self._running -= 1
        self._send_ready()
        self.begin_waiting()

    def begin_waiting(self) -> None:
        """Begin requests that wait, as far as they may."""
        if self._is_starting:  # a request that ends at once is no deeper in the stack
            return
        self._is_starting = True
        try:
            while self._waiting and self._running < _MAX_RUNNING and not self._call.has_to_wait():
                place = self._waiting.popleft()
                self._running += 1
                place.start(self._services, self._call)
                if self._waiting and self._waiting[0] is place:  # refused: until another one has ended
                    break
        finally:
            self._is_starting = False

    def wait_again(self, place: _Place) -> bool:
        """Let a refused request wait for another one of its stream to end; return whether there is one."""
        if self._running <= 1:
            return False
        self._running -= 1
        self._waiting.appendleft(place)
        return True

    def header(self, name: str) -> bytes:
        """Return a header of the call, empty where it is missing."""
        return self._call.header(name)

    def text_of(self, error: BaseException) -> str:
        """Return the message of an error."""
        return status_of(error, self._services.public_text, self._call.method)[1]

    def _send_ready(self) -> None:
        """Send the responses whose turn it is, and the end after the last."""
        places = self._places
        while places and places[0].response is not None:
            place = places.popleft()
            self._call.send(place.response or b"")
            self._call.processed(place.message_bytes)
        if not places and self._is_half_closed:
            self._call.finish()
        elif not places and self._is_stopping:
            self._call.finish(Status.UNAVAILABLE, "the server is stopping")

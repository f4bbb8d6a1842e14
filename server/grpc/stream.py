"""A ModelStreamInfer call: requests in, responses out in the same order."""

from __future__ import annotations

import time
from collections import deque

from graphbox.server.access import Scope
from graphbox.server.client_limits import TOO_MANY, ClientLimits, ClientState
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

    __slots__ = (
        "_client_state",
        "_grown_bytes",
        "_stream",
        "_waiting_state",
        "encoding",
        "inferring",
        "lease",
        "message",
        "message_bytes",
        "response",
        "trace",
    )

    def __init__(self, stream: InferStream, message: bytes, encoding: str) -> None:
        self._stream = stream
        self._client_state: ClientState | None = None
        self._waiting_state: ClientState | None = None
        self._grown_bytes = 0
        self.message = message
        self.message_bytes = len(message)
        self.encoding = encoding
        self.inferring: Inferring | None = None
        self.response: bytes | None = None
        self.lease: Lease | None = None
        self.trace: RequestTrace | None = None

    def start(self, services: Services, call: GrpcCall) -> None:
        """Begin to answer the request, or refuse it."""
        try:
            self._begin_waiting(services.client_limits, call)
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
        self.end_waiting()
        if self._may_wait(error) and self._stream.wait_again(self):
            return
        request_id = "" if self.inferring is None else self.inferring.request_id
        self._end(encode_stream_error(self._stream.text_of(error), request_id))

    def header(self, name: str) -> bytes:
        """Return a header of the stream's call, empty where it is missing."""
        return self._stream.header(name)

    def hold(self, more_bytes: int) -> None:
        """Count bytes that the message has grown by, until the request is answered."""
        self._grown_bytes += more_bytes
        self._stream.call.hold(more_bytes)

    def end_waiting(self) -> None:
        """Count the request no more."""
        if self._waiting_state is not None:
            ClientLimits.end(self._waiting_state)
            self._waiting_state = None
        self._stream.call.release(self._grown_bytes)
        self._grown_bytes = 0

    def _begin_waiting(self, limits: ClientLimits | None, call: GrpcCall) -> None:
        """Count the request of a client: once against its rate, and among those that wait.

        Raises:
            RefusedError: 429.
        """
        if limits is None:
            return
        if self._client_state is None:
            self._client_state = limits.take(call.principal, call.address)
        limits.begin(self._client_state)
        self._waiting_state = self._client_state

    def _may_wait(self, error: BaseException) -> bool:
        """Return whether the request may be begun again when another one of its stream has ended."""
        if not isinstance(error, RefusedError):
            return False
        # Beyond the rate it is refused at once: the time to wait does not depend on other requests.
        return error.code == OVERLOADED or (error.code == TOO_MANY and self._client_state is not None)

    def _end(self, response: bytes) -> None:
        self.end_waiting()
        self.response = response
        self.message = b""
        self._stream.ended(self)


class InferStream:
    """The requests of one stream that are not answered yet.

    Args:
        services: the parts of the server.
        call: the call.

    Attributes:
        call: the same.
    """

    def __init__(self, services: Services, call: GrpcCall) -> None:
        self.call = call
        self._services = services
        self._places: deque[_Place] = deque()
        self._waiting: deque[_Place] = deque()
        self._running = 0
        self._is_starting = False
        self._is_half_closed = False
        self._is_stopping = False
        call.on_left = self.leave

    @property
    def is_running(self) -> bool:
        """Whether a request is being answered."""
        return self._running > 0

    def receive(self, message: bytes, *, compressed: bool) -> None:
        """Take a request; none after `stop`."""
        if self._is_stopping:
            return
        place = _Place(self, message, self.call.encoding if compressed else "")
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
            place.end_waiting()
            if place.response is None and place.inferring is not None:
                place.inferring.leave()

    def ended(self, place: _Place) -> None:
        """Note that a request has its response; send those whose turn it is, and start others."""
        if place.trace is not None and self._services.tracing is not None:
            attributes = {"rpc.system": "grpc", "rpc.method": self.call.method}
            self._services.tracing.end(place.trace, f"{self.call.method} request", attributes)
        self._running -= 1
        self._send_ready()
        self.begin_waiting()

    def begin_waiting(self) -> None:
        """Begin requests that wait, as far as they may."""
        if self._is_starting:  # a request that ends at once is no deeper in the stack
            return
        self._is_starting = True
        try:
            while self._waiting and self._running < _MAX_RUNNING and not self.call.has_to_wait():
                if not self._check_token():
                    return
                place = self._waiting.popleft()
                self._running += 1
                place.start(self._services, self.call)
                if self._waiting and self._waiting[0] is place:  # refused: until another one has ended
                    break
        finally:
            self._is_starting = False

    def _check_token(self) -> bool:
        """Return whether the token still admits requests; end the call where it does not.

        A stream may be open for days: a token that was removed since admits no further request of it.
        """
        rule, call = self._services.token_rule, self.call
        if rule is None:
            return True
        try:
            call.principal = rule.check({b"authorization": call.header("authorization")}, Scope.INFER)
        except RefusedError as refusal:
            self.leave()
            call.fail(refusal)
            return False
        return True

    def wait_again(self, place: _Place) -> bool:
        """Let a refused request wait for another one of its stream to end; return whether there is one."""
        if self._running <= 1:
            return False
        self._running -= 1
        self._waiting.appendleft(place)
        return True

    def header(self, name: str) -> bytes:
        """Return a header of the call, empty where it is missing."""
        return self.call.header(name)

    def text_of(self, error: BaseException) -> str:
        """Return the message of an error."""
        return status_of(error, self._services.public_text, self.call.method)[1]

    def _send_ready(self) -> None:
        """Send the responses whose turn it is, and the end after the last."""
        places = self._places
        while places and places[0].response is not None:
            place = places.popleft()
            self.call.send(place.response or b"")
            self.call.processed(place.message_bytes)
        if not places and self._is_half_closed:
            self.call.finish()
        elif not places and self._is_stopping:
            self.call.finish(Status.UNAVAILABLE, "the server is stopping")

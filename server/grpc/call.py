"""One call of gRPC and its answer."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from graphbox.errors import TimeLimitError
from graphbox.server.grpc.status import Status

if TYPE_CHECKING:
    from graphbox.server.access import Principal
    from graphbox.server.client_limits import ClientState
    from graphbox.server.grpc.connection import GrpcConnection
    from graphbox.server.inference import Lease
    from graphbox.server.tracing import RequestTrace

__all__ = ["GrpcCall"]


class GrpcCall:
    """A call until it is answered. Belongs to the thread of its event loop.

    Attributes:
        stream: number of the call in its connection.
        method: path of the called method.
        started_ns: when the call, or its message, came in, by `time.perf_counter_ns`.
        timeout_s: time limit from then on; None: no limit.
        encoding: compression of the message; empty: none.
        on_left: called once if the call ends before it is answered: the client left it, or its time is over.
        principal: who calls; None: the server has no tokens, or the method is open.
        client_state: of the limits for each client; None: there are none.
        waiting_state: the same, while the call is counted among those that wait.
        lease: of the model version that answers; None: none does.
        trace: of the call; None: calls are not traced.
        request_id: names the call in logs; empty before it is needed.
        held_bytes: of its messages, as they are counted for all connections together.
        is_begun: whether its only message was passed on.
        sent_bytes: of the messages of the answer.
    """

    __slots__ = (
        "_connection",
        "_timer",
        "client_state",
        "encoding",
        "held_bytes",
        "is_begun",
        "lease",
        "method",
        "on_left",
        "principal",
        "request_id",
        "sent_bytes",
        "started_ns",
        "stream",
        "timeout_s",
        "trace",
        "waiting_state",
    )

    def __init__(
        self, connection: GrpcConnection, stream: int, method: str, started_ns: int, timeout_ns: int | None
    ) -> None:
        self._connection = connection
        self._timer: asyncio.TimerHandle | None = None
        self.stream = stream
        self.method = method
        self.started_ns = started_ns
        self.timeout_s = None if timeout_ns is None else timeout_ns / 1e9
        self.encoding = ""
        self.on_left: Callable[[], object] | None = None
        self.principal: Principal | None = None
        self.client_state: ClientState | None = None
        self.waiting_state: ClientState | None = None
        self.lease: Lease | None = None
        self.trace: RequestTrace | None = None
        self.request_id = ""
        self.sent_bytes = 0
        self.held_bytes = 0
        self.is_begun = False

    @property
    def address(self) -> str:
        """Address of the client."""
        return self._connection.address

    def header(self, name: str) -> bytes:
        """Return a header of the call, empty where it is missing."""
        return self._connection.header(self.stream, name)

    def limit_time(self) -> None:
        """End the call when its time is over; calls for inference have a timer of their own."""
        if self.timeout_s is not None:
            self._timer = asyncio.get_running_loop().call_later(self.timeout_s, self._time_out)

    def answer(self, message: bytes, encoding: str = "") -> None:
        """Send the only message of the answer."""
        self.end()
        self.sent_bytes = len(message)
        self._connection.answer(self, message, encoding)

    def send(self, message: bytes) -> None:
        """Send one of several messages of the answer."""
        self.sent_bytes += len(message)
        self._connection.send(self, message)

    def processed(self, message_bytes: int) -> None:
        """Note that a request of a stream, which had this size, is answered."""
        self._connection.processed(self, message_bytes)

    def hold(self, more_bytes: int) -> None:
        """Count bytes that a message has grown by.

        Raises:
            RefusedError: 503, the messages of all connections take too much.
        """
        self._connection.hold(self, more_bytes)

    def release(self, size_bytes: int) -> None:
        """Count bytes of a message no more; at the end of the call, those that are left are not."""
        self._connection.release(self, size_bytes)

    def has_to_wait(self) -> bool:
        """Return whether no request is to begin, because the client does not take the answers it has."""
        return self._connection.has_to_wait()

    def finish(self, status: Status = Status.OK, text: str = "") -> None:
        """End the answer."""
        self.end()
        self._connection.finish(self, status, text)

    def fail(self, error: BaseException) -> None:
        """End the answer with the status of an error."""
        self.end()
        self._connection.fail(self, error)

    def leave(self) -> None:
        """Tell what answers that nobody waits any more."""
        on_left = self.on_left
        self.end()
        if on_left is not None:
            on_left()

    def end(self) -> None:
        """Forget the timer and what answers."""
        self.on_left = None
        if self._timer is not None:
            self._timer.cancel()

    @property
    def seconds(self) -> float:
        """Time since the call came in."""
        return (time.perf_counter_ns() - self.started_ns) / 1e9

    def _time_out(self) -> None:
        on_left = self.on_left
        self.fail(TimeLimitError(f"expected an answer within {self.timeout_s:g} s, the limit of the call"))
        if on_left is not None:
            on_left()

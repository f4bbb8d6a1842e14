"""One HTTP request and its answer."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from http import HTTPStatus
from typing import TYPE_CHECKING, Protocol
from urllib.parse import unquote

from graphbox.server.asgi import Scope
from graphbox.server.body import Body
from graphbox.server.problem import RefusedError

if TYPE_CHECKING:
    from graphbox.server.access import Access, Principal
    from graphbox.server.announced import Announcement
    from graphbox.server.client_limits import ClientState
    from graphbox.server.http.connection import HttpConnection
    from graphbox.server.inference import Lease
    from graphbox.server.tracing import RequestTrace

__all__ = ["AnswerBody", "Application", "Exchange", "Headers"]

Headers = Iterable[tuple[bytes, bytes]]
AnswerBody = bytes | Sequence[bytes | memoryview]

_STATUS_LINES = {
    status.value: f"HTTP/1.1 {status.value} {status.phrase}\r\n".encode() for status in HTTPStatus
}
# A copy of a larger body costs more than to pass its pieces to the system.
_COPIED_BYTES = 64 * 1024
_NO_BODY = frozenset({204, 304})


class Application(Protocol):
    """Handler of the requests of a server."""

    def admit(self, exchange: Exchange) -> None:
        """Check a request whose headers are complete, before its body is read.

        Raises:
            RefusedError: it is refused; `refuse` is called next.
        """

    def refuse(self, exchange: Exchange, refusal: RefusedError) -> None:
        """Answer a request that was refused, by `admit` or as its body is too large or too slow."""

    def answer(self, exchange: Exchange) -> None:
        """Answer a complete request, now or later, by `Exchange.respond` or `Exchange.start`."""

    def answered(self, exchange: Exchange) -> None:
        """Count a request that was answered, or whose client left: `Exchange.status` is 0."""


class Exchange:
    """One request and its answer. Belongs to the thread of its event loop.

    Attributes:
        method: of the request.
        target: path and query as received, still percent-encoded.
        path: the path as received, still percent-encoded.
        query: what follows ``?``.
        headers: by lower-case name; of a repeated one the last.
        header_list: in the order of the request.
        body: complete when `Application.answer` is called.
        counted_bytes: of the body, as `Connections.buffered_bytes` counts them until the answer.
        started_ns: time when the headers were complete, by `time.perf_counter_ns`.
        received_ns: time when the body was complete.
        request_id: names the request in logs and in its answer.
        route: pattern of the route that answers, for metrics.
        scope: of the ASGI application that answers, which knows the route; None: none does.
        status: of the answer; 0 before it.
        is_answered: whether the answer is complete.
        on_left: called once if the client leaves before the answer is complete.
        on_answer: takes the whole answer, instead of the client, for as long as it is set.
        access: to the route; None: the request was refused before it was looked up.
        placeholders: values of the placeholders of the route.
        max_body_bytes: largest body; `Application.admit` lowers it for routes that need less than others.
        principal: who sends the request; None: the server has no tokens, or the path is open.
        client_state: of the limits for each client; None: there are none.
        waiting_state: the same, while the request is counted among those that wait.
        lease: of the model version that answers; None: none does, or it is not known here.
        trace: of the request; None: requests are not traced.
        sent_bytes: of the answer's body.
        announcement: of a large body that is being received.
        refusal: reason for which the request was refused by its headers, and is to be answered in its turn.
    """

    __slots__ = (
        "_connection",
        "_is_chunked",
        "access",
        "announcement",
        "body",
        "client_state",
        "counted_bytes",
        "header_list",
        "headers",
        "is_answered",
        "keeps_alive",
        "lease",
        "max_body_bytes",
        "method",
        "on_answer",
        "on_left",
        "path",
        "placeholders",
        "principal",
        "query",
        "received_ns",
        "refusal",
        "request_id",
        "route",
        "scope",
        "sent_bytes",
        "started_ns",
        "status",
        "target",
        "trace",
        "version",
        "waiting_state",
    )

    def __init__(
        self, connection: HttpConnection, target: bytes, header_list: list[tuple[bytes, bytes]]
    ) -> None:
        self._connection = connection
        self._is_chunked = False
        self.method = ""
        self.version = "1.1"
        self.keeps_alive = True
        self.target = target
        self.path, _, self.query = target.partition(b"?")
        self.header_list = header_list
        self.headers = dict(header_list)
        self.body: Body = b""
        self.counted_bytes = 0
        self.started_ns = time.perf_counter_ns()
        self.received_ns = 0
        self.request_id = b""
        self.route = "unmatched"
        self.scope: Scope | None = None
        self.status = 0
        self.is_answered = False
        self.on_left: Callable[[], None] | None = None
        self.on_answer: Callable[[int, Headers, AnswerBody], None] | None = None
        self.access: Access | None = None
        self.placeholders: Mapping[str, str] = {}
        self.max_body_bytes = 0
        self.principal: Principal | None = None
        self.client_state: ClientState | None = None
        self.waiting_state: ClientState | None = None
        self.lease: Lease | None = None
        self.trace: RequestTrace | None = None
        self.sent_bytes = 0
        self.announcement: Announcement | None = None
        self.refusal: RefusedError | None = None

    @property
    def decoded_path(self) -> str:
        """The path, percent-decoded."""
        return unquote(self.path.decode("latin-1"))

    @property
    def client(self) -> tuple[str, int] | None:
        """Address of the client."""
        return self._connection.client

    @property
    def scheme(self) -> str:
        """``http`` or ``https``."""
        return self._connection.scheme

    @property
    def client_left(self) -> bool:
        """Whether the connection is closed or closing: an answer would reach nobody."""
        return self._connection.is_closing

    def header(self, name: bytes) -> str:
        """Return a header, empty when it is missing."""
        return self.headers.get(name, b"").decode("latin-1")

    def respond(self, status: int, headers: Headers, body: AnswerBody = b"") -> None:
        """Send the whole answer. Does nothing where the client left or was answered.

        Args:
            status: HTTP status.
            headers: without ``content-length``.
            body: whole or in pieces, whose memory must not change; left out of the answer to HEAD.
        """
        if self.on_answer is not None:
            self.status = status
            self.on_answer(status, headers, body)
            return
        if self.is_answered:
            return
        self.status = status
        pieces = (body,) if isinstance(body, bytes) else body
        size_bytes = self.sent_bytes = sum(map(len, pieces))
        if status not in _NO_BODY:
            headers = (*headers, (b"content-length", b"%d" % size_bytes))
        head = self._head(status, headers)
        if self.method == "HEAD":
            self._connection.write(head)
        elif size_bytes <= _COPIED_BYTES:
            self._connection.write(b"".join((head, *pieces)))
        else:
            self._connection.write_pieces((head, *pieces))
        self._complete()

    def start(self, status: int, headers: Headers) -> None:
        """Send status and headers of an answer whose body follows by `send`."""
        if self.is_answered:
            return
        self.status = status
        headers = tuple(headers)
        has_length = status in _NO_BODY or any(name == b"content-length" for name, _ in headers)
        if not has_length:
            if self.version == "1.1":
                self._is_chunked = True
                headers = (*headers, (b"transfer-encoding", b"chunked"))
            else:
                self.keeps_alive = False
        self._connection.write(self._head(status, headers))

    def send(self, data: bytes) -> None:
        """Send a part of the body."""
        if not data or self.method == "HEAD" or self.is_answered:
            return
        self.sent_bytes += len(data)
        self._connection.write(b"%x\r\n%b\r\n" % (len(data), data) if self._is_chunked else data)

    def finish(self) -> None:
        """End an answer begun by `start`."""
        if self.is_answered:
            return
        if self._is_chunked and self.method != "HEAD":
            self._connection.write(b"0\r\n\r\n")
        self._complete()

    def cancel(self) -> None:
        """Tell what answers that the answer is not wanted any more."""
        if self.on_left is not None:
            on_left, self.on_left = self.on_left, None
            on_left()

    def leave(self) -> None:
        """Note that the client has left."""
        self.cancel()
        self.is_answered = True

    def abort(self) -> None:
        """Close the connection amid the answer: the client must not take a part of it for the whole."""
        self._connection.abort()

    async def drain(self) -> None:
        """Return when the client has read enough for more to be sent, or has left."""
        await self._connection.drain()

    def _complete(self) -> None:
        self.is_answered = True
        self.on_left = None
        self._connection.complete(self)

    def _head(self, status: int, headers: Headers) -> bytes:
        connection = self._connection
        pieces = [_STATUS_LINES[status], connection.standing_headers()]
        if not self.keeps_alive or (connection.is_last and not connection.has_waiting):
            self.keeps_alive = False
            pieces.append(b"connection: close\r\n")
        for name, value in headers:
            pieces += (name, b": ", value, b"\r\n")
        pieces += (b"x-request-id: ", self.request_id, b"\r\n\r\n")
        return b"".join(pieces)

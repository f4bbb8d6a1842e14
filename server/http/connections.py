"""All connections of a server: how many there are, and how long each waits for its client."""

from __future__ import annotations

import asyncio
import enum
import math
import time
from collections import OrderedDict
from dataclasses import dataclass
from email.utils import formatdate
from typing import Protocol

__all__ = ["ConnectionLimits", "Connections", "Phase"]

_TICK_S = 0.1
# For the answers to dropped requests to be sent.
_FLUSH_S = 0.5
# Nosniff and the rest concern browsers; they are the same for every answer.
_SECURITY_HEADERS = (
    b"x-content-type-options: nosniff\r\n"
    b"referrer-policy: no-referrer\r\n"
    b"cross-origin-resource-policy: same-origin\r\n"
)


class Phase(enum.Enum):
    """Phase of a connection, by what it waits for."""

    IDLE = "the next request"
    HEADERS = "the headers of a request"
    BODY = "the body of a request"
    WATCHING = "a client with open calls on which nothing is to be done"
    DISCARDING = "the rest of a refused body"
    ANSWERING = "the server"
    WRITING = "a client that does not read"

    # By identity: that of `enum.Enum` is a function in Python, and each request looks phases up.
    __hash__ = object.__hash__


class _Waiting(Protocol):
    def time_out(self, phase: Phase) -> None: ...

    def stop(self) -> None: ...

    def close(self) -> None: ...

    def drop(self) -> None: ...

    def abort(self) -> None: ...


@dataclass(frozen=True, kw_only=True)
class ConnectionLimits:
    """Limits on connections.

    Attributes:
        max_connections: most open connections. For a new one, the connection that was idle longest is closed,
            or else the one whose open calls have waited longest for their client, or the one that has sent
            its headers or body longest; where all are answered, the new one gets 503.
        max_body_bytes: largest body of a request.
        max_buffered_bytes: most bytes of bodies whose requests are not answered, of all connections together.
        header_timeout_s: time a client has to send the request line and the headers.
        body_timeout_s: time a client has to send the body, or to read on amid an answer.
        keep_alive_s: time an idle connection stays open.
        discard_s: time for which the body of a refused request is read and dropped. A connection closed while
            its client still sends is reset, and the client never reads the answer.
    """

    max_connections: int
    max_body_bytes: int
    max_buffered_bytes: int
    header_timeout_s: float
    body_timeout_s: float
    keep_alive_s: float
    discard_s: float = 2.0


class Connections:
    """The connections of a server, by what they wait for.

    The time to wait is the same for all connections of a phase, so each phase is a queue: one timer looks at
    the first of each, and no connection needs a timer of its own.
    """

    def __init__(self, limits: ConnectionLimits) -> None:
        self.limits = limits
        self.open: set[_Waiting] = set()
        self.is_stopping = False
        self.buffered_bytes = 0
        self.standing_headers = b""
        self._timeouts_s: dict[Phase, float | None] = {
            Phase.IDLE: limits.keep_alive_s,
            Phase.HEADERS: limits.header_timeout_s,
            Phase.BODY: limits.body_timeout_s,
            Phase.WATCHING: math.inf,
            Phase.DISCARDING: limits.discard_s,
            Phase.ANSWERING: None,
            Phase.WRITING: limits.body_timeout_s,
        }
        self._queues: dict[Phase, OrderedDict[_Waiting, float]] = {
            phase: OrderedDict() for phase, timeout_s in self._timeouts_s.items() if timeout_s is not None
        }
        self._loop = asyncio.get_running_loop()
        self._tick()

    def add(self, connection: _Waiting) -> bool:
        """Count a new connection; return whether there is room for it."""
        self.open.add(connection)
        return len(self.open) <= self.limits.max_connections or self._make_room()

    def remove(self, connection: _Waiting, phase: Phase) -> None:
        """Forget a connection that is closed."""
        self.open.discard(connection)
        if phase is not Phase.ANSWERING:
            self._queues[phase].pop(connection, None)

    def move(self, connection: _Waiting, before: Phase, phase: Phase) -> None:
        """Note that a connection waits for something else; its time begins now."""
        if before is not Phase.ANSWERING:
            self._queues[before].pop(connection, None)
        if phase is not Phase.ANSWERING:
            self._queues[phase][connection] = self._loop.time() + (self._timeouts_s[phase] or 0.0)

    async def stop(self, timeout_s: float) -> None:
        """Close idle connections, others once they are answered, and all after ``timeout_s``."""
        self.is_stopping = True
        for connection in list(self.open):
            connection.stop()
        deadline = self._loop.time() + timeout_s
        while self.open and self._loop.time() < deadline:
            await asyncio.sleep(_TICK_S / 5)
        self.drop()
        while self.open and self._loop.time() < deadline + _FLUSH_S:
            await asyncio.sleep(_TICK_S / 5)

    def drop(self) -> None:
        """Refuse running requests, and close all connections."""
        for connection in list(self.open):
            connection.drop()

    def close(self) -> None:
        """End the timer."""
        self._timer.cancel()

    def _make_room(self) -> bool:
        """Close the connection that waits longest for its client; return whether there was one."""
        for phase in (
            Phase.IDLE,
            Phase.WATCHING,
            Phase.HEADERS,
            Phase.BODY,
            Phase.DISCARDING,
            Phase.WRITING,
        ):
            waiting = self._queues[phase]
            if waiting:
                connection, _ = waiting.popitem(last=False)
                if phase is Phase.WRITING:
                    connection.abort()
                else:
                    connection.close()
                return True
        return False

    def _tick(self) -> None:
        self._timer = self._loop.call_later(_TICK_S, self._tick)
        now = self._loop.time()
        date = formatdate(time.time(), usegmt=True).encode()
        self.standing_headers = b"date: " + date + b"\r\n" + _SECURITY_HEADERS
        for phase, waiting in self._queues.items():
            while waiting:
                connection, deadline = next(iter(waiting.items()))
                if deadline > now:
                    break
                del waiting[connection]
                connection.time_out(phase)

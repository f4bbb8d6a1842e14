"""Closed and open loop over HTTP/1.1 connections."""

from __future__ import annotations

import asyncio
import ssl
import time
from collections import deque
from collections.abc import Coroutine
from http import HTTPStatus
from typing import Any

from graphbox.errors import BackendMissingError
from graphbox.server.load.http_connection import HttpConnection
from graphbox.server.load.pacing import ArrivalProcess
from graphbox.server.load.plan import LoadPlan, Tally

__all__ = ["HttpLoad"]

_SWEEP_S = 0.1
_RECONNECT_S = 0.05
_SUCCESS = range(HTTPStatus.OK, HTTPStatus.MULTIPLE_CHOICES)


class HttpLoad:
    """One process's part of a load test over HTTP.

    Args:
        plan: the load test; rate and requests are those of this process.
        offset: first request to send, by position.
    """

    def __init__(self, plan: LoadPlan, offset: int = 0) -> None:
        self._plan = plan
        self._requests = plan.requests
        self._next = offset % len(plan.requests)
        self._tally = Tally()
        self._connections: set[HttpConnection] = set()
        self._idle: deque[HttpConnection] = deque()
        self._waiting: deque[int] = deque()
        self._timed_out: set[HttpConnection] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._tls = ssl.create_default_context() if plan.tls else None
        self._in_flight = 0
        self._counted_from_ns = 0
        self._end_ns = 0
        self._is_open_loop = plan.rate is not None

    async def connect(self) -> None:
        """Open the connections.

        Raises:
            BackendMissingError: the server cannot be reached.
        """
        try:
            for _ in range(self._plan.connections):
                await self._open()
        except OSError as error:
            raise _unreachable(self._plan, error) from error

    async def run(self) -> Tally:
        """Send requests for the time of the plan, and wait for the last answers."""
        now = time.monotonic_ns()
        self._counted_from_ns = now + int(self._plan.warm_up_s * 1e9)
        self._end_ns = self._counted_from_ns + int(self._plan.seconds * 1e9)
        self._tally.begun_ns = self._counted_from_ns
        plan = self._plan
        arrivals = None
        if plan.rate is not None:
            arrivals = ArrivalProcess(plan.rate, plan.arrivals, plan.seed, self._end_ns, self._arrive)
        else:
            for connection in list(self._connections):
                self._proceed(connection, time.monotonic_ns())
        for _ in range(plan.connections - len(self._connections)):  # the server gave up the others meanwhile
            self._start(self._reconnect())
        try:
            await self._sweep()
        finally:
            if arrivals is not None:
                arrivals.close()
            self._close()
        return self._tally

    async def _sweep(self) -> None:
        """Abort requests that wait too long, until all are over."""
        timeout_ns = int(self._plan.timeout_s * 1e9)
        while (now := time.monotonic_ns()) < self._end_ns or self._in_flight:
            for connection in self._connections:
                if connection.sent_ns and now - connection.sent_ns > timeout_ns:
                    self._timed_out.add(connection)
                    connection.abort()
            remaining = (self._end_ns - now) / 1e9
            await asyncio.sleep(min(_SWEEP_S, remaining) if remaining > 0 else 0.001)
        self._tally.unsent += len(self._waiting)

    def _close(self) -> None:
        for task in self._tasks:
            task.cancel()
        for connection in self._connections:
            connection.abort()

    async def _open(self) -> HttpConnection:
        loop = asyncio.get_running_loop()
        _, connection = await loop.create_connection(
            lambda: HttpConnection(self._answered, self._lost),
            self._plan.host,
            self._plan.port,
            ssl=self._tls,
        )
        self._connections.add(connection)
        self._idle.append(connection)
        return connection

    def _arrive(self, due_ns: int) -> None:
        while self._idle:
            connection = self._idle.popleft()
            if connection.is_open:
                self._send(connection, due_ns)
                return
        self._waiting.append(due_ns)

    def _send(self, connection: HttpConnection, due_ns: int) -> None:
        number = self._next
        self._next = number + 1 if number + 1 < len(self._requests) else 0
        self._in_flight += 1
        connection.send(self._requests[number], due_ns, time.monotonic_ns())

    def _answered(self, connection: HttpConnection, status: int) -> None:
        now = time.monotonic_ns()
        due, sent = connection.due_ns, connection.sent_ns
        connection.sent_ns = 0
        self._in_flight -= 1
        if due >= self._counted_from_ns:
            self._count(due, sent, now, status)
        self._proceed(connection, now)

    def _proceed(self, connection: HttpConnection, now: int) -> None:
        """Use a connection that is free."""
        if now >= self._end_ns or not connection.is_open:
            return
        if not self._is_open_loop:
            self._send(connection, now)
        elif self._waiting:
            self._send(connection, self._waiting.popleft())
        else:
            self._idle.append(connection)

    def _count(self, due: int, sent: int, now: int, status: int) -> None:
        tally = self._tally
        tally.sent += 1
        tally.ended_ns = now
        if status in _SUCCESS:
            tally.latency.record(now - due)
            tally.service.record(now - sent)
        elif status == HTTPStatus.SERVICE_UNAVAILABLE:
            tally.refusal.record(now - sent)
        else:
            tally.fail(str(status))

    def _lost(self, connection: HttpConnection) -> None:
        self._connections.discard(connection)
        timed_out = connection in self._timed_out
        self._timed_out.discard(connection)
        if connection.sent_ns:
            connection.sent_ns = 0
            self._in_flight -= 1
            self._fail(connection.due_ns, "timeout" if timed_out else "connection")
        if time.monotonic_ns() < self._end_ns:
            self._start(self._reconnect())

    def _fail(self, due: int, reason: str) -> None:
        if due >= self._counted_from_ns:
            self._tally.sent += 1
            self._tally.ended_ns = time.monotonic_ns()
            self._tally.fail(reason)

    async def _reconnect(self) -> None:
        while time.monotonic_ns() < self._end_ns:
            try:
                connection = await self._open()
            except OSError:
                # A request that could not be sent: one of those that wait, or the next of a closed loop.
                if not self._is_open_loop or self._waiting:
                    self._fail(self._waiting.popleft() if self._waiting else time.monotonic_ns(), "connect")
                await asyncio.sleep(_RECONNECT_S)
            else:
                self._idle.remove(connection)
                self._proceed(connection, time.monotonic_ns())
                return

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


def _unreachable(plan: LoadPlan, error: OSError) -> BackendMissingError:
    return BackendMissingError(
        f"expected a server on {plan.host}:{plan.port}, cannot connect: {error.strerror or error}",
        where="--url",
    )

"""Watches of the health: calls that are sent it now, and whenever it changes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from graphbox.server.grpc.call import GrpcCall
from graphbox.server.grpc.health_messages import HealthCheckResponse
from graphbox.server.grpc.status import Status

__all__ = ["HealthWatches"]

_INTERVAL_S = 0.5


class HealthWatches:
    """The watches of all connections, with one timer: a watch costs nothing until the health changes.

    Args:
        health: returns the health of a service.
        is_stopping: returns whether the server stops.
    """

    def __init__(
        self, health: Callable[[str], HealthCheckResponse.ServingStatus], is_stopping: Callable[[], bool]
    ) -> None:
        self._health = health
        self._is_stopping = is_stopping
        # What the client of each call watches, and was sent last.
        self._watched: dict[GrpcCall, tuple[str, HealthCheckResponse.ServingStatus]] = {}
        self._timer: asyncio.TimerHandle | None = None

    def add(self, call: GrpcCall, service: str) -> None:
        """Send the health of a service to a call until it ends."""
        call.on_left = lambda: self._watched.pop(call, None)
        call.limit_time()
        status = self._health(service)
        _send(call, status)
        if status == HealthCheckResponse.ServingStatus.SERVICE_UNKNOWN:
            service = ""  # a long name that means nothing is not kept
        self._watched[call] = service, status
        self._look_later()

    def _look_later(self) -> None:
        if self._timer is None and self._watched:
            self._timer = asyncio.get_running_loop().call_later(_INTERVAL_S, self._look)

    def _look(self) -> None:
        self._timer = None
        self._look_later()
        if self._is_stopping():
            watched, self._watched = self._watched, {}
            for call in watched:
                call.finish(Status.UNAVAILABLE, "the server is stopping")
            return
        found: dict[str, HealthCheckResponse.ServingStatus] = {}
        for call, (service, last) in list(self._watched.items()):
            if last == HealthCheckResponse.ServingStatus.SERVICE_UNKNOWN:
                continue
            if service not in found:
                found[service] = self._health(service)
            if found[service] != last:
                self._watched[call] = service, found[service]
                _send(call, found[service])


def _send(call: GrpcCall, status: HealthCheckResponse.ServingStatus) -> None:
    call.send(HealthCheckResponse(status=status).SerializeToString())

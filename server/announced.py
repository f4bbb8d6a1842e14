"""Large requests whose bodies are on their way, refused by their headers where too much waits already."""

from __future__ import annotations

import asyncio

from graphbox.server.batching import Batcher, overloaded

__all__ = ["AnnouncedBodies", "Announcement"]

# Of a network in which a server is overloaded; after it, a body counts when it is there.
_ARRIVAL_S = 0.1


class AnnouncedBodies:
    """The announced bodies of one signature, by their estimated work. Belongs to the thread of an event loop.

    A body counts from its headers until its call is submitted, for a tenth of a second at most: clients that
    send slowly must not keep others out.

    Args:
        batcher: of the signature.
        max_queue_s: most work that waits, arrived or announced, by its estimated time.
    """

    def __init__(self, batcher: Batcher, max_queue_s: float) -> None:
        self._batcher = batcher
        self._max_queue_ns = max_queue_s * 1e9
        self._ns_per_byte = 0.0
        self._announced_ns = 0.0

    def announce(self, size_bytes: int) -> Announcement:
        """Count a body that is about to be received.

        Raises:
            RefusedError: 503, too much waits.
        """
        work_ns = size_bytes * self._ns_per_byte
        waiting_ns = self._batcher.waiting_ns + self._announced_ns
        if waiting_ns and waiting_ns + work_ns > self._max_queue_ns:
            raise overloaded(self._batcher.waiting)
        return Announcement(self, size_bytes, work_ns)

    def add(self, work_ns: float) -> None:
        """Count work that was announced, or, negative, that is no longer."""
        self._announced_ns = max(0.0, self._announced_ns + work_ns)

    def learn(self, size_bytes: int, work_ns: float) -> None:
        """Note the work of a body of some size."""
        self._ns_per_byte = work_ns / size_bytes


class Announcement:
    """One body that is on its way."""

    __slots__ = ("_bodies", "_size_bytes", "_timer", "_work_ns")

    def __init__(self, bodies: AnnouncedBodies, size_bytes: int, work_ns: float) -> None:
        self._bodies = bodies
        self._size_bytes = size_bytes
        self._work_ns = work_ns
        bodies.add(work_ns)
        self._timer = asyncio.get_running_loop().call_later(_ARRIVAL_S, self._end)

    def arrived(self, work_ns: float) -> None:
        """Note that the body is there, and what its work is."""
        self._timer.cancel()
        self._end()
        self._bodies.learn(self._size_bytes, work_ns)

    def _end(self) -> None:
        self._bodies.add(-self._work_ns)
        self._work_ns = 0.0

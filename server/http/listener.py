"""Accepts connections a few at a time, so that a flood of them does not hold up running requests."""

from __future__ import annotations

import asyncio
import errno
import logging
import socket
from collections.abc import Callable

__all__ = ["Acceptor"]

logger = logging.getLogger("graphbox.server")

# An event loop's own server accepts all that wait, up to the backlog, before anything else runs.
_AT_ONCE = 4
_RETRY_S = 0.1
_OUT_OF_RESOURCES = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})


class Acceptor:
    """Passes the connections of a listening socket to protocols of the running event loop.

    Args:
        listener: a listening socket; not closed here.
        create_protocol: returns the protocol of a new connection.
    """

    def __init__(self, listener: socket.socket, create_protocol: Callable[[], asyncio.Protocol]) -> None:
        listener.setblocking(False)
        self._listener = listener
        self._create_protocol = create_protocol
        self._loop = asyncio.get_running_loop()
        self._openings: set[asyncio.Task[None]] = set()
        self._retry: asyncio.TimerHandle | None = None
        self._resume()

    def close(self) -> None:
        """Accept no more connections; a second call does nothing."""
        self._loop.remove_reader(self._listener)
        if self._retry is not None:
            self._retry.cancel()

    def _resume(self) -> None:
        self._loop.add_reader(self._listener, self._accept)

    def _accept(self) -> None:
        for _ in range(_AT_ONCE):
            try:
                connection, _ = self._listener.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                if error.errno not in _OUT_OF_RESOURCES:
                    raise
                logger.error("no connection can be accepted, trying again in %g s: %s", _RETRY_S, error)
                self._loop.remove_reader(self._listener)
                self._retry = self._loop.call_later(_RETRY_S, self._resume)
                return
            opening = self._loop.create_task(self._open(connection))
            self._openings.add(opening)
            opening.add_done_callback(self._openings.discard)

    async def _open(self, connection: socket.socket) -> None:
        connection.setblocking(False)
        try:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            await self._loop.connect_accepted_socket(self._create_protocol, connection)
        except OSError:  # the client has left
            connection.close()

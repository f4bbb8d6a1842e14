"""Accepts connections a few at a time, so that a flood of them does not hold up running requests."""

from __future__ import annotations

import asyncio
import errno
import logging
import socket
import ssl
from collections.abc import Callable

__all__ = ["Listener"]

logger = logging.getLogger("graphbox.server")

# An event loop's own server accepts all that wait, up to the backlog, before anything else runs.
_AT_ONCE = 4
_RETRY_S = 0.1
# Handshakes of TLS at a time; for a new one, the longest ends.
_MOST_OPENINGS = 64
_OUT_OF_RESOURCES = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})


class Listener:
    """Passes the connections of a listening socket to protocols of the running event loop.

    Args:
        listener: a listening socket.
        create_protocol: returns the protocol of a new connection.
        tls: returns the context of a new connection; None: connections are not encrypted.
        handshake_timeout_s: time a client has for the handshake.
    """

    def __init__(
        self,
        listener: socket.socket,
        create_protocol: Callable[[], asyncio.Protocol],
        tls: Callable[[], ssl.SSLContext] | None = None,
        handshake_timeout_s: float = 10.0,
    ) -> None:
        listener.setblocking(False)
        self._listener = listener
        self._create_protocol = create_protocol
        self._tls = tls
        self._handshake_timeout_s = handshake_timeout_s if tls is not None else None
        self._loop = asyncio.get_running_loop()
        # In the order of their beginnings.
        self._openings: dict[asyncio.Task[None], None] = {}
        self._retry: asyncio.TimerHandle | None = None
        self._resume()

    def close(self) -> None:
        """Accept no more connections, and close the socket."""
        self._loop.remove_reader(self._listener)
        self._listener.close()
        if self._retry is not None:
            self._retry.cancel()
        if self._tls is not None:  # handshakes that have not ended
            for opening in list(self._openings):
                opening.cancel()

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
            self._openings[opening] = None
            opening.add_done_callback(lambda ended: self._openings.pop(ended, None))
            if len(self._openings) > _MOST_OPENINGS:
                next(iter(self._openings)).cancel()

    async def _open(self, connection: socket.socket) -> None:
        connection.setblocking(False)
        try:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            await self._loop.connect_accepted_socket(
                self._create_protocol,
                connection,
                ssl=None if self._tls is None else self._tls(),
                ssl_handshake_timeout=self._handshake_timeout_s,
            )
        except OSError:  # the client has left, or its handshake failed
            connection.close()

"""Listens for connections of gRPC."""

from __future__ import annotations

import socket
import ssl
from collections.abc import Callable

from graphbox.server.grpc.connection import GrpcConnection
from graphbox.server.grpc.service import GrpcService
from graphbox.server.http.connections import Connections
from graphbox.server.http.listener import Listener

__all__ = ["listen_grpc"]


def listen_grpc(
    service: GrpcService,
    connections: Connections,
    listener: socket.socket,
    tls: Callable[[], ssl.SSLContext] | None,
) -> Listener:
    """Answer the calls of the connections of a listening socket, on the running event loop.

    Args:
        service: answers the calls.
        connections: all connections of the server.
        listener: a listening socket.
        tls: returns the context of a new connection; None: connections are not encrypted.
    """
    timeout_s = connections.limits.header_timeout_s
    return Listener(listener, lambda: GrpcConnection(service, connections), tls, timeout_s)

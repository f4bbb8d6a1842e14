"""Listens for connections of gRPC."""

from __future__ import annotations

import socket
import ssl
from collections.abc import Callable

from graphbox.errors import BackendMissingError
from graphbox.server.grpc.connection import GrpcConnection, why_missing
from graphbox.server.grpc.service import GrpcService
from graphbox.server.http.connections import Connections
from graphbox.server.http.listener import Listener
from graphbox.server.services import Services

__all__ = ["check_available", "listen_grpc"]


def check_available() -> None:
    """Raise if this installation has no gRPC.

    Raises:
        BackendMissingError: it was built without libnghttp2, or does not find it.
    """
    reason = why_missing()
    if reason is not None:
        raise BackendMissingError(
            f"this installation of graphbox cannot serve gRPC: {reason}",
            where="grpc_port",
            hint="install libnghttp2 (Debian: libnghttp2-dev) and build graphbox again",
        )


def listen_grpc(
    services: Services,
    connections: Connections,
    listener: socket.socket,
    tls: Callable[[], ssl.SSLContext] | None,
) -> Listener:
    """Answer the calls of the connections of a listening socket, on the running event loop.

    Args:
        services: the parts of the server.
        connections: all connections of the server.
        listener: a listening socket.
        tls: returns the context of a new connection; None: connections are not encrypted.
    """
    service = GrpcService(services)
    timeout_s = connections.limits.header_timeout_s
    return Listener(listener, lambda: GrpcConnection(service, connections), tls, timeout_s)

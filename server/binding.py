"""Sockets that listen on the address of a server, and the address of its page."""

from __future__ import annotations

import contextlib
import errno
import ipaddress
import socket
from dataclasses import dataclass
from typing import Self

from graphbox.errors import ConflictError, UsageError
from graphbox.server.settings import Settings, resolve

__all__ = ["Listeners", "bind", "bind_listeners", "host_and_port", "page_url"]

_BACKLOG = 2048


@dataclass(frozen=True, slots=True)
class Listeners:
    """The listening sockets of one worker.

    Attributes:
        http: accepts connections of HTTP/1.1.
        grpc: accepts connections of gRPC; None: the server has none.
    """

    http: socket.socket
    grpc: socket.socket | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the sockets: new connections are refused where no other process has them."""
        self.http.close()
        if self.grpc is not None:
            self.grpc.close()

    def listen(self) -> None:
        """Accept connections, where `stop_listening` was called; else change nothing."""
        for each in (self.http, self.grpc):
            if each is not None:
                each.listen(_BACKLOG)

    def stop_listening(self) -> None:
        """Reset connections that wait to be accepted, and leave new ones to other workers, until `listen`."""
        for each in (self.http, self.grpc):
            if each is None:
                continue
            address = each.getsockname()
            with contextlib.suppress(OSError):  # it does not listen
                each.shutdown(socket.SHUT_RD)
            with contextlib.suppress(OSError):  # it kept its port, as one that was named at first does
                each.bind(address)

    def descriptors(self) -> tuple[int, int | None]:
        """Return the descriptors of the sockets."""
        return self.http.fileno(), None if self.grpc is None else self.grpc.fileno()

    @classmethod
    def of_descriptors(cls, http: int, grpc: int | None) -> Listeners:
        """Return the sockets of descriptors, which `close` closes."""
        return cls(socket.socket(fileno=http), None if grpc is None else socket.socket(fileno=grpc))


def bind(host: str, port: int) -> socket.socket:
    """Return a socket that listens on an address of this machine.

    Args:
        host: name or IP address.
        port: 0 for any free one.

    Raises:
        ConflictError: the port is in use.
        UsageError: the address is not one of this machine, or the port needs privileges.
    """
    return _bind_shared(host, port, 1)[0]


def bind_listeners(settings: Settings) -> list[Listeners]:
    """Return the sockets of each worker of a server.

    Raises:
        See `bind`.
    """
    http = _bind_shared(settings.host, settings.port, settings.workers)
    if settings.grpc_port is None:
        return [Listeners(each) for each in http]
    try:
        grpc = _bind_shared(settings.host, settings.grpc_port, settings.workers)
    except Exception:
        for each in http:
            each.close()
        raise
    return [Listeners(*each) for each in zip(http, grpc, strict=True)]


def _bind_shared(host: str, port: int, workers: int) -> list[socket.socket]:
    """Return sockets that listen on one address; the kernel divides new connections among them.

    Raises:
        See `bind`.
    """
    address = resolve(host)
    family = socket.AF_INET6 if ipaddress.ip_address(address).version == 6 else socket.AF_INET
    listeners: list[socket.socket] = []
    try:
        for position in range(workers):
            listener = socket.socket(family)
            listeners.append(listener)
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if position == 0:
                # Not shared before it is bound: it must not join the sockets of another server.
                listener.bind((address, port))
                port = listener.getsockname()[1]
            if workers > 1:
                listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
            if position > 0:
                listener.bind((address, port))
            # Fails where another program is bound to the port without listening.
            listener.listen(_BACKLOG)
    except OSError as error:
        for listener in listeners:
            listener.close()
        raise _not_bound(error, host, port) from error
    return listeners


def _not_bound(error: OSError, host: str, port: int) -> ConflictError | UsageError:
    where = f"{host}:{port}"
    if error.errno == errno.EADDRINUSE:
        return ConflictError(
            f"port {port} is in use by another program",
            where=where,
            hint="choose another with --port, or any free one with --port 0",
        )
    if error.errno == errno.EACCES:
        return UsageError(
            f"port {port} needs privileges this user does not have",
            where=where,
            hint="choose one above 1023",
        )
    return UsageError(f"cannot listen there: {error.strerror}", where=where)


def page_url(settings: Settings) -> str:
    """Return the address of the page for a browser on this machine."""
    scheme = "http" if settings.tls_certificate is None else "https"
    return f"{scheme}://{host_and_port(settings, settings.port)}/"


def host_and_port(settings: Settings, port: int) -> str:
    """Return the address of a port of the server for a client on this machine."""
    address = ipaddress.ip_address(resolve(settings.host))
    host = settings.host
    if address.is_unspecified:
        host = "127.0.0.1" if address.version == 4 else "::1"
    shown = f"[{host}]" if ":" in host else host
    return f"{shown}:{port}"

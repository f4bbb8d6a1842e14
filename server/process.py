"""The server process: listens, says so, reloads on SIGHUP, and on SIGTERM finishes what it has begun."""

from __future__ import annotations

import contextlib
import errno
import ipaddress
import signal
import socket
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from types import FrameType

import uvicorn

from graphbox.errors import ConflictError, UsageError
from graphbox.server.app import create_app
from graphbox.server.http_protocol import limited_protocol
from graphbox.server.services import Services
from graphbox.server.settings import Settings, resolve

__all__ = ["bind", "serve"]

_BACKLOG = 2048


def serve(settings: Settings, on_start: Callable[[str], None] | None = None) -> None:
    """Serve until SIGTERM or Ctrl-C, then finish running requests and return.

    Args:
        settings: what to serve and where.
        on_start: called once with the address of the page when requests are accepted.

    Raises:
        UsageError: wrong or unsafe settings, such as a reachable address without a token.
        ConflictError: the port is in use.
        GraphboxError: the workspace or a named artifact cannot be opened.
        KeyboardInterrupt: Ctrl-C a second time; requests were dropped.
    """
    settings.check()
    with bind(settings.host, settings.port) as listener:
        # The page's cookie carries the port, so a free one has to be known first.
        settings = replace(settings, port=listener.getsockname()[1])
        app = create_app(settings)
        config = uvicorn.Config(
            app,
            http=limited_protocol(settings.header_timeout_s),
            ws="none",
            lifespan="on",
            log_config=None,
            access_log=False,  # it would hold the token of the page's first request
            proxy_headers=False,
            server_header=False,
            backlog=_BACKLOG,
            limit_concurrency=settings.max_connections,
            timeout_keep_alive=settings.keep_alive_s,
            timeout_graceful_shutdown=settings.drain_timeout_s,
        )
        server = _Server(config, app.services, lambda: on_start(page_url(settings)) if on_start else None)
        server.run(sockets=[listener])
    if server.force_exit:
        raise KeyboardInterrupt


def bind(host: str, port: int) -> socket.socket:
    """Return a socket bound to an address of this machine.

    Raises:
        ConflictError: the port is in use.
        UsageError: the address is not one of this machine, or the port needs privileges.
    """
    address = resolve(host)
    family = socket.AF_INET6 if ipaddress.ip_address(address).version == 6 else socket.AF_INET
    listener = socket.socket(family)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((address, port))
        # Another program that has bound but not listened is met here.
        listener.listen(_BACKLOG)
    except OSError as error:
        listener.close()
        where = f"{host}:{port}"
        if error.errno == errno.EADDRINUSE:
            raise ConflictError(
                f"port {port} is in use by another program",
                where=where,
                hint="choose another with --port, or any free one with --port 0",
            ) from error
        if error.errno == errno.EACCES:
            raise UsageError(
                f"port {port} needs privileges this user does not have",
                where=where,
                hint="choose one above 1023",
            ) from error
        raise UsageError(f"cannot listen there: {error.strerror}", where=where) from error
    return listener


def page_url(settings: Settings) -> str:
    """Return the address of the page for a browser on this machine, with the token where there is one."""
    address = ipaddress.ip_address(resolve(settings.host))
    host = settings.host
    if address.is_unspecified:
        host = "127.0.0.1" if address.version == 4 else "::1"
    shown = f"[{host}]" if ":" in host else host
    query = f"?token={settings.token}" if settings.token else ""
    return f"http://{shown}:{settings.port}/{query}"


class _Server(uvicorn.Server):
    """uvicorn's server, which returns after a signal and says when it is ready."""

    def __init__(self, config: uvicorn.Config, services: Services, on_start: Callable[[], None]) -> None:
        super().__init__(config)
        self._services = services
        self._on_start = on_start

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Accept connections, then say so."""
        await super().startup(sockets)
        if self.started:
            self._on_start()

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Begin to stop: streams end, running requests go on; a second Ctrl-C drops them."""
        self._services.stopping.set()
        super().handle_exit(sig, frame)

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Handle signals for the time of the block. Unlike uvicorn's, a handled one is not raised again."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        handlers = {
            signal.SIGINT: self.handle_exit,
            signal.SIGTERM: self.handle_exit,
            signal.SIGHUP: self._handle_reload,
        }
        before = {number: signal.signal(number, handler) for number, handler in handlers.items()}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def _handle_reload(self, _sig: int, _frame: FrameType | None) -> None:
        threading.Thread(target=self._services.repository.reload, name="graphbox-reload", daemon=True).start()

"""The server process: listens, announces it, reloads on SIGHUP, and on SIGTERM completes running requests."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import gc
import ipaddress
import logging
import resource
import signal
import socket
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from types import FrameType

import uvicorn

from graphbox.errors import ConflictError, UsageError
from graphbox.server.acceptor import Acceptor
from graphbox.server.app import create_app
from graphbox.server.http_protocol import limited_protocol
from graphbox.server.repository import Readiness
from graphbox.server.services import Services
from graphbox.server.settings import Settings, resolve

__all__ = ["bind", "serve"]

logger = logging.getLogger("graphbox.server")

_BACKLOG = 2048
# Files of models, of the page and of the database.
_FILES_BESIDES_CONNECTIONS = 256
# A thread that computes in Python keeps the event loop waiting for up to this long; 5 ms by default.
_SWITCH_INTERVAL_S = 0.001


def serve(
    settings: Settings,
    on_start: Callable[[str], None] | None = None,
    on_preload: Callable[[Readiness], None] | None = None,
) -> None:
    """Serve until SIGTERM or Ctrl-C, then complete running requests and return.

    Args:
        settings: what to serve and where.
        on_start: called once with the address of the page when requests are accepted.
        on_preload: called once, in another thread, after every model was opened or failed to open.

    Raises:
        UsageError: wrong or unsafe settings, such as a reachable address without a token.
        ConflictError: the port is in use.
        GraphboxError: the workspace or a folder of models cannot be opened.
        KeyboardInterrupt: Ctrl-C a second time; requests were dropped.
    """
    settings.check()
    with bind(settings.host, settings.port) as listener:
        # The name of the page's cookie contains the port.
        settings = replace(settings, port=listener.getsockname()[1])

        def preloaded(readiness: Readiness) -> None:
            # What is there by now stays: left out of collections, it does not make them long.
            gc.collect()
            gc.freeze()
            if on_preload is not None:
                on_preload(readiness)

        app = create_app(settings, preloaded)
        config = uvicorn.Config(
            app,
            http=limited_protocol(_allow_connections(settings), settings.header_timeout_s),
            ws="none",
            lifespan="on",
            log_config=None,
            access_log=False,  # the gateway logs requests, with their ids
            proxy_headers=False,
            server_header=False,
            backlog=_BACKLOG,
            timeout_keep_alive=settings.keep_alive_s,
            timeout_graceful_shutdown=settings.drain_timeout_s,
        )
        server = _Server(config, app.services, lambda: on_start(page_url(settings)) if on_start else None)
        sys.setswitchinterval(_SWITCH_INTERVAL_S)
        workspace = app.services.workspace
        with (
            workspace.serving(page_url(settings), follows=settings.follow)
            if workspace is not None
            else contextlib.nullcontext()
        ):
            server.run(sockets=[listener])
    if server.force_exit:
        raise KeyboardInterrupt


def _allow_connections(settings: Settings) -> int:
    """Raise the limit on open files to what the connections need; return the most connections it allows."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = settings.max_connections + _FILES_BESIDES_CONNECTIONS
    allowed = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
    if soft != resource.RLIM_INFINITY and soft < allowed:
        resource.setrlimit(resource.RLIMIT_NOFILE, (allowed, hard))
    if allowed < wanted:
        logger.warning(
            "at most %d connections: the limit on open files is %d (ulimit -n)",
            max(1, allowed - _FILES_BESIDES_CONNECTIONS),
            allowed,
        )
    return max(1, min(settings.max_connections, allowed - _FILES_BESIDES_CONNECTIONS))


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
        # Fails where another program is bound to the port without listening.
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
    """Return the address of the page for a browser on this machine."""
    address = ipaddress.ip_address(resolve(settings.host))
    host = settings.host
    if address.is_unspecified:
        host = "127.0.0.1" if address.version == 4 else "::1"
    shown = f"[{host}]" if ":" in host else host
    return f"http://{shown}:{settings.port}/"


class _Server(uvicorn.Server):
    """uvicorn's server; returns after a signal, and calls ``on_start`` when it accepts connections."""

    def __init__(self, config: uvicorn.Config, services: Services, on_start: Callable[[], None]) -> None:
        super().__init__(config)
        self._services = services
        self._on_start = on_start
        self._acceptors: list[Acceptor] = []

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Accept connections, then call ``on_start``."""
        await super().startup(sockets=[])
        if self.started:
            self._acceptors = [Acceptor(listener, self._protocol) for listener in sockets or ()]
            self._on_start()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Accept no more connections, and complete running requests."""
        for acceptor in self._acceptors:
            acceptor.close()
        await super().shutdown(sockets)

    def _protocol(self) -> asyncio.Protocol:
        protocol: asyncio.Protocol = self.config.http_protocol_class(  # type: ignore[call-arg]
            config=self.config, server_state=self.server_state, app_state=self.lifespan.state
        )
        return protocol

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Begin to stop: streams end, running requests continue; a second Ctrl-C drops them."""
        self._services.stopping.set()
        super().handle_exit(sig, frame)

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Handle signals during the block. Unlike uvicorn's handlers, do not raise them again."""
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
        self._services.watcher.reload()

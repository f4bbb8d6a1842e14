"""Serving in this process: accepts connections, reloads on SIGHUP, on SIGTERM completes running requests."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import resource
import signal
import socket
import sys
import threading
from collections.abc import Callable, Iterator
from functools import partial

import uvloop

from graphbox.errors import UsageError
from graphbox.memory import release_free_pages
from graphbox.server.app import create_app
from graphbox.server.binding import Listeners
from graphbox.server.counters import Counters
from graphbox.server.gateway import Gateway
from graphbox.server.http.connection import HttpConnection
from graphbox.server.http.connections import ConnectionLimits, Connections
from graphbox.server.http.listener import Listener
from graphbox.server.readiness import Readiness
from graphbox.server.serving_state import ServingState
from graphbox.server.settings import Settings
from graphbox.server.shared_document import SharedDocument
from graphbox.server.tls import Tls

__all__ = ["serve_process"]

logger = logging.getLogger("graphbox.server")

# Files of models, of the page and of the database.
_FILES_BESIDES_CONNECTIONS = 256
# A thread that computes in Python keeps the event loop waiting for up to this long; 5 ms by default.
_SWITCH_INTERVAL_S = 0.001


def serve_process(
    settings: Settings,
    listeners: Listeners,
    on_start: Callable[[], None],
    on_preload: Callable[[Readiness], None],
    *,
    counters: Counters | None = None,
    state: ServingState | None = None,
    document: SharedDocument | None = None,
) -> None:
    """Serve in this process until SIGTERM or Ctrl-C, then complete running requests and return.

    Args:
        settings: what to serve, with the port that is listened on.
        listeners: accept connections; closed when no more are accepted.
        on_start: called once, when connections are accepted.
        on_preload: called once, in another thread, after every model was opened or failed to open.
        counters: of all workers of the server; None: this process alone serves.
        state: requests about models, of all workers; None: see `Repository`.
        document: settings and regions of all workers; None: this process alone serves.

    Raises:
        UsageError: wrong settings.
        GraphboxError: the workspace or a folder of models cannot be opened.
        KeyboardInterrupt: Ctrl-C a second time; requests were dropped.
    """

    def preloaded(readiness: Readiness) -> None:
        # What is there by now stays: left out of collections, it does not make them long.
        gc.collect()
        gc.freeze()
        release_free_pages()
        on_preload(readiness)

    app = create_app(settings, preloaded, counters=counters, state=state, document=document)
    server = _Server(app, settings, on_start)
    sys.setswitchinterval(_SWITCH_INTERVAL_S)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(server.run(listeners))
    if server.is_interrupted:
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


class _Server:
    """Listens until a signal, then completes what runs.

    Args:
        gateway: answers requests.
        settings: of the server.
        on_start: called when connections are accepted.
    """

    def __init__(self, gateway: Gateway, settings: Settings, on_start: Callable[[], None]) -> None:
        self.is_interrupted = False
        self._gateway = gateway
        self._settings = settings
        self._tls = Tls.of(settings)
        self._on_start = on_start

    async def run(self, listeners: Listeners) -> None:
        """Serve the connections of listening sockets."""
        self._stopping = asyncio.Event()
        settings = self._settings
        self._connections = connections = Connections(
            ConnectionLimits(
                max_connections=_allow_connections(settings),
                max_body_bytes=settings.max_body_bytes,
                max_buffered_bytes=settings.max_buffered_bytes,
                header_timeout_s=settings.header_timeout_s,
                body_timeout_s=settings.body_timeout_s,
                keep_alive_s=settings.keep_alive_s,
            )
        )
        await self._gateway.start()
        with self._signals():
            listeners.listen()
            accepting = [self._listen_http(listeners.http)]
            stops = [self._gateway.stop]
            if listeners.grpc is not None:
                from graphbox.server.grpc.listener import listen_grpc
                from graphbox.server.grpc.service import GrpcService

                service = GrpcService(self._gateway.services)
                stops.insert(0, service.stop)  # before the executor stops, which its calls need
                tls = None if self._tls is None else partial(self._tls.context, "h2")
                accepting.append(listen_grpc(service, connections, listeners.grpc, tls))
            self._on_start()
            self._gateway.services.telemetry.mark_serving()
            await self._stopping.wait()
            for each in accepting:
                each.close()
            listeners.close()
            await connections.stop(settings.drain_timeout_s)
            connections.close()
            for stop in stops:
                await stop()

    def _listen_http(self, listener: socket.socket) -> Listener:
        tls = None if self._tls is None else partial(self._tls.context, "http/1.1")
        scheme = "http" if tls is None else "https"
        return Listener(
            listener,
            lambda: HttpConnection(self._gateway, self._connections, scheme),
            tls,
            self._settings.header_timeout_s,
        )

    @contextlib.contextmanager
    def _signals(self) -> Iterator[None]:
        """Handle signals during the block, in the main thread."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        loop = asyncio.get_running_loop()
        handlers: dict[signal.Signals, Callable[[], None]] = {
            signal.SIGINT: self._interrupt,
            signal.SIGTERM: self._stop,
            signal.SIGHUP: self._reload,
        }
        for number, handler in handlers.items():
            loop.add_signal_handler(number, handler)
        try:
            yield
        finally:
            for number in handlers:
                loop.remove_signal_handler(number)

    def _stop(self) -> None:
        """Begin to stop: streams end, running requests continue."""
        self._gateway.services.stopping.set()
        self._stopping.set()

    def _reload(self) -> None:
        """Read the certificate, the tokens and the models again."""
        if self._gateway.services.token_rule is not None:
            self._gateway.services.token_rule.tokens.reload()
        if self._tls is not None:
            try:
                self._tls.reload()
            except UsageError as error:
                logger.error("the certificate was not read again: %s", error)
        self._gateway.services.watcher.reload()

    def _interrupt(self) -> None:
        """Begin to stop; the second time, drop running requests."""
        if self._stopping.is_set():
            self.is_interrupted = True
            self._connections.drop()
        self._stop()

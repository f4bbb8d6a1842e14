"""Starting a server: in this process, or with several workers as its parent."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace

from graphbox.server.binding import bind_listeners, host_and_port, page_url
from graphbox.server.readiness import Readiness
from graphbox.server.settings import Settings

__all__ = ["serve"]


def serve(
    settings: Settings,
    on_start: Callable[[str, str | None], None] | None = None,
    on_preload: Callable[[Readiness], None] | None = None,
) -> None:
    """Serve until SIGTERM or Ctrl-C, then complete running requests and return.

    One worker is this process. Several are children of this process, which answers no request then.

    Args:
        settings: what to serve and where.
        on_start: called once, when requests are accepted, with the address of the page and that of gRPC
            (host and port), which is None without it.
        on_preload: called once, perhaps in another thread, after every model was opened or failed to open.

    Raises:
        UsageError: wrong or unsafe settings, such as a reachable address without a token.
        ConflictError: a port is in use.
        BackendMissingError: gRPC is wanted, and this installation has none.
        GraphboxError: the workspace or a folder of models cannot be opened, or a worker cannot start.
        KeyboardInterrupt: Ctrl-C a second time; requests were dropped.
    """
    settings.check()
    with ExitStack() as stack:
        if settings.grpc_port is not None:
            from graphbox.server.grpc.availability import check_available

            check_available()
        listeners = bind_listeners(settings)
        for each in listeners:
            stack.enter_context(each)
        # The name of the page's cookie contains the port.
        settings = replace(settings, port=listeners[0].http.getsockname()[1])
        url = page_url(settings)
        grpc = listeners[0].grpc
        grpc_address = None if grpc is None else host_and_port(settings, grpc.getsockname()[1])

        def started() -> None:
            if settings.workspace is not None:
                # Needs no database, unlike the workspace: the parent of workers stays small.
                from graphbox.workspace.registration import registered_server

                root = settings.workspace.absolute()
                stack.enter_context(registered_server(root, url, follows=settings.follow))
            if on_start is not None:
                on_start(url, grpc_address)

        def preloaded(readiness: Readiness) -> None:
            if on_preload is not None:
                on_preload(readiness)

        if settings.workers == 1:
            from graphbox.server.process import serve_process

            serve_process(settings, listeners[0], started, preloaded)
        else:
            from graphbox.server.supervisor import supervise

            supervise(settings, listeners, started, preloaded)

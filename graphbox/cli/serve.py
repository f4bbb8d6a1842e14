"""`graphbox serve`: models and the web page over HTTP."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from graphbox.cli.session import Session, command

__all__ = ["register", "serve_workspace"]

HostOption = Annotated[str, typer.Option("--host", help="Address; any but loopback needs --token.")]
PortOption = Annotated[int, typer.Option("--port", help="Port; 0 takes any free one.")]
TokenOption = Annotated[
    str | None,
    typer.Option("--token", envvar="GRAPHBOX_TOKEN", help="Secret that every request has to present."),
]


def serve(
    session: Session,
    host: HostOption = "127.0.0.1",
    port: PortOption = 8710,
    token: TokenOption = None,
    allow_host: Annotated[
        list[str] | None, typer.Option("--allow-host", help="Further name accepted in the Host header.")
    ] = None,
    artifact: Annotated[
        list[Path] | None, typer.Option("--artifact", help="Folder of a further model version to serve.")
    ] = None,
    target: Annotated[str, typer.Option("--target", help="Adapter; see `graphbox targets`.")] = "auto",
    threads: Annotated[int, typer.Option("--threads", help="Threads of one model execution.")] = 1,
) -> None:
    """Serve the workspace: KServe v2, REST, and the web page, until Ctrl-C."""
    serve_workspace(
        session,
        host,
        port,
        token,
        allowed_hosts=tuple(allow_host or ()),
        artifacts=tuple(artifact or ()),
        target=target,
        threads=threads,
    )


def serve_workspace(
    session: Session,
    host: str,
    port: int,
    token: str | None,
    *,
    allowed_hosts: tuple[str, ...] = (),
    artifacts: tuple[Path, ...] = (),
    target: str = "auto",
    threads: int = 1,
    announce_json: bool = True,
) -> None:
    """Serve the workspace of ``session`` until a signal, and say where.

    Args:
        session: this call of the command line.
        host: address to listen on.
        port: port to listen on.
        token: secret that requests have to present.
        allowed_hosts: further names accepted in the Host header.
        artifacts: further model versions to serve.
        target: adapter to run models on.
        threads: threads of one model execution.
        announce_json: with ``--json``, print the address as the document of this command.
    """
    import os
    import sys

    from graphbox.server.process import serve as serve_until_signal
    from graphbox.server.settings import Settings

    settings = Settings(
        workspace=session.workspace_path,
        database_url=os.environ.get("GRAPHBOX_DATABASE_URL"),
        artifacts=artifacts,
        host=host,
        port=port,
        token=token,
        allowed_hosts=allowed_hosts,
        target=target,
        threads=threads,
    )
    # The wrong settings first, then the workspace: `--host 0.0.0.0` without a token must not open anything.
    settings.check()
    with session.workspace():
        pass

    def on_start(url: str) -> None:
        if session.json and announce_json:
            sys.stdout.write(f'{{"url": "{url}"}}\n')
            sys.stdout.flush()
        session.note(f"serving {session.workspace_path} on {url} (Ctrl-C stops)")

    serve_until_signal(settings, on_start)


def register(app: typer.Typer) -> None:
    """Add the command to ``app``."""
    command(app, "serve")(serve)

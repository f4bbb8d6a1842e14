"""`graphbox demo`: the whole pipeline on the bundled graph, then the web page."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from graphbox.cli.serve import HostOption, PortOption, TokenOption, database_url, serve_models
from graphbox.cli.session import Session, command

if TYPE_CHECKING:
    from graphbox.server.settings import Settings


def demo(
    session: Session,
    serve: Annotated[bool, typer.Option("--serve/--no-serve", help="Serve the result at the end.")] = True,
    host: HostOption = "127.0.0.1",
    port: PortOption = 8710,
    token: TokenOption = None,
    fresh: Annotated[bool, typer.Option("--fresh", help="Start a new run, whatever there is.")] = False,
    print_run_file: Annotated[
        bool, typer.Option("--print-run-file", help="Print the demo's run file and do nothing.")
    ] = False,
) -> None:
    """Tour: import, train, evaluate, export, compress and serve the bundled Debian package graph."""
    text = demo_run_file().read_text(encoding="utf-8")
    if print_run_file:
        session.answer({"run_file": text}, lambda console: console.out(text, end=""))
        return
    from graphbox.cli.pipeline import answer_report, run_shown
    from graphbox.config import load_config
    from graphbox.server.settings import Settings

    settings = Settings(
        workspace=session.workspace_path, database_url=database_url(), host=host, port=port, token=token
    )
    if serve:
        _check_serving(settings)
    config = load_config(demo_run_file())
    session.note(
        "Debian 12's package index: 63,436 packages, their dependencies, sources and tags.\n"
        "Two tasks: what section is a package of, and what belongs with it?"
    )
    report = run_shown(session, config, fresh=fresh)
    answer_report(session, report)
    if serve:
        serve_models(session, settings, announce_json=False)
    else:
        session.note(f"`graphbox -C {session.workspace_path} serve` shows it in the browser")


def demo_run_file() -> Path:
    """Return the path of the bundled run file."""
    import graphbox

    return Path(graphbox.__file__).parent / "demo" / "graphbox.yaml"


def _check_serving(settings: Settings) -> None:
    """Reject a wrong or used address now, not after minutes of training."""
    from graphbox.server.binding import bind

    settings.check()
    bind(settings.host, settings.port).close()


def register(app: typer.Typer) -> None:
    """Add the command to ``app``."""
    command(app, "demo")(demo)

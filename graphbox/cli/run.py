"""`graphbox run`: the whole pipeline of a run file."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from graphbox.cli.session import Session, command

__all__ = ["register"]


def run(
    session: Session,
    file: Annotated[Path, typer.Argument(help="Run file (YAML).")],
    overrides: Annotated[list[str] | None, typer.Argument(help="key.path=value ...")] = None,
    fresh: Annotated[bool, typer.Option("--fresh", help="Start a new run, whatever there is.")] = False,
) -> None:
    """Run all stages of a run file; go on after the last finished stage of an earlier attempt.

    Exit code 75 means: stopped on request (Ctrl-C, SIGTERM); the same command goes on from there.
    """
    from graphbox.cli.pipeline import answer_report, run_shown
    from graphbox.config import load_config

    report = run_shown(session, load_config(file, overrides or []), fresh=fresh)
    answer_report(session, report)


def register(app: typer.Typer) -> None:
    """Add the command to ``app``."""
    command(app, "run")(run)

"""`graphbox run`: the whole pipeline of a run file."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from graphbox.cli.session import Session, command

FileArgument = Annotated[Path, typer.Argument(help="Run file (YAML).")]
OverridesArgument = Annotated[list[str] | None, typer.Argument(help="key.path=value ...")]
FreshOption = Annotated[bool, typer.Option("--fresh", help="Start a new run, whatever there is.")]
ResumeOption = Annotated[
    bool, typer.Option("--resume", help="Only resume an earlier attempt; an error when there is none.")
]


def run(
    session: Session,
    file: FileArgument,
    overrides: OverridesArgument = None,
    fresh: FreshOption = False,
    resume: ResumeOption = False,
) -> None:
    """Run all stages of a run file; resume after the last finished stage of an earlier attempt.

    Exit code 75 means: stopped on request (Ctrl-C, SIGTERM); the same command resumes from there.
    """
    from graphbox.cli.pipeline import answer_report, run_file

    answer_report(session, run_file(session, file, overrides or [], fresh=fresh, resume=resume))


def register(app: typer.Typer) -> None:
    """Add the command to ``app``."""
    command(app, "run")(run)

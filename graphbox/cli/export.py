"""`graphbox export`: trained models of a run become artifacts."""

from __future__ import annotations

import typer

from graphbox.cli.runs import RunArgument
from graphbox.cli.session import Session, command

__all__ = ["register"]


def export(session: Session, run: RunArgument) -> None:
    """Write the artifacts that the run's section `export` asks for, as new model versions.

    Each is compared with the trained model first, and refused (exit code 6) when it differs too much.
    `graphbox embed export` writes embeddings for other programs.
    """
    from graphbox.cli.pipeline import continue_shown

    continue_shown(session, run, until="export", again=True)


def register(app: typer.Typer) -> None:
    """Add the command to ``app``."""
    command(app, "export")(export)

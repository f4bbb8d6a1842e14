"""`graphbox eval`: the models of a run beside their baselines."""

from __future__ import annotations

import typer

from graphbox.cli.runs import RunArgument
from graphbox.cli.session import Session, command

__all__ = ["register"]


def evaluate(session: Session, run: RunArgument) -> None:
    """Measure the models and baselines of a run on the test part of their tasks."""
    from graphbox.cli.pipeline import continue_shown

    continue_shown(session, run, until="evaluate", again=True)


def register(app: typer.Typer) -> None:
    """Add the command to ``app``."""
    command(app, "eval")(evaluate)

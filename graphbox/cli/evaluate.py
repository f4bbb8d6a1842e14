"""`graphbox eval`: the models of a run beside their baselines."""

from __future__ import annotations

import typer

from graphbox.cli.run import OverridesArgument
from graphbox.cli.runs import RunArgument
from graphbox.cli.session import Session, command


def evaluate(session: Session, run: RunArgument, overrides: OverridesArgument = None) -> None:
    """Measure the models and baselines of a run again on the test part of their tasks.

    Overrides change settings of the evaluation, such as tasks.NAME.k=50; the trained models stay as they are,
    and only what depends on a changed setting is measured. If it fails, the run keeps its earlier results.
    """
    from graphbox.cli.pipeline import continue_shown

    continue_shown(session, run, until="evaluate", again=True, overrides=overrides or ())


def register(app: typer.Typer) -> None:
    """Add the command to ``app``."""
    command(app, "eval")(evaluate)

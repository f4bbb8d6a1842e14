"""`graphbox export`: trained models of a run become artifacts."""

from __future__ import annotations

import typer

from graphbox.cli.promotion import PromoteOption, rule_of_option
from graphbox.cli.runs import RunArgument
from graphbox.cli.session import Session, command


def export(session: Session, run: RunArgument, promote: PromoteOption = None) -> None:
    """Write the artifacts that the run's section `export` asks for, as new model versions.

    Each is compared with the active version, and becomes active where `promote` in the run file says so.

    Before that it is compared with the trained model, and refused (exit code 6) when it differs too much.
    `graphbox embed export` writes embeddings for other programs.
    """
    from graphbox.cli.pipeline import make_versions

    make_versions(session, run, "export", rule_of_option(promote))


def register(app: typer.Typer) -> None:
    """Add the command to ``app``."""
    command(app, "export")(export)

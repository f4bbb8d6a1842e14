"""`graphbox train`: a run file up to its trained models."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import typer

from graphbox.cli.results import print_results
from graphbox.cli.run import FileArgument, FreshOption, OverridesArgument, ResumeOption
from graphbox.cli.session import Session, command

if TYPE_CHECKING:
    from rich.console import Console

__all__ = ["register"]


def train(
    session: Session,
    file: FileArgument,
    overrides: OverridesArgument = None,
    fresh: FreshOption = False,
    resume: ResumeOption = False,
) -> None:
    """Import, split and train; go on at the last checkpoint of an earlier attempt.

    `graphbox run FILE` goes on with the same run.
    """
    from graphbox.cli.pipeline import run_file

    report = run_file(session, file, overrides or [], fresh=fresh, resume=resume, until="train")
    models = _models(report.path)
    document = {**report.document(), "models": models}
    text = f"trained {', '.join(models)} in {report.path}\n`graphbox eval {report.run}` measures them"

    def show(console: Console) -> None:
        print_results({"training": report.training}, console)
        console.print(text, markup=False, soft_wrap=True)

    session.answer(document, show)


def _models(run_path: Path) -> list[str]:
    return sorted(path.parent.name for path in (run_path / "trained").glob("*/trained.json"))


def register(app: typer.Typer) -> None:
    """Add the command to ``app``."""
    command(app, "train")(train)

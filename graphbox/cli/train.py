"""`graphbox train`: a run file up to its trained models, or a model that follows a stream."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from graphbox.cli.results import print_results
from graphbox.cli.run import FileArgument, FreshOption, OverridesArgument, ResumeOption
from graphbox.cli.session import Session, command
from graphbox.errors import UsageError

if TYPE_CHECKING:
    from rich.console import Console


def train(
    session: Session,
    file: FileArgument,
    overrides: OverridesArgument = None,
    fresh: FreshOption = False,
    resume: ResumeOption = False,
    follow: Annotated[
        Path | None,
        typer.Option("--follow", help="Learn from the chunks that come into this folder, in their order."),
    ] = None,
    once: Annotated[
        bool, typer.Option("--once", help="With --follow: end when no chunk is there, instead of waiting.")
    ] = False,
    until_idle: Annotated[
        float | None,
        typer.Option("--until-idle", help="With --follow: end when no chunk has come for so many seconds."),
    ] = None,
) -> None:
    """Import, split and train; resume at the last checkpoint of an earlier attempt.

    `graphbox run FILE` resumes the same run. With --follow, each chunk of new data is scored by the
    model as it is, then learnt, and its changes are written for serving.
    """
    from graphbox.cli.pipeline import run_file

    given = [*(overrides or []), *_stream_overrides(follow, once=once, until_idle=until_idle)]
    until = "train" if follow is None else "follow"
    report = run_file(session, file, given, fresh=fresh, resume=resume, until=until)
    models = _models(report.path)
    document = {**report.document(), "models": models}
    text = f"trained {', '.join(models)} in {report.path}"
    if follow is None:
        text += f"\n`graphbox eval {report.run}` measures them"

    def show(console: Console) -> None:
        print_results(document, console)
        console.print(text, markup=False, soft_wrap=True)

    session.answer(document, show)


def _stream_overrides(follow: Path | None, *, once: bool, until_idle: float | None) -> list[str]:
    """Return what the options of a stream say in the run file's words."""
    if follow is None:
        if once or until_idle is not None:
            raise UsageError(
                f"expected --follow with {'--once' if once else '--until-idle'}, received none",
                hint="name the folder in which chunks appear",
            )
        return []
    if once and until_idle is not None:
        raise UsageError("expected --once or --until-idle, received both")
    overrides = [f"stream.folder={json.dumps(str(follow.resolve()), ensure_ascii=False)}"]
    if once or until_idle is not None:
        overrides.append(f"stream.until_idle_seconds={0.0 if until_idle is None else float(until_idle)}")
    return overrides


def _models(run_path: Path) -> list[str]:
    return sorted(path.parent.name for path in (run_path / "trained").glob("*/trained.json"))


def register(app: typer.Typer) -> None:
    """Add the command to ``app``."""
    command(app, "train")(train)

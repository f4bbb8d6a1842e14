"""`graphbox runs`: the runs of a workspace."""

from __future__ import annotations

import time
from dataclasses import asdict
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any

import typer

from graphbox.cli.compare_runs import compare_runs
from graphbox.cli.results import print_results
from graphbox.cli.session import Session, command
from graphbox.cli.text import age, byte_size, duration, table
from graphbox.errors import NotFoundError

if TYPE_CHECKING:
    from rich.console import Console

    from graphbox.workspace import RunRecord, Sign, Workspace

group = typer.Typer(help="List, show, compare, stop, resume or remove runs.")

RunArgument = Annotated[str, typer.Argument(help="Id of the run; `last` is the newest.")]
_FOLLOW_EVERY_S = 0.5


def is_run(workspace: Workspace, name: str) -> bool:
    """Tell whether a name is that of a run, not of a model."""
    return name == "last" or any(run.id == name for run in workspace.runs())


def list_runs(session: Session) -> None:
    """List the runs, newest first."""
    with session.workspace() as workspace:
        runs = workspace.runs()

    def show(console: Console) -> None:
        if not runs:
            console.print("no runs yet: `graphbox run FILE` or `graphbox demo` makes one")
            return
        rows = [
            (
                run.id,
                run.state,
                _stage(run),
                duration(run.seconds),
                byte_size(run.size_bytes),
                age(run.created_at),
            )
            for run in runs
        ]
        columns = ("run", "state", "stage", "time", "size", "started")
        console.print(table(None, columns, rows, ("time", "size")))

    session.answer([_summary(run) for run in runs], show)


def show_run(session: Session, run: RunArgument) -> None:
    """Show one run: stages with times and peak memory, results, and what ended it."""
    from graphbox.pipeline.report import SHOWN_CHUNKS
    from graphbox.workspace import last_sign, read_chunks

    with session.workspace() as workspace:
        record = workspace.run(run)
    is_training = record.stage in ("train", "follow") and record.state != "finished"
    sign = last_sign(record.path) if is_training else None
    chunks = read_chunks(record.path)[-SHOWN_CHUNKS:]

    def show(console: Console) -> None:
        console.print(f"[bold]{record.id}[/]: {record.state}, {duration(record.seconds)} in all")
        rows = [
            (stage.name, stage.state, duration(stage.seconds), byte_size(stage.peak_bytes))
            for stage in record.stages
        ]
        console.print(
            table("Stages", ("stage", "state", "time", "peak memory"), rows, ("time", "peak memory"))
        )
        console.print()
        print_results({**record.report, "chunks": chunks}, console)
        if record.error:
            console.print(_error_text(record.error), markup=False, soft_wrap=True)
        if sign is not None:
            console.print(_sign_text(sign), markup=False, soft_wrap=True)
        console.print(f"folder {record.path}", markup=False, soft_wrap=True)

    document = {**_summary(record), "stages": _stages(record), "error": record.error, "report": record.report}
    document["training"] = None if sign is None else asdict(sign)
    document["chunks"] = chunks
    session.answer({**document, "config": record.config}, show)


def show_logs(
    session: Session,
    run: RunArgument,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on until the run has ended.")] = False,
) -> None:
    """Print the log of a run; with `--json`, one line of JSON for each line."""
    import json
    import sys

    with session.workspace() as workspace:
        record = workspace.run(run)
        path = record.path / "log.txt"
        if not path.is_file():
            raise NotFoundError(
                f"the run `{record.id}` has no log yet",
                where=str(path),
                hint="it starts with the first stage",
            )
        with path.open(encoding="utf-8", errors="replace") as file:
            while True:
                for line in file:
                    text = json.dumps({"line": line.rstrip("\n")}) + "\n" if session.json else line
                    sys.stdout.write(text)
                sys.stdout.flush()
                if not follow or workspace.run(record.id).state != "running":
                    return
                time.sleep(_FOLLOW_EVERY_S)


def remove(session: Session, run: RunArgument) -> None:
    """Remove a run, its files, and the graph version that it alone needs; the models it made stay."""
    from graphbox.pipeline.run_graph import remove_run

    with session.workspace() as workspace:
        record = workspace.run(run)
        freed_bytes = remove_run(workspace, record.id)
    document = {"removed": record.id, "freed_bytes": freed_bytes}
    session.answer(
        document, lambda console: console.print(f"removed run {record.id}, {byte_size(freed_bytes)} freed")
    )


def resume_run(session: Session, run: RunArgument) -> None:
    """Resume a run after its last finished stage."""
    from graphbox.cli.pipeline import continue_shown

    continue_shown(session, run)


def stop_run(session: Session, run: RunArgument) -> None:
    """Stop a running run as Ctrl-C does: it keeps what it has done and can be resumed."""
    with session.workspace() as workspace:
        record = workspace.stop_run(run)
    session.answer(
        _summary(record),
        lambda console: console.print(
            f"run {record.id} is {record.state}; `graphbox runs resume {record.id}` resumes it"
            if record.state == "interrupted"
            else f"run {record.id} is {record.state}"
        ),
    )


def _stage(run: RunRecord) -> str:
    if all(stage.state == "finished" for stage in run.stages):
        return "all"
    return run.stage or ""


def _summary(run: RunRecord) -> dict[str, Any]:
    return {
        "id": run.id,
        "name": run.name,
        "state": run.state,
        "stage": run.stage,
        "created_at": run.created_at,
        "updated_at": run.updated_at,
        "seconds": run.seconds,
        "size_bytes": run.size_bytes,
        "path": run.path,
    }


def _stages(run: RunRecord) -> list[dict[str, Any]]:
    return [
        {"name": s.name, "state": s.state, "seconds": s.seconds, "peak_bytes": s.peak_bytes}
        for s in run.stages
    ]


def _sign_text(sign: Sign) -> str:
    when = datetime.fromtimestamp(sign.time, UTC)
    return (
        f"last sign of the training, {age(when)}: model {sign.model}, epoch {sign.epoch + 1}, "
        f"batch {sign.batch + 1}, stage {sign.stage}"
    )


def _error_text(error: Any) -> str:
    where = f"{error['where']}: " if error.get("where") else ""
    hint = f"\n  = help: {error['hint']}" if error.get("hint") else ""
    return f"ended by: {where}{error['message']}{hint}"


command(group, "list", default=True)(list_runs)
command(group, "show")(show_run)
command(group, "compare")(compare_runs)
command(group, "logs")(show_logs)
command(group, "stop")(stop_run)
command(group, "resume")(resume_run)
command(group, "rm")(remove)


def register(app: typer.Typer) -> None:
    """Add the commands to ``app``."""
    app.add_typer(group, name="runs")

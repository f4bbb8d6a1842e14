"""`graphbox forget`: takes nodes out of a graph and out of everything that was made of it."""

from __future__ import annotations

from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from graphbox.cli.import_progress import Tell, watched_import
from graphbox.cli.session import Session, command
from graphbox.cli.text import byte_size, duration
from graphbox.errors import UsageError
from graphbox.words import counted

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import Console

    from graphbox.pipeline.forgetting import ForgetReport, Holding


def forget(
    session: Session,
    graph: Annotated[str | None, typer.Argument(help="Name of a graph in the workspace.")] = None,
    ids: Annotated[list[str] | None, typer.Argument(help="Ids of nodes.", show_default=False)] = None,
    node: Annotated[str | None, typer.Option("--node", metavar="TYPE", help="Node type of the ids.")] = None,
    file: Annotated[
        Path | None,
        typer.Option(
            "--ids",
            metavar="FILE",
            help="A text file with an id on each line, or a table with a column `id`.",
        ),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only say what holds the nodes; change nothing.")
    ] = False,
    resume: Annotated[
        bool, typer.Option("--resume", help="Only resume what was interrupted; takes no ids.")
    ] = False,
) -> None:
    """Forget nodes, such as people: in a graph, its runs, their models in all versions, in logs and records.

    The graph loses the nodes and is compacted. Their vectors, rows, neighbours and links leave trained models
    and model versions, whose numbers stay; running servers switch to the rewritten versions. Splits and
    checkpoints of runs are removed, as they name nodes of a version of the graph that is gone.

    The answer says what held the nodes and what cannot be reached from here. Interrupted, also by a crash,
    the command resumes with `--resume`, or when it is called again.
    """
    from graphbox.pipeline.forgetting import forget as forget_nodes
    from graphbox.pipeline.forgetting import forget_again, what_holds

    if resume and (graph is not None or ids or file is not None):
        raise UsageError("expected --resume alone, received nodes to forget too", hint="call it twice")
    with session.workspace() as workspace:
        if resume:
            with _watched(session) as tell:
                reports = forget_again(workspace, tell)
            document = {"resumed": [report.as_dict() for report in reports]}
            session.answer(document, lambda console: _print_reports(reports, console))
            return
        name, chosen = _chosen(graph, node, ids or [], file)
        if dry_run:
            held = what_holds(workspace, name, chosen)
            found = {"graph": name, "holds": [each.as_dict() for each in held]}
            session.answer(found, lambda console: _print_holdings(held, console))
            return
        with _watched(session) as tell:
            reports = [*forget_again(workspace, tell), forget_nodes(workspace, name, chosen, tell)]
        session.answer(reports[-1].as_dict(), lambda console: _print_reports(reports, console))


def _watched(session: Session) -> AbstractContextManager[Tell]:
    return watched_import(
        session,
        "forgetting",
        unit="steps",
        outcome="some of what held the nodes may hold them still",
        hint="`graphbox forget --resume` resumes it",
    )


def _chosen(
    graph: str | None, node: str | None, ids: Sequence[str], file: Path | None
) -> tuple[str, dict[str, Sequence[str]]]:
    from graphbox.pipeline.graph_changes import read_ids

    if graph is None:
        raise UsageError("expected the name of a graph, received none", hint="`graphbox graphs` lists them")
    if node is None:
        raise UsageError("expected --node: of which type the nodes are", hint="for example `--node user`")
    if (file is None) == (not ids):
        raise UsageError(
            f"expected ids as arguments or --ids FILE, received {'both' if ids else 'neither'}",
            hint=f"`graphbox forget {graph} --node {node} ID ...`",
        )
    if file is not None:
        return graph, {node: [str(each) for each in read_ids(file).drop_null().to_pylist()]}
    return graph, {node: ids}


def _print_holdings(holdings: Sequence[Holding], console: Console) -> None:
    lines = [_line(holding) for holding in holdings] or ["nothing holds them"]
    for line in lines:
        console.print(line, markup=False, soft_wrap=True)


def _line(holding: Holding) -> str:
    if holding.kind == "log":
        return f"logs of run {holding.name}: named {counted(holding.nodes, 'time')}"
    part = f", {holding.part}" if holding.part else ""
    return f"{holding.kind} {holding.name}{part}: {counted(holding.nodes, 'node')}"


def _print_reports(reports: Sequence[ForgetReport], console: Console) -> None:
    for report in reports:
        _print_report(report, console)
    if not reports:
        console.print("nothing was interrupted", markup=False)


def _print_report(report: ForgetReport, console: Console) -> None:
    given = ", ".join(f"{counted(number, 'node')} of type {name}" for name, number in report.given.items())
    lines = [f"forgotten in graph `{report.graph}` and what was made of it: {given}"]
    lines += [f"  {_line(holding)}" for holding in report.rewritten]
    if report.edges:
        lines.append(f"  {counted(report.edges, 'edge')} of the graph went with them")
    if report.removed_bytes:
        lines.append(f"  splits and checkpoints of runs were removed: {byte_size(report.removed_bytes)}")
    if report.replaced:
        lines.append(f"  logs and records: {counted(report.replaced, 'id')} replaced by `(forgotten)`")
    lines += [f"  the server at {url} switches to the rewritten versions" for url in report.servers]
    lines.append(f"all of this is gone from the disk ({duration(report.seconds)})")
    if report.unreached:
        lines.append("not reached:")
        lines += [f"  {sentence}" for sentence in report.unreached]
    for line in lines:
        console.print(line, markup=False, soft_wrap=True)


def register(app: typer.Typer) -> None:
    """Add the command to ``app``."""
    command(app, "forget")(forget)

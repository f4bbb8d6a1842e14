"""`graphbox describe`: what is in a graph."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from graphbox.cli.progress import ShownProgress
from graphbox.cli.session import Session, command
from graphbox.cli.text import byte_size
from graphbox.words import counted

if TYPE_CHECKING:
    from rich.console import Console

    from graphbox.graph.versions import KeptVersions

_MANY_EDGES = 20_000_000


def describe(
    session: Session,
    graph: Annotated[str, typer.Argument(help="Name of a graph in the workspace.")],
    verify: Annotated[
        bool, typer.Option("--verify", help="Read every file first, and compare it with its digest.")
    ] = False,
) -> None:
    """Show a graph: types, degrees, features, data problems, and the versions that runs keep."""
    from graphbox.graph import Graph
    from graphbox.graph.describe.terminal import render
    from graphbox.graph.versions import kept_versions

    with session.workspace() as workspace:
        path = workspace.graph(graph).path
    opened = Graph.open(path, verify_digests=verify)
    edges = sum(opened.num_edges(each) for each in opened.edge_types)
    with ShownProgress(session.err(), quiet=session.quiet or edges < _MANY_EDGES) as progress:
        progress.begin("describe", 1, 1)
        description = opened.describe(
            progress=lambda what, done, total: progress.step(what, done, total, "edges")
        )
    kept = kept_versions(path)
    document: dict[str, Any] = {
        **description.as_dict(),
        "versions": [each.as_dict() for each in kept.versions],
    }
    document["versions_bytes"] = kept.size_bytes

    def show(console: Console) -> None:
        render(description, console)
        _show_versions(kept, console)

    session.answer(document, show)


def _show_versions(kept: KeptVersions, console: Console) -> None:
    """Print which runs keep which version, and what that costs."""
    older = [each for each in kept.versions if not each.is_current]
    if not older:
        return
    total = byte_size(kept.size_bytes)
    console.print(f"{counted(len(older), 'older version')} kept for runs, {total}", markup=False)
    for each in older:
        runs = ", ".join(each.holders)
        console.print(
            f"  {each.short_name}  {byte_size(each.size_bytes)}  {runs}", markup=False, soft_wrap=True
        )


def register(app: typer.Typer) -> None:
    """Add the command to ``app``."""
    command(app, "describe")(describe)

"""`graphbox describe`: what is in a graph."""

from __future__ import annotations

from typing import Annotated

import typer

from graphbox.cli.progress import ShownProgress
from graphbox.cli.session import Session, command

__all__ = ["register"]

_MANY_EDGES = 20_000_000


def describe(
    session: Session,
    graph: Annotated[str, typer.Argument(help="Name of a graph in the workspace.")],
    verify: Annotated[
        bool, typer.Option("--verify", help="Read every file first, and compare it with its digest.")
    ] = False,
) -> None:
    """Show a graph: types, degrees, features, and what may be wrong with its data."""
    from graphbox.graph import Graph
    from graphbox.graph.describe.terminal import render

    with session.workspace() as workspace:
        path = workspace.graph(graph).path
    opened = Graph.open(path, verify_digests=verify)
    edges = sum(opened.num_edges(each) for each in opened.edge_types)
    with ShownProgress(session.err(), quiet=session.quiet or edges < _MANY_EDGES) as progress:
        progress.begin("describe", 1, 1)
        description = opened.describe(
            progress=lambda what, done, total: progress.step(what, done, total, "edges")
        )
    session.answer(description.as_dict(), lambda console: render(description, console))


def register(app: typer.Typer) -> None:
    """Add the command to ``app``."""
    command(app, "describe")(describe)

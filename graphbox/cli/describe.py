"""`graphbox describe`: what is in a graph."""

from __future__ import annotations

from typing import Annotated

import typer

from graphbox.cli.session import Session, command

__all__ = ["register"]


def describe(
    session: Session, graph: Annotated[str, typer.Argument(help="Name of a graph in the workspace.")]
) -> None:
    """Show a graph: nodes, edges, degrees, and what its import skipped."""
    from graphbox.graph import Graph
    from graphbox.graph.describe.terminal import render

    with session.workspace() as workspace:
        description = Graph.open(workspace.graph(graph).path).describe()
    session.answer(description.as_dict(), lambda console: render(description, console))


def register(app: typer.Typer) -> None:
    """Add the command to ``app``."""
    command(app, "describe")(describe)

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
    from graphbox.graph.describe import describe as describe_graph
    from graphbox.graph.describe import render

    with session.workspace() as workspace:
        document = describe_graph(Graph.open(workspace.graph(graph).path))
    session.answer(document, lambda console: render(document, console))


def register(app: typer.Typer) -> None:
    """Add the command to ``app``."""
    command(app, "describe")(describe)

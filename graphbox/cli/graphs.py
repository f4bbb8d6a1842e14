"""`graphbox graphs`: the graphs of a workspace."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from graphbox.cli.session import Session, command
from graphbox.cli.text import age, byte_size, table

group = typer.Typer(help="List or remove graphs.", no_args_is_help=False)


def list_graphs(session: Session) -> None:
    """List the graphs with their sizes."""
    with session.workspace() as workspace:
        graphs = workspace.graphs()
    document = [
        {
            "name": graph.name,
            "size_bytes": graph.size_bytes,
            "created_at": graph.created_at,
            "node_types": [{"name": name, "nodes": nodes} for name, nodes in graph.node_types.items()],
            "edge_types": [
                {"source": e.source, "relation": e.relation, "target": e.target, "edges": e.edges}
                for e in graph.edge_types
            ],
            "run": graph.run_id,
            "path": graph.path,
        }
        for graph in graphs
    ]

    def show(console: Any) -> None:
        if not graphs:
            console.print("no graphs yet: `graphbox import FILE` or `graphbox demo` makes one")
            return
        rows = [
            (
                graph.name,
                f"{sum(graph.node_types.values()):,}",
                f"{sum(e.edges for e in graph.edge_types):,}",
                byte_size(graph.size_bytes),
                age(graph.created_at),
            )
            for graph in graphs
        ]
        columns = ("graph", "nodes", "edges", "size", "imported")
        console.print(table(None, columns, rows, ("nodes", "edges", "size")))

    session.answer(document, show)


def remove_graph(session: Session, name: Annotated[str, typer.Argument(help="Name of the graph.")]) -> None:
    """Remove a graph and its files."""
    with session.workspace() as workspace:
        freed_bytes = workspace.remove_graph(name)
    document = {"removed": name, "freed_bytes": freed_bytes}
    session.answer(
        document, lambda console: console.print(f"removed graph {name}, {byte_size(freed_bytes)} freed")
    )


command(group, "list", default=True)(list_graphs)
command(group, "rm")(remove_graph)


def register(app: typer.Typer) -> None:
    """Add the commands to ``app``."""
    app.add_typer(group, name="graphs")

"""`graphbox import`: tables become a graph in the workspace."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from graphbox.cli.progress import ShownProgress
from graphbox.cli.session import Session, command

__all__ = ["register"]


def import_graph(
    session: Session,
    file: Annotated[Path, typer.Argument(help="Run file (YAML); its section `graph` is read.")],
    overrides: Annotated[list[str] | None, typer.Argument(help="key.path=value ...")] = None,
    strict: Annotated[
        bool, typer.Option("--strict", help="Refuse edges that would be skipped, instead of counting them.")
    ] = False,
    again: Annotated[bool, typer.Option("--again", help="Import even if nothing has changed.")] = False,
) -> None:
    """Import the graph of a run file."""
    from graphbox.config import load_config
    from graphbox.graph import Graph
    from graphbox.graph.describe import describe
    from graphbox.pipeline.stages.import_graph import import_config

    config = load_config(file, [*(overrides or []), *(["graph.strict=true"] if strict else [])])
    with session.workspace(create=True) as workspace:
        with ShownProgress(session.err(), quiet=session.quiet) as progress:
            progress.begin("import", 1, 1)
            record, summary = import_config(
                config.graph,
                workspace,
                again=again,
                progress=lambda what, done, total: progress.step(what, done, total, "B"),
            )
        document = {"fingerprint": record.fingerprint, **describe(Graph.open(record.path)).as_dict()}
        session.answer(document, lambda console: console.print(summary, markup=False, soft_wrap=True))


def register(app: typer.Typer) -> None:
    """Add the command to ``app``."""
    command(app, "import")(import_graph)

"""`graphbox check`: is a run file right, without running it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from graphbox.cli.session import Session, command
from graphbox.errors import GraphboxError, UsageError
from graphbox.words import counted

if TYPE_CHECKING:
    from graphbox.config import RunConfig


def check(
    session: Session,
    file: Annotated[Path | None, typer.Argument(help="Run file (YAML).")] = None,
    overrides: Annotated[list[str] | None, typer.Argument(help="key.path=value ...")] = None,
    resolved: Annotated[
        bool, typer.Option("--resolved", help="Print the run file with all defaults.")
    ] = False,
    schema: Annotated[bool, typer.Option("--schema", help="Print the run file's JSON Schema.")] = False,
) -> None:
    """Check a run file: every mistake with its line, at once."""
    import json

    from graphbox.config import config_digest, config_schema, dump_config, load_config
    from graphbox.config.stream import StreamConfig
    from graphbox.pipeline.model_check import model_mistakes
    from graphbox.pipeline.table_check import table_mistakes

    if schema:
        session.answer(
            document := config_schema(), lambda console: console.out(json.dumps(document, indent=2))
        )
        return
    if file is None:
        raise UsageError("expected a run file", hint="`graphbox check FILE`, or `graphbox check --schema`")
    config = load_config(
        file,
        overrides or [],
        check_tables=table_mistakes,
        check_models=model_mistakes,
        stored_schema=session.stored_schema(),
        before_stream=True,
    )
    _check_starts(session, file, overrides or [], config)
    document = {
        "file": str(file),
        "name": config.name,
        "digest": config_digest(config),
        "config": config.model_dump(mode="json", exclude_none=True),
    }
    if resolved:
        session.answer(document, lambda console: console.out(dump_config(config), end=""))
        return
    tables = [
        counted(len(config.graph.nodes), "node type"),
        counted(len(config.graph.edges), "edge type"),
    ]
    stored = "stored " if config.graph.is_stored else ""
    summary = f"{file} is right: {stored}graph `{config.graph.name}` with " + ", ".join(
        [
            *(() if config.graph.is_stored else tables),
            f"tasks {', '.join(config.tasks)}" if config.tasks else "no tasks",
            f"models {', '.join(config.models)}" if config.models else "no models",
        ]
    )
    if config.stream.folder is None and config.stream != StreamConfig():
        summary += f"; its tables come with chunks: `graphbox train {file} --follow DIR`"
    session.answer(document, lambda console: console.print(summary, markup=False, soft_wrap=True))


def _check_starts(session: Session, file: Path, overrides: list[str], config: RunConfig) -> None:
    """Check that the earlier runs that models start from are there.

    Raises:
        GraphboxError: one is not, or has not what is asked for; says where the run file names it.
    """
    from graphbox.config import place_in_file
    from graphbox.pipeline.earlier_models import earlier_models

    if all(model.start_from is None for model in config.models.values()):
        return
    try:
        with session.workspace() as workspace:
            earlier_models(config, workspace)
    except GraphboxError as error:
        if error.where is not None:
            error.where = place_in_file(file, overrides, error.where) or error.where
        raise


def register(app: typer.Typer) -> None:
    """Add the command to ``app``."""
    command(app, "check")(check)

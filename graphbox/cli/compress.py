"""`graphbox compress`: smaller versions of models, measured and refused when too much worse."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer

from graphbox.cli.runs import is_run
from graphbox.cli.session import Session, command
from graphbox.errors import UsageError

__all__ = ["register"]


class Precision(StrEnum):
    """Precision of weights or rows."""

    FLOAT32 = "float32"
    INT8 = "int8"


def compress(
    session: Session,
    name: Annotated[str, typer.Argument(help="Name of a model, or id of a run.")],
    version: Annotated[
        int | None,
        typer.Option("--version", help="Version of the model to start from. (default: the active one)"),
    ] = None,
    dense: Annotated[
        Precision, typer.Option("--dense", help="Precision of the ONNX model.")
    ] = Precision.INT8,
    tables: Annotated[Precision, typer.Option("--tables", help="Precision of the rows.")] = Precision.INT8,
    max_drop: Annotated[
        float, typer.Option("--max-drop", help="Largest allowed loss of the task's metric.")
    ] = 0.01,
) -> None:
    """Compress a model; of a run, the models its section `compress` names.

    The result is measured as it is served, and refused (exit code 6) when it lost more than `--max-drop`.
    """
    from graphbox.cli.pipeline import continue_shown
    from graphbox.cli.results import print_results
    from graphbox.config import BenchConfig, CompressConfig
    from graphbox.pipeline.stages.compress import compress_model

    if not 0 <= max_drop <= 1:
        raise UsageError(f"expected a loss between 0 and 1, received {max_drop:g}", where="--max-drop")
    with session.workspace() as workspace:
        if is_run(workspace, name):
            continue_shown(session, name, until="compress", again=True)
            return
        parent = workspace.model(name, version)
        session.note(f"compressing {name} version {parent.version} ...")
        settings = CompressConfig(dense=dense.value, tables=tables.value, max_drop=max_drop)
        report = compress_model(workspace, parent, settings, BenchConfig())
    document = {"compress": {name: report}}
    session.answer(document, lambda console: print_results(document, console))


def register(app: typer.Typer) -> None:
    """Add the command to ``app``."""
    command(app, "compress")(compress)

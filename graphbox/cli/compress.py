"""`graphbox compress`: smaller versions of models, measured and refused when too much worse."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Annotated, Any

import typer

from graphbox.cli.promotion import PromoteOption, print_promotions, rule_of_option, server_documents
from graphbox.cli.runs import is_run
from graphbox.cli.session import Session, command
from graphbox.errors import UsageError


class Precision(StrEnum):
    """Precision of weights."""

    FLOAT32 = "float32"
    INT8 = "int8"


class RowPrecision(StrEnum):
    """Precision of rows."""

    FLOAT32 = "float32"
    FLOAT16 = "float16"
    INT8 = "int8"


def compress(
    session: Session,
    name: Annotated[str, typer.Argument(help="Name of a model, or id of a run.")],
    version: Annotated[
        int | None,
        typer.Option("--version", help="Version of the model to start from. (default: the active one)"),
    ] = None,
    dense: Annotated[
        Precision | None, typer.Option("--dense", help="Precision of the ONNX model. (default: int8)")
    ] = None,
    tables: Annotated[
        RowPrecision | None, typer.Option("--tables", help="Precision of the rows. (default: int8)")
    ] = None,
    max_drop: Annotated[
        float | None,
        typer.Option("--max-drop", help="Largest allowed loss of the task's metric. (default: 0.01)"),
    ] = None,
    promote: PromoteOption = None,
) -> None:
    """Compress a model; of a run, the models its section `compress` names, as that section says.

    The result is measured as it is served, and refused (exit code 6) when it lost more than `--max-drop`. It
    becomes active where `promote` in the section `export` of the run file says so.
    """
    from graphbox.cli.pipeline import make_versions
    from graphbox.cli.results import print_results
    from graphbox.config import BenchConfig, CompressConfig
    from graphbox.pipeline.promotion import apply_rule, measure_beside_active, rule_of_run
    from graphbox.pipeline.stages.compress import compress_model

    if max_drop is not None and not 0 <= max_drop <= 1:
        raise UsageError(f"expected a loss between 0 and 1, received {max_drop:g}", where="--max-drop")
    with session.workspace() as workspace:
        if is_run(workspace, name):
            given = {"dense": dense, "tables": tables, "max_drop": max_drop, "version": version}
            _refuse_given(given)
            make_versions(session, name, "compress", rule_of_option(promote))
            return
        parent = workspace.model(name, version)
        session.note(f"compressing {name} version {parent.version} ...")
        chosen = {"dense": dense, "tables": tables, "max_drop": max_drop}
        settings = CompressConfig.model_validate(
            {key: value for key, value in chosen.items() if value is not None}
        )
        report = compress_model(workspace, parent, settings, BenchConfig())
        made = workspace.model(name, report["version"])
        session.note(f"measuring version {made.version} beside the active one ...")
        measure_beside_active(workspace, [made], BenchConfig())
        asked = rule_of_option(promote)
        rule, reason = (rule_of_run(workspace, made), None) if asked is None else (asked, "as asked")
        promotions = {name: apply_rule(workspace, name, made.version, rule, reason=reason).as_dict()}
        servers = workspace.running_servers()
    document = {
        "compress": {name: report},
        "promotion": promotions,
        "servers": server_documents(servers),
    }

    def show(console: Any) -> None:
        print_results(document, console)
        print_promotions(promotions, servers, console)

    session.answer(document, show)


def _refuse_given(options: Mapping[str, object]) -> None:
    """Reject options of a model where a run is compressed.

    Raises:
        UsageError: an option was given.
    """
    given = [f"--{key.replace('_', '-')}" for key, value in options.items() if value is not None]
    if given:
        raise UsageError(
            f"expected no options of a model with a run, received {', '.join(given)}",
            where=given[0],
            hint="change the section `compress` of the run file, or name one of the run's models",
        )


def register(app: typer.Typer) -> None:
    """Add the command to ``app``."""
    command(app, "compress")(compress)

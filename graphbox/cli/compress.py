"""`graphbox compress`: smaller versions of models, measured and refused when too much worse."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any

import typer

from graphbox.cli.promotion import PromoteOption, print_promotions, rule_of_option, server_documents
from graphbox.cli.runs import is_run
from graphbox.cli.session import Session, command
from graphbox.errors import UsageError

if TYPE_CHECKING:
    from graphbox.config import CompressConfig


class Precision(StrEnum):
    """Precision of the ONNX model."""

    AUTO = "auto"
    FLOAT32 = "float32"
    FLOAT16 = "float16"
    INT8 = "int8"
    INT8_STATIC = "int8_static"
    INT8_WEIGHTS = "int8_weights"
    INT4_WEIGHTS = "int4_weights"


class RowPrecision(StrEnum):
    """Precision of rows."""

    FLOAT32 = "float32"
    FLOAT16 = "float16"
    INT8 = "int8"
    INT4_CLUSTERED = "int4_clustered"
    INT4 = "int4"
    INT4_INT3_TIERS = "int4_int3_tiers"
    INT3_CLUSTERED = "int3_clustered"
    INT3 = "int3"
    INT3_INT2_TIERS = "int3_int2_tiers"
    INT2_CLUSTERED = "int2_clustered"
    INT2 = "int2"
    RESIDUAL16 = "residual16"
    INT4_PRUNED = "int4_pruned"
    RESIDUAL8 = "residual8"


def compress(
    session: Session,
    name: Annotated[str, typer.Argument(help="Name of a model, or id of a run.")],
    version: Annotated[
        int | None,
        typer.Option("--version", help="Version of the model to start from. (default: the active one)"),
    ] = None,
    dense: Annotated[
        Precision | None,
        typer.Option("--dense", help="Precision of the ONNX model. (default: auto, the fastest here)"),
    ] = None,
    tables: Annotated[
        RowPrecision | None, typer.Option("--tables", help="Precision of the rows. (default: int8)")
    ] = None,
    max_neighbors: Annotated[
        int | None,
        typer.Option(
            "--max-neighbors", min=1, help="Most neighbours kept of a node in a relation. (default: all)"
        ),
    ] = None,
    max_drop: Annotated[
        str | None,
        typer.Option(
            "--max-drop", help="Largest allowed loss of the task's metric: 0.005, or 0.5%. (default: 0.01)"
        ),
    ] = None,
    max_size: Annotated[
        str | None, typer.Option("--max-size", help="Search: largest size of the model, e.g. 4MB.")
    ] = None,
    max_p99: Annotated[
        str | None, typer.Option("--max-p99", help="Search: largest 99th percentile of a call, e.g. 3ms.")
    ] = None,
    minimum: Annotated[
        list[str] | None,
        typer.Option("--min", help="Search: least value of a metric, e.g. recall@20=0.40; repeatable."),
    ] = None,
    trials: Annotated[
        int | None, typer.Option("--trials", min=1, help="Search: models to try. (default: 20)")
    ] = None,
    minutes: Annotated[
        float | None, typer.Option("--minutes", help="Search: time after which no model is begun.")
    ] = None,
    target: Annotated[
        str | None,
        typer.Option("--target", help="Where to measure; `graphbox targets` lists them. (default: auto)"),
    ] = None,
    threads: Annotated[
        int | None, typer.Option("--threads", min=1, help="Threads of one call. (default: 1)")
    ] = None,
    batch: Annotated[
        int | None, typer.Option("--batch", min=1, help="Search: queries of one call. (default: 1)")
    ] = None,
    promote: PromoteOption = None,
) -> None:
    """Compress a model; of a run, the models its section `compress` names, as that section says.

    The result is measured as it is served, and refused (exit code 6) when it lost more than `--max-drop`. It
    becomes active where `promote` in the section `export` of the run file says so.

    An option of a search (`--max-size`, `--max-p99`, `--min`, `--trials`) tries many models, measures each on
    the target, and writes those that none beats in size, latency and quality as versions; the best one within
    all limits is chosen. A search that was killed continues with the same command.
    """
    from graphbox.cli.pipeline import make_versions, watch_search
    from graphbox.cli.results import print_results
    from graphbox.config import BenchConfig
    from graphbox.pipeline.promotion import apply_rule, measure_beside_active, rule_of_run
    from graphbox.pipeline.stages.compress import compress_model

    search = {
        "max_size": max_size,
        "max_p99_ms": max_p99,
        "min": minimum,
        "trials": trials,
        "minutes": minutes,
        "batch": batch,
    }
    fixed = {"dense": dense, "tables": tables, "max_neighbors": max_neighbors, "max_drop": max_drop}
    with session.workspace() as workspace:
        if is_run(workspace, name):
            _refuse_given({"version": version, "target": target, "threads": threads, **fixed, **search})
            make_versions(session, name, "compress", rule_of_option(promote))
            return
        settings, bench = _settings(fixed, search), BenchConfig(target=target or "auto", threads=threads or 1)
        parent = workspace.model(name, version)
        session.note(f"compressing {name} version {parent.version} ...")
        report = watch_search(
            session, lambda watch: compress_model(workspace, parent, settings, bench, watch)
        )
        made = workspace.model(name, report["version"])
        session.note(f"measuring version {made.version} beside the active one ...")
        measure_beside_active(workspace, [made], bench)
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


def _settings(fixed: Mapping[str, Any], search: Mapping[str, Any]) -> CompressConfig:
    """Return the section `compress` that the options mean.

    Raises:
        UsageError: a value is not one of its kind.
    """
    from graphbox.compress.limits import parse_milliseconds, parse_minimum
    from graphbox.config import CompressConfig, SearchConfig, parse_byte_size, parse_max_drop

    given = {key: value for key, value in search.items() if value is not None and value != []}
    if "max_size" in given:
        given["max_size"] = parse_byte_size(given["max_size"])
    if "max_p99_ms" in given:
        given["max_p99_ms"] = parse_milliseconds(given["max_p99_ms"])
    if "min" in given:
        given["min"] = dict(parse_minimum(each) for each in given["min"])
    if "minutes" in given and not given["minutes"] > 0:
        raise UsageError(f"expected a positive time, received {given['minutes']:g}", where="--minutes")
    if fixed["max_drop"] is not None:
        parse_max_drop(fixed["max_drop"])
    chosen = {key: value for key, value in fixed.items() if value is not None}
    return CompressConfig.model_validate({**chosen, "search": SearchConfig(**given) if given else None})


def _refuse_given(options: Mapping[str, object]) -> None:
    """Reject options of a model where a run is compressed.

    Raises:
        UsageError: an option was given.
    """
    given = [
        "--max-p99" if key == "max_p99_ms" else f"--{key.replace('_', '-')}"
        for key, value in options.items()
        if value is not None and value != []
    ]
    if given:
        raise UsageError(
            f"expected no options of a model with a run, received {', '.join(given)}",
            where=given[0],
            hint="change the section `compress` of the run file, or name one of the run's models",
        )


def register(app: typer.Typer) -> None:
    """Add the command to ``app``."""
    command(app, "compress")(compress)

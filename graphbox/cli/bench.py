"""`graphbox bench`: latency and throughput of a model."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from graphbox.cli.session import Session, command
from graphbox.errors import UsageError

__all__ = ["register"]


def bench(
    session: Session,
    model: Annotated[str, typer.Argument(help="Name of a model in the workspace.")],
    version: Annotated[
        list[int] | None, typer.Option("--version", help="Version; may be repeated. (default: all versions)")
    ] = None,
    batch: Annotated[str, typer.Option("--batch", help="Batch sizes, separated by commas.")] = "1,32,256",
    seconds: Annotated[float, typer.Option("--seconds", help="Time for each batch size.")] = 1.0,
    target: Annotated[str, typer.Option("--target", help="Adapter; see `graphbox targets`.")] = "auto",
    threads: Annotated[int, typer.Option("--threads", help="Threads of one call.")] = 1,
) -> None:
    """Measure a model's versions side by side; the figures are kept with the model."""
    from graphbox.cli.results import print_results
    from graphbox.config import BenchConfig
    from graphbox.pipeline.stages.bench import bench_models

    sizes = _batch_sizes(batch)
    if seconds <= 0 or threads < 1:
        raise UsageError(
            f"expected a positive time and at least 1 thread, received {seconds:g} and {threads}"
        )
    config = BenchConfig(batch_sizes=sizes, seconds=seconds, target=target, threads=threads)
    with session.workspace() as workspace:
        workspace.model(model)
        versions = version or [record.version for record in workspace.models(model)]
        records = [workspace.model(model, each) for each in versions]
        results = bench_models(records, config, workspace)
    document = {"bench": {model: results}}

    def show(console: Any) -> None:
        print_results(document, console)

    session.answer(document, show)


def _batch_sizes(text: str) -> tuple[int, ...]:
    try:
        sizes = tuple(int(part) for part in text.split(","))
    except ValueError:
        sizes = ()
    if not sizes or min(sizes) < 1:
        raise UsageError(
            f"expected batch sizes of at least 1 separated by commas, received `{text}`",
            where="--batch",
            hint="for example --batch 1,32,256",
        )
    return sizes


def register(app: typer.Typer) -> None:
    """Add the command to ``app``."""
    command(app, "bench")(bench)

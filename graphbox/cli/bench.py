"""`graphbox bench`: latency and throughput of a model, or what the kernels of a GPU reach."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from graphbox.cli.session import Session, command
from graphbox.cli.text import count, table
from graphbox.errors import UsageError


def bench(
    session: Session,
    model: Annotated[str | None, typer.Argument(help="Name of a model in the workspace.")] = None,
    version: Annotated[
        list[int] | None, typer.Option("--version", help="Version; may be repeated. (default: all versions)")
    ] = None,
    batch: Annotated[str, typer.Option("--batch", help="Batch sizes, separated by commas.")] = "1,32,256",
    seconds: Annotated[float, typer.Option("--seconds", help="Time for each batch size.")] = 1.0,
    target: Annotated[str, typer.Option("--target", help="Adapter; see `graphbox targets`.")] = "auto",
    threads: Annotated[int, typer.Option("--threads", help="Threads of one call.")] = 1,
    kernels: Annotated[
        bool, typer.Option("--kernels", help="No model: what sampling, walks and rows reach on a GPU.")
    ] = False,
    device: Annotated[str, typer.Option("--device", help="With --kernels: cuda, cuda:1, ...")] = "cuda",
) -> None:
    """Measure requests to a model's versions, side by side; the figures are kept with the model.

    A request is measured end to end, but for the network: its admission, lookup, search, and the encoding of
    the answer. The ONNX part alone has figures of its own.
    """
    if kernels:
        if model is not None:
            raise UsageError(
                f"expected either a model or --kernels, received both, `{model}`", where="--kernels"
            )
        _bench_kernels(session, device)
        return
    if model is None:
        raise UsageError(
            "expected the name of a model, or --kernels",
            where="MODEL",
            hint="graphbox models lists the models of the workspace",
        )
    from graphbox.cli.results import print_results
    from graphbox.config import BenchConfig
    from graphbox.pipeline.bench import bench_models

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


def _bench_kernels(session: Session, name: str) -> None:
    from dataclasses import asdict

    from graphbox.device_report import usable_device

    device = usable_device(name)
    session.note(f"measuring kernels on {device} beside probes of it, some seconds each")
    from graphbox.pipeline.kernels import kernel_shares

    shares = list(kernel_shares(device))

    def show(console: Any) -> None:
        columns = ("kernel", "rate", "share", "of")
        rows = [
            (each.kernel, f"{count(each.rate)} {each.unit}", f"{each.share:.0%}", each.limit)
            for each in shares
        ]
        console.print(table(f"Kernels on {device}", columns, rows, numbers=("rate", "share")))

    session.answer({"device": str(device), "kernels": [asdict(each) for each in shares]}, show)


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

"""`graphbox bench`: latency and throughput of a model, of a server, or of the kernels of a GPU."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from graphbox.cli.session import Session, command
from graphbox.cli.text import count, table
from graphbox.errors import UsageError


def bench(
    session: Session,
    model: Annotated[str | None, typer.Argument(help="Name of a model.")] = None,
    version: Annotated[
        list[int] | None,
        typer.Option("--version", help="Version; may be repeated. (default: all; with --url the served one)"),
    ] = None,
    batch: Annotated[
        str | None,
        typer.Option(
            "--batch", help="Batch sizes, separated by commas. (default: 1,32,256; with --url as the request)"
        ),
    ] = None,
    seconds: Annotated[
        float | None,
        typer.Option("--seconds", help="Time for each batch size. (default: 1; with --url 10)"),
    ] = None,
    target: Annotated[
        str | None, typer.Option("--target", help="Adapter; see `graphbox targets`. (default: auto)")
    ] = None,
    threads: Annotated[
        int | None, typer.Option("--threads", help="Threads of one call. (default: 1)")
    ] = None,
    url: Annotated[
        str | None,
        typer.Option("--url", help="Load test of a server over the network, http://HOST:PORT."),
    ] = None,
    protocol: Annotated[
        str | None,
        typer.Option("--protocol", help="With --url: json, binary (HTTP) or grpc. (default: json)"),
    ] = None,
    grpc_port: Annotated[int | None, typer.Option("--grpc-port", help="With --protocol grpc.")] = None,
    connections: Annotated[
        int | None,
        typer.Option(
            "--connections",
            help="With --url: each sends one request at a time. (default: 16; with --rate 256)",
        ),
    ] = None,
    rate: Annotated[
        float | None,
        typer.Option("--rate", help="With --url: requests per second of an open loop; else a closed loop."),
    ] = None,
    arrivals: Annotated[
        str | None, typer.Option("--arrivals", help="With --rate: poisson or constant. (default: poisson)")
    ] = None,
    processes: Annotated[
        int | None, typer.Option("--processes", help="With --url: processes that send. (default: 1)")
    ] = None,
    request: Annotated[
        Path | None,
        typer.Option(
            "--request",
            help="With --url: JSON file of infer requests, one a line. (default: the model's example)",
        ),
    ] = None,
    token: Annotated[
        str | None, typer.Option("--token", envvar="GRAPHBOX_TOKEN", help="With --url: the server's token.")
    ] = None,
    kernels: Annotated[
        bool, typer.Option("--kernels", help="No model: what sampling, walks and rows reach on a GPU.")
    ] = False,
    device: Annotated[str, typer.Option("--device", help="With --kernels: cuda, cuda:1, ...")] = "cuda",
) -> None:
    """Measure requests to a model's versions, side by side; the figures are kept with the model.

    A request is measured end to end, but for the network: its admission, lookup, search, and the encoding of
    the answer. The ONNX part alone has figures of its own.

    With --url, load a running server instead and report throughput, latencies, refusals and errors. An open
    loop (--rate) sends at given times whether answers come or not, and measures latency from those times.
    """
    if kernels:
        if model is not None:
            raise UsageError(
                f"expected either a model or --kernels, received both, `{model}`", where="--kernels"
            )
        _bench_kernels(session, device)
        return
    load_options = {
        "--protocol": protocol,
        "--grpc-port": grpc_port,
        "--connections": connections,
        "--rate": rate,
        "--arrivals": arrivals,
        "--processes": processes,
        "--request": request,
    }
    _check_options(url, load_options, {"--target": target, "--threads": threads})
    if model is None:
        raise UsageError(
            "expected the name of a model, or --kernels",
            where="MODEL",
            hint="graphbox models lists the models of the workspace",
        )
    if url is not None:
        from graphbox.cli.bench_server import LoadOptions, bench_server

        options = LoadOptions(
            url=url,
            model=model,
            versions=tuple(version or ()),
            batch_sizes=None if batch is None else _batch_sizes(batch),
            seconds=seconds,
            protocol=protocol,
            grpc_port=grpc_port,
            connections=connections,
            rate=rate,
            arrivals=arrivals,
            processes=processes,
            request=request,
            token=token,
        )
        bench_server(session, options)
        return
    from graphbox.cli.results import print_results
    from graphbox.config import BenchConfig
    from graphbox.pipeline.bench import bench_models

    sizes = _batch_sizes("1,32,256" if batch is None else batch)
    seconds = 1.0 if seconds is None else seconds
    threads = 1 if threads is None else threads
    if seconds <= 0 or threads < 1:
        raise UsageError(
            f"expected a positive time and at least 1 thread, received {seconds:g} and {threads}"
        )
    config = BenchConfig(batch_sizes=sizes, seconds=seconds, target=target or "auto", threads=threads)
    with session.workspace() as workspace:
        workspace.model(model)
        versions = version or [record.version for record in workspace.models(model)]
        records = [workspace.model(model, each) for each in versions]
        results = bench_models(records, config, workspace)
    document = {"bench": {model: results}}

    def show(console: Any) -> None:
        print_results(document, console)

    session.answer(document, show)


def _check_options(url: str | None, of_load: dict[str, Any], of_models: dict[str, Any]) -> None:
    """Reject options of the other kind of measurement.

    Raises:
        UsageError: one of a load test without --url, or one of the workspace's models with it.
    """
    given = [name for name, value in (of_load if url is None else of_models).items() if value is not None]
    if given:
        expected = "--url with" if url is None else "no --url with"
        raise UsageError(f"expected {expected} {given[0]}", where=given[0])


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

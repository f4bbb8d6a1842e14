"""Serving: graphbox beside a real Triton and the bounds of this machine, in turns.

    python -m benchmarks.serving [--quick] [--json] [--only GROUP,...] [--cases TEXT,...] [--workers 1,2]

Groups: ``mlp`` (a small ONNX file, the same in Triton and graphbox, over HTTP), ``grpc`` (the same over
gRPC), ``encoder``, ``lookup`` (512 ids), ``nearest`` (top 20 of 100,000), ``overload`` (an open loop at four
times the capacity) and ``memory``. All servers of a group run at once and are loaded in turns, one second
each, five times after a turn that is not counted; figures are medians. ``limit`` rows are bounds:
``limit http`` answers fixed bytes from a Python process, ``limit model`` calls the model on one thread
without a server.

Needs wrk and h2load (apt-get install wrk nghttp2-client), and `make triton-venv` for Triton.
"""

from __future__ import annotations

import argparse
import json
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from http import HTTPStatus
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.serving_load import Load, grpc_load, http_load
from benchmarks.serving_models import (
    ENCODER,
    MLP,
    NODES,
    VECTOR_ROWS,
    VECTORS,
    Request,
    infer_request,
    mlp_inputs,
    write_encoder,
    write_models,
)
from benchmarks.serving_systems import (
    System,
    await_index,
    cpu_seconds,
    graphbox_server,
    memory_bytes,
    peer_server,
    process_tree,
    triton,
)
from graphbox.deploy import open_encoder, open_model
from graphbox.server.load import LoadPlan, LoadReport, run_load
from graphbox.server.load.messages import Address, Message, encode, exchange
from tests.deploy import triton_server

REPEATS = 5
REQUEST_POOL = 16
LOOKED_UP_IDS = 512
NEAREST = 20
LARGE_BATCH = 4096
OVERLOAD = 4.0
OVERLOAD_CONNECTIONS = 512

Measure = Callable[[System, float], Load]
"""Loads a system for some seconds."""


@dataclass(frozen=True)
class Options:
    """Options of the command line."""

    quick: bool
    as_json: bool
    workers: tuple[int, ...]
    cases: tuple[str, ...]

    @property
    def repeats(self) -> int:
        """Turns that count."""
        return 2 if self.quick else REPEATS

    def wants(self, case: str) -> bool:
        """Return whether a case is measured."""
        return any(text in case for text in self.cases)


@dataclass(frozen=True)
class Setting:
    """Folders of the models, and options."""

    folder: Path
    workspace: Path
    encoders: Path
    options: Options

    def graphbox(self, workers: int, stack: ExitStack) -> System:
        """Start graphbox."""
        return stack.enter_context(
            graphbox_server(self.workspace, self.folder, models=[self.encoders], workers=workers)
        )

    def systems(self, stack: ExitStack, *, with_triton: bool = False) -> list[System]:
        """Start graphbox with each number of workers, and Triton with one and two instances of the model."""
        found = [self.graphbox(workers, stack) for workers in self.options.workers]
        if with_triton and triton_server.why_not() is None:
            found += [stack.enter_context(triton(self.folder, number, joins=True)) for number in (1, 2)]
        return found


def show_turns(case: str, systems: Sequence[System], measure: Measure, options: Options) -> None:
    """Load systems in turns and print the medians of each, if the case is wanted."""
    if not options.wants(case):
        return
    loads: dict[System, list[Load]] = {system: [] for system in systems}
    used: dict[System, list[float]] = {system: [] for system in systems}
    for repeat in range(options.repeats + 1):
        for system in systems:
            before = cpu_seconds(system.process_id)
            load = measure(system, 1.0)
            if repeat:
                loads[system].append(load)
                used[system].append(load.rate / max(cpu_seconds(system.process_id) - before, 1e-9))
    for system, found in loads.items():
        figures = {
            "p50_ms": statistics.median(load.p50_ms for load in found),
            "p99_ms": statistics.median(load.p99_ms for load in found),
            "per_cpu_s": round(statistics.median(used[system])),
        }
        show(case, system.name, system.workers, [load.rate for load in found], options, figures)


def show_limit(case: str, call: Callable[[int], object], options: Options, units: int = 1) -> None:
    """Print how often one thread calls a function in a second, times ``units``, if the case is wanted."""
    if not options.wants(case):
        return
    rates = []
    for _ in range(options.repeats + 1):
        count, started = 0, time.perf_counter()
        while (elapsed := time.perf_counter() - started) < 0.5:
            call(count)
            count += 1
        rates.append(units * count / elapsed)
    show(case, "limit model", 1, rates[1:], options)


def show(
    case: str,
    system: str,
    threads: int,
    rates: Sequence[float],
    options: Options,
    figures: Mapping[str, Any] | None = None,
) -> None:
    """Print one system at one case: a JSON line, or a row of a Markdown table."""
    row = {
        "case": f"serving/{case}",
        "system": system,
        "threads": threads,
        "rate": round(statistics.median(rates), 1),
        "unit": "requests/s",
        "min": round(min(rates), 1),
        "max": round(max(rates), 1),
        "repeats": len(rates),
        "p50_ms": None,
        "p99_ms": None,
        "per_cpu_s": None,
    } | dict(figures or {})
    show_row(row, options)


def show_row(row: Mapping[str, Any], options: Options) -> None:
    """Print a JSON line, or a row of a Markdown table."""
    if options.as_json:
        print(json.dumps(row), flush=True)
        return
    values = (f"{value:,.2f}" if isinstance(value, float) else str(value) for value in row.values())
    print("| " + " | ".join(values) + " |", flush=True)


def measure_mlp(setting: Setting) -> None:
    """Measure the small model over HTTP, in every cell."""
    session = open_model(setting.workspace / "models" / MLP / "1")
    with ExitStack() as stack:
        systems = setting.systems(stack, with_triton=True)
        fixed = stack.enter_context(peer_server("fixed", setting.folder))
        fastapi = stack.enter_context(peer_server("fastapi", setting.folder))
        check_equal(systems)
        for connections in (1, 16, 64):
            for batch in (1, 32):
                for encoding in ("json", "binary"):
                    case = f"mlp/{encoding}/batch{batch}/c{connections}"
                    has_fastapi = case == "mlp/json/batch1/c16"
                    given = [*systems, fixed, *([fastapi] if has_fastapi else [])]
                    request = infer_request(MLP, encoding, mlp_inputs(batch))
                    show_turns(case, given, _http([request], connections), setting.options)
        for batch in (1, 32):
            feeds = mlp_inputs(batch)
            show_limit(f"mlp/batch{batch}", lambda _, feeds=feeds: session.run(feeds), setting.options)  # type: ignore[misc]
    session.close()


def check_equal(systems: Sequence[System]) -> None:
    """Check that all systems answer a request with the same numbers.

    Raises:
        RuntimeError: they do not.
    """
    request = infer_request(MLP, "json", mlp_inputs(3))
    answers = [ask(system, request)["outputs"][0]["data"] for system in systems]
    for system, answer in zip(systems, answers, strict=True):
        if not np.allclose(answer, answers[0], atol=1e-6):
            raise RuntimeError(f"{system.name} answers {answer}, {systems[0].name} {answers[0]}")


def ask(system: System, request: Request) -> Any:
    """Send a request once; return the JSON of the answer."""
    status, content = exchange(Address("127.0.0.1", system.port, False, MLP), request.content)
    if status != HTTPStatus.OK:
        raise RuntimeError(f"{system.name} answers {status}: {content[:500]!r}")
    return json.loads(content)


def _http(requests: Sequence[Request], connections: int) -> Measure:
    return lambda system, seconds: http_load(system.url, requests, connections, seconds)


def measure_grpc(setting: Setting) -> None:
    """Measure the small model over gRPC, 16 connections."""
    from tritonclient.grpc import InferenceServerClient, InferInput

    with ExitStack() as stack:
        systems = [each for each in setting.systems(stack, with_triton=True) if each.grpc_port is not None]
        for batch in (1, 32):
            values = np.asarray(mlp_inputs(batch)["input"])
            for system in systems:  # h2load does not see the status of a call
                given = InferInput("input", list(values.shape), "FP32")
                given.set_data_from_numpy(values)
                with InferenceServerClient(f"127.0.0.1:{system.grpc_port}") as client:
                    client.infer(MLP, [given])
            message = encode(
                Message({"input": values}, {"input": "FP32"}), Address("127.0.0.1", 0, False, MLP), "grpc"
            )

            def measure(system: System, seconds: float, message: bytes = message) -> Load:
                return grpc_load(system.grpc_port or 0, message, 16, seconds)

            show_turns(f"grpc/batch{batch}/c16", systems, measure, setting.options)


def measure_encoder(setting: Setting) -> None:
    """Measure a graph encoder, one id a request, beside the bare encoding of batches of 16."""
    names = [f"package-{index * 617 % NODES}" for index in range(REQUEST_POOL)]
    requests = [infer_request(ENCODER, "json", {"id": [name]}) for name in names]
    with ExitStack() as stack:
        systems = setting.systems(stack)
        show_turns("encoder/json/batch1/c16", systems, _http(requests, 16), setting.options)
        show_turns("encoder/json/batch1/c64", systems, _http(requests, 64), setting.options)
    with open_encoder(setting.encoders / ENCODER / "1") as model:
        call = lambda _: model.encode(names)  # noqa: E731
        show_limit("encoder/batched 16", call, setting.options, units=len(names))


def measure_lookup(setting: Setting) -> None:
    """Measure lookups of 512 random rows of 64 values, in binary."""
    generator = np.random.default_rng(3)
    ids = [generator.integers(0, VECTOR_ROWS, LOOKED_UP_IDS) for _ in range(REQUEST_POOL)]
    requests = [infer_request(VECTORS, "binary", {"id": each}) for each in ids]
    with ExitStack() as stack:
        case = f"lookup/{LOOKED_UP_IDS} ids/binary/c16"
        show_turns(case, setting.systems(stack), _http(requests, 16), setting.options)
    with open_model(setting.workspace / "models" / VECTORS / "1") as model:
        call = lambda number: model.infer({"id": ids[number % len(ids)]})  # noqa: E731
        show_limit(f"lookup/{LOOKED_UP_IDS} ids", call, setting.options)


def measure_nearest(setting: Setting) -> None:
    """Measure the 20 nearest of 100,000 vectors, one id a request."""
    generator = np.random.default_rng(4)
    ids = generator.integers(0, VECTOR_ROWS, (REQUEST_POOL * 64, 1))
    requests = [infer_request(f"{VECTORS}.nearest", "json", {"id": each}, {"k": NEAREST}) for each in ids]
    with ExitStack() as stack:
        systems = setting.systems(stack)
        for system in systems:
            await_index(system, [each.content for each in requests])
        case = f"nearest/{NEAREST} of {VECTOR_ROWS}/json/c16"
        show_turns(case, systems, _http(requests, 16), setting.options)


def measure_overload(setting: Setting) -> None:
    """Measure an open loop at four times the capacity, with small and with large requests."""
    sizes = {"small": ("json", 1), f"large, {LARGE_BATCH} rows": ("binary", LARGE_BATCH)}
    with ExitStack() as stack:
        for system in setting.systems(stack, with_triton=True):
            for name, (encoding, batch) in sizes.items():
                request = infer_request(MLP, encoding, mlp_inputs(batch)).content
                if system.name.startswith("triton") and batch > 1:
                    continue  # its configuration has no such batches
                show_row(_overload(name, system, request, setting.options), setting.options)


def _overload(name: str, system: System, request: bytes, options: Options) -> dict[str, Any]:
    seconds = 1.0 if options.quick else 3.0
    plan = LoadPlan(host="127.0.0.1", port=system.port, requests=(request,), seconds=seconds)
    capacity = statistics.median(_load(plan).goodput for _ in range(options.repeats))
    calm = _load(replace(plan, rate=capacity / 5, warm_up_s=0.0))
    rate = OVERLOAD * capacity
    loaded = _load(replace(plan, rate=rate, warm_up_s=0.0, connections=OVERLOAD_CONNECTIONS))
    return {
        "case": f"serving/overload/{name}",
        "system": system.name,
        "threads": system.workers,
        "capacity": round(capacity, 1),
        "offered": round(rate, 1),
        "goodput": round(loaded.goodput, 1),
        "goodput_of_capacity": round(loaded.goodput / capacity, 3),
        "unloaded_p99_ms": calm.tally.latency.percentile_ms(99),
        "accepted_p99_ms": loaded.tally.latency.percentile_ms(99),
        "accepted_service_p99_ms": loaded.tally.service.percentile_ms(99),
        "refusal_p50_ms": loaded.tally.refusal.percentile_ms(50),
        "refusal_p99_ms": loaded.tally.refusal.percentile_ms(99),
        "refused": loaded.refused,
        "failed": loaded.failed,
        "unsent": loaded.tally.unsent,
        "client_cpu": round(loaded.client_cpu, 2),
    }


def _load(plan: LoadPlan) -> LoadReport:
    report = run_load(plan)
    if plan.rate is None and report.failed:
        raise RuntimeError(f"requests failed in a closed loop: {report.tally.errors}")
    return report


def measure_memory(setting: Setting) -> None:
    """Measure the memory of each process after requests: without rows, and with 100,000 rows."""
    request = infer_request(MLP, "json", mlp_inputs(1))
    rows = infer_request(VECTORS, "binary", {"id": np.arange(LOOKED_UP_IDS)})
    for name, models in {"mlp": (MLP,), "mlp and 25.6 MB of rows": (MLP, VECTORS)}.items():
        workspace = setting.folder / f"memory-{len(models)}"
        shutil.copytree(setting.workspace / "models", workspace, ignore=_others(models))
        for workers in setting.options.workers:
            with graphbox_server(None, setting.folder, models=[workspace], workers=workers) as system:
                http_load(system.url, [request, *([rows] if len(models) > 1 else [])], 16, 1)
                _show_memory(name, system, setting.options)
            time.sleep(0.1)
        shutil.rmtree(workspace)
    if triton_server.why_not() is None:
        with triton(setting.folder / "memory", 1, joins=True) as system:
            http_load(system.url, [request], 16, 1)
            _show_memory("mlp", system, setting.options)


def _others(models: Sequence[str]) -> Callable[[str, list[str]], list[str]]:
    return lambda _, names: [name for name in names if name in {MLP, VECTORS, ENCODER} and name not in models]


def _show_memory(case: str, system: System, options: Options) -> None:
    found = memory_bytes(system.process_id)
    for number, process_id in enumerate(process_tree(system.process_id)):
        row = {
            "case": f"serving/memory/{case}",
            "system": system.name,
            "threads": system.workers,
            "process": number,
            **{f"{key.lower()}_mb": round(value / 1e6, 1) for key, value in found[process_id].items()},
        }
        show_row(row, options)


GROUPS: Mapping[str, Callable[[Setting], None]] = {
    "mlp": measure_mlp,
    "grpc": measure_grpc,
    "encoder": measure_encoder,
    "lookup": measure_lookup,
    "nearest": measure_nearest,
    "overload": measure_overload,
    "memory": measure_memory,
}


def prepared(folder: Path, options: Options) -> Setting:
    """Write the models."""
    write_encoder(folder / "encoders" / ENCODER / "1")
    return Setting(folder, write_models(folder), folder / "encoders", options)


def _missing() -> Iterator[str]:
    for program, package in {"wrk": "wrk", "h2load": "nghttp2-client"}.items():
        if shutil.which(program) is None:
            yield f"{program} is missing: apt-get install {package}\n"


def main() -> None:
    """Run the groups."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="two turns instead of five")
    parser.add_argument("--json", action="store_true", help="one JSON object per line")
    parser.add_argument("--only", default=",".join(GROUPS), help="groups, separated by commas")
    parser.add_argument("--cases", default="", help="only cases that contain one of these texts")
    parser.add_argument("--workers", default="1,2", help="numbers of workers, separated by commas")
    given = parser.parse_args()
    groups = given.only.split(",")
    unknown = set(groups) - set(GROUPS)
    if unknown:
        parser.error(f"expected groups of {', '.join(GROUPS)}, received {', '.join(sorted(unknown))}")
    for message in _missing():
        parser.exit(5, message)
    reason = triton_server.why_not()
    if reason is not None:
        print(f"without Triton: {reason}", file=sys.stderr)
    workers = tuple(int(each) for each in given.workers.split(","))
    options = Options(given.quick, given.json, workers, tuple(given.cases.split(",")))
    with tempfile.TemporaryDirectory() as folder:
        setting = prepared(Path(folder), options)
        for group in groups:
            GROUPS[group](setting)


if __name__ == "__main__":
    main()

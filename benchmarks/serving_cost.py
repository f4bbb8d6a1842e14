"""Serving: processor time that a server spends on a request, which a busy machine changes little.

    python -m benchmarks.serving_cost [--cases TEXT,...] [--repeats 5] [--seconds 1] [--json]

One worker is loaded in closed loops by wrk, case after case, in turns. ``server_us`` is the processor time of
its process for each request, user and system, the median of the turns; ``bound_us`` that of the same call in
this process without a server (of a request's share where calls are joined). ``p50_ms`` and ``rate`` are those
of the client and depend on what else runs.

``overload`` offers requests in an open loop at four times what a closed loop got. Of its processor time,
``refusal_us`` is what is left for each refused request after the accepted ones have cost what they do alone.

Needs wrk (apt-get install wrk).
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.serving_load import http_load
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
from benchmarks.serving_systems import System, await_index, graphbox_server, process_tree
from graphbox.deploy import open_encoder, open_model
from graphbox.server.load import LoadPlan, run_load

POOL = 16
LOOKED_UP_IDS = 512
NEAREST = 20
OVERLOAD = 4.0
OVERLOAD_CONNECTIONS = 512
OVERLOADS = {"small": ("json", 1), "large": ("binary", 4096)}


@dataclass(frozen=True)
class Case:
    """Requests of one kind.

    Attributes:
        name: as it is printed.
        requests: repeated one after the other.
        connections: of the closed loop.
        bound: does the model's part of so many requests; None: not measured.
        joined: requests of one call of ``bound``.
    """

    name: str
    requests: Sequence[Request]
    connections: int
    bound: Callable[[int], object] | None = None
    joined: int = 1


def cases(folder: Path, workspace: Path) -> list[Case]:
    """Return the cases; ``bound`` has models of its own."""
    mlp = open_model(workspace / "models" / MLP / "1")
    vectors = open_model(workspace / "models" / VECTORS / "1")
    encoder = open_encoder(folder / "encoders" / ENCODER / "1")
    generator = np.random.default_rng(3)
    names = [f"package-{index * 617 % NODES}" for index in range(POOL)]
    ids = [generator.integers(0, VECTOR_ROWS, LOOKED_UP_IDS) for _ in range(POOL)]
    nearest = generator.integers(0, VECTOR_ROWS, (POOL * 16, 1))
    found = [
        Case(
            f"mlp {encoding} {rows}, c{connections}",
            [infer_request(MLP, encoding, mlp_inputs(rows))],
            connections,
        )
        for encoding, rows, connections in (
            ("json", 1, 1),
            ("binary", 1, 1),
            ("json", 1, 16),
            ("binary", 1, 16),
            ("binary", 32, 16),
        )
    ]
    one = mlp_inputs(1)
    found.append(Case("mlp alone", [], 0, lambda _: mlp.infer(one)))  # type: ignore[arg-type]
    lookups = [infer_request(VECTORS, "binary", {"id": each}) for each in ids]
    found.append(
        Case("lookup 512, c16", lookups, 16, lambda number: vectors.infer({"id": ids[number % POOL]}))
    )
    encoded = [infer_request(ENCODER, "json", {"id": [name]}) for name in names]
    found.append(Case("encoder, c16", encoded, 16, lambda _: encoder.encode(names), POOL))
    asked = [infer_request(f"{VECTORS}.nearest", "json", {"id": each}, {"k": NEAREST}) for each in nearest]
    found.append(Case("nearest 20, c16", asked, 16))
    return found


def cpu_ns(process_id: int) -> int:
    """Return the processor time of the threads of a process tree, in nanoseconds."""
    total = 0
    for process in process_tree(process_id):
        for task in Path(f"/proc/{process}/task").glob("*/schedstat"):
            total += int(task.read_text().split()[0])
    return total


def bound_us(case: Case) -> float | None:
    """Return the processor time of the model's part of one request, in microseconds."""
    if case.bound is None:
        return None
    for number in range(20):
        case.bound(number)
    begun = time.process_time_ns()
    count = 0
    while time.process_time_ns() - begun < 2e8:
        case.bound(count)
        count += 1
    return (time.process_time_ns() - begun) / count / case.joined / 1e3


def closed_loop(system: System, case: Case, seconds: float) -> dict[str, float]:
    """Load the server with a case; return its figures."""
    before = cpu_ns(system.process_id)
    load = http_load(system.url, case.requests, case.connections, seconds)
    used_us = (cpu_ns(system.process_id) - before) / 1e3
    return {"server_us": used_us / (load.rate * seconds), "p50_ms": load.p50_ms, "rate": load.rate}


def overload(system: System, name: str, seconds: float) -> dict[str, Any]:
    """Offer four times the rate of a closed loop; return figures of accepted and refused requests."""
    encoding, rows = OVERLOADS[name]
    content = infer_request(MLP, encoding, mlp_inputs(rows)).content
    plan = LoadPlan(host="127.0.0.1", port=system.port, requests=(content,), seconds=seconds, warm_up_s=0.0)
    before = cpu_ns(system.process_id)
    closed = run_load(plan)
    accepted_us = (cpu_ns(system.process_id) - before) / 1e3 / max(closed.accepted, 1)
    offered = LoadPlan(
        host="127.0.0.1",
        port=system.port,
        requests=(content,),
        seconds=seconds,
        warm_up_s=0.0,
        rate=OVERLOAD * closed.goodput,
        connections=OVERLOAD_CONNECTIONS,
    )
    before = cpu_ns(system.process_id)
    loaded = run_load(offered)
    used_us = (cpu_ns(system.process_id) - before) / 1e3
    left_us = used_us - loaded.accepted * accepted_us
    return {
        "accepted_us": accepted_us,
        "refusal_us": left_us / loaded.refused if loaded.refused else None,
        "capacity": closed.goodput,
        "goodput_of_capacity": loaded.goodput / closed.goodput,
        "accepted": loaded.accepted,
        "refused": loaded.refused,
        "unsent": loaded.tally.unsent,
        "failed": loaded.failed,
        "accepted_service_p99_ms": loaded.tally.service.percentile_ms(99),
        "accepted_p99_ms": loaded.tally.latency.percentile_ms(99),
        "refusal_p50_ms": loaded.tally.refusal.percentile_ms(50),
    }


def show(name: str, figures: dict[str, Any], as_json: bool) -> None:
    """Print one case."""
    rounded = {key: round(value, 3) if isinstance(value, float) else value for key, value in figures.items()}
    if as_json:
        print(json.dumps({"case": f"serving_cost/{name}", "system": "graphbox", **rounded}), flush=True)
    else:
        print(f"{name:18}", "  ".join(f"{key} {value}" for key, value in rounded.items()), flush=True)


def measure(folder: Path, wanted: Sequence[str], repeats: int, seconds: float, as_json: bool) -> None:
    """Measure the cases whose names contain one of the texts."""
    workspace = write_models(folder)
    write_encoder(folder / "encoders" / ENCODER / "1")
    chosen = [case for case in cases(folder, workspace) if any(text in case.name for text in wanted)]
    with graphbox_server(workspace, folder, models=[folder / "encoders"]) as system:
        for case in chosen:
            if case.name.startswith("nearest"):
                await_index(system, [each.content for each in case.requests])
        turns: dict[str, list[dict[str, float]]] = {case.name: [] for case in chosen}
        for turn in range(repeats + 1):
            for case in chosen:
                if case.requests:
                    figures = closed_loop(system, case, seconds)
                    turns[case.name] += [figures] if turn else []
        for case in chosen:
            found: dict[str, Any] = {
                key: statistics.median(each[key] for each in turns[case.name])
                for key in ("server_us", "p50_ms", "rate")
                if turns[case.name]
            }
            show(case.name, found | {"bound_us": bound_us(case)}, as_json)
        for name in OVERLOADS:
            if any(text in f"overload {name}" for text in wanted):
                show(f"overload {name}", overload(system, name, seconds), as_json)


def main() -> None:
    """Read the command line and measure."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--cases", default="", help="only cases that contain one of these texts")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=1.0)
    parser.add_argument("--json", action="store_true", help="print JSON lines")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        measure(Path(folder), given.cases.split(","), given.repeats, given.seconds, given.json)


if __name__ == "__main__":
    main()

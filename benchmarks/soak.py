"""Soak test of a server: mixed traffic for an hour while models are promoted, loaded and unloaded.

    python -m benchmarks.soak [--minutes 60] [--workers 2] [--rate 600] [--json]

Requests of several kinds arrive in open loops: a small ONNX model in JSON, binary and over gRPC, a graph
encoder, lookups and nearest rows. Each second the ONNX model and the table of vectors change between two
versions, the active table gets new rows, and a further model is unloaded or loaded. At the end it checks that

- no request failed or was refused,
- the counters of /metrics are those of the client, model by model,
- the resident memory of every process is flat: its growth by a line fitted to the last two thirds of the time
  is below ``--max-growth-mb``,
- no process of the server was replaced.

Exit code 0: all of it holds; 1: something does not.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from http import HTTPStatus
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.serving_models import (
    DIM,
    ENCODER,
    MLP,
    NODES,
    VECTOR_ROWS,
    VECTORS,
    add_model,
    mlp_inputs,
    write_encoder,
    write_models,
)
from benchmarks.serving_systems import System, await_index, graphbox_server, process_tree, read_metric
from graphbox.deploy import update_rows
from graphbox.server.load import LoadPlan, LoadReport, run_load
from graphbox.server.load.messages import Address, Message, encode, exchange
from graphbox.server.load.plan import Protocol
from graphbox.workspace import Workspace

TOKEN = "a-token-of-the-soak-test"  # noqa: S105 - of a server that is started here
SPARE = "spare"
ENCODERS = "encoders"
CHANGE_INTERVAL_S = 1.0
CONNECTIONS = 4
CHANGING = (MLP, VECTORS)
UPDATED_IDS, ROWS_OF_AN_UPDATE = 2_000, 100


@dataclass(frozen=True)
class Traffic:
    """One kind of request.

    Attributes:
        model: name in the requests, with the suffix of a signature.
        protocol: see `LoadPlan`.
        messages: requests.
    """

    model: str
    protocol: Protocol
    messages: Sequence[Message]

    def plan(self, system: System, rate: float, seconds: float, seed: int) -> LoadPlan:
        """Return the load test of this traffic."""
        port = system.port if self.protocol != "grpc" else system.grpc_port
        if port is None:
            raise RuntimeError("expected a server with gRPC")
        address = Address("127.0.0.1", port, False, self.model, token=TOKEN)
        return LoadPlan(
            host="127.0.0.1",
            port=port,
            token=TOKEN,
            protocol=self.protocol,
            requests=tuple(encode(message, address, self.protocol) for message in self.messages),
            connections=CONNECTIONS,
            rate=rate,
            seconds=seconds,
            warm_up_s=0.0,
            timeout_s=30.0,
            seed=seed,
        )


def mixed_traffic() -> list[Traffic]:
    """Return the kinds of requests."""
    generator = np.random.default_rng(0)

    def rows(seed: int, batch: int) -> Message:
        return Message(dict(mlp_inputs(batch, seed)), {"input": "FP32"})  # type: ignore[arg-type]

    def ids(size: int, **parameters: Any) -> Message:
        return Message({"id": generator.integers(0, VECTOR_ROWS, size)}, {"id": "INT64"}, parameters)

    def packages(size: int) -> Message:
        names = [f"package-{index}".encode() for index in generator.integers(0, NODES, size)]
        return Message({"id": np.array(names, object)}, {"id": "BYTES"})

    return [
        Traffic(MLP, "json", [rows(seed, 1) for seed in range(32)]),
        Traffic(MLP, "binary", [rows(seed, 8) for seed in range(32)]),
        Traffic(MLP, "grpc", [rows(seed, 2) for seed in range(32)]),
        Traffic(ENCODER, "json", [packages(1 + size % 4) for size in range(64)]),
        Traffic(VECTORS, "binary", [ids(64) for _ in range(64)]),
        Traffic(f"{VECTORS}.nearest", "json", [ids(1, k=10) for _ in range(64)]),
    ]


@dataclass
class Changes:
    """Changes the served models once a second, on a thread.

    Attributes:
        promotions: how often another version became active.
        updates: how many row updates were written.
        loads: how often a model was loaded or unloaded by a request.
        errors: answers other than 200.
    """

    workspace: Path
    system: System
    promotions: int = 0
    updates: int = 0
    loads: int = 0
    errors: list[str] = field(default_factory=list)
    _stop: threading.Event = field(default_factory=threading.Event)

    def run(self) -> None:
        """Change models until `stop`."""
        with Workspace(self.workspace) as workspace:
            for number in count():
                if self._stop.wait(CHANGE_INTERVAL_S):
                    break
                for model in CHANGING:
                    workspace.promote_model(model, 1 + number % 2)
                    self.promotions += 1
                self._update(workspace, number)
                self._post("unload" if number % 2 else "load")
        self._post("load")

    def stop(self) -> None:
        """Make no more changes."""
        self._stop.set()

    def _update(self, workspace: Workspace, number: int) -> None:
        """Give new rows to some ids of the active table of vectors."""
        generator = np.random.default_rng(number)
        ids = generator.choice(UPDATED_IDS, ROWS_OF_AN_UPDATE, replace=False)
        rows = generator.standard_normal((len(ids), DIM), np.float32)
        update_rows(workspace, VECTORS, ids, rows)
        self.updates += 1

    def _post(self, verb: str) -> None:
        address = Address("127.0.0.1", self.system.port, False, SPARE, token=TOKEN)
        lines = [f"POST /v2/repository/models/{SPARE}/{verb} HTTP/1.1", "Content-Length: 0"]
        lines += [f"{name}: {value}" for name, value in address.headers.items()]
        status, answer = exchange(address, "\r\n".join((*lines, "", "")).encode())
        self.loads += 1
        if status != HTTPStatus.OK:
            self.errors.append(f"{verb}: status {status}: {answer[:200]!r}")


@dataclass
class MemorySamples:
    """Resident memory of the processes of a server over time."""

    times: list[float] = field(default_factory=list)
    resident_bytes: dict[int, list[int]] = field(default_factory=dict)

    def take(self, process_id: int) -> None:
        """Add a sample of every process."""
        self.times.append(time.monotonic())
        for each in process_tree(process_id):
            pages = int(Path(f"/proc/{each}/statm").read_text().split()[1])
            self.resident_bytes.setdefault(each, []).append(pages * 4096)

    def growth_mb(self) -> dict[int, float]:
        """Return growth of each process by a line fitted to the last two thirds of its samples."""
        found = {}
        for process_id, sizes in self.resident_bytes.items():
            begin = len(self.times) // 3
            times, values = np.array(self.times[begin:]), np.array(sizes[begin:]) / 1e6
            if len(values) != len(times) or len(times) < 2:
                continue  # it was replaced, which is reported
            slope = np.polyfit(times - times[0], values, 1)[0]
            found[process_id] = float(slope * (times[-1] - times[0]))
        return found


def soak(folder: Path, minutes: float, workers: int, rate: float, max_growth_mb: float) -> dict[str, Any]:
    """Run the test; return its figures and verdict.

    Args:
        folder: for models and logs.
        minutes: of traffic.
        workers: processes of the server.
        rate: requests per second of all kinds together.
        max_growth_mb: allowed growth of the memory of a process.
    """
    workspace = write_models(folder)
    for name, file in ((MLP, f"{MLP}.onnx"), (VECTORS, f"{VECTORS}.npy"), (SPARE, f"{MLP}.onnx")):
        add_model(workspace, name, folder / file)
    encoders = folder / ENCODERS
    write_encoder(encoders / ENCODER / "1")
    traffic = mixed_traffic()
    seconds = minutes * 60
    with graphbox_server(workspace, folder, models=[encoders], workers=workers, token=TOKEN) as system:
        # The index is built once; its memory is not what has to be flat.
        await_index(system, traffic[-1].plan(system, 1, 1, 0).requests, TOKEN)
        before = counters(system)
        processes = set(process_tree(system.process_id))
        changes, samples = Changes(workspace, system), MemorySamples()
        with ThreadPoolExecutor(len(traffic) + 1) as threads:
            plans = [
                each.plan(system, rate / len(traffic), seconds, seed) for seed, each in enumerate(traffic)
            ]
            running = [threads.submit(run_load, plan) for plan in plans]
            changing = threads.submit(changes.run)
            _sample(samples, system, running)
            changes.stop()
            changing.result()
            reports = [each.result() for each in running]
        after = counters(system)
        replaced = processes ^ set(process_tree(system.process_id))
    clients: dict[str, int] = {}
    for each, report in zip(traffic, reports, strict=True):
        clients[each.model] = clients.get(each.model, 0) + report.accepted
    served = {model: after.get(model, 0) - before.get(model, 0) for model in clients}
    growth = samples.growth_mb()
    checks = {
        "no failures": not any(report.failed for report in reports) and not changes.errors,
        "no refusals": not any(report.refused for report in reports),
        "counters equal": served == clients,
        "memory flat": bool(growth) and max(growth.values()) <= max_growth_mb,
        "no process replaced": not replaced,
    }
    return {
        "minutes": minutes,
        "workers": workers,
        "requests": sum(report.accepted for report in reports),
        "promotions": changes.promotions,
        "updates": changes.updates,
        "loads": changes.loads,
        "change_errors": changes.errors[:5],
        "traffic": [_row(each, report) for each, report in zip(traffic, reports, strict=True)],
        "counted_by_server": served,
        "counted_by_client": clients,
        "growth_mb": {str(process_id): round(value, 2) for process_id, value in growth.items()},
        "resident_mb": {
            str(process_id): [round(sizes[0] / 1e6, 1), round(sizes[-1] / 1e6, 1)]
            for process_id, sizes in samples.resident_bytes.items()
        },
        "checks": checks,
        "passed": all(checks.values()),
    }


def _sample(samples: MemorySamples, system: System, running: Sequence[Future[LoadReport]]) -> None:
    while not all(each.done() for each in running):
        samples.take(system.process_id)
        time.sleep(1)


def _row(traffic: Traffic, report: LoadReport) -> dict[str, Any]:
    return {
        "model": traffic.model,
        "protocol": traffic.protocol,
        "accepted": report.accepted,
        "refused": report.refused,
        "errors": report.tally.errors,
        "unsent": report.tally.unsent,
        **report.tally.latency.summary(),
    }


def counters(system: System) -> dict[str, int]:
    """Return successful requests by model, over all versions."""
    found: dict[str, int] = {}
    for labels, value in read_metric(system.port, "nv_inference_request_success", TOKEN):
        found[labels["model"]] = found.get(labels["model"], 0) + int(value)
    return found


def show(report: dict[str, Any]) -> None:
    """Print the figures for a person."""
    for row in report["traffic"]:
        print(
            f"{row['model']:16} {row['protocol']:7} {row['accepted']:>9,} answered, "
            f"{row['refused']} refused, failed {row['errors'] or 0}, "
            f"p50 {row['p50_ms']:.2f} ms, p99 {row['p99_ms']:.2f} ms"
        )
    print(
        f"{report['promotions']} promotions, {report['updates']} row updates, "
        f"{report['loads']} loads and unloads"
    )
    for process_id, (first, last) in report["resident_mb"].items():
        grown = report["growth_mb"].get(process_id)
        print(f"process {process_id}: {first} to {last} MB, fitted growth {grown} MB")
    for name, holds in report["checks"].items():
        print(f"{'ok  ' if holds else 'FAIL'} {name}")


def main() -> int:
    """Run the test and print the verdict."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--minutes", type=float, default=60.0)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--rate", type=float, default=600.0, help="requests per second")
    parser.add_argument("--max-growth-mb", type=float, default=8.0)
    parser.add_argument("--json", action="store_true", help="one JSON document")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        report = soak(Path(folder), given.minutes, given.workers, given.rate, given.max_growth_mb)
    if given.json:
        print(json.dumps(report))
    else:
        show(report)
    return 0 if report["passed"] else 1


if __name__ == "__main__":
    sys.exit(main())

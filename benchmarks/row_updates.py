"""Row updates of a served model: how soon they are visible in all workers, and what they cost lookups.

python -m benchmarks.row_updates [--quick] [--json]

An update of 1,000 rows is visible when each of two workers, asked again and again on a connection of its
own, answers with its rows; the time counts from before the update is written. Lookups are calls of the open
model in this process, by original ids, with 1 % and 10 % of the rows changed beside none, in turns.
"""

from __future__ import annotations

import json
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import numpy as np
import numpy.typing as npt

from benchmarks.measure import Rate, arguments, show_in_turns
from graphbox.artifact import ArtifactWriter, TargetSpec
from graphbox.artifact.row_updates import UpdatesFolder
from graphbox.artifact.updated_rows import UpdatedRows
from graphbox.deploy import DeployedEncoder, open_encoder
from graphbox.deploy.row_updates import RowUpdater
from graphbox.workspace import Workspace
from tests.server.server_process import TOKEN, ServerProcess, start_process, wait_until
from tests.server.test_workers import BEARER, wait_until_all_ready

DIM = 64
UPDATED_ROWS = 1_000
WORKERS = 2
SHARES = (0.01, 0.1)
LOOKED_UP = (1, 256)
SEARCHES_FOR_WORKERS = 64


def main() -> None:
    """Run all cases."""
    options = arguments("row updates")
    count, updates = (20_000, 5) if options.quick else (1_000_000, 50)
    with tempfile.TemporaryDirectory() as folder:
        workspace = write_model(Path(folder), count)
        updater = RowUpdater(workspace, "rows")
        random = np.random.default_rng(1)
        with server_of(workspace, Path(folder)) as server:
            visible(server, updater, random, count, updates, as_json=options.json)
        updater.roll_back(0)
        lookups(workspace, updater, random, count, as_json=options.json, quick=options.quick)


def write_model(folder: Path, count: int) -> Workspace:
    """Write a workspace with one model of ``count`` rows, with the ids ``row 0`` and so on."""
    workspace = Workspace(folder / "workspace")
    version, path = workspace.new_model_path("rows")
    with ArtifactWriter(path) as writer:
        writer.add_ids("item", [f"row {number}" for number in range(count)])
        writer.add_table("item", "item", np.random.default_rng(0).standard_normal((count, DIM), np.float32))
        writer.set_lookup("item", {"item": "item"}, "refuse")
        targets = {"item": TargetSpec(table="item", score="inner_product")}
        writer.commit(name="rows", version=version, kind="embedding", task=None, dim=DIM, targets=targets)
    workspace.add_model("rows", version, kind="embedding", task=None, precision="float32", metrics={})
    return workspace


@contextmanager
def server_of(workspace: Workspace, folder: Path) -> Iterator[ServerProcess]:
    """Yield a server of a workspace with two workers, ready."""
    settings = {
        "port": 0,
        "workspace": workspace.root,
        "token": TOKEN,
        "workers": WORKERS,
        "nearest": "exact",
    }
    server = start_process(settings, folder / "server.log")
    try:
        wait_until(server.is_ready, 120, "the server to be ready")
        wait_until_all_ready(server)
        yield server
    finally:
        server.stop()
        if server.process.stdout is not None:
            server.process.stdout.close()


def visible(
    server: ServerProcess,
    updater: RowUpdater,
    random: np.random.Generator,
    count: int,
    updates: int,
    *,
    as_json: bool,
) -> None:
    """Measure the time until updates are visible in all workers, and how many are written in a second."""
    clients = connections_to_workers(server)
    delays_ms: list[float] = []
    for tag in range(1, updates + 1):
        ids, rows = update_of(random, count, float(tag))
        started = time.perf_counter()
        updater.write({"item": (ids, rows)})
        left = list(clients)
        while left:
            left = [client for client in left if first_value(client, ids[0]) != tag]
        delays_ms.append(1e3 * (time.perf_counter() - started))
        time.sleep(float(random.uniform(0, 0.25)))  # at any time between two polls of a worker
    for client in clients:
        client.close()
    report(f"visible-in-{WORKERS}-workers-{UPDATED_ROWS}-rows-of-{count}x{DIM}", delays_ms, as_json=as_json)
    seconds = []
    for tag in range(updates):
        update = update_of(random, count, float(tag))
        started = time.perf_counter()
        updater.write({"item": update})
        seconds.append(time.perf_counter() - started)
    report(f"write-{UPDATED_ROWS}-rows-of-{count}x{DIM}", [1e3 * each for each in seconds], as_json=as_json)


def update_of(
    random: np.random.Generator, count: int, tag: float, rows: int = UPDATED_ROWS
) -> tuple[list[str], npt.NDArray[np.float32]]:
    """Return distinct ids and rows whose values are all ``tag``."""
    chosen = random.choice(count, rows, replace=False)
    return [f"row {each}" for each in chosen], np.full((rows, DIM), tag, np.float32)


def connections_to_workers(server: ServerProcess) -> list[httpx.Client]:
    """Return a client with an open connection to each worker."""
    found: dict[float, httpx.Client] = {}
    for _ in range(SEARCHES_FOR_WORKERS):
        client = server.client(headers=BEARER)
        before = requests_of_workers(server)
        for _ in range(20):
            first_value(client, "row 0")
        after = requests_of_workers(server)
        worker = max(after, key=lambda each: after[each] - before.get(each, 0.0))
        if worker in found:
            client.close()
        else:
            found[worker] = client
        if len(found) == WORKERS:
            return list(found.values())
    raise RuntimeError(f"expected connections to {WORKERS} workers, found {len(found)}")


def requests_of_workers(server: ServerProcess) -> dict[float, float]:
    """Return the processor time of each worker, by its number."""
    lines = httpx.get(f"{server.base}/metrics", headers=BEARER).text.splitlines()
    found = [line for line in lines if line.startswith("process_cpu_seconds_total{")]
    return {float(line.partition('worker="')[2].partition('"')[0]): float(line.split()[-1]) for line in found}


def first_value(client: httpx.Client, identifier: str) -> float:
    """Return the first number of a row as the server answers it."""
    body = {"inputs": [{"name": "id", "datatype": "BYTES", "shape": [1], "data": [identifier]}]}
    return float(client.post("/v2/models/rows/infer", json=body).json()["outputs"][0]["data"][0])


def lookups(
    workspace: Workspace,
    updater: RowUpdater,
    random: np.random.Generator,
    count: int,
    *,
    as_json: bool,
    quick: bool,
) -> None:
    """Compare lookups and rankings of one model with several shares of changed rows."""
    with open_encoder(workspace.model("rows").path, verify=False) as model:
        model.warm_up()
        models = {"no updates": model}
        folder = UpdatesFolder(model.artifact.path, model.manifest.digest)
        for share in SHARES:
            updater.roll_back(0)
            written = updater.write({"item": update_of(random, count, 0.5, round(share * count))})
            started = time.perf_counter()
            rows = UpdatedRows.of(model.artifact).apply([folder.read(written)])
            models[f"{share:.0%} changed"] = model.with_rows(rows.artifact, written.sequence)
            case = f"apply-{round(share * count)}-rows-of-{count}x{DIM}"
            report(case, [1e3 * (time.perf_counter() - started)], as_json=as_json)
        for size in LOOKED_UP:
            systems = {name: encoding_rate(each, count, size, quick) for name, each in models.items()}
            show_in_turns(f"encode-{size}-ids-of-{count}x{DIM}", "rows/s", systems, as_json=as_json)
        systems = {name: ranking_rate(each, count, quick) for name, each in models.items()}
        show_in_turns(f"neighbors-exact-of-{count}x{DIM}", "queries/s", systems, as_json=as_json)


def encoding_rate(model: DeployedEncoder, count: int, size: int, quick: bool) -> Rate:
    """Return what looks up random ids, ``size`` in a call."""
    random = np.random.default_rng(2)
    calls = [
        [f"row {each}" for each in random.integers(0, count, size)]
        for _ in range(20 if quick else 8_000 // size + 400)
    ]

    def run() -> float:
        started = time.perf_counter()
        for ids in calls:
            model.encode(ids)
        return len(calls) * size / (time.perf_counter() - started)

    return run


def ranking_rate(model: DeployedEncoder, count: int, quick: bool) -> Rate:
    """Return what ranks all rows for random ids, one in a call."""
    random = np.random.default_rng(3)
    calls = random.integers(0, count, 2 if quick else 12)

    def run() -> float:
        started = time.perf_counter()
        for node in calls:
            model.neighbors([f"row {node}"], 10)
        return len(calls) / (time.perf_counter() - started)

    return run


def report(case: str, values_ms: list[float], *, as_json: bool) -> None:
    """Print median, 99th percentile and largest of some times."""
    median, p99 = np.percentile(values_ms, [50, 99])
    document = {
        "case": case,
        "system": "graphbox",
        "unit": "ms",
        "median": round(float(median), 3),
        "p99": round(float(p99), 3),
        "max": round(max(values_ms), 3),
        "repeats": len(values_ms),
    }
    if as_json:
        print(json.dumps(document), flush=True)
    else:
        print(
            f"{case:<50} median {median:8.2f} ms   p99 {p99:8.2f} ms   max {max(values_ms):8.2f} ms",
            flush=True,
        )


if __name__ == "__main__":
    main()

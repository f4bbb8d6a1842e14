"""Servers that the serving benchmark measures, each in processes of its own."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from prometheus_client.parser import text_string_to_metric_families

from benchmarks import serving_triton_model
from benchmarks.serving_models import MLP, MLP_WIDTHS, mlp_onnx
from graphbox.server.load import LoadPlan, run_load
from tests.deploy import triton_server

_START_TIMEOUT_S = 60.0
_INDEX_TIMEOUT_S = 120.0
_MAX_BATCH = 64


@dataclass(frozen=True)
class System:
    """A running server.

    Attributes:
        name: as it is printed.
        port: of HTTP.
        grpc_port: None: it has no gRPC.
        process_id: of the process whose tree is the server.
        workers: processes, or instances of the model, that answer.
    """

    name: str
    port: int
    grpc_port: int | None
    process_id: int
    workers: int = 1

    @property
    def url(self) -> str:
        """Address of HTTP."""
        return f"http://127.0.0.1:{self.port}"


def free_port() -> int:
    """Return a port that nothing listens on."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port: int = free.getsockname()[1]
    return port


@contextmanager
def graphbox_server(
    workspace: Path | None,
    folder: Path,
    *,
    models: Sequence[Path] = (),
    workers: int = 1,
    token: str | None = None,
) -> Iterator[System]:
    """Start `graphbox serve` and wait until all of its models are ready."""
    name = "graphbox"
    port, grpc_port = free_port(), free_port()
    chosen = [] if workspace is None else ["-C", str(workspace)]
    command = [sys.executable, "-m", "graphbox", *chosen, "serve", "--port", str(port)]
    command += ["--grpc-port", str(grpc_port)]
    command += [part for path in models for part in ("--models", str(path))]
    if workers > 1:
        command += ["--workers", str(workers)]
    log = folder / f"{name}-{workers}.log"
    with _process(command, log, {} if token is None else {"GRAPHBOX_TOKEN": token}) as process:
        _wait_until_ready(process, f"http://127.0.0.1:{port}/healthz/ready", name, log)
        yield System(name, port, grpc_port, process.pid, workers)


@contextmanager
def peer_server(name: str, folder: Path) -> Iterator[System]:
    """Start a server of `benchmarks.serving_peers`: ``fastapi`` with the MLP, or ``fixed``."""
    port = free_port()
    command = [sys.executable, "-m", "benchmarks.serving_peers", name, str(port)]
    log = folder / f"{name}.log"
    with _process([*command, "--model", str(folder / f"{MLP}.onnx")], log) as process:
        _wait_until_ready(process, f"http://127.0.0.1:{port}/docs", name, log)
        yield System("limit http" if name == "fixed" else name, port, None, process.pid)


@contextmanager
def triton(folder: Path, instances: int, *, joins: bool) -> Iterator[System]:
    """Start Triton with the MLP and dynamic batching.

    Args:
        folder: for its repository and log.
        instances: processes of the Python backend.
        joins: whether the requests of one batch become one execution.
    """
    name = f"triton {'joined' if joins else 'plain'}"
    repository = folder / f"repository-{instances}-{joins}"
    version = repository / MLP / "1"
    version.mkdir(parents=True, exist_ok=True)
    (version / "model.onnx").write_bytes(mlp_onnx())
    shutil.copyfile(serving_triton_model.__file__, version / "model.py")
    (repository / MLP / "config.pbtxt").write_text(
        f'backend: "python"\nmax_batch_size: {_MAX_BATCH}\n'
        f'input [ {{ name: "input" data_type: TYPE_FP32 dims: [{MLP_WIDTHS[0]}] }} ]\n'
        f'output [ {{ name: "output" data_type: TYPE_FP32 dims: [{MLP_WIDTHS[-1]}] }} ]\n'
        f"instance_group [ {{ kind: KIND_CPU count: {instances} }} ]\n"
        "dynamic_batching { }\n"
        f'parameters {{ key: "joins" value {{ string_value: "{str(joins).lower()}" }} }}\n'
    )
    grpc_port = free_port()
    before = _children(os.getpid())
    with triton_server.triton_server(repository, folder / f"{repository.name}.log", grpc_port) as url:
        (process_id,) = _children(os.getpid()) - before
        yield System(name, int(url.rpartition(":")[2]), grpc_port, process_id, instances)


@contextmanager
def _process(
    command: Sequence[str], log: Path, variables: Mapping[str, str] | None = None
) -> Iterator[subprocess.Popen[bytes]]:
    environment = {**os.environ, "OMP_NUM_THREADS": "1", **(variables or {})}
    with log.open("w") as output:
        process = subprocess.Popen(command, env=environment, stdout=output, stderr=subprocess.STDOUT)
    try:
        yield process
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(30)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait(10)


def _wait_until_ready(process: subprocess.Popen[bytes], url: str, name: str, log: Path) -> None:
    deadline = time.monotonic() + _START_TIMEOUT_S
    while True:
        try:
            with urllib.request.urlopen(url, timeout=5) as answer:  # noqa: S310 - a server started here
                if answer.status == 200:
                    return
        except OSError:
            pass  # not yet: refused connections and 503
        if process.poll() is not None or time.monotonic() > deadline:
            raise RuntimeError(
                f"{name} was not ready within {_START_TIMEOUT_S:g} s:\n{log.read_text()[-4000:]}"
            )
        time.sleep(0.05)


def process_tree(process_id: int) -> list[int]:
    """Return a process and all of its descendants."""
    found = [process_id]
    for each in found:
        found += sorted(_children(each))
    return found


def _children(process_id: int) -> set[int]:
    found: set[int] = set()
    for task in Path(f"/proc/{process_id}/task").glob("*/children"):
        try:
            found.update(map(int, task.read_text().split()))
        except OSError:
            continue  # the thread has ended
    return found


def cpu_seconds(process_id: int) -> float:
    """Return the processor time that the processes of a tree have used."""
    ticks = 0
    for each in process_tree(process_id):
        fields = Path(f"/proc/{each}/stat").read_text().rpartition(")")[2].split()
        ticks += int(fields[11]) + int(fields[12])
    return ticks / os.sysconf("SC_CLK_TCK")


def memory_bytes(process_id: int) -> dict[int, dict[str, int]]:
    """Return ``Pss`` and ``Rss`` of each process of a tree, in bytes, and its anonymous part."""
    found = {}
    for each in process_tree(process_id):
        lines = Path(f"/proc/{each}/smaps_rollup").read_text().splitlines()[1:]
        sizes = {line.split(":")[0]: int(line.split()[1]) * 1024 for line in lines}
        found[each] = {key: sizes[key] for key in ("Pss", "Rss", "Pss_Anon")}
    return found


def read_metric(port: int, name: str, token: str | None = None) -> list[tuple[dict[str, str], float]]:
    """Return labels and value of each sample of a metric of a graphbox server."""
    headers = {} if token is None else {"Authorization": f"Bearer {token}"}
    asked = urllib.request.Request(f"http://127.0.0.1:{port}/metrics", headers=headers)
    with urllib.request.urlopen(asked, timeout=30) as answer:  # noqa: S310 - a server started here
        families = text_string_to_metric_families(answer.read().decode())
        samples = [sample for family in families for sample in family.samples]
    return [(dict(each.labels), each.value) for each in samples if each.name == name]


def await_index(system: System, requests: Sequence[bytes], token: str | None = None) -> None:
    """Send requests until the index of nearest rows is built; exact ranking answers before.

    Where the machine is busy, tuning may find that exact ranking is as fast, and keep it.

    Raises:
        RuntimeError: it is not within two minutes.
    """
    deadline = time.monotonic() + _INDEX_TIMEOUT_S
    plan = LoadPlan(
        host="127.0.0.1", port=system.port, requests=tuple(requests), connections=4, seconds=1, warm_up_s=0
    )
    run_load(plan)
    while "building" in _nearest_states(system.port, token):
        if time.monotonic() > deadline:
            raise RuntimeError(f"no index was built within {_INDEX_TIMEOUT_S:g} s")
        time.sleep(0.2)


def _nearest_states(port: int, token: str | None) -> set[str]:
    """Return what ranks the nearest rows of the models of a graphbox server."""
    headers = {} if token is None else {"Authorization": f"Bearer {token}"}
    asked = urllib.request.Request(f"http://127.0.0.1:{port}/api/v1/models", headers=headers)
    with urllib.request.urlopen(asked, timeout=30) as answer:  # noqa: S310 - a server started here
        models = json.load(answer)
    running = [version.get("running") or {} for model in models for version in model.get("versions", [model])]
    return {state for each in running for state in (each.get("nearest") or {}).values()}

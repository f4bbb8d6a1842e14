"""Runs checks in several processes that know each other by gloo: one process imports torch and forks them."""

from __future__ import annotations

import json
import os
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Self

import torch
import torch._dynamo  # which optimizers of torch import when they are made: here once instead of in each fork
from torch._C._distributed_c10d import FileStore

from graphbox.table import ProcessGroup
from tests.train.job_server import JobServer, serve_jobs

Check = Callable[..., Any]


class Processes:
    """Starts checks of a module, each in several processes.

    Args:
        module: what it runs as a program, which calls :func:`serve_checks`.
    """

    def __init__(self, module: str) -> None:
        self._server = JobServer(module)

    def __enter__(self) -> Self:
        self._server.__enter__()
        return self

    def __exit__(self, *error: object) -> None:
        self._server.__exit__(None, None, None)

    def outcomes(self, check: str, size: int, folder: Path, **options: Any) -> list[dict[str, Any]]:
        """Return what the check gave in each process: a ``result``, or an ``error`` with ``message``."""
        folder.mkdir(exist_ok=True)
        self._server.run(check=check, size=size, folder=str(folder), **options)
        found = []
        for rank in range(size):
            path = folder / f"outcome-{rank}.json"
            found.append(json.loads(path.read_text()) if path.exists() else {"code": "died"})
        return found

    def run(self, check: str, size: int, folder: Path, **options: Any) -> list[Any]:
        """Return what the check returned in each process; it raised in none."""
        outcomes = self.outcomes(check, size, folder, **options)
        assert all("result" in each for each in outcomes), "\n".join(map(str, outcomes))
        return [each["result"] for each in outcomes]


def serve_checks(checks: Mapping[str, Check]) -> None:
    """Serve jobs that run a check in several processes."""

    def run(
        check: str, size: int, folder: str, timeout: float = 60.0, device: str = "cpu", **options: Any
    ) -> None:
        children = []
        for rank in range(size):
            child = os.fork()
            if not child:
                place = torch.device("cuda", rank) if device == "cuda" else torch.device("cpu")
                code = _run_check(checks[check], rank, size, Path(folder), timeout, place, options)
                os._exit(code)
            children.append(child)
        for child in children:
            os.waitpid(child, 0)

    serve_jobs(run)


def _run_check(
    check: Check,
    rank: int,
    size: int,
    folder: Path,
    timeout: float,
    device: torch.device,
    options: dict[str, Any],
) -> int:
    outcome: dict[str, Any]
    try:
        with processes_of(rank, size, folder / "store", timeout, device) as group:
            outcome = {"result": check(group, folder, **options)}
    except BaseException as error:  # noqa: BLE001 - the test sees it
        outcome = {"error": type(error).__name__, "message": str(error), "trace": traceback.format_exc()}
    beside = folder / f"outcome-{rank}.partial"
    beside.write_text(json.dumps(outcome))
    beside.rename(folder / f"outcome-{rank}.json")
    return int("error" in outcome)


@contextmanager
def processes_of(
    rank: int, size: int, store: Path, timeout: float, device: torch.device
) -> Iterator[ProcessGroup]:
    """Give the group of processes that know each other by a file."""
    torch.set_num_threads(1)
    os.environ |= {"GLOO_SOCKET_IFNAME": "lo", "NCCL_SOCKET_IFNAME": "lo"}
    torch.distributed.init_process_group(
        "gloo", store=FileStore(str(store), size), rank=rank, world_size=size
    )
    with ProcessGroup(device, timeout_seconds=timeout) as group:
        yield group

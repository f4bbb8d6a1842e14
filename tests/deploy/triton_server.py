"""A real Triton server in a process of its own, from the wheel that `make triton-venv` installs."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sysconfig
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import httpx

from graphbox.deploy import Options, choose
from graphbox.deploy.conformance_models import OPERATORS, gather_model, reshape_model, sum_model
from graphbox.deploy.packages import prepared
from tests.server.server_process import wait_until

VENV = Path(__file__).parents[2] / ".venv-triton"
START_TIMEOUT_S = 150.0


def why_not() -> str | None:
    """Say why there is no Triton to test with; None: there is one."""
    return (
        None
        if (VENV / ".installed").exists()
        else "`make triton-venv` installs the Triton that this test starts"
    )


@contextmanager
def triton_server(
    repository: Path, log: Path, grpc_port: int | None = None, options: Sequence[str] = ()
) -> Iterator[str]:
    """Start a server of a model repository; give its URL once every model is ready.

    Args:
        repository: folder of the models.
        log: file for its output.
        grpc_port: port for gRPC on the loopback address; None: no gRPC.
        options: further options of the command line.
    """
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    grpc = ["--allow-grpc=false"]
    if grpc_port is not None:
        grpc = ["--grpc-address=127.0.0.1", f"--grpc-port={grpc_port}"]
    backends = _program().parents[1] / "backends"
    command = [
        str(_program()),
        f"--model-repository={repository}",
        f"--backend-directory={backends}",
        "--http-address=127.0.0.1",
        f"--http-port={port}",
        *grpc,
        "--allow-metrics=false",
        *options,
    ]
    environment = {
        **os.environ,
        "PYTHONPATH": str(_packages()),
        "LD_LIBRARY_PATH": sysconfig.get_config_var("LIBDIR"),
        "PATH": f"{VENV / 'bin'}:{os.environ['PATH']}",
        "OMP_NUM_THREADS": "1",
    }
    with log.open("w") as output:
        process = subprocess.Popen(command, env=environment, stdout=output, stderr=subprocess.STDOUT)
    url = f"http://127.0.0.1:{port}"
    try:
        wait_until(lambda: _is_ready(process, url, log), START_TIMEOUT_S, "Triton's models to be ready")
        yield url
    finally:
        process.terminate()
        try:
            process.wait(30)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait(30)


def folder_of(model: bytes, backend: str, threads: int = 1) -> Path:
    """Return the folder that the adapter builds of a model for a backend of Triton."""
    adapter, device = choose(f"triton_repository/{backend}")
    folder = prepared(adapter, model, device, Options(threads=threads)).folder
    assert folder is not None
    return folder


def add_conformance_models(repository: Path) -> None:
    """Add the models of the conformance kit to a repository, for the Python backend."""
    models = {operator.name: (operator.model(), 1) for operator in OPERATORS}
    models |= {"sum": (sum_model(), 1), "sum in 2 threads": (sum_model(), 2)}
    models |= {f"reshape in {threads} threads": (reshape_model(), threads) for threads in (1, 2)}
    models |= {f"gather {dtype}": (gather_model(dtype), 1) for dtype in ("int32", "int64")}
    for name, (model, threads) in models.items():
        folder, ignored = folder_of(model, "python", threads), shutil.ignore_patterns("package.json")
        shutil.copytree(folder, repository / name.replace(" ", "_"), ignore=ignored)


def _packages() -> Path:
    found = sorted(VENV.glob("lib/python3*/site-packages"))
    return found[0] if found else VENV / "missing"


def _program() -> Path:
    return _packages() / "pytriton" / "tritonserver" / "bin" / "tritonserver"


def _is_ready(process: subprocess.Popen[bytes], url: str, log: Path) -> bool:
    assert process.poll() is None, f"Triton ended:\n{log.read_text()[-4000:]}"
    try:
        return httpx.get(f"{url}/v2/health/ready", timeout=5).status_code == 200
    except httpx.TransportError:
        return False

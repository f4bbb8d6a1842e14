"""A real Triton server in a process of its own, from the wheel that `make triton-venv` installs."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sysconfig
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx

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
def triton_server(repository: Path, log: Path) -> Iterator[str]:
    """Start a server of a model repository, without gRPC; give its URL once every model is ready."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    backends = _program().parents[1] / "backends"
    command = [
        str(_program()),
        f"--model-repository={repository}",
        f"--backend-directory={backends}",
        "--http-address=127.0.0.1",
        f"--http-port={port}",
        "--allow-grpc=false",
        "--allow-metrics=false",
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


def add_model(repository: Path, name: str, package: Path) -> None:
    """Copy what the adapter built into a repository."""
    shutil.copytree(package, repository / name, ignore=shutil.ignore_patterns("package.json"))


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

"""A user's machine: the wheel built from the sdist, in a clean environment without Node or a compiler."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
DEMO_TIMEOUT_S = 1500
START_TIMEOUT_S = 60


@dataclass(frozen=True)
class Installation:
    """A virtual environment that holds only the wheel and what it depends on."""

    environment: Path
    wheel: Path

    @property
    def python(self) -> Path:
        return self.environment / "bin" / "python"

    def run(
        self, *arguments: str, timeout_s: float = 120, check: bool = True
    ) -> subprocess.CompletedProcess[str]:
        """Run ``graphbox`` with nothing but this environment on the search path."""
        done = subprocess.run(
            [str(self.environment / "bin" / "graphbox"), *arguments],
            cwd=self.environment,
            env=self.variables(),
            check=False,
            capture_output=True,
            text=True,
            timeout=timeout_s,
        )
        if check and done.returncode != 0:
            pytest.fail(
                f"graphbox {' '.join(arguments)} ended with {done.returncode}:\n{done.stderr[-4000:]}"
            )
        return done

    def variables(self) -> dict[str, str]:
        """Return an environment without Node, a compiler or the source tree on any path."""
        return {
            "PATH": str(self.environment / "bin"),
            "HOME": str(self.environment),
            "LANG": "C.UTF-8",
            "NO_COLOR": "1",
        }


@pytest.fixture(scope="session")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel built from the sdist of this checkout."""
    folder = tmp_path_factory.mktemp("dist")
    subprocess.run(
        [sys.executable, "-m", "build", "--outdir", str(folder), str(ROOT)],
        check=True,
        capture_output=True,
        timeout=900,
    )
    (built,) = folder.glob("*.whl")
    assert list(folder.glob("*.tar.gz")), "the wheel was not built from an sdist"
    return built


@pytest.fixture(scope="session")
def installation(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Installation:
    environment = tmp_path_factory.mktemp("installation") / "venv"
    subprocess.run([sys.executable, "-m", "venv", str(environment)], check=True, timeout=120)
    installed = Installation(environment, wheel)
    for requirement in ("torch", f"graphbox[all] @ {wheel.as_uri()}"):
        subprocess.run(
            [
                str(installed.python),
                *("-m", "pip", "install", "--quiet", "--disable-pip-version-check"),
                *("--constraint", str(ROOT / "constraints.txt"), requirement),
            ],
            check=True,
            timeout=900,
        )
    return installed


@dataclass(frozen=True)
class Demo:
    """The bundled graph after the whole pipeline, and the document the run printed."""

    workspace: Path
    document: dict[str, Any]
    seconds: float


@pytest.fixture(scope="session")
def demo(installation: Installation, tmp_path_factory: pytest.TempPathFactory) -> Demo:
    workspace = tmp_path_factory.mktemp("demo") / "workspace"
    started = time.monotonic()
    done = installation.run("-C", str(workspace), "--json", "demo", "--no-serve", timeout_s=DEMO_TIMEOUT_S)
    return Demo(workspace, json.loads(done.stdout), time.monotonic() - started)


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
        return port


def wait_until_ready(url: str, process: subprocess.Popen[str]) -> None:
    """Wait for the server's readiness.

    Raises:
        AssertionError: the server ended, or was not ready in time.
    """
    deadline = time.monotonic() + START_TIMEOUT_S
    while time.monotonic() < deadline:
        assert process.poll() is None, f"the server ended with {process.returncode}"
        try:
            with urllib.request.urlopen(f"{url}/v2/health/ready", timeout=2) as answer:  # noqa: S310 (loopback)
                if answer.status == 200:
                    return
        except (urllib.error.URLError, ConnectionError, TimeoutError):
            time.sleep(0.1)
    raise AssertionError(f"{url} was not ready within {START_TIMEOUT_S} s")


@pytest.fixture(scope="session")
def server_url(installation: Installation, demo: Demo) -> Iterator[str]:
    port = free_port()
    log = demo.workspace.parent / "server.log"
    with log.open("w") as output:
        process = subprocess.Popen(
            [
                str(installation.environment / "bin" / "graphbox"),
                *("-C", str(demo.workspace), "serve", "--port", str(port)),
            ],
            cwd=installation.environment,
            env=installation.variables(),
            stdout=output,
            stderr=subprocess.STDOUT,
            text=True,
        )
        try:
            url = f"http://127.0.0.1:{port}"
            wait_until_ready(url, process)
            yield url
        finally:
            process.terminate()
            try:
                assert process.wait(timeout=30) == 0, log.read_text()
            except subprocess.TimeoutExpired:
                process.kill()
                raise


@pytest.fixture(scope="session")
def node_variables() -> dict[str, str]:
    """The environment for npm, with the Node that the set-up chose first on the path."""
    return {**os.environ, "PATH": f"{ROOT / '.venv' / 'bin'}:{os.environ['PATH']}"}

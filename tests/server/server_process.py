"""A server in a process of its own, for tests that talk to it over a socket."""

from __future__ import annotations

import json
import os
import selectors
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx

TOKEN = "a-token-long-enough-to-be-one"
EVERY_ADDRESS = "0.0.0.0"  # noqa: S104 - servers on it are started with a token
START_TIMEOUT_S = 60.0


@dataclass
class ServerProcess:
    """A server in a process of its own."""

    process: subprocess.Popen[str]
    url: str
    log: Path
    grpc_address: str = ""

    @property
    def port(self) -> int:
        port = urlsplit(self.url).port
        assert port is not None
        return port

    @property
    def base(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    def client(self, **options: Any) -> httpx.Client:
        return httpx.Client(base_url=self.base, timeout=30, **options)

    def is_ready(self) -> bool:
        return httpx.get(f"{self.base}/healthz/ready").status_code == 200

    def wait_until_ready(self) -> None:
        """Wait until every model is open; a server takes requests before that."""
        wait_until(self.is_ready, what="the server to be ready")

    def stop(self, number: signal.Signals = signal.SIGTERM, timeout_s: float = 30) -> int:
        if self.process.poll() is None:
            self.process.send_signal(number)
        return self.process.wait(timeout_s)


StartServer = Callable[..., ServerProcess]


def start_process(settings: dict[str, Any], log: Path) -> ServerProcess:
    command = [
        sys.executable,
        str(Path(__file__).parent / "run_server.py"),
        json.dumps(settings, default=str),
    ]
    with log.open("w") as errors:
        process = subprocess.Popen(
            command,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
            env={**os.environ, "OMP_NUM_THREADS": "1"},
        )
    assert process.stdout is not None
    with selectors.DefaultSelector() as selector:
        selector.register(process.stdout, selectors.EVENT_READ)
        ready = selector.select(START_TIMEOUT_S)
    addresses = process.stdout.readline().split() if ready else []
    if not addresses:
        process.kill()
        process.wait(10)
        process.stdout.close()
        raise AssertionError(f"the server did not start:\n{log.read_text()}")
    return ServerProcess(process, addresses[0], log, *addresses[1:])


def wait_until(condition: Callable[[], bool], timeout_s: float = 20.0, what: str = "the condition") -> None:
    """Wait for something another process does."""
    deadline = time.monotonic() + timeout_s
    while not condition():
        if time.monotonic() > deadline:
            raise AssertionError(f"waited {timeout_s} s for {what}")
        time.sleep(0.02)

"""Serving from the command line: a real process, asked over HTTP, ended by a signal."""

from __future__ import annotations

import json
import re
import signal
import socket
import subprocess
import sys
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from graphbox.config import load_config
from tests.cli.conftest import Call


@pytest.fixture
def server(finished: Path) -> subprocess.Popen[str]:
    command = [
        sys.executable,
        "-m",
        "graphbox",
        "-C",
        str(finished / "workspace"),
        "serve",
        "--port",
        "0",
        "--json",
    ]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def get(url: str) -> Any:
    with urllib.request.urlopen(url, timeout=30) as answer:  # noqa: S310 (loopback)
        return json.load(answer)


def test_serve_says_where_and_ends_well(server: subprocess.Popen[str]) -> None:
    try:
        assert server.stdout is not None
        url = json.loads(server.stdout.readline())["url"]
        assert len(get(f"{url}api/v1/models/citer/neighbors?type=paper&id=p3&k=4")["neighbors"]) == 4
        run = get(f"{url}api/v1/runs/papers-1")
        assert run["state"] == "finished"
        assert run["report"]["compress"]["citer"]["metric"]["name"] == "recall@5"
        server.send_signal(signal.SIGTERM)
        _, err = server.communicate(timeout=60)
        assert server.returncode == 0
        assert re.search(r"serving .* on http://127\.0\.0\.1:\d+/ \(Ctrl-C stops\)", err)
    finally:
        server.kill()
        server.communicate(timeout=60)


def test_demo_prints_its_run_file(graphbox: Call, folder: Path) -> None:
    text = graphbox("demo", "--print-run-file").out
    (folder / "copy.yaml").write_text(text)
    config = load_config(folder / "copy.yaml")
    assert Path(config.graph.locate("depends.parquet")).is_file()
    assert set(config.tasks) == {"section", "companion"}
    assert set(config.export) >= {"debian-companion"}


def test_example_is_the_demos_run_file() -> None:
    root = Path(__file__).parents[2]
    example = root / "examples" / "debian" / "graphbox.yaml"
    assert example.read_bytes() == (root / "graphbox" / "demo" / "graphbox.yaml").read_bytes()
    assert load_config(example).name == "debian"


def test_demo_refuses_a_used_port_before_it_trains(graphbox: Call) -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        outcome = graphbox("demo", "--port", str(other.getsockname()[1]))
    assert outcome.code == 1
    assert "is in use by another program" in outcome.err
    assert not Path("workspace").exists()


def test_demo_refuses_a_reachable_address_before_it_trains(graphbox: Call) -> None:
    outcome = graphbox("demo", "--host", "0.0.0.0")  # noqa: S104 (it is refused)
    assert outcome.code == 2
    assert "needs a token" in outcome.err
    assert not Path("workspace").exists()

"""The serving benchmark and the soak test, small."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

needs_generators = pytest.mark.skipif(
    shutil.which("wrk") is None or shutil.which("h2load") is None,
    reason="apt-get install wrk nghttp2-client",
)


def run(module: str, tmp_path: Path, *arguments: str) -> str:
    environment = {**os.environ, "GRAPHBOX_PACKAGES": str(tmp_path / "packages")}
    ended = subprocess.run(
        [sys.executable, "-m", f"benchmarks.{module}", *arguments],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr + ended.stdout
    return ended.stdout


@needs_generators
def test_the_encoder_beside_its_limit(tmp_path: Path) -> None:
    output = run("serving", tmp_path, "--quick", "--json", "--only", "encoder", "--workers", "1")
    rows = [json.loads(line) for line in output.splitlines()]
    assert [(row["case"], row["system"]) for row in rows] == [
        ("serving/encoder/json/batch1/c16", "graphbox"),
        ("serving/encoder/json/batch1/c64", "graphbox"),
        ("serving/encoder/batched 16", "limit model"),
    ]
    assert all(row["min"] > 0 and row["repeats"] == 2 for row in rows)
    assert rows[0]["p50_ms"] > 0
    assert rows[0]["per_cpu_s"] > 0


def test_a_soak_counts_what_its_client_counts(tmp_path: Path) -> None:
    output = run("soak", tmp_path, "--minutes", "0.1", "--rate", "120", "--json", "--max-growth-mb", "1000")
    report = json.loads(output)
    assert report["passed"]
    assert report["counted_by_server"] == report["counted_by_client"]
    assert report["requests"] > 100
    assert report["promotions"] > 1
    assert report["updates"] > 0
    assert report["loads"] > 1

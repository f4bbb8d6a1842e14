"""The native core survives arguments that are wrong: a few thousand calls, in a process of their own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

SECONDS = 900
"""After which a call hangs; a machine may be slow."""

REACHED = (
    "sample_neighbors",
    "random_walks",
    "ArrayFileWriter.append",
    "AliasTable.sample_for",
    "row_degrees",
    "Store.read_rows",
    "Table.load_checkpoint",
    "Table.push_rows",
    "Table.scan",
    "WrittenCheckpoint.policy_state",
    "segment_keys",
)
"""Functions that must have returned at times: otherwise sound arguments are no longer sound."""


def run(folder: Path, seed: int, rounds: int) -> dict[str, Any]:
    """Fuzz in a process, and return its report."""
    command = [
        sys.executable,
        "-m",
        "tests.native.fuzz",
        str(folder),
        "--seed",
        str(seed),
        "--rounds",
        str(rounds),
    ]
    environment = {**os.environ}
    core = environment.get("GRAPHBOX_SANITIZED_CORE")
    if core:
        environment |= {"LD_PRELOAD": environment["GRAPHBOX_SANITIZER"], "ASAN_OPTIONS": "detect_leaks=0"}
        command += ["--core", core]
    finished = subprocess.run(
        command, env=environment, capture_output=True, text=True, timeout=SECONDS, check=False
    )
    log = folder / "last_call.txt"
    last = log.read_text().strip() if log.exists() else "nothing was called"
    assert finished.returncode in (0, 1), (
        f"it ended by {finished.returncode} in: {last}\n{finished.stderr[-8000:]}"
    )
    report: dict[str, Any] = json.loads(finished.stdout)
    assert report["findings"] == {}
    return report


def test_wrong_arguments(tmp_path: Path) -> None:
    report = run(tmp_path, 60, 60)
    assert sum(report["raised"].values()) > 500
    for name in REACHED:
        assert report["returned"][name] > 0, name


@pytest.mark.stress
@pytest.mark.timeout(2 * SECONDS)
@pytest.mark.parametrize("seed", range(1000, 11000, 1000))
def test_many_wrong_arguments(tmp_path: Path, seed: int) -> None:
    report = run(tmp_path, seed, 150)
    never = {name for name, count in report["returned"].items() if count + report["raised"][name] == 0}
    assert never == set()

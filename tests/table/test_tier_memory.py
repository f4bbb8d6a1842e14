"""A table many times as large as its budget takes no more memory than that."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np

from graphbox.table import EmbeddingTable

DIM = 256
KEYS = 150_000
BUDGET_BYTES = 32 << 20
BESIDE_BYTES = 32 << 20
"""For what no table counts: stacks, pages that the allocator keeps, batches."""

CHILD = """
import sys
from pathlib import Path
from tests.table.test_tier_memory import train_on_ssd
train_on_ssd(Path(sys.argv[1]))
"""


def status_bytes(name: str) -> int:
    """Return a figure of this process's memory."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(name):
            return int(line.split()[1]) * 1024
    raise AssertionError(name)


def train_on_ssd(path: Path) -> None:
    """Train, flush and prefetch; say how much memory that took at most, and how large the table is."""
    keys, out = np.arange(2000), np.ones((2000, DIM), np.float32)
    EmbeddingTable(DIM, threads=2).push(keys, out)  # what a first table loads is no part of the next
    before = status_bytes("VmRSS")
    rng = np.random.default_rng(0)
    with EmbeddingTable(DIM, path=path, memory_bytes=BUDGET_BYTES, threads=2) as table:
        for step in range(60):
            keys = rng.integers(0, KEYS, 2000)
            table.pull(keys, out=out)
            table.push(keys, out)
            if step % 20 == 19:
                table.flush()
                table.prefetch(rng.integers(0, KEYS, 20_000)).wait(600)
        print(status_bytes("VmHWM") - before, len(table) * DIM * 4)


def test_memory_stays_within_the_budget(tmp_path: Path) -> None:
    finished = subprocess.run(
        [sys.executable, "-c", CHILD, str(tmp_path / "table")],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)},
        capture_output=True,
        text=True,
        check=False,
        timeout=280,
    )
    assert finished.returncode == 0, finished.stderr
    gained, rows_bytes = map(int, finished.stdout.split())
    assert rows_bytes > 2 * BUDGET_BYTES
    assert gained <= BUDGET_BYTES + BESIDE_BYTES

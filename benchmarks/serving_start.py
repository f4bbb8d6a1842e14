"""Start of a server with a large table: time until every worker is ready, and memory, by number of workers.

python -m benchmarks.serving_start [--quick] [--json] [--workers 1,2] [--repeats 5]

The model is a table of 4,000,000 x 64 float32 rows (1.02 GB) with integer ids. Time counts from the start of
the process until the command reports that all models are ready in all workers; the files are in the page
cache. Memory is the sum of ``Pss`` over the processes of the server after each worker has answered.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path

import numpy as np

from benchmarks.serving_systems import free_port, memory_bytes
from graphbox.artifact import ArtifactWriter, LookupForm, TargetSpec

ROWS, QUICK_ROWS, DIM = 4_000_000, 100_000, 64
_BLOCK_ROWS = 65_536
_ANSWERS = 32


def write_table(path: Path, rows: int) -> None:
    """Write a model version of random rows."""
    generator = np.random.default_rng(0)
    values = np.empty((rows, DIM), np.float32)
    for start in range(0, rows, _BLOCK_ROWS):
        block = values[start : start + _BLOCK_ROWS]
        block[...] = generator.standard_normal(block.shape, np.float32)
    with ArtifactWriter(path) as writer:
        writer.add_ids("item", np.arange(rows))
        writer.add_table("item", "item", values)
        writer.set_preprocess(LookupForm(node_type="item", tables={"item": "item"}))
        targets = {"item": TargetSpec(table="item", score="inner_product")}
        writer.commit(name="rows", version=1, kind="embedding", task="bench", dim=DIM, targets=targets)


def measure(models: Path, workers: int) -> tuple[float, float, float]:
    """Start a server; return seconds until ready, megabytes of all processes, and of its largest one."""
    port = free_port()
    command = [sys.executable, "-m", "graphbox", "serve", "--port", str(port), "--models", str(models)]
    command += ["--workers", str(workers)]
    start = time.perf_counter()
    process = subprocess.Popen(
        command,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    try:
        assert process.stdout is not None  # noqa: S101 - for the type checker
        lines: list[str] = []
        for line in process.stdout:
            lines.append(line)
            if "models ready" in line or "model ready" in line:
                break
        else:
            raise RuntimeError(f"the server ended before it was ready:\n{''.join(lines)}")
        seconds = time.perf_counter() - start
        for _ in range(_ANSWERS):  # connections are divided by their ports
            urllib.request.urlopen(f"http://127.0.0.1:{port}/api/v1/models/rows/neighbors?id=7").read()
        sizes = [each["Pss"] / 1e6 for each in memory_bytes(process.pid).values()]
        return seconds, sum(sizes), max(sizes)
    finally:
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=60)


def main() -> None:
    """Measure each number of workers."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help=f"{QUICK_ROWS} rows, once")
    parser.add_argument("--json", action="store_true", help="one JSON object per line")
    parser.add_argument("--workers", default="1,2", help="numbers of workers, separated by commas")
    parser.add_argument("--repeats", type=int, default=5)
    options = parser.parse_args()
    rows, repeats = (QUICK_ROWS, 1) if options.quick else (ROWS, options.repeats)
    with tempfile.TemporaryDirectory() as folder:
        write_table(Path(folder) / "rows" / "1", rows)
        for workers in map(int, options.workers.split(",")):
            found = [measure(Path(folder), workers) for _ in range(repeats)]
            seconds = [each[0] for each in found]
            row = {
                "case": f"serving/start/{rows} rows of {DIM}",
                "system": "graphbox",
                "threads": workers,
                "start_s": round(statistics.median(seconds), 2),
                "min": round(min(seconds), 2),
                "max": round(max(seconds), 2),
                "repeats": repeats,
                "pss_mb": round(statistics.median(each[1] for each in found), 1),
                "largest_process_pss_mb": round(statistics.median(each[2] for each in found), 1),
            }
            print(
                json.dumps(row) if options.json else "  ".join(f"{key} {value}" for key, value in row.items())
            )


if __name__ == "__main__":
    main()

"""Predictions of `graphbox plan` for imports beside measurements: memory, bytes on disk, written, seconds.

Five sizes, each with the memory to hold it and with so little that it spills. One line for each figure:
`system` is `plan` for predictions and `graphbox` for measurements, `off` their relation.

    python -m benchmarks.plan [--quick] [--json]
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.measure import arguments

SIZES = (200_000, 1_000_000, 3_000_000, 8_000_000, 20_000_000)
QUICK_SIZES = (100_000, 500_000)
LITTLE_MEMORY = "400MB"


@dataclass(frozen=True)
class Figure:
    """One predicted and one measured value."""

    case: str
    unit: str
    predicted: float
    measured: float

    def lines(self) -> Iterator[dict[str, Any]]:
        """Yield what is printed as JSON."""
        off = self.predicted / max(self.measured, 1e-9)
        yield {"case": self.case, "system": "plan", "value": self.predicted, "unit": self.unit, "off": off}
        yield {"case": self.case, "system": "graphbox", "value": self.measured, "unit": self.unit, "off": 1.0}


def edges_table(edges: int, seed: int = 0) -> pa.Table:
    """Return users with scattered integer ids who buy items with string ids, some of them often."""
    rng = np.random.default_rng(seed)
    users, items = max(edges // 8, 1), max(edges // 30, 1)
    return pa.table(
        {
            "source": rng.integers(0, users, edges) * 2_654_435_761 % (1 << 40),
            "target": [f"item-{item}" for item in (rng.zipf(1.4, edges) % items).tolist()],
            "weight": rng.random(edges, dtype=np.float32) + 0.1,
        }
    )


def compare(table: Path, folder: Path, memory: str) -> list[Figure]:
    """Plan and import a table, each in a process of its own, and return their figures."""
    options = [
        str(table),
        "--type",
        "user,buys,item",
        "--weight",
        "weight",
        "--memory",
        memory,
        "--json",
        "-q",
    ]
    workspace = ["-C", str(folder / "workspace")]
    planned = _graphbox([*workspace, "plan", *options])
    report = _graphbox([*workspace, "import", *options, "--name", "g", "--again"])["report"]
    tiers = planned["tiers"]
    case = f"import {table.stem} edges, {memory}"
    pairs = [
        ("peak memory", "bytes", tiers["MEM"]["peak_bytes"], report["peak_memory_bytes"]),
        ("size", "bytes", tiers["SSD"]["size_bytes"], report["size_bytes"]),
        ("written", "bytes", tiers["SSD"]["written_bytes"], report["written_bytes"]),
        ("time", "s", planned["seconds"]["likely"], report["seconds"]),
    ]
    return [Figure(f"{case}: {what}", unit, *values) for what, unit, *values in pairs]


def _graphbox(options: list[str]) -> Any:
    done = subprocess.run(
        [sys.executable, "-m", "graphbox", *options], capture_output=True, text=True, check=False
    )
    if not done.stdout:
        raise SystemExit(done.stderr)
    return json.loads(done.stdout)


def main() -> None:
    """Compare all sizes and print."""
    options = arguments(__doc__ or "")
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        for edges in QUICK_SIZES if options.quick else SIZES:
            path = folder / f"{edges}.parquet"
            pq.write_table(edges_table(edges), path)
            for memory in ("4GiB", LITTLE_MEMORY):
                for figure in compare(path, folder, memory):
                    if options.json:
                        for line in figure.lines():
                            print(json.dumps(line), flush=True)
                        continue
                    print(
                        f"{figure.case:50} predicted {figure.predicted:16,.1f} measured "
                        f"{figure.measured:16,.1f} {figure.unit:6} {figure.predicted / figure.measured:.2f}",
                        flush=True,
                    )
            path.unlink()


if __name__ == "__main__":
    main()

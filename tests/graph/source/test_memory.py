"""Memory of reading: bounded by the size of a batch, not by the size of the file."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv as arrow_csv
import pyarrow.parquet as pq
import pytest

BATCH_BYTES = 4 << 20
NUM_ROWS = 6_000_000
MOST_BYTES = 64 << 20  # beside what the process holds before it reads: four batches, buffers, threads, pools

READ = """
import json, sys
from graphbox.graph.source import open_table
import numpy, pyarrow.compute, pyarrow.csv, pyarrow.parquet

def status(key):
    lines = open("/proc/self/status").read().splitlines()
    return 1024 * int(next(line.split()[1] for line in lines if line.startswith(key)))

path, batch_bytes = sys.argv[1], int(sys.argv[2])
table = open_table(path, threads=2)
table.column_names()
before = status("VmRSS")
rows = sum(batch.num_rows for batch in table.batches(["target", "source"], batch_bytes=batch_bytes))
print(json.dumps({"rows": rows, "bytes": status("VmHWM") - before}))
"""


def write(path: Path) -> None:
    random = np.random.default_rng(0)
    columns = {name: random.integers(2**62, 2**63 - 1, NUM_ROWS) for name in ("source", "target")}
    table = pa.table(columns)
    if path.name == "edges.parquet":
        pq.write_table(table, path, row_group_size=NUM_ROWS, use_dictionary=False)
    elif path.name == "edges.arrow":
        with pa.ipc.new_file(str(path), table.schema) as writer:
            writer.write_table(table)
    elif path.name == "edges.npz":
        np.savez(path, **columns)  # type: ignore[arg-type]
    else:
        with pa.output_stream(str(path), compression="detect") as stream:
            arrow_csv.write_csv(table, stream, arrow_csv.WriteOptions(delimiter="\t", quoting_style="none"))


@pytest.mark.slow
@pytest.mark.parametrize("name", ["edges.parquet", "edges.arrow", "edges.npz", "edges.tsv", "edges.tsv.zst"])
def test_memory_does_not_grow_with_the_file(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    write(path)
    done = subprocess.run(
        [sys.executable, "-c", READ, str(path), str(BATCH_BYTES)], capture_output=True, text=True, check=True
    )
    path.unlink()
    result = json.loads(done.stdout)
    assert result["rows"] == NUM_ROWS
    assert result["bytes"] < MOST_BYTES, result
    sys.stdout.write(f"{name}: {result['bytes'] / 2**20:.0f} MiB\n")

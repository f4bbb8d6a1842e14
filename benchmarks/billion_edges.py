"""A graph of a billion edges: written as tables, imported, and a share of an epoch of DeepWalk.

An R-MAT graph with the quadrants of Graph500. Each stage is a process of its own; printed are its rate, the
peak of its anonymous resident memory and, beside training, the time in which this disk reads as many bytes as
the lists have.

    python -m benchmarks.billion_edges [--scale 26] [--edges-of-node 16] [--share 0.01] [--folder FOLDER]
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.training_memory import MIB, Peak
from graphbox.config import DeepWalkConfig, MemoryConfig
from graphbox.graph import EdgeSource, Graph, GraphSource, NodeSource
from graphbox.graph.ingest import import_graph
from graphbox.train import GraphView
from graphbox.train.memory import TrainingMemory
from graphbox.train.registry import Assignment, make_trainer

_CHUNK = 1 << 22
IMPORT_BYTES = 3 << 30
BUDGETS = {"topology": 256 * MIB, "tables": 3072 * MIB, "passes": 128 * MIB}
TRAINED = DeepWalkConfig(
    kind="deepwalk", dim=32, walks_per_node=1, walk_length=40, window=5, epochs=1, learning_rate=0.1
)


def edges_of(scale: int, count: int) -> Iterator[tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]]:
    """Give sources and targets, chunk by chunk; labels are shuffled by multiplying with an odd number."""
    mask, odd = (1 << scale) - 1, 0x9E3779B97F4A7C15
    for number, first in enumerate(range(0, count, _CHUNK)):
        generator = np.random.default_rng([0, number])
        size = min(_CHUNK, count - first)
        ends = np.zeros((2, size), np.uint64)
        for _ in range(scale):
            draw = generator.random(size, dtype=np.float32)
            ends <<= np.uint64(1)
            ends[0] |= draw >= 0.76
            ends[1] |= ((draw >= 0.57) & (draw < 0.76)) | (draw >= 0.95)
        labels = (ends * np.uint64(odd) & np.uint64(mask)).astype(np.int64)
        yield labels[0], labels[1]


def write_tables(folder: Path, scale: int, count: int) -> dict[str, Any]:
    """Write nodes and edges as Parquet."""
    schema = pa.schema({"source": pa.int64(), "target": pa.int64()})
    with pq.ParquetWriter(folder / "edges.parquet", schema, use_dictionary=False) as writer:
        for source, target in edges_of(scale, count):
            writer.write_table(pa.table({"source": source, "target": target}, schema))
    with pq.ParquetWriter(folder / "nodes.parquet", pa.schema({"id": pa.int64()})) as writer:
        for first in range(0, 1 << scale, _CHUNK):
            ids = np.arange(first, min(first + _CHUNK, 1 << scale))
            writer.write_table(pa.table({"id": ids}))
    return {"edges": count, "bytes": (folder / "edges.parquet").stat().st_size}


def import_tables(folder: Path) -> dict[str, Any]:
    """Import the tables, and remove them."""
    tables = GraphSource(
        "rmat",
        {"node": NodeSource(folder / "nodes.parquet")},
        (EdgeSource(("node", "to", "node"), folder / "edges.parquet"),),
    )
    import_graph(tables, folder / "graph", memory_bytes=IMPORT_BYTES)
    graph = Graph.open(folder / "graph")
    (folder / "edges.parquet").unlink()
    return {"edges": graph.num_edges(), "nodes": graph.num_nodes(), "bytes": graph.size_bytes}


def train(folder: Path, share: float) -> dict[str, Any]:
    """Train on a share of the batches of an epoch."""
    graph = Graph.open(folder / "graph")
    memory = TrainingMemory(MemoryConfig.model_validate(BUDGETS), folder / "run")
    began = time.monotonic()
    trainer = make_trainer(
        TRAINED, Assignment("walks", GraphView(graph, None), None, None, 0, None, memory=memory)
    )
    groups = trainer.begin_epoch(0)
    prepared_s = time.monotonic() - began
    pairs, began = 0, time.monotonic()
    wanted = max(1, round(share * groups))
    for group in range(wanted):
        pairs += trainer.train_batch(0, group)[1]
    seconds = time.monotonic() - began
    trainer.close()
    return {
        "prepared_s": round(prepared_s, 1),
        "groups": wanted,
        "pairs": pairs,
        "train_s": round(seconds, 1),
        "pairs_per_s": round(pairs / seconds),
        "walks_per_s": round(share * graph.num_nodes() * TRAINED.walks_per_node / seconds),
        "epoch_h": round(seconds * groups / wanted / 3600, 2),
        "budget_bytes": sum(BUDGETS.values()),
        "disk_s": disk_seconds(folder / "graph", 2 * 4 * graph.num_edges()),
    }


def disk_seconds(folder: Path, size: int) -> float:
    """Return how long this disk takes to read so many bytes, by a graph's largest file, past the cache."""
    largest = max(folder.rglob("*.npy"), key=lambda path: path.stat().st_size)
    began = time.monotonic()
    blocks = min(2048, max(1, largest.stat().st_size // MIB))
    command = ["dd", f"if={largest}", "of=/dev/null", "bs=1M", f"count={blocks}", "iflag=direct"]
    subprocess.run(command, check=True, capture_output=True)
    return round((time.monotonic() - began) * size / (blocks * MIB), 1)


STAGES = ("write", "import", "train")


def run_stage(stage: str, folder: Path, options: argparse.Namespace) -> dict[str, Any]:
    """Run a stage in this process."""
    with Peak() as peak:
        if stage == "write":
            found = write_tables(folder, options.scale, options.edges_of_node << options.scale)
        elif stage == "import":
            found = import_tables(folder)
        else:
            found = train(folder, options.share)
    return {**found, "seconds": peak.seconds, "peak_bytes": peak.bytes}


def main() -> None:
    """Print a JSON line for each stage."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--scale", type=int, default=26, help="the graph has 2^scale nodes")
    parser.add_argument("--edges-of-node", type=int, default=16)
    parser.add_argument("--share", type=float, default=0.01, help="of an epoch that is trained")
    parser.add_argument("--folder", type=Path, default=Path(tempfile.gettempdir()) / "billion_edges")
    parser.add_argument("--stage", choices=STAGES, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.stage:
        print(json.dumps(run_stage(options.stage, options.folder, options)))
        return
    options.folder.mkdir(parents=True, exist_ok=True)
    for stage in STAGES:
        command = [sys.executable, "-m", "benchmarks.billion_edges", "--stage", stage]
        command += ["--scale", str(options.scale), "--edges-of-node", str(options.edges_of_node)]
        command += ["--share", str(options.share), "--folder", str(options.folder)]
        done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
        found = json.loads(done.stdout.splitlines()[-1])
        print(json.dumps({"case": stage, "system": "graphbox", **found}), flush=True)


if __name__ == "__main__":
    main()

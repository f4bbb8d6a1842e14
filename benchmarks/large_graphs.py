"""Graphs larger than memory: written as tables, imported, split, and a share of an epoch trained.

An R-MAT graph with the quadrants of Graph500: of one node type, on which ``deepwalk`` walks; or with
``--model gnn`` its sources are users and its targets a quarter as many items, and ``gnn`` learns to
recommend. Each stage is a process of its own; printed are its rate, the peak of its anonymous resident memory
(``RssAnon``) and, beside training, the time in which this disk reads as many bytes as the edges have in both
directions.

    python -m benchmarks.large_graphs [--model deepwalk] [--scale 26] [--edges-of-node 16] [--share 0.01]
        [--folder FOLDER]
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
from graphbox.config import DeepWalkConfig, GraphNetworkConfig, MemoryConfig, RecommendTaskConfig
from graphbox.graph import EdgeSource, Graph, GraphSource, NodeSource
from graphbox.graph.ingest import import_graph
from graphbox.train import GraphView, load_split, make_split, save_split
from graphbox.train.assignment import Assignment, make_trainer
from graphbox.train.memory import TrainingMemory

_CHUNK = 1 << 22
IMPORT_BYTES = 3 << 30
BUDGETS = {
    "deepwalk": {"topology": 256 * MIB, "tables": 3072 * MIB, "passes": 128 * MIB},
    "gnn": {"topology": 256 * MIB, "tables": 1536 * MIB, "passes": 128 * MIB},
}
WALKS = DeepWalkConfig(
    kind="deepwalk", dim=32, walks_per_node=1, walk_length=40, window=5, epochs=1, learning_rate=0.1
)
NETWORK = GraphNetworkConfig.model_validate(
    {"kind": "gnn", "task": "buys", "dim": 32, "epochs": 1, "batch_size": 1024, "num_neighbors": (5, 3)}
)
TASK = RecommendTaskConfig(
    kind="recommend",
    node_type="user",
    target_type="item",
    relations=("buys",),
    test_fraction=0.01,
    validation_fraction=0.01,
)
USERS_OF_ITEM = 4


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


def node_tables(folder: Path, scale: int, model: str) -> dict[str, tuple[Path, int]]:
    """Return the table and the number of nodes of each node type."""
    sizes = {"node": 1 << scale} if model == "deepwalk" else {"user": 1 << scale, "item": _items(scale)}
    return {name: (folder / f"{name}.parquet", count) for name, count in sizes.items()}


def _items(scale: int) -> int:
    return (1 << scale) // USERS_OF_ITEM


def write_tables(folder: Path, scale: int, count: int, model: str) -> dict[str, Any]:
    """Write nodes and edges as Parquet."""
    schema = pa.schema({"source": pa.int64(), "target": pa.int64()})
    with pq.ParquetWriter(folder / "edges.parquet", schema, use_dictionary=False) as writer:
        for source, target in edges_of(scale, count):
            end = target if model == "deepwalk" else target // USERS_OF_ITEM
            writer.write_table(pa.table({"source": source, "target": end}, schema))
    for path, nodes in node_tables(folder, scale, model).values():
        with pq.ParquetWriter(path, pa.schema({"id": pa.int64()})) as writer:
            for first in range(0, nodes, _CHUNK):
                writer.write_table(pa.table({"id": np.arange(first, min(first + _CHUNK, nodes))}))
    return {"edges": count, "bytes": (folder / "edges.parquet").stat().st_size}


def import_tables(folder: Path, scale: int, model: str) -> dict[str, Any]:
    """Import the tables, and remove them."""
    edge_type = ("node", "to", "node") if model == "deepwalk" else ("user", "buys", "item")
    tables = GraphSource(
        "rmat",
        {name: NodeSource(path) for name, (path, _) in node_tables(folder, scale, model).items()},
        (EdgeSource(edge_type, folder / "edges.parquet"),),
    )
    import_graph(tables, folder / "graph", memory_bytes=IMPORT_BYTES)
    graph = Graph.open(folder / "graph")
    (folder / "edges.parquet").unlink()
    nodes = sum(graph.num_nodes(name) for name in graph.node_types)
    return {"edges": graph.num_edges(edge_type), "nodes": nodes, "bytes": graph.size_bytes}


def split_links(folder: Path) -> dict[str, Any]:
    """Split the links of the task; its arrays are in the folder while they are made."""
    scratch = folder / "split"
    scratch.mkdir(exist_ok=True)
    split = make_split(Graph.open(folder / "graph"), TASK, 0, scratch)
    save_split(split, folder / "split.npz")
    return {"bytes": (folder / "split.npz").stat().st_size}


def train(folder: Path, model: str, share: float) -> dict[str, Any]:
    """Train on a share of the batches of an epoch."""
    graph = Graph.open(folder / "graph")
    memory = TrainingMemory(MemoryConfig.model_validate(BUDGETS[model]), folder / "run")
    learns_links = model == "gnn"
    split = load_split(folder / "split.npz") if learns_links else None
    view = GraphView(graph, split, "train")
    began = time.monotonic()
    task = TASK if learns_links else None
    assignment = Assignment(model, view, split, task, 0, None, memory=memory)
    trainer = make_trainer(NETWORK if learns_links else WALKS, assignment)
    batches = trainer.begin_epoch(0)
    prepared_s = time.monotonic() - began
    examples, began = 0, time.monotonic()
    wanted = max(1, round(share * batches))
    for batch in range(wanted):
        examples += trainer.train_batch(0, batch)[1]
    seconds = time.monotonic() - began
    trainer.close()
    memory.remove_folders()
    edges = sum(graph.num_edges(each) for each in graph.edge_types)
    return {
        "model": model,
        "prepared_s": round(prepared_s, 1),
        "batches": wanted,
        "examples": examples,
        "train_s": round(seconds, 1),
        "examples_per_s": round(examples / seconds),
        "epoch_h": round((prepared_s + seconds * batches / wanted) / 3600, 2),
        "budget_bytes": sum(BUDGETS[model].values()),
        "disk_s": disk_seconds(folder / "graph", 2 * 4 * edges),
    }


def disk_seconds(folder: Path, size: int) -> float:
    """Return how long this disk takes to read so many bytes, by a graph's largest file, past the cache."""
    largest = max(folder.rglob("*.npy"), key=lambda path: path.stat().st_size)
    began = time.monotonic()
    blocks = min(2048, max(1, largest.stat().st_size // MIB))
    command = ["dd", f"if={largest}", "of=/dev/null", "bs=1M", f"count={blocks}", "iflag=direct"]
    subprocess.run(command, check=True, capture_output=True)
    return round((time.monotonic() - began) * size / (blocks * MIB), 1)


STAGES = ("write", "import", "split", "train")


def run_stage(stage: str, options: argparse.Namespace) -> dict[str, Any]:
    """Run a stage in this process."""
    folder, model, scale = options.folder, options.model, options.scale
    with Peak() as peak:
        if stage == "write":
            found = write_tables(folder, scale, options.edges_of_node << scale, model)
        elif stage == "import":
            found = import_tables(folder, scale, model)
        elif stage == "split":
            found = split_links(folder)
        else:
            found = train(folder, model, options.share)
    return {**found, "seconds": peak.seconds, "peak_bytes": peak.bytes}


def main() -> None:
    """Print a JSON line for each stage."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--model", choices=list(BUDGETS), default="deepwalk")
    parser.add_argument("--scale", type=int, default=26, help="the graph has 2^scale nodes")
    parser.add_argument("--edges-of-node", type=int, default=16)
    parser.add_argument("--share", type=float, default=0.01, help="of an epoch that is trained")
    parser.add_argument("--folder", type=Path, default=Path(tempfile.gettempdir()) / "large_graphs")
    parser.add_argument("--stage", choices=STAGES, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.stage:
        print(json.dumps(run_stage(options.stage, options)))
        return
    options.folder.mkdir(parents=True, exist_ok=True)
    for stage in STAGES:
        if stage == "split" and options.model == "deepwalk":
            continue
        command = [sys.executable, "-m", "benchmarks.large_graphs", "--stage", stage]
        command += ["--model", options.model]
        command += ["--scale", str(options.scale), "--edges-of-node", str(options.edges_of_node)]
        command += ["--share", str(options.share), "--folder", str(options.folder)]
        done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
        found = json.loads(done.stdout.splitlines()[-1])
        print(json.dumps({"case": stage, "system": "graphbox", **found}), flush=True)


if __name__ == "__main__":
    main()

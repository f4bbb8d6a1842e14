"""Training of GraphSAGE with its graph and its rows in memory, and on disk under a fifth of their size.

An R-MAT graph (skewed as real ones are; isolated nodes left out) whose nodes have a vector of 64 numbers and
a table row of 64 is trained to classify its nodes: two layers, 10 and 5 neighbours, batches of 512. Topology,
vectors and table are each given a fifth of what they take, by themselves and all at once; what is sampled
ahead has 64 MiB beside that. Rates are seeds per second of the epochs after the first, which fills caches;
`loss` is the last batch's: it is the same number wherever things are.

    python -m benchmarks.train_tiers [--quick] [--json] [--folder FOLDER] [--scale 21] [--batches 100]
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch

from benchmarks.rmat import rmat
from graphbox.config import ClassifyTaskConfig, GraphNetworkConfig, MemoryConfig
from graphbox.graph import EdgeSource, Graph, GraphSource, NodeSource
from graphbox.graph.ingest import import_graph
from graphbox.table.host_table import host_table
from graphbox.train import Assignment, ClassifySplit, GraphView, make_split
from graphbox.train.memory import TrainingMemory
from graphbox.train.network.classify import make_graph_network_trainer

WIDTH, CLASSES = 64, 8
SHARE = 5
"""Budgets are one part in so many of what there is."""

PASS_BYTES = 64 << 20
LEAST_TABLE_BYTES = 24 << 20
EPOCHS = 3
_ROWS_AT_A_TIME = 8192
TABLE_ROW_BYTES = WIDTH * 4 + 4 + 20
"""A row, the state of its optimizer, and its place in the index."""


@dataclass(frozen=True)
class Input:
    """Graph and task of the trainings, and the bytes of their parts."""

    graph: Graph
    split: ClassifySplit
    task: ClassifyTaskConfig
    sizes: dict[str, int]

    def memory(self, *parts: str) -> MemoryConfig:
        """Return budgets of a fifth for some parts; a table has what its buffers take at least."""
        budgets = {name: self.sizes[name] // SHARE for name in parts}
        if "tables" in budgets:
            budgets["tables"] = max(budgets["tables"], LEAST_TABLE_BYTES)
        return MemoryConfig.model_validate({**budgets, "passes": PASS_BYTES})


def make_input(folder: Path, scale: int) -> Input:
    """Import an R-MAT graph whose nodes have a vector and a label that its own numbers tell."""
    if not (folder / "graph").exists():
        whole = rmat(scale)
        connected = whole.connected()
        number = np.zeros(whole.num_nodes, np.int64)
        number[connected] = np.arange(len(connected))
        target = np.repeat(np.arange(whole.num_nodes), np.diff(whole.indptr))
        generator = np.random.default_rng(0)
        vectors = generator.standard_normal((len(connected), WIDTH), dtype=np.float32)
        label = vectors[:, :CLASSES].argmax(axis=1)
        columns = {
            "id": np.arange(len(connected)),
            "label": pa.array([f"l{each}" for each in label]),
            "x": pa.FixedSizeListArray.from_arrays(pa.array(vectors.ravel()), WIDTH),
        }
        pq.write_table(pa.table(columns), folder / "nodes.parquet")
        edges = {"source": number[whole.indices], "target": number[target]}
        pq.write_table(pa.table(edges), folder / "edges.parquet")
        features: Any = {"label": "categorical", "x": "vector"}
        source = GraphSource(
            "rmat",
            {"node": NodeSource(folder / "nodes.parquet", features=features)},
            (EdgeSource(("node", "links", "node"), folder / "edges.parquet"),),
        )
        import_graph(source, folder / "graph")
    graph = Graph.open(folder / "graph")
    task = ClassifyTaskConfig(kind="classify", node_type="node", label="label")
    split = make_split(graph, task, 0)
    assert isinstance(split, ClassifySplit)  # noqa: S101 - for the type checker
    nodes, edges_count = graph.num_nodes("node"), graph.num_edges(("node", "links", "node"))
    sizes = {
        "topology": edges_count * 4 + nodes * 8,
        "features": nodes * WIDTH * 4,
        "tables": nodes * TABLE_ROW_BYTES,
    }
    return Input(graph, split, task, sizes)


def train(given: Input, memory: TrainingMemory, batch_size: int, batches: int) -> dict[str, Any]:
    """Return what is printed of a training."""
    config = GraphNetworkConfig.model_validate(
        {
            "kind": "gnn",
            "task": "label",
            "dim": WIDTH,
            "epochs": EPOCHS,
            "batch_size": batch_size,
            "num_neighbors": (10, 5),
            "embeddings": ("node",),
            "reverse": False,
            "dropout": 0.0,
        }
    )
    view = GraphView(given.graph, given.split, "train")
    assignment = Assignment("sage", view, given.split, given.task, 0, 1, memory=memory)
    trainer = make_graph_network_trainer(config, assignment)
    tables = [host_table(each, "figures of tiers") for each in trainer.tables().values()]
    for table in tables:  # as after the first epoch over all nodes: each has its row
        for first in range(0, view.num_nodes("node"), _ROWS_AT_A_TIME):
            table.pull(np.arange(first, min(first + _ROWS_AT_A_TIME, view.num_nodes("node"))))
    rates, loss = [], 0.0
    for epoch in range(EPOCHS):
        count = min(batches, trainer.begin_epoch(epoch))
        if epoch == 1:
            assignment.clock.restart()
            cpu = time.process_time()
        started, seeds = time.perf_counter(), 0
        for batch in range(count):
            loss, size = trainer.train_batch(epoch, batch)
            seeds += size
        rates.append(seeds / (time.perf_counter() - started))
    cpu = time.process_time() - cpu
    stages = assignment.clock.seconds()
    wall = sum(stages.values())
    tiers = [each.tier_statistics() for each in tables if each.path is not None]
    line = {
        "rate": statistics.median(rates[1:]),
        "min": min(rates[1:]),
        "max": max(rates[1:]),
        "repeats": EPOCHS - 1,
        "loss": loss,
        "cores": round(cpu / wall, 2),
        "stages": {name: round(each / wall, 3) for name, each in stages.items() if each},
    }
    if tiers:
        hits, misses = sum(each.hits for each in tiers), sum(each.misses for each in tiers)
        line["table_hit_rate"] = round(hits / (hits + misses), 3)
    for table in tables:
        table.close()
    return line


def results(folder: Path, scale: int, batch_size: int, batches: int) -> Iterator[dict[str, Any]]:
    """Yield a line for the training in memory and each that is in part on disk."""
    given = make_input(folder, scale)
    nodes = given.graph.num_nodes("node")
    case = f"GraphSAGE, R-MAT {scale}, {nodes:,} nodes, batches of {batch_size}"
    in_memory = 0.0
    for parts in ((), ("topology",), ("features",), ("tables",), ("topology", "features", "tables")):
        rows = folder / f"rows-{len(parts)}-{'-'.join(parts)}"
        memory = TrainingMemory(given.memory(*parts), rows) if parts else TrainingMemory()
        memory.clear()
        line = train(given, memory, batch_size, batches)
        memory.clear()
        in_memory = in_memory or line["rate"]
        on_disk = f"{' and '.join(parts) if len(parts) < 3 else 'all'} on disk"
        yield {
            "case": case,
            "system": f"graphbox, {on_disk if parts else 'in memory'}",
            "threads": 1,
            "unit": "seeds/s",
            **line,
            "of_memory": round(line["rate"] / in_memory, 3),
        }


def main() -> None:
    """Train and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="a small graph: checks that it runs")
    parser.add_argument("--json", action="store_true", help="one JSON object per line")
    parser.add_argument("--folder", type=Path, help="on the disk to measure")
    parser.add_argument("--scale", type=int, default=21, help="2^scale nodes, isolated ones too")
    parser.add_argument("--batches", type=int, default=100, help="of each epoch")
    options = parser.parse_args()
    torch.set_num_threads(1)
    scale, batch_size, batches = (17, 64, 40) if options.quick else (options.scale, 512, options.batches)
    with tempfile.TemporaryDirectory(dir=options.folder) as temporary:
        for line in results(Path(temporary), scale, batch_size, batches):
            if options.json:
                print(json.dumps(line), flush=True)
                continue
            stages = "".join(f" {name} {share:.0%}" for name, share in line["stages"].items())
            rate = f"{line['rate']:8,.0f} seeds/s {line['of_memory']:4.0%}"
            print(f"{line['case']}: {line['system']:32} {rate}{stages}")


if __name__ == "__main__":
    main()

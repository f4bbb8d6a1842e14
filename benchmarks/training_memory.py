"""Peak memory of a whole training under budgets, beside the sum of the budgets and the process's base.

A skewed graph of 1 M nodes with vectors of 128 numbers and 8 M edges is trained to classify its nodes,
validated, and embedded at the end, with topology, features and rows under budgets. The base is the peak of
the same training of a graph of 30,000 nodes, whose batches are as large. Peaks are resident bytes of a
process of its own, without pages of mapped files, which the system takes back when it needs them.

    python -m benchmarks.training_memory [--nodes 1000000] [--folder FOLDER] [--repeats 1]
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any, Self

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from graphbox.config import ClassifyTaskConfig, GraphNetworkConfig, MemoryConfig
from graphbox.graph import EdgeSource, Graph, GraphSource, NodeSource
from graphbox.graph.ingest import import_graph

WIDTH, CLASSES, EDGES_OF_NODE, DIM = 128, 8, 8, 32
MIB = 1 << 20
BASE_NODES = 30_000
BUDGETS = {"topology": 16 * MIB, "features": 64 * MIB, "tables": 48 * MIB, "passes": 16 * MIB}
"""144 MiB in all, for 32 MB of edges, 512 MB of features and 160 MB of rows."""


def make_graph(folder: Path, nodes: int) -> Path:
    """Import a graph whose nodes have a vector and a label that its first numbers tell."""
    if not (folder / "graph").exists():
        folder.mkdir(parents=True, exist_ok=True)
        generator = np.random.default_rng(0)
        vectors = generator.standard_normal((nodes, WIDTH), dtype=np.float32)
        columns = {
            "id": np.arange(nodes),
            "label": pa.array([f"l{each}" for each in vectors[:, :CLASSES].argmax(axis=1)]),
            "x": pa.FixedSizeListArray.from_arrays(pa.array(vectors.ravel()), WIDTH),
        }
        pq.write_table(pa.table(columns), folder / "nodes.parquet")
        del vectors, columns
        source = generator.integers(0, nodes, nodes * EDGES_OF_NODE)
        target = (nodes * generator.random(nodes * EDGES_OF_NODE) ** 3).astype(np.int64)
        pq.write_table(pa.table({"source": source, "target": target}), folder / "edges.parquet")
        features: Any = {"label": "categorical", "x": "vector"}
        tables = GraphSource(
            "graph",
            {"node": NodeSource(folder / "nodes.parquet", features=features)},
            (EdgeSource(("node", "links", "node"), folder / "edges.parquet"),),
        )
        import_graph(tables, folder / "graph")
    return folder / "graph"


def train(graph_folder: Path, run_folder: Path) -> dict[str, Any]:
    """Train in this process and return its peak."""
    from graphbox.train import fit, make_split

    graph = Graph.open(graph_folder)
    task = ClassifyTaskConfig(kind="classify", node_type="node", label="label")
    settings = {
        "kind": "gnn",
        "task": "label",
        "dim": DIM,
        "epochs": 1,
        "batch_size": 512,
        "num_neighbors": (10, 5),
        "embeddings": ("node",),
        "reverse": False,
    }
    peak = Peak()
    with peak:
        fit(
            graph,
            make_split(graph, task, 0),
            name="gnn",
            config=GraphNetworkConfig.model_validate(settings),
            task=task,
            run_folder=run_folder,
            seed=0,
            memory=MemoryConfig.model_validate(BUDGETS),
        )
    return {"peak_bytes": peak.bytes, "at": peak.at_s, "seconds": peak.seconds}


class Peak:
    """Watches the anonymous resident memory of this process."""

    def __init__(self) -> None:
        self.bytes, self.at_s, self.seconds = 0, 0.0, 0.0
        self._over = threading.Event()
        self._began = 0.0
        self._thread = threading.Thread(target=self._watch)

    def __enter__(self) -> Self:
        self._began = time.monotonic()
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()
        self.seconds = round(time.monotonic() - self._began, 1)

    def _watch(self) -> None:
        while not self._over.wait(0.02):
            text = Path("/proc/self/status").read_text()
            kib = next(line.split()[1] for line in text.splitlines() if line.startswith("RssAnon:"))
            if int(kib) * 1024 > self.bytes:
                self.bytes = int(kib) * 1024
                self.at_s = round(time.monotonic() - self._began, 1)


def measured(graph_folder: Path) -> dict[str, Any]:
    """Return what a training in a process of its own took."""
    with tempfile.TemporaryDirectory(dir=graph_folder.parent) as run_folder:
        command = [
            sys.executable,
            "-m",
            "benchmarks.training_memory",
            "--train",
            str(graph_folder),
            run_folder,
        ]
        done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
        found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
        return found


def main() -> None:
    """Print a JSON line: the peak, the base, the budgets, and by how much the peak exceeds the rest."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--nodes", type=int, default=1_000_000)
    parser.add_argument("--folder", type=Path, default=Path(tempfile.gettempdir()) / "training_memory")
    parser.add_argument("--repeats", type=int, default=1)
    parser.add_argument("--train", nargs=2, type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.train:
        print(json.dumps(train(*arguments.train)))
        return
    large = make_graph(arguments.folder / str(arguments.nodes), arguments.nodes)
    small = make_graph(arguments.folder / str(BASE_NODES), BASE_NODES)
    for _ in range(arguments.repeats):
        base, whole = measured(small), measured(large)
        bound = base["peak_bytes"] + sum(BUDGETS.values())
        print(
            json.dumps(
                {
                    "case": "peak of a training under budgets",
                    "system": "graphbox",
                    "nodes": arguments.nodes,
                    "peak_bytes": whole["peak_bytes"],
                    "peak_at_s": whole["at"],
                    "seconds": whole["seconds"],
                    "base_bytes": base["peak_bytes"],
                    "budget_bytes": sum(BUDGETS.values()),
                    "over_bound": round(whole["peak_bytes"] / bound - 1, 3),
                }
            ),
            flush=True,
        )


if __name__ == "__main__":
    main()

"""What `graphbox plan` predicts of trainings beside what they take: the most resident memory of the process.

Five sizes for each kind of model, each training in a process of its own, over a graph that is there already.
One line for each figure: `system` is `plan` for what is predicted and `graphbox` for what was measured, `off`
their relation.

    python -m benchmarks.plan_training [--quick] [--json] [--only KIND]
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.plan import Figure

SIZES = (20_000, 40_000, 80_000, 160_000, 320_000)
QUICK_SIZES = (20_000, 60_000)
EDGES_PER_NODE = 8

MODELS: Mapping[str, Mapping[str, Any]] = {
    "deepwalk": {"kind": "deepwalk", "walks_per_node": 2, "walk_length": 10, "window": 2},
    "metapath2vec": {"kind": "metapath2vec", "metapaths": [[["node", "links", "node"]]], "epochs": 1},
    "lightgcn": {"kind": "lightgcn", "task": "next", "epochs": 1, "batch_size": 8192, "candidates": 512},
    "matrix_factorization": {
        "kind": "matrix_factorization",
        "task": "next",
        "epochs": 1,
        "batch_size": 8192,
        "candidates": 512,
    },
    "sage": {"kind": "sage", "task": "next", "epochs": 1, "holdout_fraction": 0.02},
    "gnn": {"kind": "gnn", "task": "class", "epochs": 2},
    "gnn_sampled": {
        "kind": "gnn",
        "task": "class",
        "epochs": 1,
        "batch_size": 2048,
        "num_neighbors": [5, 5],
        "embeddings": ["node"],
    },
}
TASKS: Mapping[str, Mapping[str, Any]] = {
    "next": {"kind": "recommend", "node_type": "node", "relations": ["links"], "baselines": ["popular"]},
    "class": {"kind": "classify", "node_type": "node", "label": "label"},
}


def write_tables(folder: Path, nodes: int, seed: int = 0) -> None:
    """Write a graph of one type: nodes with a label and a vector, and edges between them."""
    generator = np.random.default_rng(seed)
    vectors = generator.random((nodes, 16), dtype=np.float32)
    columns = {
        "id": np.arange(nodes),
        "label": [f"class-{each}" for each in generator.integers(0, 8, nodes)],
        "x": pa.FixedSizeListArray.from_arrays(pa.array(vectors.ravel()), 16),
    }
    pq.write_table(pa.table(columns), folder / "nodes.parquet")
    ends = generator.integers(0, nodes, (2, nodes * EDGES_PER_NODE))
    pq.write_table(pa.table({"source": ends[0], "target": ends[1]}), folder / "edges.parquet")


def run_file(folder: Path, name: str) -> Path:
    """Write the run file of a model and return its path; JSON is YAML."""
    model = MODELS[name]
    features = {"label": "categorical", "x": "vector"}
    document = {
        "version": 1,
        "name": name.replace("_", "-"),
        "threads": 1,
        "graph": {
            "name": "planned",
            "nodes": {"node": {"path": "nodes.parquet", "features": features}},
            "edges": [{"type": ["node", "links", "node"], "path": "edges.parquet"}],
        },
        "tasks": {model["task"]: TASKS[model["task"]]} if "task" in model else {},
        "models": {name: model},
    }
    path = folder / f"{name}.yaml"
    path.write_text(json.dumps(document))
    return path


def compare(folder: Path, nodes: int, name: str) -> Figure:
    """Plan and train a model, each in a process of its own; the graph is there."""
    path = run_file(folder, name)
    planned = _graphbox(["-C", str(folder / "workspace"), "plan", str(path), "--json"])
    report = _graphbox(["-C", str(folder / "workspace"), "train", str(path), "--fresh", "--json", "-q"])
    (taken,) = (stage["peak_bytes"] for stage in report["stages"] if stage["name"] == "train")
    predicted = planned.get("training", {}).get(name, {}).get("peak_bytes", 0)
    return Figure(f"train {name}, {nodes:,} nodes: peak memory", "bytes", predicted, taken)


def _graphbox(options: list[str]) -> Any:
    done = subprocess.run(
        [sys.executable, "-m", "graphbox", *options], capture_output=True, text=True, check=False
    )
    if done.returncode or not done.stdout:
        raise SystemExit(done.stdout + done.stderr)
    return json.loads(done.stdout)


def main() -> None:
    """Compare all models at all sizes and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="two sizes")
    parser.add_argument("--json", action="store_true", help="a JSON document on each line")
    parser.add_argument("--only", choices=list(MODELS), help="one of the models")
    options = parser.parse_args()
    for nodes in QUICK_SIZES if options.quick else SIZES:
        with tempfile.TemporaryDirectory() as temporary:
            folder = Path(temporary)
            write_tables(folder, nodes)
            first = str(run_file(folder, "gnn"))
            _graphbox(["-C", str(folder / "workspace"), "import", first, "--json", "-q"])
            for name in [options.only] if options.only else MODELS:
                figure = compare(folder, nodes, name)
                if options.json:
                    for line in figure.lines():
                        print(json.dumps(line), flush=True)
                    continue
                print(
                    f"{figure.case:60} predicted {figure.predicted:16,.0f} measured {figure.measured:16,.0f} "
                    f"{figure.predicted / figure.measured:.2f}",
                    flush=True,
                )


if __name__ == "__main__":
    main()

"""A recommend task whose graph is on disk, beside the same training in memory.

Users and items with skewed degrees; ``gnn`` learns to recommend for an epoch, all in memory, and with a fifth
of the topology and a fifth of the rows, with 48 MiB of buffers. Printed are seconds, recall, and the peaks
of anonymous resident memory (``RssAnon``) of splitting and of training, each in a process of its own, in
turns. ``over_bound`` is what the peak exceeds the sum of the budgets and the base by; the base is the peak of
the same training of a small graph in memory. ``planned_bytes`` is what ``graphbox plan`` predicts, without
the pages of libraries that are mapped from files.

    python -m benchmarks.links_on_disk [--edges 1000000] [--repeats 3] [--share 5] [--folder FOLDER]
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.training_memory import MIB, Peak
from graphbox.config import GraphConfig, GraphNetworkConfig, MemoryConfig, RecommendTaskConfig, RunConfig
from graphbox.graph import EdgeSource, Graph, GraphSource, NodeSource
from graphbox.graph.ingest import import_graph

DIM, BATCH = 32, 1024
BASE_EDGES = 250_000
TASK = RecommendTaskConfig(
    kind="recommend",
    node_type="user",
    target_type="item",
    relations=("likes",),
    test_fraction=0.01,
    validation_fraction=0.01,
)
MODEL = GraphNetworkConfig.model_validate(
    {
        "kind": "gnn",
        "task": "likes",
        "layer": "sage",
        "dim": DIM,
        "epochs": 1,
        "batch_size": BATCH,
        "num_neighbors": (5, 3),
        "links": {"negatives": 256},
    }
)
EDGES_OF_USER, USERS_OF_ITEM = 16, 4
_CHUNK = 1 << 22


def make_graph(folder: Path, edges: int) -> Path:
    """Import a graph of users and items; each user likes items of its own community more than others."""
    if not (folder / "graph").exists():
        folder.mkdir(parents=True, exist_ok=True)
        users, items = edges // EDGES_OF_USER, edges // EDGES_OF_USER // USERS_OF_ITEM
        for name, count in (("user", users), ("item", items)):
            pq.write_table(pa.table({"id": np.arange(count)}), folder / f"{name}.parquet")
        generator = np.random.default_rng(0)
        schema = pa.schema({"source": pa.int64(), "target": pa.int64()})
        with pq.ParquetWriter(folder / "likes.parquet", schema) as writer:
            for first in range(0, edges, _CHUNK):
                count = min(_CHUNK, edges - first)
                user = (users * generator.random(count) ** 1.5).astype(np.int64)
                skewed = (items * generator.random(count) ** 3).astype(np.int64)
                near = (user * items // users + (64 * generator.random(count) ** 2).astype(np.int64)) % items
                item = np.where(generator.random(count) < 0.5, near, skewed)
                writer.write_table(pa.table({"source": user, "target": item}, schema))
        tables = GraphSource(
            "likes",
            {name: NodeSource(folder / f"{name}.parquet") for name in ("user", "item")},
            (EdgeSource(("user", "likes", "item"), folder / "likes.parquet"),),
        )
        import_graph(tables, folder / "graph")
    return folder / "graph"


def budgets_of(graph: Graph, share: int) -> dict[str, int]:
    """Return budgets of one part of ``share``: of the edges in both directions, and of all rows."""
    edges = 2 * 4 * graph.num_edges(("user", "likes", "item"))
    rows = (graph.num_nodes("user") + graph.num_nodes("item")) * (4 * DIM + 4)
    return {"topology": edges // share, "tables": rows // share + 48 * MIB, "passes": 64 * MIB}


def planned_bytes(graph: Graph, memory: MemoryConfig) -> int:
    """Return the predicted peak, without pages of libraries that are mapped from files."""
    from graphbox.train.plan import GraphCounts, plan_trainings

    config = RunConfig(
        version=1,
        name="links",
        graph=GraphConfig(name="likes"),
        tasks={"likes": TASK},
        models={"gnn": MODEL},
        memory=memory,
    )
    plan = plan_trainings(config, GraphCounts.of(graph))["gnn"]
    assert plan is not None  # noqa: S101 - for the type checker
    return plan.peak_bytes - plan.common_bytes


def train(graph_folder: Path, run_folder: Path, share: int) -> dict[str, Any]:
    """Train in this process and return what it took; a share of 0: in memory."""
    from graphbox.train import fit, load_split, make_split, save_split
    from graphbox.train.evaluate import evaluate_trained

    graph = Graph.open(graph_folder)
    budgets = budgets_of(graph, share) if share else {}
    memory = MemoryConfig.model_validate(budgets)
    with Peak() as splitting:
        save_split(make_split(graph, TASK, 0, run_folder if share else None), run_folder / "split.npz")
    split = load_split(run_folder / "split.npz")  # as a run does
    trained_on: list[Any] = []
    with Peak() as training:
        model = fit(
            graph,
            split,
            name="gnn",
            config=MODEL,
            task=TASK,
            run_folder=run_folder,
            seed=0,
            memory=memory,
            progress=trained_on.append,
        )
    report = evaluate_trained(graph, split, TASK, model)
    epoch = json.loads((run_folder / "trained" / "gnn" / "outcome.json").read_text())
    return {
        "split_peak_bytes": splitting.bytes,
        "peak_bytes": training.bytes,
        "peak_at_s": training.at_s,
        "seconds": training.seconds,
        "budget_bytes": sum(budgets.values()),
        "planned_bytes": planned_bytes(graph, memory),
        "edges": graph.num_edges(("user", "likes", "item")),
        "recall": round(float(report[f"recall@{TASK.k}"]), 4),
        "outcome": {key: epoch[key] for key in ("epochs", "seconds", "examples_per_second") if key in epoch},
    }


def measured(graph_folder: Path, share: int) -> dict[str, Any]:
    """Return what a training in a process of its own took."""
    with tempfile.TemporaryDirectory(dir=graph_folder.parent) as run_folder:
        command = [sys.executable, "-m", "benchmarks.links_on_disk", "--train", str(graph_folder)]
        command += [run_folder, str(share)]
        began = time.monotonic()
        done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
        found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
        return {**found, "wall_s": round(time.monotonic() - began, 1)}


def main() -> None:
    """Print a JSON line for each training, and one of the medians."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--edges", type=int, default=1_000_000)
    parser.add_argument("--share", type=int, default=5)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--only", choices=("memory", "disk"))
    parser.add_argument("--folder", type=Path, default=Path(tempfile.gettempdir()) / "links_on_disk")
    parser.add_argument("--train", nargs=3, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.train:
        graph, run, share = arguments.train
        print(json.dumps(train(Path(graph), Path(run), int(share))))
        return
    graph_folder = make_graph(arguments.folder / str(arguments.edges), arguments.edges)
    shares = {"memory": 0, "disk": arguments.share}
    small = make_graph(arguments.folder / str(BASE_EDGES), BASE_EDGES)
    base_bytes = measured(small, 0)["peak_bytes"]
    seconds: dict[str, list[float]] = {name: [] for name in shares if arguments.only in (None, name)}
    for _ in range(arguments.repeats):
        for name, times in seconds.items():
            found = measured(graph_folder, shares[name])
            times.append(found["seconds"])
            if shares[name]:
                bound = base_bytes + found["budget_bytes"]
                found |= {"base_bytes": base_bytes, "over_bound": round(found["peak_bytes"] / bound - 1, 3)}
            print(
                json.dumps({"case": "recommend by gnn", "system": f"graphbox, {name}", **found}), flush=True
            )
    medians = {name: statistics.median(each) for name, each in seconds.items()}
    ratio = {"rate_of_memory": round(medians["memory"] / medians["disk"], 3)} if len(medians) == 2 else {}
    print(json.dumps({"case": "median seconds", **medians, **ratio}))


if __name__ == "__main__":
    main()

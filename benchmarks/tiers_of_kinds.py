"""Training rate of every kind that keeps to budgets: all in memory, and with a fifth of what there is.

Users buy items (skewed, 500,000 nodes, 4 M edges), and a log of 1 M rows is clicked. Each kind is trained
for some batches in processes of their own, in turns: in memory, and with topology, features and rows under
budgets of a fifth of what they take (rows: of the least that ``graphbox plan`` says, where that is more). A
rate is the examples per second of an epoch: what the epoch begins with, and its batches at the median time of
those that were trained. ``read_mib`` is what a batch reads from the disk. ``equal`` says whether rows and
losses are the same bits.

    python -m benchmarks.tiers_of_kinds [--only KIND] [--batches 20] [--repeats 3] [--folder FOLDER]
"""

from __future__ import annotations

import argparse
import hashlib
import json
import statistics
import subprocess
import sys
import tempfile
import time
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch

from benchmarks.training_memory import MIB, Peak
from graphbox.config import MemoryConfig, RunConfig
from graphbox.graph import EdgeSource, Graph, GraphSource, NodeSource
from graphbox.graph.ingest import import_graph

SHARE = 5
USERS, ITEMS, EDGES, ROWS, VALUES = 400_000, 100_000, 4_000_000, 1_000_000, 300_000
WIDTH, CLASSES, DIM = 32, 8, 64
BUYS = ["user", "buys", "item"]
PASS_BYTES = 64 * MIB
WARM_UP_BATCHES = 5

TASKS: dict[str, dict[str, Any]] = {
    "taste": {"kind": "classify", "node_type": "user", "label": "taste"},
    "item": {"kind": "recommend", "node_type": "user", "target_type": "item", "relations": ["buys"]},
    "sale": {
        "kind": "predict_links",
        "node_type": "user",
        "target_type": "item",
        "relations": ["buys"],
        "split": {"kind": "random"},
    },
    "triple": {"kind": "complete", "relations": [BUYS]},
    "friend": {"kind": "recommend", "node_type": "user", "relations": ["knows"]},
    "click": {"kind": "click", "node_type": "row", "label": "clicked", "split": {"kind": "random"}},
}
_WALKS = {"dim": DIM, "walk_length": 20, "walks_per_node": 1}
_NETWORK = {"kind": "gnn", "dim": DIM, "num_neighbors": [10, 5], "embeddings": ["item"], "batch_size": 512}
_TRIPLES = {"task": "triple", "dim": DIM, "batch_size": 512, "candidates": 512, "loss": "sampled_softmax"}
_CLICKS = {"task": "click", "dim": 16, "batch_size": 1024}
MODELS: dict[str, dict[str, Any]] = {
    "deepwalk": {"kind": "deepwalk", **_WALKS},
    "node2vec": {"kind": "node2vec", **_WALKS, "p": 0.5, "q": 2.0},
    "metapath2vec": {"kind": "metapath2vec", **_WALKS, "metapaths": [[BUYS, ["item", "bought_by", "user"]]]},
    "line": {"kind": "line", "dim": DIM},
    "gnn, classify": {**_NETWORK, "task": "taste"},
    "gnn, recommend": {**_NETWORK, "task": "item", "embeddings": ["user", "item"]},
    "gnn, predict_links": {**_NETWORK, "task": "sale"},
    "sage": {"kind": "sage", "task": "friend", "dim": DIM, "num_neighbors": 8},
    "matrix_factorization": {"kind": "matrix_factorization", "task": "item", "dim": DIM},
    "distmult": {"kind": "distmult", **_TRIPLES},
    "complex": {"kind": "complex", **_TRIPLES},
    "transe": {"kind": "transe", **_TRIPLES},
    "rotate": {"kind": "rotate", **_TRIPLES},
    "deepfm": {"kind": "deepfm", **_CLICKS},
    "dcn": {"kind": "dcn", **_CLICKS},
    "wide_and_deep": {"kind": "wide_and_deep", **_CLICKS},
}
"""A model of each kind that has budgets, by name."""


def make_graph(folder: Path, name: str) -> Path:
    """Import the graph that a model learns from, unless it is there."""
    path = folder / ("log" if MODELS[name].get("task") == "click" else "market")
    if path.exists():
        return path
    folder.mkdir(parents=True, exist_ok=True)
    source = _log(folder) if path.name == "log" else _market(folder)
    import_graph(source, path)
    return path


def _log(folder: Path) -> GraphSource:
    """Write a log of clicks."""
    generator = np.random.default_rng(1)
    log: dict[str, Any] = {"id": np.arange(ROWS), "clicked": generator.random(ROWS) < 0.3}
    for name in ("ad", "page", "device"):
        log[name] = pa.array((VALUES * generator.random(ROWS) ** 2).astype(np.int64).astype(str))
    pq.write_table(pa.table(log), folder / "row.parquet")
    features: Any = {
        "clicked": "boolean",
        "ad": "categorical",
        "page": "categorical",
        "device": "categorical",
    }
    return GraphSource("log", {"row": NodeSource(folder / "row.parquet", features=features)}, ())


def _market(folder: Path) -> GraphSource:
    """Write users who buy items and know each other."""
    generator = np.random.default_rng(0)
    vectors = generator.standard_normal((USERS, WIDTH), dtype=np.float32)
    users = {
        "id": np.arange(USERS),
        "taste": pa.array([f"t{each}" for each in vectors[:, :CLASSES].argmax(axis=1)]),
        "x": pa.FixedSizeListArray.from_arrays(pa.array(vectors.ravel()), WIDTH),
    }
    pq.write_table(pa.table(users), folder / "user.parquet")
    pq.write_table(pa.table({"id": np.arange(ITEMS)}), folder / "item.parquet")
    ends = {"buys": (USERS, ITEMS, EDGES), "knows": (USERS, USERS, EDGES // 4)}
    for name, (sources, targets, count) in ends.items():
        source = (sources * generator.random(count) ** 1.5).astype(np.int64)
        target = (targets * generator.random(count) ** 3).astype(np.int64)
        pq.write_table(pa.table({"source": source, "target": target}), folder / f"{name}.parquet")
    features: Any = {"taste": "categorical", "x": "vector"}
    return GraphSource(
        "market",
        {
            "user": NodeSource(folder / "user.parquet", features=features),
            "item": NodeSource(folder / "item.parquet"),
        },
        (
            EdgeSource(("user", "buys", "item"), folder / "buys.parquet", reverse="bought_by"),
            EdgeSource(("user", "knows", "user"), folder / "knows.parquet"),
        ),
    )


def run_of(name: str, memory: dict[str, int]) -> RunConfig:
    """Return the run file of a model."""
    document = {
        "version": 1,
        "name": "tiers",
        "graph": {"name": "market", "nodes": {"user": {}}, "edges": []},
        "tasks": TASKS,
        "models": {"model": MODELS[name]},
        "memory": memory,
    }
    return RunConfig.model_validate_json(json.dumps(document))


def budgets_of(name: str, graph: Graph) -> dict[str, int]:
    """Return a fifth of what a model keeps in memory of each kind that it has a budget of."""
    from graphbox.train.plan import GraphCounts
    from graphbox.train.plan.footprint import footprint_of
    from graphbox.train.plan.table_budget import least_budget

    run = run_of(name, {})
    model, counts = run.models["model"], GraphCounts.of(graph)
    footprint = footprint_of(model, counts, run)
    assert footprint is not None  # noqa: S101 - those here have one
    tables = footprint.table_rows()
    rows = sum(4 * max(each.rows, VALUES) * each.dim for each in tables)
    sizes = {
        "topology": 2 * 4 * (EDGES + EDGES // 4),
        "features": 4 * WIDTH * USERS,
        "tables": max(rows, SHARE * least_budget(tables, with_batches=True)) if tables else 0,
    }
    found = {kind: size // SHARE for kind, size in sizes.items() if kind in model.BUDGETS}
    return {**found, "passes": PASS_BYTES} if "topology" in found else found


def train(graph_folder: Path, run_folder: Path, name: str, batches: int, *, in_tiers: bool) -> dict[str, Any]:
    """Train some batches in this process, and return what they took and what was learnt."""
    from graphbox.train import Assignment, GraphView, make_split
    from graphbox.train.assignment import make_trainer
    from graphbox.train.computing import summing_in_order
    from graphbox.train.memory import TrainingMemory

    graph = Graph.open(graph_folder)
    run = run_of(name, budgets_of(name, graph) if in_tiers else {})
    model = run.models["model"]
    task = None if model.task is None else run.tasks[model.task]
    split = None if task is None else make_split(graph, task, 0)
    memory = TrainingMemory(run.memory if in_tiers else MemoryConfig(), run_folder)
    view = GraphView(graph, split, "test" if model.sees_validation else "train")
    losses, times, examples, read = [], [], 0, 0
    with Peak() as peak, summing_in_order(torch.device("cpu"), wanted=True):
        trainer = make_trainer(model, Assignment("model", view, split, task, 0, None, memory=memory))
        began = time.perf_counter()
        count = trainer.begin_epoch(0)
        times.append(time.perf_counter())
        for batch in range(min(count, WARM_UP_BATCHES + batches)):
            if batch == WARM_UP_BATCHES:
                read = _read_bytes()
            loss, number = trainer.train_batch(0, batch)
            losses.append(loss)
            times.append(time.perf_counter())
            examples = max(examples, number)
        read = _read_bytes() - read
    begin_s = times[0] - began
    batch_s = statistics.median(later - earlier for earlier, later in pairwise(times[WARM_UP_BATCHES:]))
    digest = hashlib.sha256(np.array(losses).tobytes())
    for table in trainer.tables().values():
        digest.update(np.ascontiguousarray(table.pull(np.arange(1000), create=False)).tobytes())
    trainer.close()
    memory.remove_folders()
    budgets = {key: value for key, value in run.memory.model_dump().items() if isinstance(value, int)}
    return {
        "rate": round(count * examples / (begin_s + count * batch_s)),
        "begin_s": round(begin_s, 2),
        "batch_ms": round(1000 * batch_s, 2),
        "read_mib": round(read / max(1, len(losses) - WARM_UP_BATCHES) / MIB, 1),
        "batches": count,
        "peak_mib": round(peak.bytes / MIB),
        "budgets_mib": {key: round(value / MIB) for key, value in budgets.items()},
        "digest": digest.hexdigest(),
    }


def _read_bytes() -> int:
    """Return what this process read from disks so far."""
    numbers = dict(line.split(": ") for line in Path("/proc/self/io").read_text().splitlines())
    return int(numbers["read_bytes"])


def measured(graph_folder: Path, name: str, batches: int, *, in_tiers: bool) -> dict[str, Any]:
    """Return what a training in a process of its own took."""
    with tempfile.TemporaryDirectory(dir=graph_folder.parent) as run_folder:
        command = [sys.executable, "-m", "benchmarks.tiers_of_kinds", "--folder", str(graph_folder.parent)]
        command += ["--train", run_folder, name, "tiers" if in_tiers else "memory", "--batches", str(batches)]
        done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
        found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
        return found


def main() -> None:
    """Print a JSON line for each kind."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--only", action="append", choices=list(MODELS))
    parser.add_argument("--batches", type=int, default=20)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--folder", type=Path, default=Path(tempfile.gettempdir()) / "tiers_of_kinds")
    parser.add_argument("--train", nargs=3, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.train:
        run, name, place = arguments.train
        graph_folder = make_graph(arguments.folder, name)
        print(json.dumps(train(graph_folder, Path(run), name, arguments.batches, in_tiers=place == "tiers")))
        return
    for name in arguments.only or MODELS:
        graph_folder = make_graph(arguments.folder, name)
        pairs = [
            [measured(graph_folder, name, arguments.batches, in_tiers=in_tiers) for in_tiers in (False, True)]
            for _ in range(arguments.repeats)
        ]
        ratios = [in_tiers["rate"] / in_memory["rate"] for in_memory, in_tiers in pairs]
        equal = len({each.pop("digest") for pair in pairs for each in pair}) == 1
        in_memory, in_tiers = pairs[-1]
        found = {
            "case": name,
            "rate_of_memory": round(statistics.median(ratios), 3),
            "ratios": [round(each, 3) for each in ratios],
            "equal": equal,
            "memory": in_memory,
            "tiers": in_tiers,
        }
        print(json.dumps(found), flush=True)


if __name__ == "__main__":
    main()

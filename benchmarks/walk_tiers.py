"""Walks, and training on them, with the lists on disk and a fifth of their bytes in memory.

python benchmarks/walk_tiers.py [--quick] [--json] [--folder FOLDER] [--scale SCALE]

An R-MAT graph; ``memory`` has all lists in memory. The two run in turns. The page cache is passed by
(O_DIRECT). Walks are made 2^18 at a time; training is DeepWalk, its first groups of batches.
"""

from __future__ import annotations

import argparse
import tempfile
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.measure import rate_of, show_in_turns
from benchmarks.rmat import rmat
from graphbox.config import DeepWalkConfig, MemoryConfig
from graphbox.graph import Graph
from graphbox.native import thread_count
from graphbox.sample import random_walk
from graphbox.train import GraphView
from graphbox.train.assignment import Assignment, make_trainer
from graphbox.train.memory import TrainingMemory

IN_MEMORY = 0.2
WALKERS = 1 << 18
LENGTH = 20
BACK = [("node", "rev_to", "node")]
WALKS: dict[str, dict[str, Any]] = {
    "uniform": {},
    "weighted": {"weighted": True},
    "node2vec": {"p": 0.5, "q": 2.0},
}
TRAINED = DeepWalkConfig(kind="deepwalk", dim=64, walk_length=40, epochs=1, learning_rate=0.1)
GROUPS = 24


def main() -> None:
    """Run all cases."""
    parser = argparse.ArgumentParser(description="walks over lists on disk")
    parser.add_argument("--quick", action="store_true", help="a small input: checks that it runs")
    parser.add_argument("--json", action="store_true", help="one JSON object per line")
    parser.add_argument("--folder", type=Path, default=Path(), help="where to write the graph")
    parser.add_argument("--scale", type=int, default=21, help="the graph has 2^scale nodes")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=options.folder, prefix="benchmark-walk-tiers-") as name:
        graph = make_graph(Path(name) / "graph", 14 if options.quick else options.scale)
        compare_walks(graph, 1 << 12 if options.quick else WALKERS, as_json=options.json)
        compare_training(graph, Path(name), 2 if options.quick else GROUPS, as_json=options.json)


def make_graph(path: Path, scale: int) -> Graph:
    """Write an undirected graph with weights; its lists are read by the reverse edge type."""
    made = rmat(scale)
    target = np.repeat(np.arange(made.num_nodes), np.diff(made.indptr))
    weight = np.random.default_rng(0).random(len(target), dtype=np.float32) + 0.1
    Graph.from_coo(made.indices, target, num_nodes=made.num_nodes, weight=weight).save(path)
    return Graph.open(path)


def compare_walks(graph: Graph, walkers: int, *, as_json: bool) -> None:
    """Print the rates of walks over lists in memory and on disk."""
    csc = graph.csc(graph.edge_types[0])
    start = np.random.default_rng(1).choice(np.flatnonzero(np.diff(csc.indptr)), walkers)
    for name, options in WALKS.items():
        list_bytes = csc.indptr.nbytes + csc.indices.nbytes * (2 if name == "weighted" else 1)
        tiered = graph.tiered(topology_bytes=int(IN_MEMORY * list_bytes))

        def steps(walked: Any, options: dict[str, Any] = options) -> int:
            walks = random_walk(walked, start, LENGTH, metapath=BACK, **options)
            return int((walks[:, 1:] >= 0).sum())

        systems = {"memory": rate_of(partial(steps, graph)), "graphbox": rate_of(partial(steps, tiered))}
        show_in_turns(f"walk {name}", "steps/s", systems, as_json=as_json, threads=thread_count(None))


def compare_training(graph: Graph, folder: Path, groups: int, *, as_json: bool) -> None:
    """Print the rates of training with lists in memory and on disk."""
    csc = graph.csc(graph.edge_types[0])
    topology = int(IN_MEMORY * (csc.indptr.nbytes + csc.indices.nbytes))
    trainers = {
        "memory": TrainingMemory(),
        "graphbox": TrainingMemory(MemoryConfig(topology=topology), folder / "run"),
    }
    systems = {}
    for name, memory in trainers.items():
        trainer = make_trainer(
            TRAINED, Assignment("walks", GraphView(graph, None), None, None, 0, None, memory=memory)
        )

        def pairs(trainer: Any = trainer) -> int:
            count = min(groups, trainer.begin_epoch(0))
            return sum(trainer.train_batch(0, group)[1] for group in range(count))

        systems[name] = rate_of(pairs)
    show_in_turns("train deepwalk", "pairs/s", systems, as_json=as_json, threads=thread_count(None))


if __name__ == "__main__":
    main()

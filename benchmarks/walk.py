"""Steps of random walks and skip-gram pairs per second.

python -m benchmarks.walk [--quick] [--json] [--scale 20 22] [--data FOLDER] [--only WORD]

``--data`` is a folder with ``kernel/graph.npz``; ``--only`` runs the cases whose name has the word.
torch-cluster and PyTorch Geometric run beside where they are installed.

The bound of walks counts two random lines for a step: indptr and indices; one more with weights, for the
alias table, and two more by time. That of node2vec's is the same, though walkers draw again where a neighbour
is not taken and search the neighbours of the node before: what they fall short of it is the price of p and q.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import torch

from benchmarks.measure import measure, random_read_limit, show
from benchmarks.rmat import Rmat, rmat
from benchmarks.walk_graphs import THERE_AND_BACK, ThereAndBack, bipartite, debian, kernel
from benchmarks.walk_systems import System, pyg_metapath, pyg_pairs, torch_cluster_walk
from graphbox.sample import (
    keep_probability,
    ppr_neighbors,
    random_walk,
    skip_gram_pairs,
    walk_pairs,
)

LINES_PER_STEP = 2.0
ALIAS_LINES, TIME_LINES = 1.0, 2.0
WINDOW = 5
LENGTH = 20

Int64Array: TypeAlias = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Attributed(Rmat):
    """With a weight, exponentially distributed, and a time, uniform, for each edge."""

    weight: npt.NDArray[np.float32]
    timestamp: Int64Array


def attributed(graph: Rmat) -> Attributed:
    """Return the graph with random weights and times."""
    rng = np.random.default_rng(0)
    weight = np.maximum(rng.exponential(size=len(graph.indices)), 1e-6).astype(np.float32)
    return Attributed(graph.indptr, graph.indices, weight, rng.integers(0, 1 << 30, len(graph.indices)))


@dataclass(frozen=True)
class Bench:
    """Options of the cases to run, and of their output.

    Attributes:
        as_json: print JSON lines.
        only: run the cases whose name has this in it.
    """

    as_json: bool
    only: str

    def wants(self, case: str) -> bool:
        """Return whether to run a case."""
        return self.only in case

    def run(
        self,
        case: str,
        unit: str,
        ours: Callable[[int, int], int],
        others: Sequence[System | None] = (),
        lines_per_unit: float | None = None,
    ) -> None:
        """Measure ``ours(repeat, threads)`` and the others on one thread and on two, then the bound."""
        for threads in (1, 2):
            torch.set_num_threads(threads)

            def work(repeat: int, threads: int = threads) -> int:
                return ours(repeat, threads)

            show(measure(case, "graphbox", unit, work, threads=threads), as_json=self.as_json)
            for system in others:
                if system is not None:
                    name, peer = system
                    line = measure(case, name, unit, peer, threads=threads, repeats=3)
                    show(line, as_json=self.as_json)
        if lines_per_unit is not None:
            show(random_read_limit(case, unit, lines_per_unit), as_json=self.as_json)


def main() -> None:
    """Run all cases."""
    parser = argparse.ArgumentParser(description="steps of random walks per second")
    parser.add_argument("--quick", action="store_true", help="small inputs: checks that it runs")
    parser.add_argument("--json", action="store_true", help="one JSON object per line")
    parser.add_argument("--scale", type=int, nargs="+", default=[20, 22], help="of the R-MAT graphs")
    parser.add_argument("--data", type=Path, help="folder with kernel/graph.npz")
    parser.add_argument("--only", default="", help="run the cases whose name has this in it")
    options = parser.parse_args()
    bench = Bench(options.json, options.only)
    walkers = 10_000 if options.quick else 100_000
    for name, graph in graphs_of_one_type([14] if options.quick else options.scale, options.data):
        start = np.random.default_rng(0).choice(graph.connected(), walkers)
        show_walks(bench, graph, start, name)
        if name.startswith("rmat"):
            show_choices(bench, attributed(graph), start, name)
            show_pairs(bench, graph, start, name)
    for both in graphs_of_two_types(20_000 if options.quick else 1_000_000, options.data):
        show_metapaths(bench, both, both.start(walkers))


def graphs_of_one_type(scales: Sequence[int], data: Path | None) -> Iterator[tuple[str, Rmat]]:
    """Yield graphs on which nobody meets a dead end: every edge has one back."""
    for scale in scales:
        yield f"rmat{scale}", rmat(scale)
    if data is not None:
        yield "kernel", kernel(data / "kernel").as_one_type()


def graphs_of_two_types(users: int, data: Path | None) -> Iterator[ThereAndBack]:
    """Yield graphs to walk there and back."""
    yield bipartite(users)
    yield from debian()
    if data is not None:
        yield kernel(data / "kernel")


def show_walks(bench: Bench, graph: Rmat, start: Int64Array, name: str) -> None:
    """Measure uniform walks and node2vec's."""
    for length, p, q in ((20, 1.0, 1.0), (80, 1.0, 1.0), (20, 0.5, 2.0), (80, 0.5, 2.0), (20, 4.0, 0.25)):
        looks_back = (p, q) != (1.0, 1.0)
        case = f"{name}-{f'node2vec-p{p:g}-q{q:g}' if looks_back else 'uniform'}-{length}"
        if not bench.wants(case):
            continue
        few = start[:5000] if looks_back else start  # the peer takes long

        def ours(batch: int, threads: int, length: int = length, p: float = p, q: float = q) -> int:
            return random_walk(graph, start, length, p, q, batch=batch, num_threads=threads).size - len(start)

        bench.run(case, "steps/s", ours, [torch_cluster_walk(graph, few, length, p, q)], LINES_PER_STEP)


def show_choices(bench: Bench, graph: Attributed, start: Int64Array, name: str) -> None:
    """Measure walks by weight and by time, with restarts, and the nodes they visit most."""
    kinds: list[tuple[str, float, dict[str, Any]]] = [
        ("restart-0.15", 0, {"restart_probability": 0.15}),
        ("weighted", ALIAS_LINES, {"weighted": True}),
        ("weighted-node2vec-p0.5-q2", ALIAS_LINES, {"weighted": True, "p": 0.5, "q": 2.0}),
        ("temporal", TIME_LINES, {"temporal": True}),
        ("temporal-linear", TIME_LINES, {"temporal": True, "temporal_strategy": "linear"}),
    ]
    for kind, more_lines, arguments in kinds:
        case = f"{name}-{kind}-{LENGTH}"
        if not bench.wants(case):
            continue

        def ours(batch: int, threads: int, arguments: dict[str, Any] = arguments) -> int:
            walks = random_walk(graph, start, LENGTH, batch=batch, num_threads=threads, **arguments)
            return int((walks[:, 1:] >= 0).sum()) if "temporal" in arguments else walks.size - len(start)

        bench.run(case, "steps/s", ours, lines_per_unit=LINES_PER_STEP + more_lines)
    case = f"{name}-ppr-64x16-top-50"
    if bench.wants(case):

        def nearest(batch: int, threads: int) -> int:
            ppr_neighbors(graph, start[:2000], 50, batch=batch, num_threads=threads)
            return 2000 * 64 * 16

        bench.run(case, "steps/s", nearest, lines_per_unit=LINES_PER_STEP)


def show_metapaths(bench: Bench, graph: ThereAndBack, start: Int64Array) -> None:
    """Measure walks there and back."""
    for length in (20, 80):
        case = f"{graph.name}-metapath-{length}"
        if not bench.wants(case):
            continue

        def ours(batch: int, threads: int, length: int = length) -> int:
            walks = random_walk(
                graph, start, length, metapath=THERE_AND_BACK, batch=batch, num_threads=threads
            )
            return walks.size - len(start)

        bench.run(case, "steps/s", ours, [pyg_metapath(graph, start, length)], LINES_PER_STEP)


def show_pairs(bench: Bench, graph: Rmat, start: Int64Array, name: str) -> None:
    """Measure pairs from walks that are there, and straight from a graph, with and without subsampling."""
    walks = random_walk(graph, start, LENGTH)
    keep = keep_probability(np.diff(graph.indptr), 1e-5)

    def pairs(_: int, threads: int) -> int:
        return len(skip_gram_pairs(walks, WINDOW, num_threads=threads)[0])

    def subsampled(batch: int, threads: int) -> int:
        return len(skip_gram_pairs(walks, WINDOW, subsample=keep, batch=batch, num_threads=threads)[0])

    def straight(batch: int, threads: int) -> int:
        chunks = walk_pairs(graph, start, LENGTH, WINDOW, batch=batch, num_threads=threads)
        return sum(len(centers) for centers, _ in chunks)

    def after_walks(batch: int, threads: int) -> int:
        walks = random_walk(graph, start, LENGTH, batch=batch, num_threads=threads)
        return len(skip_gram_pairs(walks, WINDOW, batch=batch, num_threads=threads)[0])

    cases: list[tuple[str, Callable[[int, int], int]]] = [
        (f"pairs-window-{WINDOW}", pairs),
        (f"pairs-window-{WINDOW}-subsampled", subsampled),
        (f"walk-pairs-{LENGTH}-window-{WINDOW}", straight),
        (f"walk-then-pairs-{LENGTH}-window-{WINDOW}", after_walks),
    ]
    for case, ours in cases:
        if bench.wants(f"{name}-{case}"):
            peers = [pyg_pairs(graph, start, LENGTH, WINDOW)] if ours is straight else []
            bench.run(f"{name}-{case}", "pairs/s", ours, peers)


if __name__ == "__main__":
    main()

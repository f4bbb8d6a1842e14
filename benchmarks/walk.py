"""Steps of random walks and skip-gram pairs per second.

python benchmarks/walk.py [--quick] [--json]

The bound of walks counts two random lines for a step: indptr and indices. So does that of node2vec's, whose
walkers draw again where a neighbour is not taken and search the neighbours of the node before: what they fall
short of it is the price of p and q.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from benchmarks.measure import arguments, measure, random_read_limit, show
from benchmarks.rmat import Rmat, rmat
from graphbox.sample import keep_probability, random_walk, skip_gram_pairs, walk_pairs

LINES_PER_STEP = 2.0
WINDOW = 5
LENGTH = 20


def main() -> None:
    """Run all cases."""
    options = arguments("steps of random walks per second")
    scale, walkers = (14, 10_000) if options.quick else (20, 100_000)
    graph = rmat(scale)
    start = np.random.default_rng(0).choice(graph.connected(), walkers)
    show_walks(graph, start, f"rmat{scale}", as_json=options.json)
    show_pairs(graph, start, f"rmat{scale}", as_json=options.json)


def show_walks(graph: Rmat, start: npt.NDArray[np.int64], name: str, *, as_json: bool) -> None:
    """Measure walks of every kind, each beside the bound measured in the same minute."""
    kinds: list[tuple[str, int, dict[str, Any]]] = [
        ("uniform-20", 20, {}),
        ("uniform-80", 80, {}),
        ("restart-0.15-20", 20, {"restart_probability": 0.15}),
        ("node2vec-p0.5-q2-20", 20, {"p": 0.5, "q": 2.0}),
        ("node2vec-p0.5-q2-80", 80, {"p": 0.5, "q": 2.0}),
        ("node2vec-p4-q0.25-20", 20, {"p": 4.0, "q": 0.25}),
    ]
    for kind, length, parameters in kinds:
        case = f"{name}-{kind}"
        for threads in (1, 2):

            def walk(
                batch: int,
                length: int = length,
                parameters: dict[str, Any] = parameters,
                threads: int = threads,
            ) -> int:
                random_walk(graph, start, length, batch=batch, threads=threads, **parameters)
                return len(start) * length  # nobody meets a dead end: every edge has one back

            show(measure(case, "graphbox", "steps/s", walk, threads=threads), as_json=as_json)
        show(random_read_limit(case, "steps/s", LINES_PER_STEP), as_json=as_json)


def show_pairs(graph: Rmat, start: npt.NDArray[np.int64], name: str, *, as_json: bool) -> None:
    """Measure pairs from walks that are there, and straight from a graph, with and without subsampling."""
    walks = random_walk(graph, start, LENGTH)
    keep = keep_probability(np.diff(graph.indptr), 1e-5)

    def pairs(_: int) -> int:
        return len(skip_gram_pairs(walks, WINDOW, threads=1)[0])

    def subsampled(batch: int) -> int:
        return len(skip_gram_pairs(walks, WINDOW, subsample=keep, batch=batch, threads=1)[0])

    def straight(batch: int) -> int:
        chunks = walk_pairs(graph, start, LENGTH, WINDOW, batch=batch, threads=1)
        return sum(len(centers) for centers, _ in chunks)

    def after_walks(batch: int) -> int:
        walks = random_walk(graph, start, LENGTH, batch=batch, threads=1)
        return len(skip_gram_pairs(walks, WINDOW, batch=batch, threads=1)[0])

    cases: list[tuple[str, Callable[[int], int]]] = [
        (f"pairs-window-{WINDOW}", pairs),
        (f"pairs-window-{WINDOW}-subsampled", subsampled),
        (f"walk-pairs-{LENGTH}-window-{WINDOW}", straight),
        (f"walk-then-pairs-{LENGTH}-window-{WINDOW}", after_walks),
    ]
    for case, work in cases:
        show(measure(f"{name}-{case}", "graphbox", "pairs/s", work), as_json=as_json)


if __name__ == "__main__":
    main()

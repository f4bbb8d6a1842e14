"""Sampled edges per second.

python benchmarks/neighbor.py [--quick] [--json]

The bound counts 2.3 random lines for an edge: its index, its entry of the position map, a share of indptr;
with weights one more, of the alias tables. Skewed graphs can exceed it, since hubs stay in the caches.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from itertools import product

import numpy as np
import numpy.typing as npt

from benchmarks.measure import arguments, measure, random_read_limit, show
from benchmarks.rmat import Rmat, rmat
from graphbox.sample import sample_neighbors
from graphbox.sample.derived import weights_of

LINES_PER_EDGE = 2.3
ALIAS_LINES_PER_EDGE = 1.0  # of the alias tables, for weighted sampling
BATCH_SIZE = 1024


@dataclass(frozen=True)
class WeightedRmat(Rmat):
    """With a weight for each edge, exponentially distributed."""

    weight: npt.NDArray[np.float32]


def main() -> None:
    """Run all cases."""
    options = arguments("sampled edges per second")
    scale = 14 if options.quick else 20
    plain = rmat(scale)
    draws = np.random.default_rng(0).exponential(size=len(plain.indices))
    graph = WeightedRmat(plain.indptr, plain.indices, np.maximum(draws, 1e-6).astype(np.float32))
    build_tables(f"rmat{scale}-alias-tables", graph, as_json=options.json)
    for num_neighbors, replace, weighted in product(([15, 10, 5], [25, 10]), (False, True), (False, True)):
        kind = "weighted-" if weighted else ""
        case = f"rmat{scale}-{kind}{num_neighbors}-{'with' if replace else 'without'}-replacement"
        for threads in (1, 2):
            work = partial(
                sample_batches, graph, graph.connected(), num_neighbors, replace, weighted, threads
            )
            show(measure(case, "graphbox", "edges/s", work, threads=threads), as_json=options.json)
        lines = LINES_PER_EDGE + (ALIAS_LINES_PER_EDGE if weighted else 0)
        show(random_read_limit(case, "edges/s", lines), as_json=options.json)


def sample_batches(
    graph: WeightedRmat,
    candidates: npt.NDArray[np.int64],
    num_neighbors: list[int],
    replace: bool,
    weighted: bool,
    threads: int,
    repeat: int,
) -> int:
    """Sample five batches around other seeds in each repeat, and return the number of edges."""
    seeds = np.random.default_rng(repeat).choice(candidates, BATCH_SIZE, replace=False)
    samples = (
        sample_neighbors(
            graph, seeds, num_neighbors, replace, weighted, batch=repeat * 5 + number, threads=threads
        )
        for number in range(5)
    )
    return sum(len(sample.rows) for sample in samples)


def build_tables(case: str, graph: WeightedRmat, *, as_json: bool) -> None:
    """Measure how many edges a second get their alias tables."""
    for threads in (1, 2):

        def work(_: int, threads: int = threads) -> int:
            weights_of(WeightedRmat(graph.indptr, graph.indices, graph.weight), "rmat", threads)
            return len(graph.indices)

        show(measure(case, "graphbox", "edges/s", work, threads=threads), as_json=as_json)


if __name__ == "__main__":
    main()

"""What LABOR saves and costs: nodes in a batch, and sampled edges per second, beside ordinary sampling.

python benchmarks/labor.py [--quick] [--json]

Nodes are those whose features a batch reads: where the unit is nodes, rates are their number. LABOR looks at
all neighbours of the nodes it expands, so what it costs grows with the degrees.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from functools import partial

import numpy as np

from benchmarks.measure import Measurement, arguments, measure, show
from benchmarks.rmat import Rmat, rmat
from graphbox.native import Int64Array
from graphbox.sample import NeighborSample, sample_neighbors

BATCHES = 7
BATCH_SIZE = 1024


def main() -> None:
    """Run all cases."""
    options = arguments("nodes in a batch and sampled edges per second")
    scale = 12 if options.quick else 20
    graph = rmat(scale)
    candidates = graph.connected()
    random = np.random.default_rng(0)
    seeds = [random.choice(candidates, BATCH_SIZE, replace=False) for _ in range(BATCHES)]
    for num_neighbors in ([15, 10, 5], [10, 10, 10], [25, 10]):
        for labor in (False, True):
            system = "graphbox labor" if labor else "graphbox"
            case = f"rmat{scale}-{num_neighbors}-labor"
            sample = partial(_sample, graph, seeds, num_neighbors, labor)
            show(measure(case, system, "edges/s", partial(_edges, sample)), as_json=options.json)
            counts = [len(sample(batch).nodes) for batch in range(BATCHES)]
            median = float(statistics.median(counts))
            nodes = Measurement(
                f"{case}-nodes", system, 1, median, "nodes", min(counts), max(counts), BATCHES, median
            )
            show(nodes, as_json=options.json)


def _sample(
    graph: Rmat, seeds: Sequence[Int64Array], num_neighbors: list[int], labor: bool, batch: int
) -> NeighborSample[Int64Array]:
    return sample_neighbors(graph, seeds[batch % BATCHES], num_neighbors, labor=labor, batch=batch, threads=1)


def _edges(sample: Callable[[int], NeighborSample[Int64Array]], batch: int) -> int:
    return sum(len(sample(batch * 5 + number).rows) for number in range(5))


if __name__ == "__main__":
    main()

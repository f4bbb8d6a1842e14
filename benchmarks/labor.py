"""What LABOR saves and costs: nodes in a batch, and sampled edges per second, beside ordinary sampling.

python benchmarks/labor.py [--quick] [--json]

Nodes are those whose features a batch reads: where the unit is nodes, rates are their number. LABOR looks at
all neighbours of the nodes it expands, so what it costs grows with the degrees.
"""

from __future__ import annotations

import statistics
from functools import partial

import numpy as np
import numpy.typing as npt

from benchmarks.measure import Measurement, arguments, measure, show
from benchmarks.rmat import Rmat, rmat
from graphbox.sample import NeighborSample, sample_neighbors

BATCHES = 7
BATCH_SIZE = 1024


def main() -> None:
    """Run all cases."""
    options = arguments("nodes in a batch and sampled edges per second")
    scale = 12 if options.quick else 20
    graph = rmat(scale)
    for num_neighbors in ([15, 10, 5], [10, 10, 10], [25, 10]):
        for labor in (False, True):
            system = "graphbox labor" if labor else "graphbox"
            case = f"rmat{scale}-{num_neighbors}-labor"
            work = partial(_edges, graph, num_neighbors, labor)
            show(measure(case, system, "edges/s", work), as_json=options.json)
            counts = [len(_sample(graph, num_neighbors, labor, batch).nodes) for batch in range(BATCHES)]
            median = float(statistics.median(counts))
            nodes = Measurement(
                f"{case}-nodes", system, 1, median, "nodes", min(counts), max(counts), BATCHES, median
            )
            show(nodes, as_json=options.json)


def _sample(
    graph: Rmat, num_neighbors: list[int], labor: bool, batch: int
) -> NeighborSample[npt.NDArray[np.int64]]:
    seeds = np.random.default_rng(batch).choice(graph.connected(), BATCH_SIZE, replace=False)
    return sample_neighbors(graph, seeds, num_neighbors, labor=labor, batch=batch, threads=1)


def _edges(graph: Rmat, num_neighbors: list[int], labor: bool, batch: int) -> int:
    return sum(len(_sample(graph, num_neighbors, labor, batch * 5 + number).rows) for number in range(5))


if __name__ == "__main__":
    main()

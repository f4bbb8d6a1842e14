"""Sampled edges per second.

python benchmarks/neighbor.py [--quick] [--json]

The bound counts 2.3 random lines for an edge: its index, its entry of the position map, a share of indptr.
Skewed graphs can exceed it, since hubs stay in the caches.
"""

from __future__ import annotations

import numpy as np

from benchmarks.measure import arguments, measure, random_read_limit, show
from benchmarks.rmat import rmat
from graphbox.sample import sample_neighbors

LINES_PER_EDGE = 2.3
BATCH_SIZE = 1024


def main() -> None:
    """Run all cases."""
    options = arguments("sampled edges per second")
    scale = 14 if options.quick else 20
    graph = rmat(scale)
    candidates = graph.connected()
    for num_neighbors in ([15, 10, 5], [25, 10]):
        for replace in (False, True):
            case = f"rmat{scale}-{num_neighbors}-{'with' if replace else 'without'}-replacement"
            for threads in (1, 2):

                def work(
                    batch: int,
                    num_neighbors: list[int] = num_neighbors,
                    replace: bool = replace,
                    threads: int = threads,
                ) -> int:
                    seeds = np.random.default_rng(batch).choice(candidates, BATCH_SIZE, replace=False)
                    edges = 0
                    for repeat in range(5):
                        sample = sample_neighbors(
                            graph, seeds, num_neighbors, replace, batch=batch * 5 + repeat, threads=threads
                        )
                        edges += len(sample.rows)
                    return edges

                show(
                    measure(case, "graphbox", "edges/s", work, threads=threads),
                    as_json=options.json,
                )
            show(random_read_limit(case, "edges/s", LINES_PER_EDGE), as_json=options.json)


if __name__ == "__main__":
    main()

"""Steps of random walks, skip-gram pairs and negatives per second.

python benchmarks/walk.py [--quick] [--json]

The bound of walks counts two random lines for a step: indptr and indices.
"""

from __future__ import annotations

import numpy as np

from benchmarks.measure import arguments, measure, random_read_limit, show
from benchmarks.rmat import rmat
from graphbox.sample import NegativeSampler, random_walk, skip_gram_pairs

LINES_PER_STEP = 2.0
WINDOW = 5


def main() -> None:
    """Run all cases."""
    options = arguments("steps of random walks per second")
    scale, walkers = (14, 10_000) if options.quick else (20, 100_000)
    graph = rmat(scale)
    start = np.random.default_rng(0).choice(graph.connected(), walkers)
    for length in (20, 80):
        case = f"rmat{scale}-uniform-{length}"
        for threads in (1, 2):

            def walk(batch: int, length: int = length, threads: int = threads) -> int:
                return random_walk(graph, start, length, batch=batch, threads=threads).size

            show(measure(case, "graphbox", "steps/s", walk, threads=threads), as_json=options.json)
        show(random_read_limit(case, "steps/s", LINES_PER_STEP), as_json=options.json)

    walks = random_walk(graph, start, 20)

    def pairs(_: int) -> int:
        return len(skip_gram_pairs(walks, WINDOW, threads=1)[0])

    show(measure(f"pairs-window-{WINDOW}", "graphbox", "pairs/s", pairs), as_json=options.json)
    sampler = NegativeSampler(np.diff(graph.indptr))

    def negatives(batch: int) -> int:
        return sampler.sample(1_000_000, batch=batch, threads=1).size

    show(measure(f"rmat{scale}-negatives", "graphbox", "draws/s", negatives), as_json=options.json)


if __name__ == "__main__":
    main()

"""Negatives per second: by weight, for queries without their known positives, non-edges, in a batch.

python benchmarks/negative.py [--quick] [--json]

The bound counts random lines: one of the alias table for a draw by weight; with known positives one more, of
the list of the query, and two for each query, where its list begins and its first line. PyTorch Geometric
draws for a whole graph (``negative_sampling``), so each of its calls reads all edges.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property

import numpy as np
import numpy.typing as npt
import torch
import torch_geometric
from torch_geometric.utils import negative_sampling

from benchmarks.measure import arguments, measure, random_read_limit, show
from benchmarks.rmat import Rmat, rmat
from graphbox.sample import NegativeSampler, NonEdgeSampler

DRAWS = 1_000_000
QUERIES, NEGATIVES = 8192, 5
NUMPY, TORCH = f"numpy {np.__version__}", f"torch {torch.__version__}"
PYG = f"torch-geometric {torch_geometric.__version__}"

EDGE = ("node", "to", "node")


class RmatGraph:
    """An R-MAT graph as samplers see graphs."""

    node_types = ("node",)
    edge_types = (EDGE,)

    def __init__(self, adjacency: Rmat) -> None:
        self.adjacency = adjacency

    def num_nodes(self, node_type: str) -> int:  # noqa: ARG002  # there is one
        """Return the number of nodes."""
        return self.adjacency.num_nodes

    def csc(self, edge_type: tuple[str, str, str]) -> Rmat:  # noqa: ARG002  # there is one
        """Return the in-neighbours."""
        return self.adjacency

    csr = csc

    @cached_property
    def keys(self) -> npt.NDArray[np.int64]:
        """Ascending: source * nodes + target of each edge."""
        sources = np.repeat(np.arange(self.adjacency.num_nodes), np.diff(self.adjacency.indptr))
        return sources * self.adjacency.num_nodes + self.adjacency.indices

    def joined(self, sources: npt.NDArray[np.int64], targets: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
        """Return which pairs an edge joins, as NumPy users look that up."""
        wanted = sources * self.adjacency.num_nodes + targets
        place = np.searchsorted(self.keys, wanted)
        joined: npt.NDArray[np.bool_] = self.keys[np.minimum(place, len(self.keys) - 1)] == wanted
        return joined


def main() -> None:
    """Run all cases."""
    options = arguments("negatives per second")
    scale = 12 if options.quick else 20
    graph = RmatGraph(rmat(scale))
    name = f"rmat{scale}"
    show_draws(graph, name, as_json=options.json)
    show_queries(graph, name, as_json=options.json)
    show_non_edges(graph, name, as_json=options.json)


def show_draws(graph: RmatGraph, name: str, *, as_json: bool) -> None:
    """Measure draws by degree^0.75 and uniform ones."""
    degree = np.diff(graph.adjacency.indptr)
    by_degree, uniform = NegativeSampler(degree, 0.75), NegativeSampler.uniform(len(degree))
    weights = degree.astype(np.float64) ** 0.75
    tensor, sums = torch.from_numpy(weights), np.cumsum(weights / weights.sum())
    rng = np.random.default_rng(0)
    torch.set_num_threads(1)
    systems: dict[str, list[tuple[str, Callable[[int], int]]]] = {
        "degree^0.75": [
            ("graphbox", lambda batch: by_degree.sample(DRAWS, batch=batch, num_threads=1).size),
            (TORCH, lambda _: len(torch.multinomial(tensor, DRAWS, replacement=True))),
            (NUMPY, lambda _: len(np.searchsorted(sums, rng.random(DRAWS)))),
        ],
        "uniform": [
            ("graphbox", lambda batch: uniform.sample(DRAWS, batch=batch, num_threads=1).size),
            (TORCH, lambda _: len(torch.randint(len(degree), (DRAWS,)))),
            (NUMPY, lambda _: len(rng.integers(0, len(degree), DRAWS))),
        ],
    }
    for kind, drawers in systems.items():
        for system, draw in drawers:
            show(measure(f"{name}-{kind}", system, "draws/s", draw), as_json=as_json)
    show(random_read_limit(f"{name}-degree^0.75", "draws/s", 1.0), as_json=as_json)

    def two_threads(batch: int) -> int:
        return by_degree.sample(DRAWS, batch=batch, num_threads=2).size

    show(measure(f"{name}-degree^0.75", "graphbox", "draws/s", two_threads, threads=2), as_json=as_json)


def show_queries(graph: RmatGraph, name: str, *, as_json: bool) -> None:
    """Measure draws for queries, none a known positive."""
    connected = graph.adjacency.connected()
    samplers = {
        alpha: NegativeSampler.from_graph(graph, EDGE, alpha, known_positives=True) for alpha in (0.0, 0.75)
    }
    for alpha, sampler in samplers.items():
        case = f"{name}-{NEGATIVES}-per-query-{'uniform' if alpha == 0 else 'degree^0.75'}-no-known-positive"

        def queries(batch: int) -> npt.NDArray[np.int64]:
            return np.random.default_rng(batch).choice(connected, min(QUERIES, len(connected)))

        def ours(batch: int, sampler: NegativeSampler = sampler, threads: int = 1) -> int:
            drawn = sampler.sample_for(queries(batch), NEGATIVES, batch=batch, num_threads=threads)
            return drawn.size

        def with_numpy(batch: int, sampler: NegativeSampler = sampler) -> int:
            """Draw with our sampler too, so that only the exclusion differs."""
            sources = np.repeat(queries(batch), NEGATIVES)
            drawn = sampler.sample(len(sources), batch=batch, num_threads=1)
            again = np.flatnonzero(graph.joined(sources, drawn))
            for attempt in range(1, 32):
                if not len(again):
                    break
                drawn[again] = sampler.sample(len(again), attempt, batch, num_threads=1)
                again = again[graph.joined(sources[again], drawn[again])]
            return drawn.size

        show(measure(case, "graphbox", "draws/s", ours), as_json=as_json)
        show(measure(case, NUMPY, "draws/s", with_numpy), as_json=as_json)
        lines = 1 + (1 if alpha else 0) + 2 / NEGATIVES
        show(random_read_limit(case, "draws/s", lines), as_json=as_json)


def show_non_edges(graph: RmatGraph, name: str, *, as_json: bool) -> None:
    """Measure pairs that no edge joins."""
    sampler = NonEdgeSampler(graph)
    num_nodes = graph.adjacency.num_nodes
    edge_index = torch.from_numpy(np.stack([graph.keys // num_nodes, graph.keys % num_nodes]))

    def ours(batch: int) -> int:
        return int(sampler.sample(DRAWS, batch=batch, num_threads=1).shape[1])

    def theirs(_: int) -> int:
        return int(negative_sampling(edge_index, num_nodes, DRAWS, method="sparse").shape[1])

    case = f"{name}-non-edges"
    show(measure(case, "graphbox", "pairs/s", ours), as_json=as_json)
    show(measure(case, PYG, "pairs/s", theirs, repeats=3), as_json=as_json)


if __name__ == "__main__":
    main()

"""Sampled edges per second.

python -m benchmarks.neighbor [--quick] [--json] [--data FOLDER] [--graphs GRAPH ...]

The bound counts 2.3 random lines for an edge: its index, its entry of the position map, a share of indptr;
with weights one more, of the alias tables. Skewed graphs can exceed it, since hubs stay in the caches.

Two threads sample a batch each, as the loaders do. torch-sparse, which PyTorch Geometric samples with, runs
beside where it is installed. Graphs with several types are sampled with their types (``graphbox``) and as one
(``graphbox one type``): the ratio is what types cost.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from itertools import product
from pathlib import Path
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from benchmarks.measure import measure, random_read_limit, show
from benchmarks.rmat import Rmat, rmat
from benchmarks.typed_graphs import TypedGraph, bipartite, debian, kernel
from graphbox.sample import sample_heterogeneous, sample_neighbors
from graphbox.sample.derived import weights_of

LINES_PER_EDGE = 2.3
ALIAS_LINES_PER_EDGE = 1.0  # of the alias tables, for weighted sampling
BATCH_SIZE = 1024
BATCHES = 10  # in each repeat
GRAPHS = ("rmat20", "rmat22", "bipartite", "debian", "kernel")
FANOUTS = ([15, 10, 5], [25, 10])

Sampler: TypeAlias = Callable[[npt.NDArray[np.int64], int], int]
"""Samples around seeds with a batch number, and returns the number of edges."""


@dataclass(frozen=True)
class WeightedRmat(Rmat):
    """With a weight for each edge, exponentially distributed."""

    weight: npt.NDArray[np.float32]


@dataclass(frozen=True)
class WideRmat:
    """With indices of 64 bits."""

    indptr: npt.NDArray[np.int64]
    indices: npt.NDArray[np.int64]


@dataclass(frozen=True)
class Case:
    """One piece of work and the systems that do it."""

    name: str
    candidates: npt.NDArray[np.int64]
    samplers: dict[str, Sampler]
    lines_per_edge: float = LINES_PER_EDGE

    def run(self, *, as_json: bool) -> None:
        """Measure every system with one thread and with two, and the bound in the same minute."""
        for system, sample in self.samplers.items():
            work = partial(sample_batches, sample, self.candidates, map)
            show(measure(self.name, system, "edges/s", work), as_json=as_json)
            if system == "graphbox":
                with ThreadPoolExecutor(2) as executor:
                    work = partial(sample_batches, sample, self.candidates, executor.map)
                    show(measure(self.name, system, "edges/s", work, threads=2), as_json=as_json)
        show(random_read_limit(self.name, "edges/s", self.lines_per_edge), as_json=as_json)


def main() -> None:
    """Run all cases."""
    parser = argparse.ArgumentParser(description="sampled edges per second")
    parser.add_argument("--quick", action="store_true", help="small inputs: checks that it runs")
    parser.add_argument("--json", action="store_true", help="one JSON object per line")
    parser.add_argument("--data", type=Path, help="folder with the real data sets (kernel/graph.npz)")
    parser.add_argument("--graphs", nargs="+", choices=GRAPHS, default=GRAPHS, help="which to sample")
    options = parser.parse_args()
    for name in options.graphs:
        if name == "kernel" and options.data is None:
            continue
        for case in cases_of(name, options.data, quick=options.quick):
            case.run(as_json=options.json)
        if name == "rmat20":
            show_table_builds(14 if options.quick else 20, as_json=options.json)


def cases_of(name: str, data: Path | None, *, quick: bool) -> list[Case]:
    """Return the cases of a graph, or of a small one instead."""
    if name == "rmat20":
        return rmat_cases(14 if quick else 20, weighted=True)
    if name == "rmat22":
        return rmat_cases(12 if quick else 22, weighted=False)
    if name == "bipartite":
        users, items, edges = (10_000, 2_000, 160_000) if quick else (1_000_000, 200_000, 16_000_000)
        return typed_cases(name, bipartite(users, items, edges))
    if data is not None and name == "kernel":
        return typed_cases(name, kernel(data / "kernel" / "graph.npz"))
    return typed_cases(name, debian())


def sample_batches(
    sample: Sampler, candidates: npt.NDArray[np.int64], apply: Callable[..., Iterable[int]], repeat: int
) -> int:
    """Sample batches around other seeds in each repeat; return the number of edges.

    Args:
        sample: samples one batch.
        candidates: nodes to draw seeds of.
        apply: ``map``, or that of an executor, which samples several at a time.
        repeat: number of the repeat.
    """
    rng = np.random.default_rng(repeat)
    seeds = [rng.choice(candidates, BATCH_SIZE, replace=False) for _ in range(BATCHES)]
    return sum(apply(sample, seeds, range(repeat * BATCHES, (repeat + 1) * BATCHES)))


def rmat_cases(scale: int, *, weighted: bool) -> list[Case]:
    """Return the cases of one type: uniform, of narrow and wide indices, and weighted."""
    plain = rmat(scale)
    draws = np.random.default_rng(0).exponential(size=len(plain.indices))
    graph = WeightedRmat(plain.indptr, plain.indices, np.maximum(draws, 1e-6).astype(np.float32))
    wide = WideRmat(plain.indptr, plain.indices.astype(np.int64))
    candidates = plain.connected()
    cases = []
    for fanout, replace in product(FANOUTS, (False, True)):
        kind = f"{fanout}-{'with' if replace else 'without'}-replacement"
        ours = partial(sample_one_type, graph, fanout, replace, False)
        samplers: dict[str, Sampler] = {"graphbox": ours, **peers(wide, fanout, replace)}
        cases.append(Case(f"rmat{scale}-{kind}", candidates, samplers))
        ours = partial(sample_one_type, wide, fanout, replace, False)
        cases.append(Case(f"rmat{scale}-int64-{kind}", candidates, {"graphbox": ours}))
        if weighted:
            ours = partial(sample_one_type, graph, fanout, replace, True)
            lines = LINES_PER_EDGE + ALIAS_LINES_PER_EDGE
            cases.append(Case(f"rmat{scale}-weighted-{kind}", candidates, {"graphbox": ours}, lines))
    return cases


def typed_cases(name: str, graph: TypedGraph) -> list[Case]:
    """Return the cases of a graph with several types."""
    cases = []
    for fanout in FANOUTS:
        samplers: dict[str, Sampler] = {
            "graphbox": partial(sample_types, graph, fanout),
            "graphbox one type": partial(sample_one_type, graph.merged, fanout, False, False),
            **typed_peers(graph, fanout),
        }
        cases.append(Case(f"{name}-{fanout}-without-replacement", graph.seeds, samplers))
    return cases


def sample_one_type(
    graph: Rmat | WideRmat,
    fanout: list[int],
    replace: bool,
    weighted: bool,
    seeds: npt.NDArray[np.int64],
    batch: int,
) -> int:
    """Sample with one thread; return the number of edges."""
    weight_attr = "weight" if weighted else None
    sample = sample_neighbors(graph, seeds, fanout, replace=replace, weight_attr=weight_attr, batch=batch)
    return len(sample.row)


def sample_types(graph: TypedGraph, fanout: list[int], seeds: npt.NDArray[np.int64], batch: int) -> int:
    """Sample every edge type with one thread; return the number of edges."""
    sample = sample_heterogeneous(graph.lists, {graph.seed_type: seeds}, fanout, batch=batch)
    return sum(len(rows) for rows in sample.row.values())


def peers(graph: WideRmat, fanout: Sequence[int], replace: bool) -> dict[str, Sampler]:
    """Return torch-sparse's sampler where it is installed."""
    try:
        import torch
        import torch_sparse
    except ImportError:
        return {}
    torch.set_num_threads(1)
    indptr, indices = torch.from_numpy(graph.indptr), torch.from_numpy(graph.indices)

    def sample(seeds: npt.NDArray[np.int64], _: int) -> int:
        sampled = torch.ops.torch_sparse.neighbor_sample(
            indptr, indices, torch.from_numpy(seeds), list(fanout), replace, True
        )
        return int(sampled[1].numel())

    return {f"torch-sparse {torch_sparse.__version__}": sample}


def typed_peers(graph: TypedGraph, fanout: Sequence[int]) -> dict[str, Sampler]:
    """Return torch-sparse's sampler of several types where it is installed."""
    try:
        import torch
        import torch_sparse
    except ImportError:
        return {}
    torch.set_num_threads(1)
    keys = {edge_type: "__".join(edge_type) for edge_type in graph.lists}
    indptr = {keys[name]: torch.from_numpy(lists.indptr) for name, lists in graph.lists.items()}
    indices = {
        keys[name]: torch.from_numpy(lists.indices.astype(np.int64)) for name, lists in graph.lists.items()
    }
    hops = {key: list(fanout) for key in keys.values()}

    def sample(seeds: npt.NDArray[np.int64], _: int) -> int:
        sampled = torch.ops.torch_sparse.hetero_neighbor_sample(
            list(graph.nodes),
            list(keys),
            indptr,
            indices,
            {graph.seed_type: torch.from_numpy(seeds)},
            hops,
            len(fanout),
            False,
            True,
        )
        return sum(int(rows.numel()) for rows in sampled[1].values())

    return {f"torch-sparse {torch_sparse.__version__}": sample}


def show_table_builds(scale: int, *, as_json: bool) -> None:
    """Measure how many edges a second get their alias tables."""
    plain = rmat(scale)
    weight = np.random.default_rng(0).random(len(plain.indices), np.float32) + np.float32(1e-6)
    for threads in (1, 2):

        def work(_: int, threads: int = threads) -> int:
            weights_of(WeightedRmat(plain.indptr, plain.indices, weight), "rmat", threads)
            return len(plain.indices)

        measured = measure(f"rmat{scale}-alias-tables", "graphbox", "edges/s", work, threads=threads)
        show(measured, as_json=as_json)


if __name__ == "__main__":
    main()

"""Steps of random walks that a GPU makes per second, beside what it reads in random sectors.

python -m benchmarks.gpu_walk [--device cuda:1] [--scale 22] [--data FOLDER] [--json]

The limit counts two random sectors of 32 bytes for a step, of indptr and of the indices, and what is written;
with weights one more, of the alias table. The probe reads sectors of a block as large as the indices. Walkers
of node2vec also look whether an edge leads to a neighbour of the node before: for those that must look after
their first dart the sectors of a search among its neighbours count, but not those of more darts.
"""

from __future__ import annotations

import argparse
from functools import partial
from typing import Any

import numpy as np
import torch

from benchmarks.gpu_graphs import ListsGraph, device_nodes, graphs_of_one_type, graphs_of_types
from benchmarks.gpu_measure import GpuBench, run
from graphbox.bandwidth_gpu import SECTOR_BYTES, Place
from graphbox.sample import DeviceGraph, random_walk
from graphbox.sample.sectors import step_sectors

WALKERS = 1 << 20
LENGTH = 80
NODE2VEC = ((0.5, 2.0), (4.0, 0.25))
GOALS: dict[Place, float] = {"device": 0.5, "pinned": 0.8}


def main() -> None:
    """Run all cases."""
    run(__doc__, show_walks, add_options)


def add_options(parser: argparse.ArgumentParser) -> None:
    """Give the parser what graphs need."""
    parser.add_argument("--scale", type=int, default=22, help="of the R-MAT graph: 2^SCALE nodes")


def show_walks(bench: GpuBench) -> None:
    """Measure walks along one edge type and along two."""
    for graph in graphs_of_one_type(bench):
        show_one_type(bench, graph, "device")
        show_one_type(bench, graph, "pinned")
    for graph in graphs_of_types(bench):
        show_metapath(bench, graph)


def show_one_type(bench: GpuBench, graph: ListsGraph, where: Place) -> None:
    """Measure uniform walks and those by weight, and of lists on the device those that look back."""
    on_device = DeviceGraph(graph, bench.device, indices_in=where)
    kinds: list[tuple[str, float, dict[str, Any]]] = [
        ("uniform", 0, {}),
        ("by weight", 0, {"weighted": True}),
    ]
    if where == "device":
        for p, q in NODE2VEC:
            kinds.append((f"node2vec with p {p:g} and q {q:g}", search_sectors(graph, q), {"p": p, "q": q}))
    (edge_type,) = graph.edge_types
    size_bytes = graph.csc(edge_type).indices.nbytes
    start, length = walkers_of(bench, graph)
    for kind, more_sectors, options in kinds:
        sectors = step_sectors(weighted="weighted" in options, where=where) + more_sectors
        bench.show(
            f"{graph.name} walks of {length} steps, {kind}, {where}",
            partial(random_walk, on_device, start, length, **options),
            units=len(start) * length,
            unit="steps/s",
            limit=bench.sector_limit(where, sectors, size_bytes),
            goal=GOALS[where],
        )


def show_metapath(bench: GpuBench, graph: ListsGraph) -> None:
    """Measure walks there and back."""
    on_device = DeviceGraph(graph, bench.device)
    there, back = sorted(graph.edge_types, key=lambda edge_type: edge_type[0] != graph.seed_type)
    start, length = walkers_of(bench, graph)
    bench.show(
        f"{graph.name} walks of {length} steps, metapath, device",
        partial(random_walk, on_device, start, length, metapath=[there, back]),
        units=len(start) * length,
        unit="steps/s",
        limit=bench.sector_limit("device", step_sectors(), graph.csc(there).indices.nbytes * 2),
        goal=GOALS["device"],
    )


def walkers_of(bench: GpuBench, graph: ListsGraph) -> tuple[torch.Tensor, int]:
    """Return where walkers start, with edges to go along, and how many steps they make."""
    walkers, length = (16, 4) if bench.quick else (WALKERS, LENGTH)
    start = np.random.default_rng(0).choice(graph.seeds(graph.num_nodes(graph.seed_type)), walkers)
    return device_nodes(bench, start), length


def search_sectors(graph: ListsGraph, q: float) -> float:
    """Return how many sectors a step reads in the mean to know whether its first dart has hit.

    Darts below the least weight of an edge hit for sure (KnightKing, SOSP 2019); the others need a binary
    search among the neighbours of the node before, which walkers come from in proportion to its degree.
    """
    (edge_type,) = graph.edge_types
    lists = graph.csc(edge_type)
    degree = np.diff(lists.indptr).astype(np.float64)
    in_sector = SECTOR_BYTES / lists.indices.itemsize
    of_search = np.log2(np.maximum(degree / in_sector, 1)) + 1
    highest = max(1.0, 1 / q)
    looks = 1 - min(1.0, 1 / q) / highest
    return float(looks * (of_search * degree).sum() / degree.sum())


if __name__ == "__main__":
    main()

"""Edges that a GPU samples per second, beside what it reads in random sectors.

python -m benchmarks.gpu_sample [--device cuda:1] [--scale 22] [--data FOLDER] [--json]

A hop without relabelling samples the neighbours of a million nodes and stops there. Its limit counts the
sectors of 32 bytes that must be read and written at the least: those with the frontier's entries of indptr,
with the indices of chosen edges (and their alias tables, where draws are weighted), and what comes out, each
once; the probe reads random sectors of a block as large as the indices. From pinned host memory only what is
read there counts, beside the same probe of pinned memory. Samples with relabelling, of several hops, have the
same limit and no goal: to find the positions of nodes is work that it does not count.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from functools import partial
from itertools import product
from typing import Any

import torch

from benchmarks.gpu_graphs import ListsGraph, device_nodes, graphs_of_one_type, graphs_of_types
from benchmarks.gpu_measure import GpuBench, Limit, run
from graphbox.bandwidth_gpu import Place, touched_sectors
from graphbox.sample import DeviceGraph, sample_heterogeneous
from graphbox.sample.adjacency import EdgeType
from graphbox.sample.neighbor_gpu import DeviceRelation, HopEdges, sample_hop
from graphbox.sample.sectors import hop_sectors, indptr_sectors, written_sectors

SEEDS = 1 << 20
BATCHES = (1 << 10, 1 << 16)
NUM_NEIGHBORS = 10
HOPS = [15, 10, 5]
GOALS: dict[Place, float] = {"device": 0.5, "pinned": 0.8}
PLACES: tuple[Place, ...] = ("device", "pinned")


def main() -> None:
    """Run all cases."""
    run(__doc__, show_samples, add_options)


def add_options(parser: argparse.ArgumentParser) -> None:
    """Give the parser what graphs need."""
    parser.add_argument("--scale", type=int, default=22, help="of the R-MAT graph: 2^SCALE nodes")


def show_samples(bench: GpuBench) -> None:
    """Measure samples of graphs of one type and of two."""
    for graph in graphs_of_one_type(bench):
        for where in PLACES:
            show_hops(bench, graph, where)
        show_relabelled(bench, graph)
    for graph in graphs_of_types(bench):
        show_hops_of_types(bench, graph)
        show_relabelled(bench, graph)


def show_hops(bench: GpuBench, graph: ListsGraph, where: Place) -> None:
    """Measure hops without relabelling of a graph of one type."""
    on_device = DeviceGraph(graph, bench.device, indices_in=where)
    (edge_type,) = graph.edge_types
    frontier = device_nodes(bench, graph.seeds(16 if bench.quick else SEEDS))
    for weighted, replace in product((False, True), (False, True)):
        relation = relation_of(on_device, edge_type, weighted=weighted)
        sample = partial(sample_hop, relation, frontier, replace=replace, key=(0, 0, 0))
        sampled = sample()
        sectors, edges = (
            hop_sectors(relation, frontier, sampled, replace=replace, where=where),
            len(sampled.cols),
        )
        bench.show(
            f"{graph.name} hop of {NUM_NEIGHBORS}{kind_of(weighted, replace)}, {where}",
            sample,
            units=edges,
            unit="edges/s",
            limit=bench.sector_limit(where, sectors / edges, relation.adjacency.indices.nbytes),
            goal=GOALS[where],
        )


def show_hops_of_types(bench: GpuBench, graph: ListsGraph) -> None:
    """Measure hops without relabelling along every edge type of a graph."""
    on_device = DeviceGraph(graph, bench.device)
    hops: list[Callable[[], HopEdges]] = []
    sectors = edges = 0
    for number, edge_type in enumerate(graph.edge_types):
        relation = relation_of(on_device, edge_type, weighted=False)
        count = min(16 if bench.quick else SEEDS, graph.num_nodes(edge_type[2]))
        frontier = torch.randperm(graph.num_nodes(edge_type[2]), device=bench.device)[:count]
        hops.append(partial(sample_hop, relation, frontier, replace=False, key=(0, 0, number)))
        sampled = hops[-1]()
        sectors += hop_sectors(relation, frontier, sampled, replace=False, where="device")
        edges += len(sampled.cols)
    read_bytes = sum(on_device.csc(each).indices.nbytes for each in graph.edge_types)
    bench.show(
        f"{graph.name} hop of {NUM_NEIGHBORS}{kind_of(False, False)}, device",
        lambda: [hop() for hop in hops],
        units=edges,
        unit="edges/s",
        limit=bench.sector_limit("device", sectors / edges, read_bytes),
        goal=GOALS["device"],
    )


def show_relabelled(bench: GpuBench, graph: ListsGraph) -> None:
    """Measure whole samples, of small batches and of large ones, with positions of nodes."""
    on_device = DeviceGraph(graph, bench.device)
    num_neighbors = [2, 2] if bench.quick else HOPS
    for size, replace in product((4,) if bench.quick else BATCHES, (False, True)):
        seeds = {graph.seed_type: device_nodes(bench, graph.seeds(size))}
        sample = partial(sample_heterogeneous, on_device, seeds, num_neighbors, replace=replace)
        sampled = sample()
        edges = sum(len(each) for each in sampled.edge_ids.values())
        bench.show(
            f"{graph.name} {num_neighbors} of {size} seeds{kind_of(False, replace)}, relabelled",
            sample,
            units=edges,
            unit="edges/s",
            limit=limit_of_sample(bench, on_device, sampled),
        )


def relation_of(graph: DeviceGraph, edge_type: EdgeType, *, weighted: bool) -> DeviceRelation:
    """Return what a hop samples."""
    weights = graph.weights(edge_type, "in") if weighted else None
    return DeviceRelation(graph.csc(edge_type), weights, 0, 0, [NUM_NEIGHBORS])


def limit_of_sample(bench: GpuBench, graph: DeviceGraph, sampled: Any) -> Limit:
    """Return the limit of a sample whose lists are on the device."""
    sectors = written_bytes = read_bytes = edges = 0
    for edge_type, edge_ids in sampled.edge_ids.items():
        indices = graph.csc(edge_type).indices
        read_bytes += indices.nbytes
        edges += len(edge_ids)
        sectors += touched_sectors(edge_ids, indices.itemsize)
        expanded = sampled.nodes[edge_type[2]][: sum(sampled.num_sampled_nodes[edge_type[2]][:-1])]
        sectors += indptr_sectors(expanded)
        written_bytes += sum(each[edge_type].nbytes for each in (sampled.row, sampled.col, sampled.edge_ids))
    written_bytes += sum(nodes.nbytes for nodes in sampled.nodes.values())
    sectors += written_sectors(written_bytes)
    return bench.sector_limit("device", sectors / edges, read_bytes)


def kind_of(weighted: bool, replace: bool) -> str:
    """Return what a case is called."""
    return f"{' by weight' if weighted else ''} {'with' if replace else 'without'} replacement"


if __name__ == "__main__":
    main()

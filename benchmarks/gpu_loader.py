"""Batches and feature rows that a GPU's loaders make per second, wherever lists and rows are.

python -m benchmarks.gpu_loader [--device cuda:1] [--scale 22] [--dim 128] [--json]

Rows are read at the nodes of one batch again and again, from the device's memory, from pinned host memory,
and where a tenth of all rows are resident by measured use; their limit is random rows of that size. Loaders
make batches with features, one after the other, as torch tensors on the device. Beside runs the loader of
the host, whose batches are copied to the device: its rate is the limit. Under budgets a quarter of the lists
and rows fit the device; the rate is that of the third epoch, when what batches read is there.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from benchmarks.gpu_graphs import ListsGraph, graphs_of_one_type
from benchmarks.gpu_measure import GpuBench, Limit, run
from graphbox.bandwidth_gpu import Place
from graphbox.sample import DeviceFeatures, DeviceGraph, NeighborLoader, sample_neighbors

BATCH_SIZE = 1024
NUM_NEIGHBORS = [15, 10]
BATCHES = 200
REPEATS = 5
SHARE = 4
GOALS: dict[Place, float] = {"device": 0.8, "pinned": 0.8}
LIST_KNOWN_BYTES = 20
ROW_KNOWN_BYTES = 12


@dataclass(frozen=True, eq=False)
class Featured:
    """A graph of lists of one type whose nodes have a feature ``x``."""

    of: ListsGraph
    x: npt.NDArray[np.float32]

    @property
    def node_types(self) -> Any:
        """The one node type."""
        return self.of.node_types

    @property
    def edge_types(self) -> Any:
        """The one edge type."""
        return self.of.edge_types

    def num_nodes(self, node_type: str) -> int:
        """Return the number of nodes."""
        return self.of.num_nodes(node_type)

    def csc(self, edge_type: Any) -> Any:
        """Return the in-neighbours."""
        return self.of.csc(edge_type)

    def csr(self, edge_type: Any) -> Any:
        """Return the out-neighbours."""
        return self.of.csr(edge_type)

    def feature(self, node_type: str, name: str) -> npt.NDArray[np.float32]:  # noqa: ARG002 - there is one
        """Return the feature of all nodes."""
        return self.x


def main() -> None:
    """Run all cases."""
    run(__doc__, show_loaders, add_options)


def add_options(parser: argparse.ArgumentParser) -> None:
    """Give the parser what graphs and features need."""
    parser.add_argument("--scale", type=int, default=22, help="of the R-MAT graph: 2^SCALE nodes")
    parser.add_argument("--dim", type=int, default=128, help="float32 of a row of features")


def show_loaders(bench: GpuBench) -> None:
    """Measure rows and loaders."""
    dim = 16 if bench.quick else bench.options.dim
    for lists in graphs_of_one_type(bench):
        nodes = lists.num_nodes(lists.seed_type)
        x = np.random.default_rng(0).random((nodes, dim), np.float32)
        graph = Featured(lists, x)
        show_rows(bench, graph)
        show_batches(bench, graph)


def show_rows(bench: GpuBench, graph: Featured) -> None:
    """Measure reading the rows of a batch."""
    (node_type,) = graph.node_types
    row_bytes = graph.x.shape[1] * 4
    size = 8 if bench.quick else 16 * BATCH_SIZE
    sample = sample_neighbors(DeviceGraph(graph, bench.device), graph.of.seeds(size), NUM_NEIGHBORS)
    nodes: Any = sample.nodes
    budgets = {"device": None, "pinned": 0}
    places: list[Place] = ["device", "pinned"]
    for where in places:
        features = DeviceFeatures(graph, bench.device, ["x"], hbm_bytes=budgets[where])
        bench.show(
            f"{graph.of.name} rows of {row_bytes} bytes, {where}",
            partial(features.fetch, [sample_of(node_type, nodes)]),
            units=len(nodes),
            unit="rows/s",
            limit=bench.row_limit(where, row_bytes, size_bytes=graph.x.nbytes),
            goal=GOALS[where],
        )
    budget = ROW_KNOWN_BYTES * len(graph.x) + graph.x.nbytes // 10
    features = DeviceFeatures(graph, bench.device, ["x"], hbm_bytes=budget)
    hot = nodes[: max(len(graph.x) // 20, 1)]
    for _ in range(2):
        features.fetch([sample_of(node_type, hot)])
        features.end_pass()
    bench.show(
        f"{graph.of.name} rows of {row_bytes} bytes, resident",
        partial(features.fetch, [sample_of(node_type, hot)]),
        units=len(hot),
        unit="rows/s",
        limit=bench.row_limit("device", row_bytes, size_bytes=graph.x.nbytes),
        goal=GOALS["device"],
    )


def show_batches(bench: GpuBench, graph: Featured) -> None:
    """Measure loaders: of the host, all on the device, under budgets, all in pinned memory."""
    (edge_type,) = graph.edge_types
    csc = graph.csc(edge_type)
    lists_bytes, rows_bytes = csc.indices.nbytes, graph.x.nbytes
    name, cores = graph.of.name, torch.get_num_threads()
    host = [batches_seconds(bench, loader_of(bench, graph)) for _ in range(repeats(bench))]
    by_host = bench.show_seconds(
        f"{name} batches of {BATCH_SIZE}, {NUM_NEIGHBORS}, by the host",
        host,
        units=batches(bench),
        unit="batches/s",
        limit=None,
        system="graphbox, host",
    )
    cases: dict[str, tuple[int | None, int | None]] = {
        "on the device": (None, None),
        f"1/{SHARE} on the device": (
            LIST_KNOWN_BYTES * len(csc.indptr) + lists_bytes // SHARE,
            ROW_KNOWN_BYTES * len(graph.x) + rows_bytes // SHARE,
        ),
        "in pinned memory": (0, 0),
    }
    for case, (list_budget, row_budget) in cases.items():
        loader = loader_of(
            bench,
            graph,
            DeviceGraph(graph, bench.device, hbm_bytes=list_budget),
            DeviceFeatures(graph, bench.device, ["x"], hbm_bytes=row_budget),
        )
        for _ in range(2):
            batches_seconds(bench, loader)
        seconds = [batches_seconds(bench, loader) for _ in range(repeats(bench))]
        bench.show_seconds(
            f"{name} batches of {BATCH_SIZE}, {NUM_NEIGHBORS}, {case}",
            seconds,
            units=batches(bench),
            unit="batches/s",
            limit=Limit(f"the host's loader on {cores} threads", by_host.rate),
        )


def loader_of(
    bench: GpuBench,
    graph: Featured,
    on_device: DeviceGraph | None = None,
    features: DeviceFeatures | None = None,
) -> NeighborLoader:
    """Return a loader of batches on the device, by the host unless it is given where all is."""
    return NeighborLoader(
        on_device or graph,
        [2, 2] if bench.quick else NUM_NEIGHBORS,
        graph.of.seeds(batches(bench) * batch_size(bench)),
        batch_size=batch_size(bench),
        shuffle=True,
        features=["x"],
        fetch=features,
        output="torch",
        device=bench.device if bench.device.type == "cuda" else None,
    )


def batches_seconds(bench: GpuBench, loader: Iterable[Any]) -> float:
    """Return how long an epoch of batches takes until all are on the device."""
    begin = time.perf_counter()
    for _ in islice(loader, batches(bench)):
        pass
    if bench.device.type == "cuda":
        torch.cuda.synchronize(bench.device)
    return time.perf_counter() - begin


def batches(bench: GpuBench) -> int:
    """Return how many batches an epoch has."""
    return 2 if bench.quick else BATCHES


def batch_size(bench: GpuBench) -> int:
    """Return how many seeds a batch has."""
    return 4 if bench.quick else BATCH_SIZE


def repeats(bench: GpuBench) -> int:
    """Return how often an epoch is timed."""
    return 1 if bench.quick else REPEATS


def sample_of(node_type: str, nodes: torch.Tensor) -> Any:
    """Return a sample of nodes alone."""
    return NodesAlone({node_type: nodes})


@dataclass(frozen=True)
class NodesAlone:
    """Nodes of a sample: the part by which features are fetched."""

    nodes: dict[str, torch.Tensor]


if __name__ == "__main__":
    main()

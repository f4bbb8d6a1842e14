"""Graphs for the benchmarks of a GPU: of one type and of two, made here or read from a folder."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch

from benchmarks.gpu_measure import GpuBench
from benchmarks.rmat import Rmat, rmat
from benchmarks.typed_graphs import bipartite, kernel
from graphbox.sample.adjacency import EdgeType

__all__ = ["ListsGraph", "WeightedLists", "device_nodes", "graphs_of_one_type", "graphs_of_types"]


@dataclass(frozen=True, eq=False)
class WeightedLists:
    """Compressed rows with a weight for each edge."""

    indptr: npt.NDArray[np.int64]
    indices: npt.NDArray[np.int32]
    weight: npt.NDArray[np.float32]


class ListsGraph:
    """A graph of lists by edge type: in-neighbours, and out-neighbours where every edge has one back.

    Args:
        name: for the cases.
        nodes: of each type.
        lists: the in-neighbours by edge type.
        reverse_of: of each edge type the one whose in-neighbours are its out-neighbours.
        seed_type: the node type that seeds are of.
    """

    def __init__(
        self,
        name: str,
        nodes: Mapping[str, int],
        lists: Mapping[EdgeType, WeightedLists],
        reverse_of: Mapping[EdgeType, EdgeType],
        seed_type: str,
    ) -> None:
        self.name, self.seed_type = name, seed_type
        self._nodes, self._lists, self._reverse_of = nodes, lists, reverse_of
        self.node_types: Sequence[str] = list(nodes)
        self.edge_types: Sequence[EdgeType] = list(lists)

    def num_nodes(self, node_type: str) -> int:
        """Return the number of nodes of a type."""
        return self._nodes[node_type]

    def csc(self, edge_type: EdgeType) -> WeightedLists:
        """Return the in-neighbours of the target type."""
        return self._lists[edge_type]

    def csr(self, edge_type: EdgeType) -> WeightedLists:
        """Return the out-neighbours of the source type."""
        return self._lists[self._reverse_of[edge_type]]

    def seeds(self, count: int) -> npt.NDArray[np.int64]:
        """Return different nodes of the seed type that have in-neighbours, at most ``count``."""
        degree = sum(
            np.diff(lists.indptr) for (_, _, target), lists in self._lists.items() if target == self.seed_type
        )
        nodes = np.flatnonzero(degree)
        return np.random.default_rng(1).permutation(nodes)[:count]


def graphs_of_one_type(bench: GpuBench) -> Iterator[ListsGraph]:
    """Yield an R-MAT graph, of scale ``--scale``, and the kernel's where there is data; all undirected."""
    scale = 6 if bench.quick else bench.options.scale
    yield _one_type(f"rmat{scale}", rmat(scale))
    if bench.data is not None:
        yield _one_type("kernel", kernel(bench.data / "kernel" / "graph.npz").merged)


def graphs_of_types(bench: GpuBench) -> Iterator[ListsGraph]:
    """Yield users and items, and the kernel's files and identifiers where there is data."""
    counts = (40, 20, 300) if bench.quick else (1_000_000, 200_000, 32_000_000)
    named = {"bipartite": bipartite(*counts)}
    if bench.data is not None:
        named["kernel-types"] = kernel(bench.data / "kernel" / "graph.npz")
    for name, graph in named.items():
        lists = {edge_type: _weighted(each) for edge_type, each in graph.lists.items()}
        (there, back) = lists
        yield ListsGraph(name, graph.nodes, lists, {there: back, back: there}, graph.seed_type)


def device_nodes(bench: GpuBench, nodes: npt.NDArray[np.int64]) -> torch.Tensor:
    """Return nodes on the device."""
    return torch.from_numpy(nodes).to(bench.device)


def _one_type(name: str, graph: Rmat) -> ListsGraph:
    edge_type: EdgeType = ("node", "to", "node")
    lists = {edge_type: _weighted(graph)}
    return ListsGraph(name, {"node": graph.num_nodes}, lists, {edge_type: edge_type}, "node")


def _weighted(graph: Rmat) -> WeightedLists:
    drawn = np.random.default_rng(0).standard_exponential(len(graph.indices), dtype=np.float32)
    return WeightedLists(graph.indptr, graph.indices, np.maximum(drawn, np.float32(1e-6)))

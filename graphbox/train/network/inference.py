"""Embeddings of whole graphs, layer by layer: every edge is used, and each vector is computed once.

The vectors between two layers are arrays over all nodes. In memory or, given a folder, in files that are
mapped: then memory holds a block of nodes with their neighbours, whatever the size of the graph.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from graphbox.graph.schema import CSC
from graphbox.models.graph_network import GraphNetwork
from graphbox.sample import DeviceGraph, sample_heterogeneous
from graphbox.train.network.graph import NetworkGraph
from graphbox.train.network.node_data import NodeData
from graphbox.train.processes import ALONE, TrainingProcesses
from graphbox.train.transfer import CPU, moved, tensor_on

BLOCK_NODES = 8192
"""Most nodes whose vectors are computed together."""

_BLOCK_BYTES = 16 << 20
"""Memory of the messages along the edges of a block, about; a node with more edges is a block of its own."""

_MESSAGE_COPIES = 4
"""Vectors that a layer holds for each edge at a time: gathered, mapped, weighted, and their sources'."""

_SCANNED_EDGES = 1 << 22
"""Edges that are looked at together to find which nodes lead to others."""

_SCANNED_NODES = 1 << 17
"""Nodes that are divided into blocks together."""

_STAGES = 3
"""Sets of vectors that are there at a time: the first, those before a layer, and those after it."""
_SHARE_OF_FREE = 0.5

Vectors = dict[str, Tensor]
Masks = dict[str, NDArray[np.bool_]]


@torch.no_grad()
def embed_graph(
    network: GraphNetwork,
    graph: NetworkGraph,
    data: Mapping[str, NodeData],
    *,
    nodes: Mapping[str, NDArray[np.int64]] | None = None,
    folder: Path | None = None,
    block_nodes: int = BLOCK_NODES,
    sampled: DeviceGraph | None = None,
    threads: int | None = None,
    processes: TrainingProcesses = ALONE,
) -> dict[str, NDArray[np.float32]]:
    """Return the embeddings of nodes: float32 [nodes of the type, dim] by node type.

    A node that has no row in the table of its type, because it came after training, is embedded from its
    features and neighbours.

    Args:
        network: in evaluation mode.
        graph: the graph; it may have nodes that training did not see.
        data: what its nodes have, by node type.
        nodes: of which the embeddings are asked for, by node type; None: all. The vectors of nodes that
            neither are nor lead to one of them within the layers stay 0.
        folder: where vectors are kept; None: in memory. Files of earlier layers are removed.
        block_nodes: most nodes whose vectors are computed together; nodes with many edges come in smaller
            blocks. Changes no bit of the result but for the order in which torch adds.
        sampled: the same graph, where its neighbours are sampled on the device of the network; None: they are
            on the CPU.
        threads: threads of the sampler.
        processes: which all call this, divide the blocks and give each other what they found, so that all
            get the bits that one finds.
    """
    needed = _needed(graph, nodes, network.shape.layers)
    device = next(network.parameters()).device
    store = _Store(graph, network.shape.dim, folder, device)
    first, nothing = store.new("first"), torch.zeros(0, network.shape.dim, device=device)
    for name, blocks in _rounds(needed[0], {}, block_nodes, 1, processes.size):
        block = blocks[processes.rank]
        batch = {name: moved(data[name].take(torch.from_numpy(block)), device)}
        rows = {name: network.input_module(name).fetch(batch[name])}  # of tables of all, if only by others
        own = network.enter(batch, rows)[name] if len(block) else nothing
        store.write(first[name], blocks, _of_all(processes, own, blocks))
    vectors = first
    offsets = _offsets(graph)
    block_edges = max(1, _BLOCK_BYTES // (4 * network.shape.dim * _MESSAGE_COPIES))
    for number in range(network.shape.layers):
        following = store.new(f"layer{number}")
        for name, blocks in _rounds(needed[number + 1], offsets, block_nodes, block_edges, processes.size):
            block, own = blocks[processes.rank], nothing
            if len(block):
                sample = sample_heterogeneous(
                    graph.view if sampled is None else sampled,
                    {name: tensor_on(block, CPU if sampled is None else sampled.device)},
                    {edge_type: [-1] for edge_type in graph.edge_types},
                    edge_attributes=graph.edge_attributes,
                    num_threads=threads,
                )
                (edges,) = graph.layers_of(moved(sample, device), 1)
                before, start = (moved(_rows(each, sample.nodes), device) for each in (vectors, first))
                own = network.layer(number, before, edges, start)[name][: len(block)]
            store.write(following[name], blocks, _of_all(processes, own, blocks))
        if vectors is not first:
            store.remove(f"layer{number - 1}")
        vectors = following
    store.remove("first")
    return {name: each.cpu().numpy() for name, each in vectors.items()}


class _Store:
    """Vectors of all nodes: on a GPU if they leave room there, in memory, or in files."""

    def __init__(self, graph: NetworkGraph, dim: int, folder: Path | None, device: torch.device) -> None:
        self._shapes = {name: (graph.view.num_nodes(name), dim) for name in graph.node_types}
        self._folder = folder
        self._place = CPU
        if folder is not None:
            folder.mkdir(parents=True, exist_ok=True)
        elif device.type == "cuda":
            needed_bytes = _STAGES * sum(4 * nodes * dim for nodes, dim in self._shapes.values())
            free_bytes, _ = torch.cuda.mem_get_info(device)
            self._place = device if needed_bytes < _SHARE_OF_FREE * free_bytes else CPU

    def new(self, stage: str) -> Vectors:
        if self._folder is None and self._place == CPU:
            # Of NumPy, whose zeros take no memory before they are written: few nodes may be asked for.
            return {
                name: torch.from_numpy(np.zeros(shape, np.float32)) for name, shape in self._shapes.items()
            }
        if self._folder is None:
            return {name: torch.zeros(shape, device=self._place) for name, shape in self._shapes.items()}
        return {
            name: torch.from_numpy(
                np.lib.format.open_memmap(self._path(stage, name), "w+", np.float32, shape)
            )
            for name, shape in self._shapes.items()
        }

    def write(self, vectors: Tensor, blocks: Sequence[NDArray[np.int64]], values: Tensor) -> None:
        vectors[tensor_on(np.concatenate(blocks), self._place)] = values.to(self._place)

    def remove(self, stage: str) -> None:
        if self._folder is not None:
            for name in self._shapes:
                self._path(stage, name).unlink()

    def _path(self, stage: str, node_type: str) -> Path:
        assert self._folder is not None  # noqa: S101 - for the type checker
        return self._folder / f"{node_type}.{stage}.npy"


def _needed(graph: NetworkGraph, nodes: Mapping[str, NDArray[np.int64]] | None, layers: int) -> list[Masks]:
    """Return of which nodes vectors are needed before the first layer and after each."""
    last: Masks = {}
    for name in graph.node_types:
        last[name] = np.full(graph.view.num_nodes(name), nodes is None)
        if nodes is not None and name in nodes:
            last[name][nodes[name]] = True
    found = [last]
    for _ in range(layers):
        after = found[0]
        before = {name: mask.copy() for name, mask in after.items()}
        for edge_type in graph.edge_types:
            if not before[edge_type[0]].all():
                _mark_sources(graph.view.csc(edge_type), after[edge_type[2]], before[edge_type[0]])
        found.insert(0, before)
    return found


def _mark_sources(csc: CSC, targets: NDArray[np.bool_], sources: NDArray[np.bool_]) -> None:
    """Mark the sources of the edges that lead to marked targets."""
    first = 0
    while first < len(targets):
        last = int(np.searchsorted(csc.indptr, csc.indptr[first] + _SCANNED_EDGES, side="right")) - 1
        last = min(max(last, first + 1), len(targets))
        leads = np.repeat(targets[first:last], np.diff(csc.indptr[first : last + 1]))
        sources[csc.indices[csc.indptr[first] : csc.indptr[last]][leads]] = True
        first = last


def _offsets(graph: NetworkGraph) -> dict[str, list[NDArray[np.int64]]]:
    """Return where the lists of edges into each node begin, of each edge type, by the type of the nodes."""
    found: dict[str, list[NDArray[np.int64]]] = {}
    for edge_type in graph.edge_types:
        found.setdefault(edge_type[2], []).append(graph.view.csc(edge_type).indptr)
    return found


def _rounds(
    masks: Masks,
    offsets: Mapping[str, Sequence[NDArray[np.int64]]],
    block_nodes: int,
    block_edges: int,
    processes: int,
) -> Iterator[tuple[str, list[NDArray[np.int64]]]]:
    """Yield a node type and a block of its nodes for each process, until all nodes had their turn.

    Args:
        masks: bool [nodes], which nodes, by node type.
        offsets: int64 [nodes + 1], where lists of edges into each node begin; types without count none.
        block_nodes: most nodes of a block.
        block_edges: most edges into the nodes of a block, but for a node that has more itself.
        processes: how many there are.
    """
    for name, mask in masks.items():
        blocks: list[NDArray[np.int64]] = []
        for first in range(0, len(mask), _SCANNED_NODES):
            nodes = first + np.flatnonzero(mask[first : first + _SCANNED_NODES])
            edges = np.zeros(len(nodes), np.int64)
            for each in offsets.get(name, ()):
                edges += each[nodes + 1] - each[nodes]
            blocks += _blocks(nodes, edges, block_nodes, block_edges)
            while len(blocks) >= processes:
                yield name, blocks[:processes]
                del blocks[:processes]
        if blocks:
            yield name, blocks + [np.zeros(0, np.int64)] * (processes - len(blocks))


def _blocks(
    nodes: NDArray[np.int64], edges: NDArray[np.int64], block_nodes: int, block_edges: int
) -> list[NDArray[np.int64]]:
    """Return the nodes in blocks, in order; each has one node at least."""
    before = np.concatenate([[0], np.cumsum(edges)])
    blocks, start = [], 0
    while start < len(nodes):
        stop = int(np.searchsorted(before, before[start] + block_edges, side="right")) - 1
        stop = min(max(stop, start + 1), start + block_nodes)
        blocks.append(nodes[start:stop])
        start = stop
    return blocks


def _of_all(processes: TrainingProcesses, own: Tensor, blocks: Sequence[NDArray[np.int64]]) -> Tensor:
    """Return the vectors of the blocks of all processes."""
    return processes.gather_rows("vectors of nodes", own, [len(block) for block in blocks])


def _rows(vectors: Vectors, nodes: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {name: each[nodes[name].to(each.device)] for name, each in vectors.items()}

"""Our neighbour sampler as PyTorch Geometric's ``BaseSampler``, for its ``NodeLoader`` and ``LinkLoader``."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch_geometric.sampler import (
    BaseSampler,
    EdgeSamplerInput,
    HeteroSamplerOutput,
    NegativeSampling,
    NodeSamplerInput,
    SamplerOutput,
)

from graphbox.errors import UnsupportedError, UsageError
from graphbox.native import seed_number
from graphbox.sample.adjacency import EdgeType, GraphLike
from graphbox.sample.sampled import HeteroSample, NeighborSample
from graphbox.sample.sampler import sample_heterogeneous, sample_neighbors


class PygNeighborSampler(BaseSampler):  # type: ignore[misc]  # the package has no types
    """Samples in-neighbours for the loaders of PyTorch Geometric.

    Seeds without a node type (``input_nodes`` is a tensor) give a ``SamplerOutput`` and need a graph with one
    node and one edge type; seeds with one give a ``HeteroSamplerOutput``. ::

        sampler = PygNeighborSampler(graph, num_neighbors=[15, 10])
        loader = NodeLoader(graph.pyg_stores(), sampler, input_nodes=("paper", indices), batch_size=1024)

    What is drawn depends on ``seed`` and on a number that each batch takes from PyTorch's generator: draws
    differ from epoch to epoch and between workers, and ``torch.manual_seed`` repeats them.

    Args:
        graph: what to sample.
        num_neighbors: how many neighbours at each hop, for all edge types or by edge type; -1: all.
        replace: draw neighbours with replacement.
        seed: of the random draws.
        num_threads: threads for one batch. None: see :func:`graphbox.native.thread_count`.

    Raises:
        UsageError: ``graph`` is none.
    """

    def __init__(
        self,
        graph: GraphLike,
        num_neighbors: Mapping[EdgeType, Sequence[int]] | Sequence[int],
        *,
        replace: bool = False,
        seed: int = 0,
        num_threads: int | None = None,
    ) -> None:
        if not isinstance(graph, GraphLike):
            raise UsageError(f"expected a graph, received {type(graph).__name__}", where="graph")
        self.graph = graph
        self.num_neighbors = num_neighbors
        self.replace = replace
        self.seed = seed_number(seed)
        self.num_threads = num_threads

    def sample_from_nodes(self, index: NodeSamplerInput, **_: object) -> SamplerOutput | HeteroSamplerOutput:
        """Return the sampled neighbourhood of a batch of nodes.

        Raises:
            UnsupportedError: the seeds have timestamps.
        """
        _refuse_times(index.time)
        metadata = (index.input_id, None)
        if index.input_type is None:
            return self._homogeneous(index.node, metadata)
        return self._heterogeneous({index.input_type: index.node}, metadata)

    def sample_from_edges(
        self, index: EdgeSamplerInput, neg_sampling: NegativeSampling | None = None
    ) -> SamplerOutput | HeteroSamplerOutput:
        """Return the sampled neighbourhood of the ends of a batch of edges, and of negatives drawn for them.

        Raises:
            UnsupportedError: the edges have timestamps.
        """
        _refuse_times(index.time)
        sources, targets, label = index.row, index.col, index.label
        edges = len(sources)
        source_type, target_type = self._ends(index.input_type)
        if neg_sampling is not None:
            negatives = math.ceil(edges * neg_sampling.amount)
            if neg_sampling.is_binary():
                drawn = neg_sampling.sample(negatives, "src", self.graph.num_nodes(source_type))
                sources = torch.cat([sources, drawn])
                label = torch.ones(edges) if label is None else label
                label = torch.cat([label, label.new_zeros((negatives, *label.shape[1:]))])
            drawn = neg_sampling.sample(negatives, "dst", self.graph.num_nodes(target_type))
            targets = torch.cat([targets, drawn])
        seeds, local_sources, local_targets = _seeds(sources, targets, source_type, target_type)
        if neg_sampling is not None and neg_sampling.is_triplet():
            shape = (edges, -1) if neg_sampling.amount > 1 else (edges,)
            metadata: tuple[Any, ...] = (
                index.input_id,
                local_sources,
                local_targets[:edges],
                local_targets[edges:].reshape(shape),
                None,
            )
        else:
            metadata = (index.input_id, torch.stack([local_sources, local_targets]), label, None)
        if index.input_type is None:
            return self._homogeneous(seeds[source_type], metadata)
        return self._heterogeneous(seeds, metadata)

    def _ends(self, edge_type: EdgeType | None) -> tuple[str, str]:
        if edge_type is not None:
            return edge_type[0], edge_type[-1]
        return self.graph.node_types[0], self.graph.node_types[0]

    def _homogeneous(self, seeds: Tensor, metadata: object) -> SamplerOutput:
        if isinstance(self.num_neighbors, Mapping):
            raise UsageError(
                "expected one list of numbers for seeds without a node type, received a mapping",
                where="num_neighbors",
                hint="give the loader its seeds as (node type, indices)",
            )
        sample = sample_neighbors(self.graph, seeds, self.num_neighbors, **self._options())
        return SamplerOutput(**_contents(sample), metadata=metadata)

    def _heterogeneous(self, seeds: Mapping[str, Tensor], metadata: object) -> HeteroSamplerOutput:
        sample = sample_heterogeneous(self.graph, seeds, self.num_neighbors, **self._options())
        return HeteroSamplerOutput(**_contents(sample), metadata=metadata)

    def _options(self) -> dict[str, Any]:
        return {
            "replace": self.replace,
            "seed": self.seed,
            "batch": int(torch.randint(2**62, ())),
            "num_threads": self.num_threads,
        }


def _contents(sample: NeighborSample[Tensor] | HeteroSample[Tensor]) -> dict[str, Any]:
    """Return what a sample has under the names of PyTorch Geometric's outputs."""
    return {
        "node": sample.nodes,
        "row": sample.row,
        "col": sample.col,
        "edge": sample.edge_ids,
        "batch": None,
        "num_sampled_nodes": sample.num_sampled_nodes,
        "num_sampled_edges": sample.num_sampled_edges,
    }


def _seeds(
    sources: Tensor, targets: Tensor, source_type: str, target_type: str
) -> tuple[dict[str, Tensor], Tensor, Tensor]:
    """Return distinct seeds by node type, and the positions of sources and targets among them."""
    if source_type == target_type:
        nodes, position = torch.unique(torch.cat([sources, targets]), return_inverse=True)
        return {source_type: nodes}, position[: len(sources)], position[len(sources) :]
    source_nodes, source_position = torch.unique(sources, return_inverse=True)
    target_nodes, target_position = torch.unique(targets, return_inverse=True)
    return {source_type: source_nodes, target_type: target_nodes}, source_position, target_position


def _refuse_times(time: Tensor | None) -> None:
    if time is not None:
        raise UnsupportedError(
            "expected seeds without timestamps: neighbours are sampled at all times",
            where="input_time",
            hint="graphbox.NeighborLoader and LinkNeighborLoader sample up to times",
        )

"""What nodes have around them: some neighbours in each relation; from memory, disk or a GPU the same bits."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from graphbox.graph.schema import EdgeType
from graphbox.graph.tiered_graph import TieredGraph
from graphbox.models.sage import NeighborBlock
from graphbox.sample import HeteroSample, sample_heterogeneous
from graphbox.sample.loader.assemble import sample_as_torch
from graphbox.sample.tiered_neighbor import sample_pass
from graphbox.train.memory import TrainingMemory
from graphbox.train.transfer import CPU, tensor_on
from graphbox.train.view import GraphView

_PASS_DRAWS = 256
"""Draws, at the most, after which lists that are read most are brought to a GPU that has no room for all."""


class Neighborhoods:
    """Draws neighbours of nodes of one type, without replacement.

    Args:
        view: the graph.
        node_type: type of the nodes.
        relations: edge types that arrive at it.
        num_neighbors: the most neighbours of a node in a relation.
        seed: of the draws.
        memory: where lists are kept; with a budget of the topology they are read from disk.
        threads: threads of the sampler on the CPU.
    """

    def __init__(
        self,
        view: GraphView,
        node_type: str,
        relations: Sequence[EdgeType],
        num_neighbors: int,
        *,
        seed: int,
        memory: TrainingMemory,
        threads: int | None = None,
    ) -> None:
        self._node_type = node_type
        self._tiered: TieredGraph | None = None
        if memory.graph_on_disk:
            view = memory.on_disk(view, relations)
            self._tiered = memory.tiered(view)
        self._view = view
        self._num_neighbors = {relation: [num_neighbors] for relation in relations}
        self._seed, self._threads = seed, threads
        self._on_device = memory.sampled_on_device(view, [num_neighbors])
        self._draws, self._due = 0, 1  # 1, 2, 4, ...: the graph of an epoch begins with none

    def draw(self, nodes: NDArray[np.int64], epoch: int, batch: int) -> HeteroSample[Tensor]:
        """Return the neighbours of distinct nodes, one hop; it is where they are drawn.

        Args:
            nodes: int64 [n].
            epoch: part of the key of the draws, as the seed.
            batch: part of the key of the draws, as the seed.
        """
        graph = self._on_device
        if graph is not None and self._draws == self._due:
            graph.end_pass()
            self._draws, self._due = 0, min(2 * self._due, _PASS_DRAWS)
        self._draws += 1
        if self._tiered is not None:
            return self._from_disk(nodes, epoch, batch)
        return sample_heterogeneous(
            self._view if graph is None else graph,
            {self._node_type: tensor_on(nodes, CPU if graph is None else graph.device)},
            self._num_neighbors,
            seed=self._seed,
            epoch=epoch,
            batch=batch,
            num_threads=self._threads,
        )

    def _from_disk(self, nodes: NDArray[np.int64], epoch: int, batch: int) -> HeteroSample[Tensor]:
        assert self._tiered is not None  # noqa: S101 - the caller has looked
        drawn = sample_pass(
            self._tiered,
            [{self._node_type: nodes}],
            self._num_neighbors,
            batches=[(epoch, batch)],
            num_threads=self._threads,
            seed=self._seed,
        )
        return sample_as_torch(drawn[0])


def neighbor_blocks(sample: HeteroSample[Tensor], seeds: int) -> dict[EdgeType, NeighborBlock]:
    """Return the neighbours of the seeds of a sample by relation, as positions among its nodes.

    Args:
        sample: of one hop.
        seeds: how many there are.
    """
    blocks = {}
    for relation, cols in sample.col.items():  # which ascend: neighbours come seed by seed
        places = torch.arange(seeds + 1, device=cols.device)
        blocks[relation] = NeighborBlock(sample.row[relation], torch.searchsorted(cols, places))
    return blocks

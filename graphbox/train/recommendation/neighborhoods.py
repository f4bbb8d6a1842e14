"""Neighbourhoods of nodes: some neighbours in each relation; from memory, disk or a GPU the same bits."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from graphbox.graph.schema import EdgeType
from graphbox.graph.tiered_graph import TieredGraph
from graphbox.models.sage import NeighborBlock
from graphbox.sample import HeteroSample, SampleRequest, prepare_sampler
from graphbox.sample.loader.assemble import sample_as_torch
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
        tiered: TieredGraph | None = None
        if memory.graph_on_disk:
            view = memory.on_disk(view, relations)
            tiered = memory.tiered(view)
        self._on_device = None if tiered is not None else memory.sampled_on_device(view, [num_neighbors])
        self._sampler = prepare_sampler(
            tiered or self._on_device or view,
            {relation: [num_neighbors] for relation in relations},
            seed=seed,
            num_threads=threads,
        )
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
        seeds = tensor_on(nodes, CPU if graph is None else graph.device)
        (sample,) = self._sampler.sample([SampleRequest({self._node_type: seeds}, None, epoch, batch)])
        return sample_as_torch(sample)


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

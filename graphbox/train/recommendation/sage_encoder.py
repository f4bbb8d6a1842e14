"""A trained two-tower GraphSAGE, over the neighbourhoods it was given, and the vectors of all its nodes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from graphbox.graph.schema import EdgeType
from graphbox.models.features import FeatureSizes
from graphbox.models.sage import NeighborBlock, TwoTowerSAGE
from graphbox.train.recommendation.neighborhoods import Neighborhoods, neighbor_blocks
from graphbox.train.transfer import moved, place_of

_BLOCK_NODES = 8192
"""Nodes that are encoded together."""


@dataclass(frozen=True, eq=False)
class SageEncoder:
    """A trained two-tower model with everything that encoding needs.

    Attributes:
        model: in evaluation mode.
        features: what the model knows of the features of its node types.
        inputs: input rows by node type, float32 [nodes, dim].
        neighbors: by relation the fixed sample of neighbours, int32 [nodes of the type, at most F], -1 where
            absent.
        query: float32 [nodes, dim], query vectors of all nodes.
        target: float32 [nodes, dim], target vectors of all nodes.
    """

    model: TwoTowerSAGE
    features: dict[str, FeatureSizes]
    inputs: dict[str, NDArray[np.float32]]
    neighbors: dict[EdgeType, NDArray[np.int32]]
    query: NDArray[np.float32]
    target: NDArray[np.float32]

    def score(self, queries: NDArray[np.int64]) -> NDArray[np.float32]:
        """Return the inner products of queries with all targets: float32 [queries, nodes]."""
        return np.asarray(self.query[queries] @ self.target.T, dtype=np.float32)


class NeighborTables:
    """Gathers the neighbours that nodes were encoded from, in the order of the nodes."""

    def __init__(self) -> None:
        self._parts: list[dict[EdgeType, tuple[NDArray[np.int32], NDArray[np.int64]]]] = []

    def add(self, around: Mapping[EdgeType, NeighborBlock]) -> None:
        """Take the neighbours of the nodes that come next, as nodes of the type they are of."""
        self._parts.append(
            {
                relation: (block.rows.to(torch.int32).cpu().numpy(), block.offsets.diff().cpu().numpy())
                for relation, block in around.items()
            }
        )

    def tables(self) -> dict[EdgeType, NDArray[np.int32]]:
        """Return by relation int32 [nodes, most neighbours of a node, one at least], -1 where absent."""
        found = {}
        for relation in self._parts[0] if self._parts else ():
            neighbors = np.concatenate([part[relation][0] for part in self._parts])
            degree = np.concatenate([part[relation][1] for part in self._parts])
            first = np.cumsum(degree) - degree
            table = np.full((len(degree), max(1, int(degree.max(initial=0)))), -1, dtype=np.int32)
            slot = np.arange(len(neighbors)) - np.repeat(first, degree)
            table[np.repeat(np.arange(len(degree)), degree), slot] = neighbors
            found[relation] = table
        return found


@torch.no_grad()
def encode_nodes(
    model: TwoTowerSAGE,
    inputs: Mapping[str, Tensor],
    neighborhoods: Neighborhoods,
    tables: NeighborTables | None = None,
) -> tuple[Tensor, Tensor]:
    """Return the vectors of all nodes as queries and as targets: float32 [nodes, dim] each.

    They are where the model computes, if that has room for them, else in host memory. Nodes are drawn for
    and encoded in blocks, the number of a block in the place of that of a batch.

    Args:
        model: in evaluation mode.
        inputs: input rows of all nodes by node type, where the model computes.
        neighborhoods: what the nodes have around them.
        tables: gets the neighbours that were drawn.
    """
    rows = inputs[model.node_type]
    nodes, device = len(rows), rows.device
    place = place_of(2 * rows.element_size() * rows.numel(), device)
    query, target = (torch.empty(nodes, model.dim, device=place) for _ in range(2))
    for number, start in enumerate(range(0, nodes, _BLOCK_NODES)):
        stop = min(start + _BLOCK_NODES, nodes)
        sample = neighborhoods.draw(np.arange(start, stop), 0, number)
        drawn = {
            relation: NeighborBlock(sample.nodes[relation[0]][block.rows], block.offsets)
            for relation, block in neighbor_blocks(sample, stop - start).items()
        }
        if tables is not None:
            tables.add(drawn)
        aggregated = model.aggregate(inputs, moved(drawn, device))
        query[start:stop] = model.query(rows[start:stop], aggregated)
        target[start:stop] = model.target(rows[start:stop], aggregated)
    return query, target

"""A GraphSAGE tower lowered to padded blocks: Gather, MatMul and one Gemm; no scatter, no loop.

Relations that join the same two node types share one neighbour table, so that a request needs few inputs.
A Gather of all their slots at once would leave the cache at large batches: they are taken a few at a time.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn
from torch.nn import functional

from graphbox.graph.schema import EdgeType
from graphbox.models.sage import SageTower

_RELATIONS_PER_GATHER = 4


@dataclass(frozen=True, eq=False)
class RelationBlock:
    """The relations between two node types, with the neighbours of each node in each of them.

    Attributes:
        edge_types: R triples with the same source and target.
        counts: uint16 [nodes of the target, R].
        neighbors: int32 [sum of counts], node indices of the source, node by node, then by relation.
    """

    edge_types: tuple[EdgeType, ...]
    counts: npt.NDArray[np.uint16]
    neighbors: npt.NDArray[np.int32]

    @property
    def source(self) -> str:
        """Node type of the neighbours."""
        return self.edge_types[0][0]


def group_relations(
    relations: Sequence[EdgeType], neighbors: Mapping[EdgeType, npt.NDArray[np.int32]]
) -> list[RelationBlock]:
    """Group relations by their source type, in the order of first appearance.

    Args:
        relations: edge types that arrive at one node type.
        neighbors: of each, a table int32 [nodes of the target, F], -1 = absent; F may differ.
    """
    blocks: list[RelationBlock] = []
    for source in dict.fromkeys(relation[0] for relation in relations):
        members = tuple(relation for relation in relations if relation[0] == source)
        present = [neighbors[relation] >= 0 for relation in members]
        counts = np.stack([table.sum(axis=1) for table in present], axis=1).astype(np.uint16)
        start = np.concatenate([[0], np.cumsum(counts.reshape(-1), dtype=np.int64)])[:-1].reshape(
            counts.shape
        )
        flat = np.empty(int(counts.sum(dtype=np.int64)), np.int32)
        for position, relation in enumerate(members):
            order = np.cumsum(present[position], axis=1) - 1
            flat[(start[:, position, None] + order)[present[position]]] = neighbors[relation][
                present[position]
            ]
        blocks.append(RelationBlock(members, counts, flat))
    return blocks


class PaddedBlockEncoder(nn.Module):
    """The same function as ``SageTower``, of padded blocks.

    Args:
        tower: the trained tower; its relations in the order of ``relations``.
        relations: edge types in the order of the tower's columns.
        blocks: the same relations, grouped.
        own_source: position, among ``sources``, of the node type of the seeds.
        sources: node types of the row inputs.
    """

    def __init__(
        self,
        tower: SageTower,
        relations: Sequence[EdgeType],
        blocks: Sequence[RelationBlock],
        sources: Sequence[str],
        node_type: str,
    ) -> None:
        super().__init__()
        self.dim = tower.combine.out_features
        self._own_source = sources.index(node_type)
        self._source_of_block = [sources.index(block.source) for block in blocks]
        self.combine = nn.Linear(tower.combine.in_features, self.dim)
        order = [relations.index(edge_type) for block in blocks for edge_type in block.edge_types]
        with torch.no_grad():
            columns = tower.combine.weight.reshape(self.dim, 1 + len(relations), self.dim)
            grouped = columns[:, [0, *(1 + position for position in order)]]
            self.combine.weight.copy_(grouped.reshape(self.dim, -1))
            self.combine.bias.copy_(tower.combine.bias)

    def forward(
        self, rows: list[Tensor], own: Tensor, neighbors: list[Tensor], weights: list[Tensor]
    ) -> Tensor:
        """Return unit vectors, float32 [B, dim].

        Args:
            rows: for each source type float32 [U, dim].
            own: int64 [B], positions of the seeds in the rows of their type.
            neighbors: for each block int64 [B, R, F], positions in the rows of its source type.
            weights: for each block float32 [B, R, F], 0 where absent.
        """
        parts = [rows[self._own_source].index_select(0, own)]
        for source, table, weight in zip(self._source_of_block, neighbors, weights, strict=True):
            some_of_both = (torch.split(part, _RELATIONS_PER_GATHER, 1) for part in (table, weight))
            for some, factor in zip(*some_of_both, strict=True):
                # `rows[some]` would become GatherND, 15 % slower than the Gather that `embedding` becomes.
                gathered = functional.embedding(some, rows[source])
                total = torch.matmul(factor.unsqueeze(2), gathered)
                parts.append(total.reshape(-1, some.shape[1] * self.dim))
        return functional.normalize(self.combine(torch.cat(parts, dim=1)), dim=1)

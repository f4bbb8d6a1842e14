"""Two-tower heterogeneous GraphSAGE: which nodes answer a query node.

One hop: a node is encoded from its own input row and, for each relation that arrives at its node type, the
sum of its neighbours' input rows over the square root of their number (GraphSAGE, Hamilton et al., NeurIPS
2017; the square root keeps the evidence of many neighbours without letting hubs drown the rest, as in
LightGCN, He et al., SIGIR 2020). Two towers of the same shape and the same input rows encode queries and
targets; both vectors have length 1, and a learned scale turns their inner product into a logit.

What leaves this file for serving, for B seeds and R relations with at most F neighbours each:

======================  =========================  =====================================================
``inputs[t]``           float32 [U_t, dim]         input rows of node type t: embedding row + features
``seeds``               int64 [B]                  positions of the seeds in ``inputs[node_type]``
``neighbors[r]``        int64 [B, F]               positions in ``inputs[source type of r]``; 0 if absent
``weights[r]``          float32 [B, F]             1 / sqrt(number of neighbours), 0 if absent
output                  float32 [B, dim]           unit vectors
======================  =========================  =====================================================

``graphbox.export`` writes this as one gather and one batched matrix product for each relation and one Gemm
(``combine``: weight [dim, (1 + R) * dim], the columns in the order self, relation 0, relation 1, ...).
Relations keep the order of ``TwoTowerSAGE.relations`` everywhere. ``neighbors`` and ``weights`` come from the
stored tables of at most F neighbours, where -1 is absent.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional

from graphbox.graph.schema import EdgeType
from graphbox.models.features import FeatureEncoder, FeatureSizes


@dataclass(frozen=True, eq=False)
class NeighborBlock:
    """The sampled neighbours of a batch's seeds in one relation, one after the other.

    Attributes:
        rows: int64 [edges], positions in the inputs of the relation's source type.
        offsets: int64 [seeds + 1]; the neighbours of seed i are ``rows[offsets[i]:offsets[i + 1]]``.
    """

    rows: Tensor
    offsets: Tensor


class SageTower(nn.Module):
    """One tower: input rows of a node and of its neighbours in, a unit vector out.

    Args:
        dim: length of input rows and of the output.
        num_relations: number of relations that are aggregated.
    """

    def __init__(self, dim: int, num_relations: int) -> None:
        super().__init__()
        self.combine = nn.Linear(dim * (1 + num_relations), dim)
        # As large as that of one Linear for each relation: a seed has neighbours in few of them.
        nn.init.uniform_(self.combine.weight, -1.0 / math.sqrt(dim), 1.0 / math.sqrt(dim))

    def forward(self, own: Tensor, aggregated: Sequence[Tensor]) -> Tensor:
        """Return unit vectors, float32 [seeds, dim].

        Args:
            own: float32 [seeds, dim], input rows of the seeds.
            aggregated: for each relation float32 [seeds, dim], see :meth:`TwoTowerSAGE.aggregate`.
        """
        combined: Tensor = self.combine(torch.cat([own, *aggregated], dim=1))
        return functional.normalize(combined, dim=1)


class TwoTowerSAGE(nn.Module):
    """Query tower and target tower over the input rows of the same nodes.

    ``query`` and ``target`` are the towers. What a node has around it is the same for both, so it is summed
    once, by :meth:`aggregate`.

    Args:
        node_type: type of queries and targets.
        relations: edge types that arrive at ``node_type`` and are aggregated, in this order.
        dim: length of embedding rows and of the vectors.
        features: what is known of the features of the node types that have any.
        initial_scale: initial factor between inner products and logits.
    """

    def __init__(
        self,
        node_type: str,
        relations: Sequence[EdgeType],
        dim: int,
        features: Mapping[str, FeatureSizes],
        initial_scale: float = 15.0,
    ) -> None:
        super().__init__()
        self.node_type = node_type
        self.relations = tuple(relations)
        self.dim = dim
        self.features = nn.ModuleDict({name: FeatureEncoder(sizes, dim) for name, sizes in features.items()})
        self.query = SageTower(dim, len(self.relations))
        self.target = SageTower(dim, len(self.relations))
        self.log_scale = nn.Parameter(torch.tensor(math.log(initial_scale)))

    def input_rows(self, node_type: str, rows: Tensor, codes: Tensor, numbers: Tensor) -> Tensor:
        """Return the input rows of nodes: float32 [n, dim].

        Args:
            node_type: type of the nodes.
            rows: float32 [n, dim], their embedding rows.
            codes: int64 [n, categorical features] of :class:`graphbox.models.features.NodeFeatures`.
            numbers: float32 [n, numeric features] of the same.
        """
        if node_type not in self.features:
            return rows
        added: Tensor = self.features[node_type](codes, numbers)
        return rows + added

    def aggregate(
        self, inputs: Mapping[str, Tensor], neighbors: Mapping[EdgeType, NeighborBlock]
    ) -> list[Tensor]:
        """Return what towers take of the neighbours of seeds: float32 [seeds, dim] for each relation.

        Args:
            inputs: input rows by node type, float32 [nodes, dim].
            neighbors: the neighbours of the seeds by relation.
        """
        return [_aggregate(inputs[relation[0]], neighbors[relation]) for relation in self.relations]

    def logits(self, queries: Tensor, targets: Tensor) -> Tensor:
        """Return the logits of all pairs: float32 [queries, targets]."""
        return self.log_scale.exp() * (queries @ targets.T)


def _aggregate(inputs: Tensor, block: NeighborBlock) -> Tensor:
    total = functional.embedding_bag(block.rows, inputs, block.offsets, mode="sum", include_last_offset=True)
    number = block.offsets.diff().clamp(min=1).to(torch.float32)
    return total * number.rsqrt().unsqueeze(1)

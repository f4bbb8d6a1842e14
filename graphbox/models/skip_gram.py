"""Skip-gram with negative sampling over the nodes of a graph, as pairs of rows in two embedding tables.

DeepWalk (Perozzi et al., KDD 2014) and metapath2vec (Dong et al., KDD 2017) differ in the walks alone. The
nodes of all types share one numbering: a node's key is its index plus the number of nodes of the types
before its own.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional

from graphbox.table import EmbeddingTable, TableEmbedding


class NodeKeys:
    """One numbering for the nodes of several types.

    Args:
        num_nodes: number of nodes by type, in the order of the numbering.
    """

    def __init__(self, num_nodes: Mapping[str, int]) -> None:
        self.num_nodes = dict(num_nodes)
        ends = np.cumsum([0, *self.num_nodes.values()])
        self._start = dict(zip(self.num_nodes, ends[:-1].tolist(), strict=True))
        self.total = int(ends[-1])

    def start(self, node_type: str) -> int:
        """Return the key of the first node of a type."""
        return int(self._start[node_type])

    def keys(self, node_type: str) -> NDArray[np.int64]:
        """Return the keys of all nodes of a type: int64 [n]."""
        return self.of(node_type, np.arange(self.num_nodes[node_type], dtype=np.int64))

    def of(self, node_type: str, index: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the keys of some nodes of a type: int64 [n]."""
        return index + self.start(node_type)


class SkipGram(nn.Module):
    """Two tables of rows, one for nodes as centres and one for nodes as contexts.

    Args:
        center: rows of centres: the embeddings.
        context: rows of contexts and negatives.
    """

    def __init__(self, center: EmbeddingTable, context: EmbeddingTable) -> None:
        super().__init__()
        self.center = TableEmbedding(center)
        self.context = TableEmbedding(context)

    def forward(
        self, centers: Tensor, center_of_pair: Tensor, contexts: Tensor, negatives: Tensor, weight: float
    ) -> Tensor:
        """Return the mean loss of the pairs (Mikolov et al., NeurIPS 2013); rows learn when it goes backward.

        All centres of the batch share the drawn negatives: each pair is contrasted with every one of them,
        and their sum is scaled to the weight of ``weight`` independent negatives.

        Args:
            centers: int64 [centres], keys.
            center_of_pair: int64 [pairs], position of each pair's centre in ``centers``.
            contexts: int64 [pairs], keys.
            negatives: int64 [negatives], keys.
            weight: how many negatives a pair is worth.
        """
        center = self.center(centers)
        context, negative = self.context(torch.cat([contexts, negatives])).split(
            [len(contexts), len(negatives)]
        )
        positive_logit = (center.index_select(0, center_of_pair) * context).sum(dim=1)
        negative_logit = center @ negative.T
        pairs = torch.bincount(center_of_pair, minlength=len(centers)).to(center.dtype)
        positive_loss = functional.softplus(-positive_logit).sum()
        negative_loss = (functional.softplus(negative_logit).mean(dim=1) * pairs).sum() * weight
        loss: Tensor = (positive_loss + negative_loss) / len(contexts)
        return loss

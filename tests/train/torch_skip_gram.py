"""Skip-gram as a torch module, a reference for the native training."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from graphbox.table import EmbeddingTable, TableEmbedding


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

"""Scores of links: the inner product of a source's and a target's vector, which can have its popularity."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn import functional


class LinkScorer(nn.Module):
    """Two towers over the embeddings of nodes.

    Either end's embedding goes through a linear map of its own and is brought to length 1; a link's logit is
    their cosine by a learnt scale and, with ``popularity``, a learnt share of the logarithm of the target's
    in-degree (which cosines need not bend to say then), and a learnt offset.

    Args:
        dim: length of embeddings.
        initial_scale: initial factor between cosines and logits.
        popularity: whether logits have the target's in-degree. Without it a target's vector depends on its
            embedding alone, and logits have no offset.

    Attributes:
        width: length of the vectors of sources and targets.
    """

    def __init__(self, dim: int, initial_scale: float = 10.0, *, popularity: bool = True) -> None:
        super().__init__()
        self.width = dim + popularity
        self.source = nn.Linear(dim, dim)
        self.target = nn.Linear(dim, dim)
        self.log_scale = nn.Parameter(torch.tensor(math.log(initial_scale)))
        self.popularity = nn.Parameter(torch.tensor(0.5)) if popularity else None
        self.offset = nn.Parameter(torch.zeros(())) if popularity else None

    def sources(self, vectors: Tensor) -> Tensor:
        """Return the vectors of sources from their embeddings: float32 [n, width]."""
        found: Tensor = self.log_scale.exp() * functional.normalize(self.source(vectors), dim=1)
        return found if self.popularity is None else torch.cat([found, torch.ones_like(found[:, :1])], dim=1)

    def targets(self, vectors: Tensor, degree: Tensor | None) -> Tensor:
        """Return the vectors of targets: float32 [n, width].

        The inner product of a source's and a target's vector is the logit of their link, without the offset,
        which changes no order.

        Args:
            vectors: float32 [n, dim], embeddings.
            degree: float32 [n], how many known links arrive at each; None where logits have no popularity.
        """
        found = functional.normalize(self.target(vectors), dim=1)
        if self.popularity is None or degree is None:
            return found
        return torch.cat([found, (self.popularity * degree.log1p())[:, None]], dim=1)

"""SASRec: self-attention over the events of a sequence (Kang and McAuley, ICDM 2018)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn
from torch.nn import functional

from graphbox.models.dropout import dropout
from graphbox.models.sequence_blocks import SequenceNetwork, Shapes, blocks_of, initialize, rows_of

if TYPE_CHECKING:
    from graphbox.config import SASRecConfig

_POSITION_SCALE = 0.02
"""Deviation of the rows of positions before training."""


class SASRec(SequenceNetwork):
    """Blocks of causal attention and a network of two layers, each normed first, over items and positions.

    Unlike the publication, layers are normed before attention (Xiong et al., ICML 2020) and positions are
    counted from the first event of the window, so that an event is encoded alike whatever comes after it.

    Args:
        dim: length of a row and of a vector.
        window: positions there are.
        layers: blocks.
        heads: of attention; they divide ``dim``.
        dropout: share of values left out in training, of what enters and of what each part of a block adds.
    """

    def __init__(self, dim: int, window: int, *, layers: int, heads: int, dropout: float) -> None:
        super().__init__()
        self.dropout = dropout
        self.positions = nn.Parameter(torch.randn(window, dim) * _POSITION_SCALE)
        self.blocks = nn.ModuleList(AttentionBlock(dim, heads, dropout) for _ in range(layers))
        self.norm = nn.LayerNorm(dim)
        initialize(self)

    @classmethod
    def of(cls, config: SASRecConfig) -> SASRec:
        """See :meth:`SequenceNetwork.of`."""
        return cls(
            config.dim, config.window, layers=config.layers, heads=config.heads, dropout=config.dropout
        )

    def forward(self, rows: Tensor, shapes: Shapes) -> Tensor:
        """See :meth:`SequenceNetwork.forward`."""
        placed = [each + self.positions[: each.shape[1]] for each in blocks_of(rows, shapes)]
        hidden = dropout(rows_of(placed), self.dropout, self.training)
        for block in self.blocks:
            hidden = block(hidden, shapes)
        normed: Tensor = self.norm(hidden)
        return normed


class AttentionBlock(nn.Module):
    """Attention of each event to itself and those before it, then two layers over each event.

    Args:
        dim: length of a vector.
        heads: they divide ``dim``.
        dropout: see :class:`SASRec`.
    """

    def __init__(self, dim: int, heads: int, dropout: float) -> None:
        super().__init__()
        self.heads, self.dropout = heads, dropout
        self.attention_norm, self.layers_norm = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.queries_keys_values = nn.Linear(dim, 3 * dim)
        self.attended = nn.Linear(dim, dim)
        self.first, self.second = nn.Linear(dim, dim), nn.Linear(dim, dim)

    def forward(self, hidden: Tensor, shapes: Shapes) -> Tensor:
        """Return the vectors of events: float32 [events, dim]; see :meth:`SequenceNetwork.forward`."""
        projected = blocks_of(self.queries_keys_values(self.attention_norm(hidden)), shapes)
        attended = self.attended(rows_of([self._attend(each) for each in projected]))
        hidden = hidden + dropout(attended, self.dropout, self.training)
        inner = functional.gelu(self.first(self.layers_norm(hidden)))
        inner = dropout(inner, self.dropout, self.training)
        return hidden + dropout(self.second(inner), self.dropout, self.training)

    def _attend(self, projected: Tensor) -> Tensor:
        """Return what events of a block see of those so far: [n, L, dim], of [n, L, 3 * dim]."""
        count, length, width = projected.shape
        parts = projected.view(count, length, 3, self.heads, width // (3 * self.heads))
        query, key, value = parts.permute(2, 0, 3, 1, 4)
        share = self.dropout if self.training else 0.0
        seen = functional.scaled_dot_product_attention(query, key, value, dropout_p=share, is_causal=True)
        return seen.transpose(1, 2).reshape(count, length, width // 3)

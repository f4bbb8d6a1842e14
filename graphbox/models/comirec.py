"""ComiRec-SA: several vectors of a sequence, each by an attention head (Cen et al., KDD 2020, 3.2)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from graphbox.models.dropout import dropout
from graphbox.models.sequence_blocks import SequenceNetwork, Shapes, blocks_of, initialize, rows_of

if TYPE_CHECKING:
    from graphbox.config import ComiRecConfig

_POSITION_SCALE = 0.02
"""Deviation of the rows of positions before training."""
_MOST = 60.0
"""Logits are cut at this much above or below that of the first event: less is nothing beside the first
event, and beyond it two events weigh the same. Their exponents and the sums of these are normal float32."""


class ComiRec(SequenceNetwork):
    """Additive attention with a head for each interest, whose weights depend on an event and its place alone.

    An interest is the mean of the rows so far, weighed by ``softmax(second(tanh(first(row + position))))``.
    Since no weight depends on the events before or after, the interests of all prefixes of a sequence are two
    running sums: all events of a window are learnt to be followed, where the publication learns the last one.
    As in the authors' code, rows of positions are part of the attention and not of the interests. Positions
    are counted from the first event of the window.

    Args:
        dim: length of a row and of a vector.
        window: positions there are.
        interests: vectors of an event.
        hidden: units of the attention.
        dropout: share of values left out in training, of what enters.
    """

    def __init__(self, dim: int, window: int, *, interests: int, hidden: int, dropout: float) -> None:
        super().__init__()
        self.vectors, self.dropout = interests, dropout
        self.positions = nn.Parameter(torch.randn(window, dim) * _POSITION_SCALE)
        self.first = nn.Linear(dim, hidden)
        self.second = nn.Linear(hidden, interests, bias=False)  # a bias would leave the softmax as it is
        initialize(self)

    @classmethod
    def of(cls, config: ComiRecConfig) -> ComiRec:
        """See :meth:`SequenceNetwork.of`."""
        return cls(
            config.dim,
            config.window,
            interests=config.interests,
            hidden=config.hidden,
            dropout=config.dropout,
        )

    def forward(self, rows: Tensor, shapes: Shapes) -> Tensor:
        """See :meth:`SequenceNetwork.forward`."""
        entered = dropout(rows, self.dropout, self.training)
        events = blocks_of(entered, shapes)
        placed = rows_of([each + self.positions[: each.shape[1]] for each in events])
        logits = blocks_of(self.second(torch.tanh(self.first(placed))), shapes)
        return rows_of([running_means(*each) for each in zip(events, logits, strict=True)])


def running_means(events: Tensor, logits: Tensor) -> Tensor:
    """Return the means of the events so far by the softmax of each head: [n, L, heads * dim].

    Args:
        events: [n, L, dim].
        logits: [n, L, heads].
    """
    weight = (logits - logits[:, :1]).clamp(-_MOST, _MOST).exp()  # the first event is in every sum
    total = (weight.unsqueeze(3) * events.unsqueeze(2)).cumsum(dim=1)
    return (total / weight.cumsum(dim=1).unsqueeze(3)).flatten(2)

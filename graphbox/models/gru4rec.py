"""GRU4Rec: gated recurrent units over the events of a sequence (Hidasi et al., ICLR 2016)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torch import Tensor, nn

from graphbox.models.dropout import dropout
from graphbox.models.sequence_blocks import SequenceNetwork, Shapes, blocks_of, initialize, rows_of

if TYPE_CHECKING:
    from graphbox.config import GRU4RecConfig


class GRU4Rec(SequenceNetwork):
    """A recurrent layer over the rows of items, and a linear one back to the length of a row.

    Rows of items are those that are ranked, too, as in GRU4Rec with constrained embeddings (Hidasi and
    Karatzoglou, CIKM 2018). There is one layer, which ranked best in the publication of 2016.

    Args:
        dim: length of a row and of a vector.
        hidden: recurrent units.
        dropout: share of values left out in training, of what enters the units and of what leaves them.
    """

    def __init__(self, dim: int, hidden: int, *, dropout: float) -> None:
        super().__init__()
        self.dropout = dropout
        self.recurrent = nn.GRU(dim, hidden, batch_first=True)
        self.output = nn.Linear(hidden, dim)
        initialize(self)

    @classmethod
    def of(cls, config: GRU4RecConfig) -> GRU4Rec:
        """See :meth:`SequenceNetwork.of`."""
        return cls(config.dim, config.hidden, dropout=config.dropout)

    def forward(self, rows: Tensor, shapes: Shapes) -> Tensor:
        """See :meth:`SequenceNetwork.forward`."""
        entered = dropout(rows, self.dropout, self.training)
        hidden = [self.recurrent(each)[0] for each in blocks_of(entered, shapes)]
        left = dropout(rows_of(hidden), self.dropout, self.training)
        vectors: Tensor = self.output(left)
        return vectors

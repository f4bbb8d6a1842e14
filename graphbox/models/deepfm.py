"""DeepFM: a factorization machine and a network over the same vectors (Guo et al., IJCAI 2017)."""

from __future__ import annotations

from collections.abc import Mapping

from torch import Tensor, nn

from graphbox.models.click_network import ClickNetwork, ClickShape, feed_forward, side_by_side
from graphbox.table import Table


class DeepFM(ClickNetwork):
    """The sum of a linear part, the inner products of all pairs of fields, and a network.

    The first number of a table row is the weight of its value in the linear part, the others its vector.

    Args:
        shape: the sizes.
        tables: ``fields``, rows of length ``1 + dim``.
    """

    def __init__(self, shape: ClickShape, tables: Mapping[str, Table]) -> None:
        super().__init__(shape, tables)
        self.linear = nn.Linear(shape.numbers, 1, bias=False) if shape.numbers else None
        self.deep = feed_forward(shape.inputs, shape.hidden, shape.dropout)
        self.head = nn.Linear(shape.hidden[-1], 1, bias=False)

    @staticmethod
    def table_dims(shape: ClickShape) -> dict[str, int]:
        """Return the length of a row of each table that the network needs, by name."""
        return {"fields": 1 + shape.dim}

    def forward(self, vectors: Mapping[str, Tensor], numbers: Tensor) -> Tensor:
        """Return the logits of rows: float32 [rows, 1]."""
        fields = self._kept(vectors["fields"])
        weights, of_fields = fields[..., 0], fields[..., 1:]
        logits = self.bias + weights.sum(dim=1) + pairwise_products(of_fields)
        if self.linear is not None:
            logits = logits + self.linear(numbers).squeeze(1)
        deep: Tensor = self.head(self.deep(side_by_side(of_fields, numbers)))
        return logits.unsqueeze(1) + deep


def pairwise_products(vectors: Tensor) -> Tensor:
    """Return the sum of the inner products of all pairs of fields: float32 [rows].

    Half of the square of the sum less the sum of the squares (Rendle, ICDM 2010).

    Args:
        vectors: float32 [rows, fields, dim].
    """
    return 0.5 * (vectors.sum(dim=1).square() - vectors.square().sum(dim=1)).sum(dim=1)

"""Features of edges as graph layers read them: numbers as they are, categories as learnt vectors."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional

from graphbox.artifact.edge_features import CATEGORY_DIM
from graphbox.models.features import LearntFeature

TIMESTAMP = "timestamp"
"""Name, among features of edges, of their age: the time from an edge to the latest one of its type."""

_CATEGORY_SCALE = 0.1


@dataclass(frozen=True)
class EdgeSizes:
    """Columns of the features of the edges of a relation.

    Attributes:
        categories: number of codes of each categorical feature, the missing one included.
        numbers: number of other columns; a vector has one for each of its values.
    """

    categories: tuple[int, ...]
    numbers: int

    @staticmethod
    def of(learnt: Mapping[str, LearntFeature]) -> EdgeSizes:
        """Return the sizes of features by name, in their order."""
        known = learnt.values()
        return EdgeSizes(
            tuple(len(each.categories) + 1 for each in known if each.kind == "categorical"),
            sum(each.dim or 1 for each in known if each.kind != "categorical"),
        )

    @property
    def columns(self) -> int:
        """Number of columns: the codes of categories first, then the numbers."""
        return len(self.categories) + self.numbers

    @property
    def width(self) -> int:
        """Length of the vector that a convolution gets for an edge."""
        return CATEGORY_DIM * len(self.categories) + self.numbers


class EdgeInputs(nn.Module):
    """Maps the columns of edges to the vectors that a convolution reads.

    Args:
        sizes: of the columns.
    """

    def __init__(self, sizes: EdgeSizes) -> None:
        super().__init__()
        self.sizes = sizes
        self.categories = nn.ParameterList(
            _CATEGORY_SCALE * torch.randn(size, CATEGORY_DIM) for size in sizes.categories
        )

    def forward(self, columns: Tensor) -> Tensor:
        """Return the vectors of edges: float32 [..., width].

        Args:
            columns: float32 [..., columns], or more columns, of which the first are read; codes are whole
                numbers.
        """
        codes, parts = len(self.sizes.categories), []
        for place, table in enumerate(self.categories):
            # Bounded, so that no exported graph looks below or behind the table.
            code = columns[..., place].clamp(0, self.sizes.categories[place] - 1).to(torch.int64)
            parts.append(functional.embedding(code, table))
        if self.sizes.numbers:
            parts.append(columns[..., codes : self.sizes.columns])
        return parts[0] if len(parts) == 1 else torch.cat(parts, dim=-1)

"""DCN-v2: cross layers beside a network, or below it (Wang et al., WWW 2021)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import torch
from torch import Tensor, nn

from graphbox.models.click_network import ClickNetwork, ClickShape, feed_forward, side_by_side
from graphbox.table import Table


class DCN(ClickNetwork):
    """Cross layers over the vectors of all fields and the numbers, and a network.

    Args:
        shape: the sizes.
        tables: ``fields``, rows of length ``dim``.
        cross_layers: number of cross layers.
        rank: rank of their matrices; None: they are full.
        structure: ``parallel``: the network stands beside the cross layers; ``stacked``: above them.
    """

    def __init__(
        self,
        shape: ClickShape,
        tables: Mapping[str, Table],
        *,
        cross_layers: int = 3,
        rank: int | None = None,
        structure: Literal["stacked", "parallel"] = "parallel",
    ) -> None:
        super().__init__(shape, tables)
        self.crosses = nn.ModuleList(CrossLayer(shape.inputs, rank) for _ in range(cross_layers))
        self.deep = feed_forward(shape.inputs, shape.hidden, shape.dropout)
        self.structure = structure
        of_crosses = shape.inputs if structure == "parallel" else 0
        self.head = nn.Linear(shape.hidden[-1] + of_crosses, 1, bias=False)

    def forward(self, vectors: Mapping[str, Tensor], numbers: Tensor) -> Tensor:
        """Return the logits of rows: float32 [rows, 1]."""
        inputs = side_by_side(self._kept(vectors["fields"]), numbers)
        crossed = inputs
        for layer in self.crosses:
            crossed = layer(inputs, crossed)
        if self.structure == "stacked":
            found = self.deep(crossed)
        else:
            found = torch.cat([crossed, self.deep(inputs)], dim=1)
        logits: Tensor = self.bias + self.head(found)
        return logits


class CrossLayer(nn.Module):
    """``first * (W x + b) + x``, where ``W`` may be the product of two thin matrices.

    Args:
        width: length of the vectors.
        rank: of ``W``; None: it is full.
    """

    def __init__(self, width: int, rank: int | None = None) -> None:
        super().__init__()
        self.weight: nn.Module = nn.Linear(width, width)
        if rank is not None:
            self.weight = nn.Sequential(nn.Linear(width, rank, bias=False), nn.Linear(rank, width))

    def forward(self, first: Tensor, vectors: Tensor) -> Tensor:
        """Return the crossed vectors: float32 [rows, width].

        Args:
            first: float32 [rows, width], what went into the first layer.
            vectors: float32 [rows, width], what the layer before gave.
        """
        crossed: Tensor = first * self.weight(vectors) + vectors
        return crossed

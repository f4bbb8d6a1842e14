"""Wide & Deep: a linear model of fields and crosses beside a network (Cheng et al., DLRS 2016)."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from graphbox.models.click_fields import FieldBatch
from graphbox.models.click_network import ClickNetwork, ClickShape, feed_forward, side_by_side
from graphbox.table import Table


class WideAndDeep(ClickNetwork):
    """The sum of a linear model and a network.

    Args:
        shape: the sizes.
        tables: ``fields``, rows of length ``dim``, and ``wide``, rows of one number.
    """

    def __init__(self, shape: ClickShape, tables: Mapping[str, Table]) -> None:
        super().__init__(shape, tables)
        self.linear = nn.Linear(shape.numbers, 1, bias=False) if shape.numbers else None
        self.deep = feed_forward(shape.inputs, shape.hidden, shape.dropout)
        self.head = nn.Linear(shape.hidden[-1], 1, bias=False)

    @staticmethod
    def table_dims(shape: ClickShape) -> dict[str, int]:
        """Return the length of a row of each table that the network needs, by name."""
        return {"fields": shape.dim, "wide": 1}

    def keys(self, batch: FieldBatch) -> dict[str, NDArray[np.int64]]:
        """Return the keys that :meth:`fetch` looks up, by table."""
        wide = np.concatenate([batch.keys.numpy(), batch.crosses.flatten().numpy()])
        return {**super().keys(batch), "wide": wide}

    def fetch(self, batch: FieldBatch) -> dict[str, Tensor]:
        """Return what the rows of a batch have in the tables: float32 [rows, fields, dim] by table.

        The linear model has the crosses as further fields.
        """
        crosses = batch.crosses.numel()
        ends = batch.offsets[-1] + torch.arange(1, crosses + 1, device=batch.offsets.device)
        wide = self._sums(
            "wide",
            self.shape.fields + len(batch.crosses),
            batch,
            torch.cat([batch.keys, batch.crosses.flatten()]),
            torch.cat([batch.offsets, ends]),
            torch.cat([batch.weights, torch.ones(crosses, device=batch.weights.device)]),
        )
        return {**super().fetch(batch), "wide": wide}

    def forward(self, vectors: Mapping[str, Tensor], numbers: Tensor) -> Tensor:
        """Return the logits of rows: float32 [rows, 1]."""
        inputs = side_by_side(self._kept(vectors["fields"]), numbers)
        logits: Tensor = self.bias + self.head(self.deep(inputs))
        logits = logits + self._kept(vectors["wide"]).sum(dim=(1, 2)).unsqueeze(1)
        return logits if self.linear is None else logits + self.linear(numbers)

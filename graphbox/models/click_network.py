"""Base class of networks of clicks: vectors of fields from tables, and layers over them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from graphbox.models.click_fields import FieldBatch
from graphbox.models.dropout import Dropout
from graphbox.table import EmbeddingTable, Table, TableEmbeddingBag
from graphbox.table.host_table import host_table
from graphbox.table.module import TableModule


@dataclass(frozen=True)
class ClickShape:
    """Sizes of a network of clicks.

    Attributes:
        fields: number of vectors of a row: one of each field, of a history one of each event.
        numbers: how many numbers a row has beside them.
        dim: length of a vector.
        hidden: widths of the layers.
        dropout: share of the values after each layer that is left out in training.
        row_dropout: share of the fields that is left out in training.
        bags: which of the vectors are of each field, by name, in order.
        labels: how many labels of a row the network is to learn.
    """

    fields: int
    numbers: int
    dim: int
    hidden: tuple[int, ...]
    dropout: float = 0.0
    row_dropout: float = 0.0
    bags: Mapping[str, range] = field(default_factory=dict)
    labels: int = 1

    @property
    def inputs(self) -> int:
        """Length of the vectors of all fields and the numbers, side by side."""
        return self.fields * self.dim + self.numbers


class ClickNetwork(nn.Module, ABC):
    """Maps the fields of rows to logits, one for each label.

    Table rows of values that were never learnt count as nothing.

    Args:
        shape: the sizes.
        tables: by name, those of :meth:`table_dims`.
    """

    def __init__(self, shape: ClickShape, tables: Mapping[str, Table]) -> None:
        super().__init__()
        self.shape = shape
        self.bias = nn.Parameter(torch.zeros(()))
        self.bags = nn.ModuleDict()
        self.set_tables(tables)

    @staticmethod
    def table_dims(shape: ClickShape) -> dict[str, int]:
        """Return the length of a row of each table that the network needs, by name."""
        return {"fields": shape.dim}

    def set_tables(self, tables: Mapping[str, Table]) -> None:
        """Take the rows from other tables."""
        for name, table in tables.items():
            bag = TableEmbeddingBag(table, "sum", include_last_offset=True)
            self.bags[name] = bag.to(self.bias.device).train(self.training)

    def table_modules(self) -> dict[str, TableModule]:
        """Return the lookups of the tables by name."""
        return {name: cast("TableModule", bag) for name, bag in self.bags.items()}

    def tables(self) -> dict[str, EmbeddingTable]:
        """Return the tables of this process that keep the rows, by name."""
        return {name: host_table(self._table(name), "a model of clicks") for name in self.bags}

    def fetch(self, batch: FieldBatch) -> dict[str, Tensor]:
        """Return what the rows of a batch have in the tables: float32 [rows, fields, dim] by table."""
        fields = self.shape.fields
        return {"fields": self._sums("fields", fields, batch, batch.keys, batch.offsets, batch.weights)}

    def keys(self, batch: FieldBatch) -> dict[str, NDArray[np.int64]]:
        """Return the keys that :meth:`fetch` looks up, by table."""
        return {"fields": batch.keys.numpy()}

    def decayed(self, vectors: Mapping[str, Tensor]) -> Tensor:
        """Return the vectors of a batch that are kept short: float32 [rows, fields, dim].

        Args:
            vectors: what :meth:`fetch` returned.
        """
        return vectors["fields"]

    @abstractmethod
    def forward(self, vectors: Mapping[str, Tensor], numbers: Tensor) -> Tensor:
        """Return the logits of rows: float32 [rows, labels].

        Args:
            vectors: what :meth:`fetch` returned.
            numbers: float32 [rows, numbers].
        """

    def _sums(
        self, name: str, fields: int, batch: FieldBatch, keys: Tensor, offsets: Tensor, weights: Tensor
    ) -> Tensor:
        """Return the weighted sums of the bags: float32 [rows, fields, dim]."""
        if not self.training:
            weights = weights * torch.as_tensor(self._table(name).contains(keys), device=weights.device)
        sums: Tensor = self.bags[name](keys, offsets, weights)
        return sums.view(fields, len(batch), sums.shape[1]).transpose(0, 1)

    def _table(self, name: str) -> Table:
        bag = self.bags[name]
        assert isinstance(bag, TableEmbeddingBag)  # noqa: S101 - for the type checker
        return bag.table

    def _kept(self, vectors: Tensor) -> Tensor:
        """Return the vectors without the fields that are left out in training."""
        share = self.shape.row_dropout
        if not share or not self.training:
            return vectors
        kept = torch.rand(vectors.shape[0], vectors.shape[1], 1, device=vectors.device) >= share
        return vectors * kept


def side_by_side(vectors: Tensor, numbers: Tensor) -> Tensor:
    """Return the vectors of all fields and the numbers as one vector of each row."""
    flat = vectors.flatten(1)
    return torch.cat([flat, numbers], dim=1) if numbers.shape[1] else flat


def feed_forward(inputs: int, hidden: Sequence[int], dropout: float) -> nn.Sequential:
    """Return layers with rectifiers and dropout between them, from ``inputs`` to ``hidden[-1]`` numbers."""
    layers: list[nn.Module] = []
    for width in hidden:
        layers += [nn.Linear(inputs, width), nn.ReLU(), Dropout(dropout)]
        inputs = width
    return nn.Sequential(*layers)

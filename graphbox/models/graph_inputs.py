"""Inputs of a graph network: table rows, features and slots of nodes, mapped to one length."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional

from graphbox.models.dropout import dropout
from graphbox.models.features import FeatureEncoder, FeatureSizes
from graphbox.table import Table, TableEmbedding

POSITION = "position"
"""Name in requests of the row of another model that a node enters with."""


@dataclass(frozen=True)
class InputSizes:
    """Sizes of the inputs of the nodes of a type.

    Attributes:
        features: categorical features and numbers.
        vector: length of all vectors together.
        slots: number of different values of each slot.
        position: length of the rows of another model; 0: there are none.
    """

    features: FeatureSizes
    vector: int
    slots: tuple[int, ...]
    position: int = 0

    @property
    def is_empty(self) -> bool:
        """Whether the type has no features at all."""
        known = self.features
        return not (known.categories or known.numbers or self.vector or self.slots or self.position)


@dataclass(frozen=True, eq=False)
class SlotBatch:
    """A slot of a batch's nodes.

    Attributes:
        values: int64, numbers of the values of all nodes, one node after the other.
        offsets: int64 [n + 1], where the values of each begin and end.
    """

    values: Tensor
    offsets: Tensor


@dataclass(frozen=True, eq=False)
class NodeBatch:
    """The nodes of a type in a batch.

    Attributes:
        keys: int64 [n], keys of their rows.
        codes: int64 [n, categorical features].
        numbers: float32 [n, numeric features].
        vectors: float32 [n, length of all vectors].
        slots: each slot.
        positions: float32 [n, length of the rows of another model], zeros of nodes that it has none of.
    """

    keys: Tensor
    codes: Tensor
    numbers: Tensor
    vectors: Tensor
    slots: tuple[SlotBatch, ...]
    positions: Tensor


class NodeInputs(nn.Module):
    """Maps the nodes of one type to vectors: the sum of their row and a linear map of what they have.

    Of what they have, rows of another model are fixed; a share of them is left out in training as of rows of
    the table.

    Args:
        sizes: what the nodes have.
        dim: length of the vectors.
        table: rows of the nodes, or None.
        input_dropout: share of the values of features that is left out in training.
        row_dropout: share of the rows that is left out in training.
    """

    def __init__(
        self,
        sizes: InputSizes,
        dim: int,
        table: Table | None,
        input_dropout: float = 0.0,
        row_dropout: float = 0.0,
    ) -> None:
        super().__init__()
        self._dim = dim
        self._input_dropout = input_dropout
        self._row_dropout = row_dropout
        self.rows = None if table is None else TableEmbedding(table)
        self._trained_rows: Callable[[NDArray[np.int64]], NDArray[np.float32]] | None = None
        known = sizes.features
        self.features = FeatureEncoder(known, dim) if known.categories or known.numbers else None
        self.vectors = nn.Linear(sizes.vector, dim, bias=False) if sizes.vector else None
        self.slots = nn.ParameterList(_glorot(size, dim) for size in sizes.slots)
        self.positions = nn.Linear(sizes.position, dim, bias=False) if sizes.position else None
        self.bias = nn.Parameter(torch.zeros(dim))

    def set_table(self, table: Table) -> None:
        """Take the rows from another table."""
        self.rows = TableEmbedding(table).to(self.bias.device).train(self.training)

    def set_trained_rows(
        self, take: Callable[[NDArray[np.int64]], NDArray[np.float32]], places: NDArray[np.int64]
    ) -> None:
        """Take the rows that training left, of nodes that may have other keys by now; none is trained on.

        Args:
            take: returns some of them by their places: float32 [n, dim].
            places: int64 [nodes], the place of each key's row; -1 where it has none.
        """

        def rows(keys: NDArray[np.int64]) -> NDArray[np.float32]:
            found = np.zeros((len(keys), self._dim), np.float32)
            known = places[keys] >= 0
            found[known] = take(places[keys][known])
            return found

        self._trained_rows = rows

    def fetch(self, batch: NodeBatch) -> Tensor | None:
        """Return the rows of nodes from their table, or None; those that are not there as zeros.

        In training all get rows; a node unseen in training has none.
        """
        if self._trained_rows is not None:
            return torch.from_numpy(self._trained_rows(batch.keys.numpy()))
        if self.rows is None:
            return None
        if self.training:
            rows: Tensor = self.rows(batch.keys)
            return rows
        found: Tensor = self.rows(batch.keys)  # in evaluation mode, which creates none
        known = torch.as_tensor(self.rows.table.contains(batch.keys), device=found.device)
        return found * known[:, None]

    def forward(self, batch: NodeBatch, rows: Tensor | None) -> Tensor:
        """Return the vectors of nodes: float32 [n, dim].

        Args:
            batch: what the nodes have.
            rows: what :meth:`fetch` returned.
        """
        vectors = self.bias.expand(len(batch.keys), self._dim)
        if rows is not None:
            vectors = vectors + self._some(rows)
        if self.features is not None:
            vectors = vectors + self.features(batch.codes, self._dropped(batch.numbers))
        if self.vectors is not None:
            vectors = vectors + self.vectors(self._dropped(batch.vectors))
        if self.positions is not None:
            vectors = vectors + self.positions(self._some(self._dropped(batch.positions)))
        for weight, slot in zip(self.slots, batch.slots, strict=True):
            vectors = vectors + self._mean(weight, slot)
        return vectors

    def _some(self, rows: Tensor) -> Tensor:
        """Return rows of nodes, in training zeros for some of them."""
        if not (self._row_dropout and self.training):
            return rows
        # Rows that are kept are not scaled up: outside training a row is there as it is, or not at all.
        return rows * (torch.rand(len(rows), 1, device=rows.device) >= self._row_dropout)

    def _mean(self, weight: Tensor, slot: SlotBatch) -> Tensor:
        """Return the mean of the weights of each node's values."""
        counts = slot.offsets.diff()
        share = counts.clamp(min=1).reciprocal().repeat_interleave(counts).to(weight.dtype)
        return functional.embedding_bag(
            slot.values,
            weight,
            slot.offsets,
            mode="sum",
            per_sample_weights=self._dropped(share),
            include_last_offset=True,
        )

    def _dropped(self, values: Tensor) -> Tensor:
        return dropout(values, self._input_dropout, self.training)


def _glorot(size: int, dim: int) -> nn.Parameter:
    weight = torch.empty(size, dim)
    nn.init.xavier_uniform_(weight)
    return nn.Parameter(weight)


def input_modules(
    sizes: Mapping[str, InputSizes],
    dim: int,
    tables: Mapping[str, Table],
    input_dropout: float,
    row_dropout: float,
) -> nn.ModuleDict:
    """Return the inputs of all node types by name."""
    return nn.ModuleDict(
        {
            name: NodeInputs(each, dim, tables.get(name), input_dropout, row_dropout)
            for name, each in sizes.items()
        }
    )

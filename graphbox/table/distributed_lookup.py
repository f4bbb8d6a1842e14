"""Lookups of torch modules in tables whose rows are in other processes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Generic, Protocol, TypeVar

import torch
from torch import Tensor

from graphbox.table.key_bags import KeyBags
from graphbox.table.ordered_sum import sum_of_equal
from graphbox.table.protocol import Table

ExchangeT = TypeVar("ExchangeT")


ExchangeT_co = TypeVar("ExchangeT_co", covariant=True)


class ExchangedTable(Table, Protocol[ExchangeT_co]):
    """A table that says who has the rows of a lookup, so that its push need not find out again."""

    def pull_exchange(self, keys: Tensor, *, create: bool) -> tuple[ExchangeT_co, Tensor]:
        """Return the rows of keys, float32 [keys, dim], and who has which.

        Args:
            keys: int64 [keys].
            create: give unknown keys a row.
        """
        ...


@dataclass(frozen=True, slots=True)
class ShardedLookup(Generic[ExchangeT]):
    """Keys of one table in other processes, and how their rows are summed.

    Attributes:
        table: where the rows are.
        keys: int64 [keys], where this process has its rows.
        bags: None: each key's row by itself.
    """

    table: ExchangedTable[ExchangeT]
    keys: Tensor
    bags: KeyBags | None = None

    def pull(self, *, create: bool = True) -> ShardedRows[ExchangeT]:
        """Pull the rows or the sums of bags; unknown keys get a row or count as their initial values."""
        exchange, rows = self.table.pull_exchange(self.keys, create=create)
        return ShardedRows(self, rows if self.bags is None else _bag_sums(rows, self.bags), exchange)


@dataclass(frozen=True, slots=True)
class ShardedRows(Generic[ExchangeT]):
    """Result of a lookup in a sharded table.

    Attributes:
        lookup: the lookup itself.
        values: float32 [results, dim].
        exchange: who has the keys, for the push.
    """

    lookup: ShardedLookup[ExchangeT]
    values: Tensor
    exchange: ExchangeT

    def tensor(self) -> Tensor:
        """Return the results: float32 [results, dim]."""
        return self.values.detach()

    def gradient(self, number: int, of_results: Tensor) -> ShardedGradient[ExchangeT]:
        """Return the gradient of the rows from that of the results."""
        values = of_results.detach().to(self.values.device, torch.float32)
        bags = self.lookup.bags
        if bags is not None:
            if bags.divisors is not None:
                values = values / bags.divisors[:, None]
            values = values.repeat_interleave(torch.diff(bags.offsets), dim=0)
            if bags.weights is not None:
                values = values * bags.weights.detach()[:, None]
        return ShardedGradient(number, self.lookup.table, self.lookup.keys, values, self.exchange)


@dataclass(frozen=True, slots=True)
class ShardedGradient(Generic[ExchangeT]):
    """The gradient of the rows of a lookup.

    Attributes:
        number: of the lookup, in the order of the forward passes.
        table: whose rows were looked up.
        keys: int64 [keys].
        values: float32 [keys, dim], the gradient of each key's row.
        exchange: that pulled just these keys; None: several did.
    """

    number: int
    table: ExchangedTable[ExchangeT]
    keys: Tensor
    values: Tensor
    exchange: ExchangeT | None

    def joined(self, others: Sequence[ShardedGradient[ExchangeT]]) -> ShardedGradient[ExchangeT]:
        """Return it and others of the same table, which come after it, as one."""
        parts = [self, *others]
        return replace(
            self,
            keys=torch.cat([each.keys for each in parts]),
            values=torch.cat([each.values for each in parts]),
            exchange=None,
        )

    def scaled(self, factor: float) -> ShardedGradient[ExchangeT]:
        """Return a multiple of it, in memory of its own."""
        return replace(self, values=self.values * factor)

    def square_sum(self) -> float:
        """Return the sum of the squares of this process's gradients, those of equal keys summed."""
        different, places = torch.unique(self.keys, return_inverse=True)
        return float(sum_of_equal(places, self.values, len(different)).double().square().sum())


def _bag_sums(rows: Tensor, bags: KeyBags) -> Tensor:
    """Return the sums of bags from the rows of their keys: float32 [bags, dim]."""
    if bags.weights is not None:
        rows = rows * bags.weights.detach()[:, None]
    lengths = torch.diff(bags.offsets)
    bag_of = torch.repeat_interleave(torch.arange(len(bags), device=lengths.device), lengths)
    sums = sum_of_equal(bag_of, rows, len(bags))
    return sums if bags.divisors is None else sums / bags.divisors[:, None]

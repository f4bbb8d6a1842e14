"""Lookups of torch modules in tables: planned from the input, pulled at once or ahead, differentiable."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol

import numpy as np
import torch

from graphbox import _core
from graphbox.native import Int64Array
from graphbox.table.arguments import Float32Array, new_rows
from graphbox.table.gradients import Gradient, Gradients, RowGradient, collect
from graphbox.table.key_bags import KeyBags
from graphbox.table.table import EmbeddingTable

CPU: Final = torch.device("cpu")

_NUMBERS: Final = itertools.count()
"""Numbers lookups in the order of the forward passes."""

_ANCHOR: Final = torch.zeros(0, requires_grad=True)
"""What makes autograd go back through a lookup; it never gets a gradient."""


class RowLookup(Protocol):
    """Keys of one table, and how their rows are summed, wherever the rows are."""

    @property
    def table(self) -> EmbeddingTable:
        """Where the rows are, or what stands for one."""
        ...

    def pull(self, *, create: bool = True) -> PulledRows:
        """Pull the rows or the sums of bags; unknown keys get a row or count as their initial values."""
        ...

    def pull_ahead(self, *, is_final: bool) -> PulledRows:
        """Pull what a forward pass will ask for, while others compute.

        Args:
            is_final: it will be taken as it is. Otherwise it is brought up to date before, no key gets a
                row, and as much is done now as can be.
        """
        ...


class PulledRows(Protocol):
    """What a lookup gave, wherever the rows are."""

    @property
    def lookup(self) -> RowLookup:
        """What was looked up."""
        ...

    def tensor(self) -> torch.Tensor:
        """Return the results: float32 [results, dim]."""
        ...

    def gradient(self, number: int, of_results: torch.Tensor) -> RowGradient:
        """Return the gradient of the rows from that of the results."""
        ...

    def up_to_date(self, pushed: Callable[[int], Sequence[_core.PulledRows]]) -> PulledRows:
        """Return what a pull would give now.

        Args:
            pushed: returns the rows that the pipeline pushed to the table after so many changes of it.
        """
        ...


@dataclass(frozen=True, slots=True)
class Bags:
    """Which keys are summed to one row, and how.

    Attributes:
        offsets: int64 [bags + 1], where the keys of each bag begin, and where the last ones end.
        weights: float32 [keys], factors of the rows; None: 1.
        divisors: float32 [bags], what each sum is divided by; None: 1.
    """

    offsets: Int64Array
    weights: Float32Array | None = None
    divisors: Float32Array | None = None

    def take(self, chosen: Int64Array, keys: Int64Array) -> Bags:
        """Return the bags at ``chosen``, whose keys are at the positions ``keys``."""
        lengths = np.diff(self.offsets)[chosen]
        return Bags(
            np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths)]),
            None if self.weights is None else self.weights[keys],
            None if self.divisors is None else self.divisors[chosen],
        )


@dataclass(frozen=True, slots=True)
class Lookup:
    """Keys of one table, and how their rows are summed.

    Attributes:
        table: where the rows are.
        keys: int64 [keys].
        bags: None: each key's row by itself.
    """

    table: EmbeddingTable
    keys: Int64Array
    bags: Bags | None = None

    @classmethod
    def of(cls, table: EmbeddingTable, keys: torch.Tensor, bags: KeyBags | None) -> Lookup:
        """Return the lookup of keys that are tensors in host memory."""
        if bags is None:
            return cls(table, keys.numpy())
        weights, divisors = (
            None if each is None else each.detach().numpy() for each in (bags.weights, bags.divisors)
        )
        return cls(table, keys.numpy(), Bags(bags.offsets.numpy(), weights, divisors))

    def __len__(self) -> int:
        return len(self.keys) if self.bags is None else len(self.bags.offsets) - 1

    def pull(self, *, create: bool = True) -> PulledLookup:
        """Pull the rows or the sums of bags; unknown keys get a row or count as their initial values."""
        rows = new_rows(len(self), self.table.dim)
        return PulledLookup(self, rows, self._pull_into(rows, create))

    def pull_ahead(self, *, is_final: bool) -> PulledLookup:
        """Pull ahead of the forward pass: see :class:`RowLookup`."""
        if not is_final:  # or the forward pass would read those from SSD again that change meanwhile
            _core.table_promote(self.table._table, self.keys, self.table.threads)
        return self.pull(create=is_final)

    def _pull_into(self, rows: Float32Array, create: bool) -> _core.PulledRows:
        table = self.table
        if self.bags is None:
            return table._table.pull_rows(self.keys, rows, create, table.threads)
        bags = self.bags
        return table._table.pull_bags(
            self.keys, bags.offsets, bags.weights, bags.divisors, rows, create, table.threads
        )

    def take(self, chosen: Int64Array) -> tuple[Lookup, Int64Array]:
        """Return the part that gives the results at ``chosen``, and the positions of its keys."""
        if self.bags is None:
            return Lookup(self.table, self.keys[chosen]), chosen
        starts = self.bags.offsets[chosen]
        lengths = self.bags.offsets[chosen + 1] - starts
        ends = np.cumsum(lengths)
        positions = np.arange(lengths.sum()) + np.repeat(starts - ends + lengths, lengths)
        return Lookup(self.table, self.keys[positions], self.bags.take(chosen, positions)), positions


@dataclass(frozen=True, slots=True)
class PulledLookup:
    """What a lookup gave.

    Attributes:
        lookup: what was looked up.
        values: float32 [len(lookup), dim].
        rows: where the rows are, for the push.
    """

    lookup: Lookup
    values: Float32Array
    rows: _core.PulledRows

    def tensor(self) -> torch.Tensor:
        """Return the results: float32 [len(lookup), dim]."""
        return torch.from_numpy(self.values)

    def gradient(self, number: int, of_results: torch.Tensor) -> Gradient:
        """Return the gradient of the rows from that of the results."""
        lookup, bags = self.lookup, self.lookup.bags
        return Gradient(
            number,
            lookup.table,
            self.rows,
            lookup.keys,
            of_results.detach().to(CPU, torch.float32).contiguous().numpy(),
            None if bags is None else bags.offsets,
            None if bags is None else bags.weights,
            None if bags is None else bags.divisors,
        )

    def up_to_date(self, pushed: Callable[[int], Sequence[_core.PulledRows]]) -> PulledLookup:
        """Return what a pull would give now: see :class:`PulledRows`."""
        changes = self.rows.changes
        since = pushed(changes)
        if self.lookup.table._table.changes != changes + len(since):  # others changed the table, too
            return self.lookup.pull()
        self.refresh(since)
        return self

    def refresh(self, pushed: Sequence[_core.PulledRows]) -> None:
        """Make it what a pull would give now, if only rows of ``pushed`` changed since it was pulled.

        Results that take part in a pushed row, or in one that was missing, are pulled again.
        """
        bags = self.lookup.bags
        stale = np.flatnonzero(self.rows.stale(pushed, None if bags is None else bags.offsets))
        if len(stale) == 0:
            return
        part, positions = self.lookup.take(stale)
        again = part.pull()
        self.values[stale] = again.values
        self.rows.replace(positions, again.rows)


@dataclass(frozen=True, slots=True)
class Plan:
    """What a forward pass looks up, and what it makes of the results.

    Attributes:
        lookups: at most one for each table.
        finish: makes the module's output of the lookups' results.
        device: where the results are wanted.
    """

    lookups: Sequence[RowLookup]
    finish: Callable[[Sequence[torch.Tensor]], Any]
    device: torch.device = CPU


def look_up(pulled: PulledRows, device: torch.device, gradients: Gradients | None) -> torch.Tensor:
    """Return what was pulled as a tensor; its gradient goes to the table.

    Args:
        pulled: from this step's lookup.
        device: of the result.
        gradients: takes the gradient; None: it is applied at the end of the backward pass.
    """
    rows: torch.Tensor = _LookUp.apply(_ANCHOR, pulled, device, gradients, next(_NUMBERS))  # type: ignore[no-untyped-call]
    return rows


class _LookUp(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        anchor: torch.Tensor,  # noqa: ARG004 - what autograd wants a gradient for
        pulled: PulledRows,
        device: torch.device,
        gradients: Gradients | None,
        number: int,
    ) -> torch.Tensor:
        ctx.pulled, ctx.gradients, ctx.number = pulled, gradients, number
        return pulled.tensor().to(device)

    @staticmethod
    def backward(ctx: Any, *of_results: torch.Tensor) -> tuple[None, ...]:
        gradient = ctx.pulled.gradient(ctx.number, of_results[0])
        if ctx.gradients is None:
            collect(gradient)
        else:
            ctx.gradients.add(gradient)
        return None, None, None, None, None

"""Lookups of torch modules in tables: planned from the input, pulled, differentiable."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol

import torch

from graphbox import _core
from graphbox.table.arguments import Float32Array, new_rows
from graphbox.table.gradients import Gradient, Gradients, RowGradient, collect
from graphbox.table.key_bags import KeyBags
from graphbox.table.protocol import Table
from graphbox.table.table import EmbeddingTable

CPU: Final = torch.device("cpu")

_NUMBERS: Final = itertools.count()
"""Numbers lookups in the order of the forward passes."""

_ANCHOR: Final = torch.zeros(0, requires_grad=True)
"""Input that makes autograd run backward through a lookup; it never gets a gradient."""


class RowLookup(Protocol):
    """Keys of one table, and how their rows are summed, wherever the rows are."""

    @property
    def table(self) -> Table:
        """Where the rows are."""
        ...

    def pull(self, *, create: bool = True) -> PulledRows:
        """Pull the rows or the sums of bags; unknown keys get a row or count as their initial values."""
        ...


class PulledRows(Protocol):
    """Result of a lookup, wherever the rows are."""

    def tensor(self) -> torch.Tensor:
        """Return the results: float32 [results, dim]."""
        ...

    def gradient(self, number: int, of_results: torch.Tensor) -> RowGradient:
        """Return the gradient of the rows from that of the results."""
        ...


@dataclass(frozen=True, slots=True)
class Lookup:
    """Keys of one table in host memory, and how their rows are summed.

    Attributes:
        table: where the rows are.
        keys: int64 [keys].
        bags: None: each key's row by itself.
    """

    table: EmbeddingTable
    keys: torch.Tensor
    bags: KeyBags | None = None

    def pull(self, *, create: bool = True) -> PulledLookup:
        """Pull the rows or the sums of bags; unknown keys get a row or count as their initial values."""
        table, keys = self.table, self.keys.numpy()
        values = new_rows(len(keys) if self.bags is None else len(self.bags), table.dim)
        if self.bags is None:
            rows = table._current.pull_rows(keys, values, create, table.threads)
        else:
            rows = table._current.pull_bags(keys, *self.bags.arrays(), values, create, table.threads)
        return PulledLookup(self, values, rows)


@dataclass(frozen=True, slots=True)
class PulledLookup:
    """Result of a lookup in host memory.

    Attributes:
        lookup: the lookup itself.
        values: float32 [results, dim].
        rows: native positions of the rows, for the push.
    """

    lookup: Lookup
    values: Float32Array
    rows: _core.PulledRows

    def tensor(self) -> torch.Tensor:
        """Return the results: float32 [results, dim]."""
        return torch.from_numpy(self.values)

    def gradient(self, number: int, of_results: torch.Tensor) -> Gradient:
        """Return the gradient of the rows from that of the results."""
        lookup = self.lookup
        values = of_results.detach().to(CPU, torch.float32).contiguous().numpy()
        bags = () if lookup.bags is None else lookup.bags.arrays()
        return Gradient(number, lookup.table, self.rows, lookup.keys.numpy(), values, *bags)


@dataclass(frozen=True, slots=True)
class Plan:
    """Lookups of a forward pass, and the function that turns their results into its output.

    Attributes:
        lookups: at most one for each table.
        finish: makes the module's output of the lookups' results.
        device: device of the results.
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

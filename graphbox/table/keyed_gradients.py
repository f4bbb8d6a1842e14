"""Gradients of keys on their way to the tables that have the rows, in other processes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import numpy as np
import torch
from torch import Tensor

from graphbox.errors import UsageError
from graphbox.table.arguments import float32_rows
from graphbox.table.ordered_sum import sum_of_equal
from graphbox.table.policy import show_counts

if TYPE_CHECKING:
    from graphbox.table.distributed_keys import DividedKeys
    from graphbox.table.table import EmbeddingTable

ExchangeT = TypeVar("ExchangeT")


@dataclass(frozen=True)
class KeyedGradients(Generic[ExchangeT]):
    """Gradients of a process.

    Attributes:
        keys: int64 [n], where this process has its rows.
        values: float32 [n, dim].
        counts: float32 [n, 0 to 2], shows, and clicks where the table counts them.
        exchange: which pulled just these keys; None: none did.
    """

    keys: Tensor
    values: Tensor
    counts: Tensor
    exchange: ExchangeT | None = None

    def take(self, chosen: Tensor) -> KeyedGradients[ExchangeT]:
        """Return those at which ``chosen``, bool [n], is true."""
        return KeyedGradients(self.keys[chosen], self.values[chosen], self.counts[chosen])

    def summed(self, divided: DividedKeys, divisor: int) -> Tensor:
        """Return gradients and counts of the different keys: float32 [different keys, dim + 0 to 2].

        Those of equal keys are added up in the order of the batch, each gradient divided by ``divisor``.
        """
        values = self.values / divisor if divisor > 1 else self.values
        columns = torch.cat([values, self.counts], dim=1) if self.counts.shape[1] else values
        return sum_of_equal(divided.places, columns, len(divided.different))


class GradientReader:
    """Reads the arrays of pushes to a table.

    Args:
        table: with its settings.
        device: where gradients are to be.
    """

    def __init__(self, table: EmbeddingTable, device: torch.device) -> None:
        self._table = table
        self._device = device
        self._counts_clicks = table.policies.score is not None
        self._counts_shows = self._counts_clicks or table._native.optimizer.mean_gradient

    @property
    def counts(self) -> int:
        """Number of columns of counts beside gradients: 0 to 2."""
        return int(self._counts_shows) + int(self._counts_clicks)

    def read(self, keys: Tensor, grads: Any, shows: Any, clicks: Any) -> KeyedGradients[Any]:
        """Return the gradients of a push.

        Args:
            keys: int64 of any shape.
            grads: float32 [*keys.shape, dim].
            shows: see :meth:`EmbeddingTable.push`.
            clicks: see :meth:`EmbeddingTable.push`.

        Raises:
            UsageError: wrong shapes or dtypes, or shows or clicks that nothing counts.
        """
        self._table._check_counted(shows, clicks)
        values = self._values(grads, (*keys.shape, self._table.dim))
        return KeyedGradients(keys.reshape(-1), values, self.counts_of(keys.shape, shows, clicks))

    def counts_of(self, shape: tuple[int, ...], shows: Any = None, clicks: Any = None) -> Tensor:
        """Return what the table counts of each key beside its gradient: float32 [keys, 0 to 2]."""
        columns = []
        if self._counts_shows:
            columns.append(np.ones(shape) if shows is None else show_counts(shows, "shows", shape))
        if self._counts_clicks:
            columns.append(np.zeros(shape) if clicks is None else show_counts(clicks, "clicks", shape))
        flat = [np.asarray(each, np.float32).reshape(-1) for each in columns]
        size = int(np.prod(shape))
        return torch.from_numpy(np.stack(flat, axis=1) if flat else np.zeros((size, 0), np.float32)).to(
            self._device
        )

    def joined(self, given: Sequence[KeyedGradients[ExchangeT]]) -> KeyedGradients[ExchangeT]:
        """Return gradients one after the other as one; of no exchange, unless they are of one."""
        if len(given) == 1:
            return given[0]
        nothing = torch.zeros(0, dtype=torch.float32, device=self._device)
        return KeyedGradients(
            torch.cat([nothing.to(torch.int64), *(each.keys for each in given)]),
            torch.cat([nothing.new_zeros(0, self._table.dim), *(each.values for each in given)]),
            torch.cat([nothing.new_zeros(0, self.counts), *(each.counts for each in given)]),
        )

    def split(self, columns: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
        """Return gradients, [n, dim], and shows and clicks by name, of columns side by side."""
        dim = self._table.dim
        named = zip(("shows", "clicks"), columns[:, dim:].unbind(dim=1), strict=False)
        return columns[:, :dim].contiguous(), dict(named)

    def _values(self, grads: Any, shape: tuple[int, ...]) -> Tensor:
        if isinstance(grads, Tensor) and grads.device == self._device and self._device.type != "cpu":
            if grads.dtype != torch.float32 or tuple(grads.shape) != shape:
                raise UsageError(
                    f"expected float32 {shape}, received {grads.dtype} {tuple(grads.shape)}", where="grads"
                )
            return grads.detach().reshape(-1, self._table.dim)
        values = torch.from_numpy(float32_rows(grads, "grads", shape))
        return values.to(self._device).reshape(-1, self._table.dim)

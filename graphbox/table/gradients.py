"""Gradients of table rows on their way from autograd to the tables."""

from __future__ import annotations

import math
import threading
import weakref
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, Protocol, Self, TypeVar

import numpy as np
import torch

from graphbox import _core
from graphbox.errors import UnsupportedError
from graphbox.native import Int64Array
from graphbox.table.arguments import Float32Array
from graphbox.table.ordered_sum import sum_of_equal
from graphbox.table.protocol import Table
from graphbox.table.table import EmbeddingTable

GradientT = TypeVar("GradientT", bound="RowGradient")


class RowGradient(Protocol):
    """The gradient of a lookup's results, wherever the rows are: in host memory, or on a device."""

    @property
    def number(self) -> int:
        """Of the lookup, in the order of the forward passes."""
        ...

    @property
    def table(self) -> Table:
        """Table whose rows were looked up."""
        ...

    def joined(self, others: Sequence[Any]) -> Self:
        """Return it and others of the same table, which come after it, as one."""
        ...

    def scaled(self, factor: float) -> Self:
        """Return a multiple of it, in memory of its own."""
        ...

    def square_sum(self) -> float:
        """Return the sum of the squares of all rows' gradients, those of equal keys summed."""
        ...


@dataclass(frozen=True, slots=True)
class Gradient:
    """The gradient of a lookup's results.

    Attributes:
        number: of the lookup, in the order of the forward passes.
        table: whose rows were looked up.
        rows: where they are.
        keys: int64 [keys], theirs.
        values: float32 [results, dim].
        offsets: int64 [results + 1], where the keys of each result begin; None: each result is one row.
        weights: float32 [keys], factors of the rows.
        divisors: float32 [results], of the sums.
    """

    number: int
    table: EmbeddingTable
    rows: _core.PulledRows
    keys: Int64Array
    values: Float32Array
    offsets: Int64Array | None = None
    weights: Float32Array | None = None
    divisors: Float32Array | None = None

    def joined(self, others: Sequence[Gradient]) -> Gradient:
        """Return it and others of the same table, which come after it, as one."""
        return _joined([self, *others])

    def scaled(self, factor: float) -> Gradient:
        """Return a multiple of it, in memory of its own."""
        return replace(self, values=self.values * np.float32(factor))

    def square_sum(self) -> float:
        """Return the sum of the squares of all rows' gradients, those of equal keys summed."""
        return float(np.square(self.row_sums(), dtype=np.float64).sum())

    def row_sums(self) -> Float32Array:
        """Return the gradients of rows, those of equal keys summed: float32 [different keys, dim]."""
        values = self.values
        if self.offsets is not None:
            result_of = np.repeat(np.arange(len(values)), np.diff(self.offsets))
            if self.divisors is not None:
                values = values / self.divisors[:, None]
            values = values[result_of]
            if self.weights is not None:
                values = values * self.weights[:, None]
        different, places = np.unique(self.keys, return_inverse=True)
        rows = torch.from_numpy(np.ascontiguousarray(values))
        return sum_of_equal(torch.from_numpy(places), rows, len(different)).numpy()


class Gradients:
    """Gradients of several lookups: each table gets its own as one push, in the order of the forward passes.

    So a row that was looked up twice learns once, from the sum, as torch's optimizers have it.
    """

    def __init__(self) -> None:
        self._gradients: list[RowGradient] = []
        self._lock = threading.Lock()  # backward passes of several devices run in several threads

    def add(self, gradient: RowGradient) -> None:
        """Keep a gradient."""
        with self._lock:
            self._gradients.append(gradient)

    def drop(self) -> None:
        """Forget all gradients."""
        with self._lock:
            self._gradients = []

    def push(self, collective: Sequence[Table] = ()) -> None:
        """Apply all gradients, and forget them.

        Args:
            collective: tables that all processes call together: they learn first, in this order, where there
                is no gradient here, too.

        Raises:
            DataError: a gradient that holds NaN or infinity; its table learned nothing, nor did those that
                come after it in the forward pass.
        """
        with self._lock:
            gradients, self._gradients = self._gradients, []
        for table, of_table in _by_table(gradients, collective).items():
            table.learn(of_table)

    def norm(self) -> float:
        """Return the Euclidean norm of all rows' gradients, those of equal keys summed."""
        with self._lock:
            gradients = list(self._gradients)
        joined = [joined_gradient(each) for each in _by_table(gradients).values()]
        return math.sqrt(sum(each.square_sum() for each in joined))

    def scale(self, factor: float) -> None:
        """Multiply all gradients, whose memory may be that of tensors of the user, in memory of their own."""
        with self._lock:
            self._gradients = [each.scaled(factor) for each in self._gradients]


def joined_gradient(gradients: Sequence[GradientT]) -> GradientT:
    """Return gradients of one table, in the order of their lookups, as one."""
    first, *others = gradients
    return first.joined(others) if others else first


def _by_table(
    gradients: Sequence[RowGradient], first: Sequence[Table] = ()
) -> dict[Table, list[RowGradient]]:
    """Return the gradients of each table in the order of the forward passes; those of ``first`` first."""
    by_table: dict[Table, list[RowGradient]] = {table: [] for table in first}
    for gradient in sorted(gradients, key=lambda each: each.number):
        by_table.setdefault(gradient.table, []).append(gradient)
    return by_table


_open: Final[weakref.WeakValueDictionary[int, Gradients]] = weakref.WeakValueDictionary()
"""Gradients of the backward passes that are running. Autograd holds them, and drops them if it fails."""
_open_lock: Final = threading.Lock()


def collect(gradient: RowGradient) -> None:
    """Keep a gradient until the backward pass of this thread has come to its end, and apply it then.

    Raises:
        UnsupportedError: of a table that all processes call together, which no backward pass waits for.
    """
    if gradient.table.is_collective:
        raise UnsupportedError(
            "expected a TableOptimizer, whose step() applies gradients of a table in several processes",
            where=repr(gradient.table),
            hint="make TableOptimizer(model) and call its step()",
        )
    backward_pass = torch._C._current_graph_task_id()
    with _open_lock:
        gradients = _open.get(backward_pass)
        if gradients is None:
            gradients = _open[backward_pass] = Gradients()
            torch.autograd.Variable._execution_engine.queue_callback(gradients.push)
    gradients.add(gradient)


def _joined(gradients: Sequence[Gradient]) -> Gradient:
    """Return gradients of one table as one."""
    first = gradients[0]
    lengths = [len(each.keys) for each in gradients]
    ends = np.cumsum(lengths)
    offsets = None
    if any(each.offsets is not None for each in gradients):
        starts = [
            (np.arange(length) if each.offsets is None else each.offsets[:-1]) + end - length
            for each, length, end in zip(gradients, lengths, ends, strict=True)
        ]
        offsets = np.concatenate([*starts, ends[-1:]])
    return Gradient(
        first.number,
        first.table,
        _core.PulledRows.joined([each.rows for each in gradients]),
        np.concatenate([each.keys for each in gradients]),
        np.concatenate([each.values for each in gradients]),
        offsets,
        _factors([each.weights for each in gradients], lengths),
        _factors([each.divisors for each in gradients], [len(each.values) for each in gradients]),
    )


def _factors(parts: Sequence[Float32Array | None], lengths: Sequence[int]) -> Float32Array | None:
    if all(part is None for part in parts):
        return None
    return np.concatenate(
        [
            np.ones(length, np.float32) if part is None else part
            for part, length in zip(parts, lengths, strict=True)
        ]
    )

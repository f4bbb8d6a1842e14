"""The arrays that skip-gram's kernels read and write on a device."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from torch import Tensor


class RowArrays(NamedTuple):
    """Rows of a table in one memory: the device's own, or pinned host memory that it reads and writes.

    Attributes:
        values: float32 [rows, dim].
        accumulator: float32 [rows], the state of row-wise Adagrad.
        changed: uint8 [rows], 1 where a row was updated.
    """

    values: Tensor
    accumulator: Tensor
    changed: Tensor


class TieredRows(NamedTuple):
    """The rows of all keys of a table, each where it is; see :class:`graphbox.skip_gram.rows.RowTiers`.

    Attributes:
        first: the rows of positions 0, 1, ... in their order.
        rest: those of the positions that follow, in the other memory; None: there are none.
    """

    first: RowArrays
    rest: RowArrays | None


class BatchArrays(NamedTuple):
    """Inputs of a group of batches; see :mod:`graphbox.skip_gram.batches`.

    Keys are given by the positions of their rows.

    Attributes:
        position: int64 [places], of the key there.
        first: int64 [places], the first place of its contexts.
        last: int64 [places], one past the last.
        uses: int64 [places], number of pairs whose centre it is.
        begins: int64 [batches + 1], where the places of each begin.
        pairs: int64 [batches], number of pairs of each.
        negatives: int64 [batches, negatives], positions.
        items: int64 [places + batches * negatives], batch * keys + position of all that has a gradient,
            ascending.
        sources: int64, the place of each item, or its negative, counted from ``places`` on.
    """

    position: Tensor
    first: Tensor
    last: Tensor
    uses: Tensor
    begins: Tensor
    pairs: Tensor
    negatives: Tensor
    items: Tensor
    sources: Tensor


class GradientArrays(NamedTuple):
    """Room for the gradients of the batches that are computed side by side, and what is told of them.

    Attributes:
        center: float32 [side, 2, places, dim], from contexts and from negatives.
        context: float32 [side, places, dim].
        negative: float32 [side, tiles, negatives, dim], of the places of each program that has negatives.
        losses: float64 [batches, programs].
        stopped: int32 [1], 1 after a loss that is not finite: nothing is computed any more.
    """

    center: Tensor
    context: Tensor
    negative: Tensor
    losses: Tensor
    stopped: Tensor

"""Operands of operations of a table on a device: slots of rows, and gradients."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from graphbox.table.optimizer_gpu import first_nonfinite
from graphbox.table.reduce_gpu import sum_equal_rows
from graphbox.table.resident_rows import distinct_in_order

if TYPE_CHECKING:
    from torch import Tensor

    from graphbox.native import Int64Array
    from graphbox.table.device_table import DeviceTable


@dataclass(frozen=True, slots=True)
class DeviceSlots:
    """Where the rows are that :meth:`DeviceTable.pull_slots` gave, for :meth:`DeviceTable.push_slots`.

    Attributes:
        table: whose rows they are.
        shape: that of the keys.
        keys: int64 [n], theirs.
    """

    table: DeviceTable
    shape: tuple[int, ...]
    keys: Tensor
    _slots: Tensor | None
    """Of all keys while the table is of this version; None where they were not all there."""
    _version: int

    def __len__(self) -> int:
        return len(self.keys)

    @classmethod
    def joined(cls, parts: Sequence[DeviceSlots]) -> DeviceSlots:
        """Return slots of several pulls of one table, one after another."""
        keys = torch.cat([each.keys for each in parts])
        places = [each._slots for each in parts if each._slots is not None]
        version = min(each._version for each in parts)
        is_whole = len(places) == len(parts) and all(each._version == version for each in parts)
        slots = torch.cat(places) if is_whole else None
        return cls(parts[0].table, tuple(keys.shape), keys, slots, version)

    def current(self, version: int) -> Tensor | None:
        """Return the slots of all keys, if they are still those of the table at this version."""
        return self._slots if self._version == version else None

    def __repr__(self) -> str:
        return f"DeviceSlots(shape={self.shape}, table={self.table!r})"


@dataclass(frozen=True, slots=True)
class PushedRows:
    """Gradients of a push: that of key i is ``gradients[gradient_of[i]]`` times ``scale_of[i]``.

    Attributes:
        gradients: float32 [gradients, dim].
        gradient_of: int64 [keys]; None: there is one for each key.
        scale_of: float32 [keys]; None: 1.
        shows: float32 [keys]; None: 1.
        clicks: float32 [keys]; None: 0.
    """

    gradients: Tensor
    gradient_of: Tensor | None = None
    scale_of: Tensor | None = None
    shows: Tensor | None = None
    clicks: Tensor | None = None

    @classmethod
    def joined(cls, parts: Sequence[PushedRows]) -> PushedRows:
        """Return several pushes as one, without shows and clicks."""
        gradients = torch.cat([each.gradients for each in parts])
        if all(each.gradient_of is None for each in parts):
            return cls(gradients)
        gradient_of, scale_of, first = [], [], 0
        for each in parts:
            own = each.gradient_of
            if own is None:
                own = torch.arange(len(each.gradients), device=gradients.device)
            gradient_of.append(own + first)
            scale_of.append(
                torch.ones(len(own), device=own.device) if each.scale_of is None else each.scale_of
            )
            first += len(each.gradients)
        return cls(gradients, torch.cat(gradient_of), torch.cat(scale_of))

    def of_keys(self) -> Tensor:
        """Return the gradient of each key."""
        rows = self.gradients if self.gradient_of is None else self.gradients[self.gradient_of]
        return rows if self.scale_of is None else self.scale_of.unsqueeze(1) * rows

    def all_finite(self) -> bool:
        """Return whether all gradients, and what they are multiplied by, are finite; waits for the device."""
        parts = [self.gradients] if self.scale_of is None else [self.gradients, self.scale_of.unsqueeze(1)]
        return all(int(first_nonfinite(part.contiguous())) == len(part) for part in parts)

    def is_finite(self) -> Tensor:
        """Return for each key whether its gradient is finite, bool."""
        finite = torch.isfinite(self.gradients).all(1)
        finite = finite if self.gradient_of is None else finite[self.gradient_of]
        return finite if self.scale_of is None else finite & torch.isfinite(self.scale_of)


class MissingRows:
    """Positions of a batch whose rows are not on the device.

    Attributes:
        keys: int64 [positions].
        positions: in the batch.
        distinct: different keys, in the order of first appearance.
        place_of: of each position, its key's place among them.
        in_host: the same in host memory.
    """

    def __init__(self, keys: Tensor, positions: Tensor) -> None:
        self.keys = keys
        self.positions = positions
        self.distinct, self.place_of = distinct_in_order(keys)
        self.in_host: Int64Array = self.distinct.cpu().numpy()


@dataclass(frozen=True, slots=True)
class RowSums:
    """Sums of a push for different rows.

    Attributes:
        gradients: float32 [rows, dim], sums in the order of the table below.
        weights: [rows], divisors of the sums for their mean: int32 counts of gradients, or float32 shows.
        shows: float32 [rows].
        clicks: float32 [rows].
    """

    gradients: Tensor
    weights: Tensor
    shows: Tensor
    clicks: Tensor

    @classmethod
    def of(cls, rows: Tensor, pushed: PushedRows, left_in: Tensor | None = None) -> tuple[Tensor, RowSums]:
        """Return different rows in the order of first appearance, and what each gets.

        Args:
            rows: int64 [keys], equal for keys of the same row.
            pushed: what each key gets.
            left_in: positions of those that count; None: all.
        """
        gradients, shows, clicks = pushed.of_keys(), pushed.shows, pushed.clicks
        if left_in is not None:
            rows, gradients = rows[left_in], gradients[left_in]
            shows, clicks = (None if each is None else each[left_in] for each in (shows, clicks))
        distinct, sums, counts = sum_equal_rows(rows, gradients)
        if shows is None and clicks is None:
            shown = counts.to(torch.float32)
            return distinct, cls(sums, counts, shown, torch.zeros_like(shown))
        _, shown, clicked = sums_of_counts(rows, shows, clicks)
        return distinct, cls(sums, counts if shows is None else shown, shown, clicked)

    def take(self, chosen: Tensor) -> RowSums:
        """Return those of some rows."""
        return RowSums(self.gradients[chosen], self.weights[chosen], self.shows[chosen], self.clicks[chosen])


def sums_of_counts(
    rows: Tensor, shows: Tensor | None, clicks: Tensor | None
) -> tuple[Tensor, Tensor, Tensor]:
    """Return different rows in the order of first appearance, and how often each was shown and clicked."""
    ones = torch.ones(len(rows), device=rows.device)
    columns = [ones if shows is None else shows, torch.zeros_like(ones) if clicks is None else clicks]
    distinct, sums, _ = sum_equal_rows(rows, torch.stack(columns, 1))
    return distinct, sums[:, 0].contiguous(), sums[:, 1].contiguous()

"""Lookups of torch modules in tables on a device: keys, rows and gradients stay there."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from graphbox.table.device_batch import DeviceSlots, PushedRows
from graphbox.table.key_bags import KeyBags
from graphbox.table.reduce_gpu import sum_equal_rows

if TYPE_CHECKING:
    from graphbox.table.device_table import DeviceTable


@dataclass(frozen=True, slots=True)
class DeviceLookup:
    """Keys of one table on a device, and how their rows are summed.

    Attributes:
        table: where the rows are.
        keys: int64 [keys].
        bags: None: each key's row by itself.
    """

    table: DeviceTable
    keys: Tensor
    bags: KeyBags | None = None

    def pull(self, *, create: bool = True) -> DevicePulledRows:
        """Pull the rows or the sums of bags; unknown keys get a row or count as their initial values."""
        rows, slots = self.table.pull_slots(self.keys, create=create)
        return DevicePulledRows(self, rows if self.bags is None else bag_sums(rows, self.bags), slots)


@dataclass(frozen=True, slots=True)
class DevicePulledRows:
    """Result of a lookup in a table on a device.

    Attributes:
        lookup: the lookup itself.
        values: float32 [results, dim].
        slots: slots of the rows, for the push.
    """

    lookup: DeviceLookup
    values: Tensor
    slots: DeviceSlots

    def tensor(self) -> Tensor:
        """Return the results: float32 [results, dim]."""
        return self.values.detach()

    def gradient(self, number: int, of_results: Tensor) -> DeviceGradient:
        """Return the gradient of the rows from that of the results."""
        table = self.lookup.table
        values = of_results.detach().to(table.device, torch.float32).contiguous()
        return DeviceGradient(number, table, self.slots, _pushed(values, self.lookup.bags))


@dataclass(frozen=True, slots=True)
class DeviceGradient:
    """The gradient of a lookup's results, on the device.

    Attributes:
        number: of the lookup, in the order of the forward passes.
        table: whose rows were looked up.
        slots: where they are.
        pushed: the gradients of its keys.
    """

    number: int
    table: DeviceTable
    slots: DeviceSlots
    pushed: PushedRows

    def joined(self, others: Sequence[DeviceGradient]) -> DeviceGradient:
        """Return it and others of the same table, which come after it, as one."""
        parts = [self, *others]
        slots = DeviceSlots.joined([each.slots for each in parts])
        return replace(self, slots=slots, pushed=PushedRows.joined([each.pushed for each in parts]))

    def scaled(self, factor: float) -> DeviceGradient:
        """Return a multiple of it, in memory of its own."""
        return replace(self, pushed=replace(self.pushed, gradients=self.pushed.gradients * factor))

    def square_sum(self) -> float:
        """Return the sum of the squares of all rows' gradients, those of equal keys summed."""
        _, sums, _ = sum_equal_rows(self.slots.keys, self.pushed.of_keys())
        return float(sums.double().square().sum())


def bag_sums(rows: Tensor, bags: KeyBags) -> Tensor:
    """Return the sums of bags from the rows of their keys: float32 [bags, dim]."""
    if bags.weights is not None:
        rows = bags.weights.unsqueeze(1) * rows
    distinct, of_bags, _ = sum_equal_rows(_bag_of(bags), rows)
    sums = rows.new_zeros(len(bags), rows.shape[1])
    sums[distinct] = of_bags
    return sums if bags.divisors is None else sums / bags.divisors.unsqueeze(1)


def _pushed(values: Tensor, bags: KeyBags | None) -> PushedRows:
    if bags is None:
        return PushedRows(values)
    bag_of = _bag_of(bags)
    scale_of = bags.weights
    if bags.divisors is not None:
        divisor_of = bags.divisors[bag_of]
        scale_of = 1 / divisor_of if scale_of is None else scale_of / divisor_of
    return PushedRows(values, bag_of, scale_of)


def _bag_of(bags: KeyBags) -> Tensor:
    lengths = torch.diff(bags.offsets)
    return torch.repeat_interleave(torch.arange(len(bags), device=lengths.device), lengths)

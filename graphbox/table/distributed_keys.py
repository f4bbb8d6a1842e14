"""Exchange of a batch's keys between processes: distinct keys go to their owners."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import torch
from torch import Tensor

from graphbox import _core

if TYPE_CHECKING:
    from graphbox.table.distributed import ProcessGroup

_LOW: Final = (1 << 32) - 1


def owners_of(keys: Tensor, processes: int) -> Tensor:
    """Return the rank of the process that has each key: int64 [n], what ``shard_of`` says, on any device.

    Args:
        keys: int64 [n].
        processes: how many there are.
    """
    if keys.device.type == "cpu":
        return torch.from_numpy(_core.shard_of(keys.numpy(), processes))
    mixed = keys + _signed(0x9E3779B97F4A7C15)
    mixed = (mixed ^ _shifted(mixed, 30)) * _signed(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ _shifted(mixed, 27)) * _signed(0x94D049BB133111EB)
    mixed = mixed ^ _shifted(mixed, 31)
    # The upper half of the product with `processes`, in parts that int64 has room for.
    return (_shifted(mixed, 32) * processes + (((mixed & _LOW) * processes) >> 32)) >> 32


@dataclass(frozen=True, eq=False, slots=True)
class DividedKeys:
    """The different keys of a batch, in the order of their owners.

    Attributes:
        places: int64 [keys], where each key of the batch is among the different ones.
        different: int64 [different keys], those of the first owner first, each owner's in ascending order.
        counts: how many of those each owner has.
    """

    places: Tensor
    different: Tensor
    counts: list[int]

    @classmethod
    def of(cls, keys: Tensor, owners: int) -> DividedKeys:
        """Divide keys.

        Args:
            keys: int64 [n].
            owners: how many there are.
        """
        different, places = torch.unique(keys, return_inverse=True)
        owner_of = owners_of(different, owners)
        order = torch.argsort(owner_of, stable=True)
        place_of = torch.empty_like(order)
        place_of[order] = torch.arange(len(order), device=order.device)
        counts: list[int] = torch.bincount(owner_of, minlength=owners).tolist()
        return cls(place_of[places], different[order], counts)


@dataclass(eq=False)
class KeyExchange:
    """The keys of a batch at their owners.

    Attributes:
        number: of the exchanges of the table, the same in all processes.
        divided: the keys of this process.
        receives: how many keys come from each process.
        owned: int64 [sum of receives], keys of this process that any process asked for, in their order.
        slots: where their rows are in the table of this process, as that says it; None: they were not pulled.
    """

    number: int
    divided: DividedKeys
    receives: list[int]
    owned: Tensor
    slots: Any = None

    @classmethod
    def of(cls, processes: ProcessGroup, name: str, number: int, keys: Tensor) -> KeyExchange:
        """Send each key to its owner.

        Args:
            processes: which take part.
            name: what the keys are for.
            number: see the attribute.
            keys: int64 [n], on the device of the tables.
        """
        divided = DividedKeys.of(keys, processes.size)
        counts = processes.exchange(f"{name}: numbers of keys", np.array(divided.counts, np.int64)[:, None])
        receives: list[int] = counts[:, 0].tolist()
        owned = processes.all_to_all(f"{name}: keys", divided.different, divided.counts, receives)
        return cls(number, divided, receives, owned)

    def fetch(self, processes: ProcessGroup, name: str, rows: Tensor) -> Tensor:
        """Return the row of each key of this process, given those of ``owned``: [keys, dim]."""
        came = processes.all_to_all(f"{name}: rows", rows, self.receives, self.divided.counts)
        return came[self.divided.places]

    def deliver(self, processes: ProcessGroup, name: str, rows: Tensor) -> Tensor:
        """Return what came for ``owned``, given the rows of the different keys: [owned, dim]."""
        return processes.all_to_all(f"{name}: gradients", rows, self.divided.counts, self.receives)


def _signed(value: int) -> int:
    return value - (1 << 64) if value >> 63 else value


def _shifted(values: Tensor, bits: int) -> Tensor:
    """Return int64 shifted right as if they had no sign."""
    return (values >> bits) & ((1 << (64 - bits)) - 1)

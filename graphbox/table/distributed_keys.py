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


@dataclass(eq=False)
class KeyExchange:
    """The keys of a batch at their owners.

    Attributes:
        number: of the exchanges of the table, the same in all processes.
        places: int64 [keys], where each key of this process is among the different ones.
        different: int64 [different keys], in the order of their owners.
        sends: how many of those each process has.
        receives: how many keys come from each process.
        owned: int64 [sum of receives], keys of this process that any process asked for, in their order.
        slots: where their rows are in the table of this process, as that says it; None: they were not pulled.
    """

    number: int
    places: Tensor
    different: Tensor
    sends: list[int]
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
        different, places = torch.unique(keys, return_inverse=True)
        owners = owners_of(different, processes.size)
        order = torch.argsort(owners, stable=True)
        place_of = torch.empty_like(order)
        place_of[order] = torch.arange(len(order), device=order.device)
        different = different[order]
        sends: list[int] = torch.bincount(owners, minlength=processes.size).tolist()
        counts = processes.exchange(f"{name}: numbers of keys", np.array(sends, np.int64)[:, None])
        receives: list[int] = counts[:, 0].tolist()
        owned = processes.all_to_all(f"{name}: keys", different, sends, receives)
        return cls(number, place_of[places], different, sends, receives, owned)

    def fetch(self, processes: ProcessGroup, name: str, rows: Tensor) -> Tensor:
        """Return the row of each key of this process, given those of ``owned``: [keys, dim]."""
        came = processes.all_to_all(f"{name}: rows", rows, self.receives, self.sends)
        return came[self.places]

    def deliver(self, processes: ProcessGroup, name: str, rows: Tensor) -> Tensor:
        """Return what came for ``owned``, given the rows of ``different``: [owned, dim]."""
        return processes.all_to_all(f"{name}: gradients", rows, self.sends, self.receives)


def _signed(value: int) -> int:
    return value - (1 << 64) if value >> 63 else value


def _shifted(values: Tensor, bits: int) -> Tensor:
    """Return int64 shifted right as if they had no sign."""
    return (values >> bits) & ((1 << (64 - bits)) - 1)

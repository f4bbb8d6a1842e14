"""Bags of keys, each pooled to one row, as tensors on the device of the keys."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from graphbox.native import Int64Array
from graphbox.table.arguments import Float32Array


@dataclass(frozen=True, slots=True)
class KeyBags:
    """Bags of keys, each pooled to one row.

    Attributes:
        offsets: int64 [bags + 1], where the keys of each bag begin, and where the last ones end.
        weights: float32 [keys], factors of the rows; None: 1.
        divisors: float32 [bags], divisors of the sums; None: 1.
    """

    offsets: Tensor
    weights: Tensor | None = None
    divisors: Tensor | None = None

    @classmethod
    def of_lengths(cls, lengths: Tensor) -> KeyBags:
        """Return bags of so many keys each."""
        return cls(offsets_of(lengths))

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def arrays(self) -> tuple[Int64Array, Float32Array | None, Float32Array | None]:
        """Return offsets, weights and divisors, which are in host memory, as arrays."""
        weights, divisors = (
            None if each is None else each.detach().numpy() for each in (self.weights, self.divisors)
        )
        return self.offsets.numpy(), weights, divisors


def offsets_of(lengths: Tensor) -> Tensor:
    """Return where parts of these lengths begin, and where the last one ends: int64 [parts + 1]."""
    offsets = torch.zeros(len(lengths) + 1, dtype=torch.int64, device=lengths.device)
    torch.cumsum(lengths, 0, out=offsets[1:])
    return offsets

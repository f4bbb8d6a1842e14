"""Blocks of padded sequences: what networks of sequences compute on, and the face that they have."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, Self, TypeAlias

import torch
from torch import Tensor, nn

Shapes: TypeAlias = Sequence[tuple[int, int]]
"""Of each block the number of its sequences n, and their padded length L."""


class SequenceNetwork(nn.Module, ABC):
    """Makes of each event of a sequence a vector that the next event is predicted by.

    Events come as one tensor, block after block: a block of n sequences is n * L rows, the events of a
    sequence one after the other, then padding. What is done to each event by itself is done to all blocks at
    once; sequences of unlike length are in blocks of their own, so that little is padding. No event knows of
    those after it, so that padding at the end changes nothing.

    Attributes:
        vectors: number of vectors of an event, each of the length of a row; they are given as one, one after
            the other.
    """

    vectors: int = 1

    @classmethod
    @abstractmethod
    def of(cls, config: Any) -> Self:
        """Return the network of a section of the run file, with parameters as torch draws them."""

    @abstractmethod
    def forward(self, rows: Tensor, shapes: Shapes) -> Tensor:
        """Return the vectors of events: float32 [sum of n * L, vectors * dim]; those of padding mean nothing.

        Args:
            rows: float32 [sum of n * L, dim], rows of the items.
            shapes: of the blocks.
        """


def blocks_of(rows: Tensor, shapes: Shapes) -> list[Tensor]:
    """Return the blocks of rows: of each [n, L, width]."""
    if len(shapes) == 1:  # whose sizes may be symbols of an exporter
        return [rows.view(*shapes[0], rows.shape[1])]
    sizes = [count * length for count, length in shapes]
    return [
        each.view(*shape, rows.shape[1]) for each, shape in zip(torch.split(rows, sizes), shapes, strict=True)
    ]


def rows_of(blocks: Sequence[Tensor]) -> Tensor:
    """Return blocks [n, L, width] as rows, one block after the other: [sum of n * L, width]."""
    flat = [each.reshape(-1, each.shape[2]) for each in blocks]
    return flat[0] if len(flat) == 1 else torch.cat(flat)


def closest_vectors(vectors: Tensor, rows: Tensor) -> Tensor:
    """Return of each event the vector whose inner product with a row is largest: float32 [events, dim].

    The choice itself has no gradient, as in ComiRec (Cen et al., KDD 2020, equation 7).

    Args:
        vectors: float32 [events, n * dim], n vectors of each event, one after the other.
        rows: float32 [events, dim], a row for each event.
    """
    events, dim = rows.shape
    if vectors.shape[1] == dim:
        return vectors
    several = vectors.view(events, vectors.shape[1] // dim, dim)
    best = torch.bmm(several.detach(), rows.detach().unsqueeze(2)).argmax(dim=1)
    return several.gather(1, best.unsqueeze(2).expand(events, 1, dim)).squeeze(1)


def initialize(module: nn.Module) -> None:
    """Start the linear layers in a network as Glorot and Bengio (AISTATS 2010), their biases at zero."""
    for each in module.modules():
        if isinstance(each, nn.Linear):
            nn.init.xavier_uniform_(each.weight)
            if each.bias is not None:
                nn.init.zeros_(each.bias)

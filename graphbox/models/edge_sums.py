"""Sums over the edges that arrive at nodes, as products with a sparse matrix."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

__all__ = ["EdgeSums"]


class EdgeSums:
    """The edges of a relation, ordered for sums at their targets and, of gradients, at their sources.

    Nothing is kept for an edge but its ends, so that memory and time are those of the vectors that are read;
    each sum has a fixed order.

    Args:
        index: int64 [2, e], positions of sources and targets.
        sources: number of nodes that edges come from.
        targets: number of nodes that they arrive at.
    """

    def __init__(self, index: Tensor, sources: int, targets: int) -> None:
        self._arriving = _Lists(index[0], index[1], targets)
        self._leaving = _Lists(index[1], index[0], sources)

    def at_targets(self, vectors: Tensor, weight: Tensor | None = None) -> Tensor:
        """Return the weighted sums of the vectors of sources: float32 [targets, dim].

        Args:
            vectors: float32 [sources, dim].
            weight: float32 [e], through which no gradient flows; None: all are 1.
        """
        found: Tensor = _Sum.apply(vectors, weight, self._arriving, self._leaving)  # type: ignore[no-untyped-call]
        return found


class _Lists:
    """The edges of each of some nodes, one node after the other.

    Args:
        ends: int64 [e], the other ends.
        nodes: int64 [e], the nodes.
        count: number of nodes.
    """

    def __init__(self, ends: Tensor, nodes: Tensor, count: int) -> None:
        self._order = torch.argsort(nodes, stable=True)
        self._ends = ends[self._order].contiguous()
        self._offsets = functional.pad(torch.bincount(nodes, minlength=count).cumsum(0), (1, 0))

    def sums(self, vectors: Tensor, weight: Tensor | None) -> Tensor:
        """Return the weighted sums of the vectors of the other ends."""
        # Several times as fast as torch's product with a sparse matrix, and each row is summed in order.
        return functional.embedding_bag(
            self._ends,
            vectors,
            self._offsets,
            mode="sum",
            per_sample_weights=None if weight is None else weight[self._order],
            include_last_offset=True,
        )


class _Sum(torch.autograd.Function):
    @staticmethod
    def forward(
        context: Any, vectors: Tensor, weight: Tensor | None, arriving: _Lists, leaving: _Lists
    ) -> Tensor:
        context.weight, context.leaving = weight, leaving
        return arriving.sums(vectors.contiguous(), weight)

    @staticmethod
    def backward(context: Any, *gradients: Tensor) -> tuple[Tensor, None, None, None]:
        return context.leaving.sums(gradients[0].contiguous(), context.weight), None, None, None

"""TransE (Bordes et al., NeurIPS 2013) and RotatE (Sun et al., ICLR 2019): distances after a move."""

from __future__ import annotations

from typing import Any, Literal

import torch
from torch import Tensor

from graphbox.models.bilinear import complex_product, moduli
from graphbox.models.knowledge_graph import TripleScore

Distance = Literal["sum", "euclidean", "squared"]
"""Sum of the sizes of differences; root of the sum of their squares; that sum itself, the fastest."""

_CHUNK_NUMBERS = 1 << 22
"""Numbers of differences that are in memory at once."""


class _Distance(TripleScore):
    """A margin less a distance.

    Args:
        dim: length of an entity's row.
        distance: which.
        margin: the score of a candidate where the query is.
    """

    def __init__(self, dim: int, distance: Distance = "sum", margin: float = 0.0) -> None:
        super().__init__(dim)
        self._distance: Distance = distance
        self._margin = margin

    def forward(self, queries: Tensor, candidates: Tensor) -> Tensor:
        """Return the margin less the distances."""
        if self._distance == "sum":
            return self._margin - self._sums(queries, candidates)
        squared = (
            queries.square().sum(dim=1)[:, None]
            + candidates.square().sum(dim=1)
            - 2.0 * (queries @ candidates.T)
        )
        if self._distance == "squared":
            return self._margin - squared
        return self._margin - squared.clamp(min=1e-12).sqrt()

    def _sums(self, queries: Tensor, candidates: Tensor) -> Tensor:
        return torch.cdist(queries, candidates, p=1.0)


class TransE(_Distance):
    """Distance of head + relation from tail."""

    def tail_queries(self, heads: Tensor, relations: Tensor) -> Tensor:
        """Return head + relation."""
        return heads + relations

    def backwards(self, relations: Tensor) -> Tensor:
        """Return the moves back."""
        return -relations


class RotatE(_Distance):
    """Distance of head, rotated by the relation's angles, from tail, in complex numbers.

    The first half of an entity's row is the real part, the second the imaginary one; a relation's row has
    angles in radians.
    """

    @property
    def relation_dim(self) -> int:
        """Number of angles: half of an entity's row."""
        return self.dim // 2

    def tail_queries(self, heads: Tensor, relations: Tensor) -> Tensor:
        """Return head, turned by the relation."""
        return complex_product(heads, _on_circle(relations))

    def backwards(self, relations: Tensor) -> Tensor:
        """Return the angles back."""
        return -relations

    def sizes(self, rows: Tensor) -> Tensor:
        """Return the moduli of entities, and 1 for those of relations."""
        return moduli(rows) if rows.shape[-1] == self.dim else torch.ones_like(rows)

    def _sums(self, queries: Tensor, candidates: Tensor) -> Tensor:
        """Return the sums of moduli of differences."""
        sums: Tensor = _SumsOfModuli.apply(queries, candidates)  # type: ignore[no-untyped-call]
        return sums


class _SumsOfModuli(torch.autograd.Function):
    """Sums of the moduli of the differences of complex numbers, of all pairs of rows.

    Differences are made for some candidates at a time, and made again for their gradients: kept, they would
    be ``queries x candidates x dim`` numbers.
    """

    @staticmethod
    def forward(ctx: Any, queries: Tensor, candidates: Tensor) -> Tensor:
        """Return the sums: float32 [queries, candidates]."""
        ctx.save_for_backward(queries, candidates)
        return torch.cat(
            [moduli(queries[:, None] - some).sum(dim=2) for some in _some_at_a_time(queries, candidates)],
            dim=1,
        )

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, Tensor]:
        """Return the gradients of queries and candidates: each difference pulls with a force of one."""
        queries, candidates = ctx.saved_tensors
        of_queries, of_candidates = torch.zeros_like(queries), torch.empty_like(candidates)
        start = 0
        for some in _some_at_a_time(queries, candidates):
            place = slice(start, start + len(some))
            difference = queries[:, None] - some
            force = gradients[0][:, place, None] / moduli(difference)
            difference *= torch.cat([force, force], dim=2)
            of_queries += difference.sum(dim=1)
            torch.sum(difference, dim=0, out=of_candidates[place])
            start += len(some)
        return of_queries, of_candidates.neg_()


def _some_at_a_time(queries: Tensor, candidates: Tensor) -> tuple[Tensor, ...]:
    """Return the candidates in parts whose differences from the queries are not too many to be in memory."""
    return torch.split(candidates, max(1, _CHUNK_NUMBERS // max(1, queries.numel())))


def _on_circle(angles: Tensor) -> Tensor:
    return torch.cat([angles.cos(), angles.sin()], dim=-1)

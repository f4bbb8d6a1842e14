"""DistMult (Yang et al., ICLR 2015) and ComplEx (Trouillon et al., ICML 2016): products of three rows."""

from __future__ import annotations

import torch
from torch import Tensor

from graphbox.models.knowledge_graph import TripleScore


class DistMult(TripleScore):
    """The sum of head x relation x tail, number by number; the same both ways round."""

    def tail_queries(self, heads: Tensor, relations: Tensor) -> Tensor:
        """Return head x relation."""
        return heads * relations

    def backwards(self, relations: Tensor) -> Tensor:
        """Return the rows as they are."""
        return relations

    def forward(self, queries: Tensor, candidates: Tensor) -> Tensor:
        """Return inner products."""
        return queries @ candidates.T


class ComplEx(TripleScore):
    """The real part of head x relation x conjugate of tail, in complex numbers.

    The first half of a row is the real part, the second the imaginary one.
    """

    def tail_queries(self, heads: Tensor, relations: Tensor) -> Tensor:
        """Return head x relation."""
        return complex_product(heads, relations)

    def backwards(self, relations: Tensor) -> Tensor:
        """Return the conjugates."""
        real, imaginary = relations.chunk(2, dim=-1)
        return torch.cat([real, -imaginary], dim=-1)

    def forward(self, queries: Tensor, candidates: Tensor) -> Tensor:
        """Return the real part of query x conjugate of candidate: inner products of the rows as they are."""
        return queries @ candidates.T

    def sizes(self, rows: Tensor) -> Tensor:
        """Return the moduli of complex numbers."""
        return moduli(rows)


def complex_product(left: Tensor, right: Tensor) -> Tensor:
    """Return the product of complex numbers, real parts in the first half of a row: float32 [n, dim].

    Args:
        left: float32 [n, dim].
        right: float32 [n, dim].
    """
    real, imaginary = left.chunk(2, dim=-1)
    other_real, other_imaginary = right.chunk(2, dim=-1)
    return torch.cat(
        [
            real * other_real - imaginary * other_imaginary,
            real * other_imaginary + imaginary * other_real,
        ],
        dim=-1,
    )


def moduli(rows: Tensor) -> Tensor:
    """Return the moduli of complex numbers: float32 [..., dim / 2]."""
    real, imaginary = rows.chunk(2, dim=-1)
    # At zero the root has no slope.
    return (real.square() + imaginary.square()).clamp(min=1e-30).sqrt()

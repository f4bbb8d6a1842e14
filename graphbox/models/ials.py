"""Matrix factorization by implicit alternating least squares (Hu et al., ICDM 2008)."""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

_BLOCK_ROWS = 1024


def fit_ials(
    answers: sp.csr_array,
    *,
    dim: int = 64,
    regularization: float = 0.003,
    unobserved_weight: float = 0.1,
    epochs: int = 15,
    seed: int = 0,
) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Return the factors of queries and targets, float32 [queries, dim] and [targets, dim].

    They minimize the squared error of answers against 1, plus ``unobserved_weight`` times that of all pairs
    against 0, plus an L2 penalty that grows with a row's part in the loss (Rendle et al., "Revisiting the
    performance of iALS on item recommendation benchmarks", RecSys 2022).

    Args:
        answers: 0/1 [queries, targets].
        dim: length of a factor.
        regularization: weight of the penalty.
        unobserved_weight: weight of a pair without an answer, where one with an answer weighs 1 more.
        epochs: how often both sides are solved for.
        seed: of the start.
    """
    generator = np.random.default_rng(seed)
    scale = 0.1 / dim**0.5
    queries = scale * generator.standard_normal((answers.shape[0], dim), dtype=np.float32)
    targets = scale * generator.standard_normal((answers.shape[1], dim), dtype=np.float32)
    transposed = sp.csr_array(answers.T)
    for _ in range(epochs):
        _solve(answers, queries, targets, regularization, unobserved_weight)
        _solve(transposed, targets, queries, regularization, unobserved_weight)
    return queries, targets


def _solve(
    answers: sp.csr_array,
    factors: NDArray[np.float32],
    others: NDArray[np.float32],
    regularization: float,
    unobserved_weight: float,
) -> None:
    """Put the best factors in place, given those of the other side."""
    dim = factors.shape[1]
    everywhere = unobserved_weight * (others.T @ others)
    penalty = regularization * (np.diff(answers.indptr) + unobserved_weight * len(others))
    for start in range(0, len(factors), _BLOCK_ROWS):
        rows = np.arange(start, min(start + _BLOCK_ROWS, len(factors)))
        left = np.tile(everywhere, (len(rows), 1, 1))
        for place, row in enumerate(rows):
            known = others[answers.indices[answers.indptr[row] : answers.indptr[row + 1]]]
            left[place] += known.T @ known
        left[:, np.arange(dim), np.arange(dim)] += penalty[rows, None]
        right = np.asarray(answers[rows] @ others)
        factors[rows] = np.linalg.solve(left, right[:, :, None])[:, :, 0]

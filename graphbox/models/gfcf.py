"""GF-CF: recommendation by filters over the item graph, in closed form (Shen et al., CIKM 2021)."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from scipy.sparse.linalg import svds


def fit_gfcf(
    answers: sp.csr_array, *, components: int = 256, low_pass_weight: float = 0.3, seed: int = 0
) -> Callable[[NDArray[np.int64]], NDArray[np.float32]]:
    """Return the scores of GF-CF for known answers.

    With R the answers, D_q and D_t the diagonal degrees of queries and targets and N = D_q^-1/2 R D_t^-1/2, a
    query with the row r scores r (N' N + w D_t^-1/2 V V' D_t^1/2): one linear filter, and one ideal low pass
    of the first right singular vectors V of N.

    Args:
        answers: 0/1 [queries, targets].
        components: number of singular vectors; at most one less than the shorter side.
        low_pass_weight: w.
        seed: of the start of the iteration that finds the singular vectors.
    """
    of_query = np.maximum(np.diff(answers.indptr), 1).astype(np.float32)
    of_target = np.maximum(np.bincount(answers.indices, minlength=answers.shape[1]), 1).astype(np.float32)
    normalized = sp.csr_array(
        sp.diags_array(of_query**-0.5) @ answers @ sp.diags_array(of_target**-0.5)
    ).astype(np.float32)
    start = np.random.default_rng(seed).standard_normal(min(answers.shape)).astype(np.float32)
    _, _, vectors = svds(normalized, k=min(components, min(answers.shape) - 1), v0=start)
    into = np.ascontiguousarray(vectors.T * of_target[:, None] ** -0.5)
    out = np.ascontiguousarray(vectors * of_target**0.5 * np.float32(low_pass_weight))
    transposed = sp.csr_array(normalized.T)

    def score(queries: NDArray[np.int64]) -> NDArray[np.float32]:
        rows = sp.csr_array(answers[queries])
        linear = ((rows @ transposed) @ normalized).toarray()
        linear += (rows @ into) @ out
        return np.asarray(linear, dtype=np.float32)

    return score

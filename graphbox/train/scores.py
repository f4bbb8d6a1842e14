"""Scores of candidates from vectors."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from graphbox.metrics import ScoreBlock

__all__ = ["cosine_scores"]


def cosine_scores(vectors: NDArray[np.float32]) -> ScoreBlock:
    """Return the function that scores candidates by the cosine of their vector and the query's."""
    norm = np.linalg.norm(vectors, axis=1, keepdims=True)
    unit = (vectors / np.where(norm > 0, norm, 1.0)).astype(np.float32)
    return lambda queries: np.asarray(unit[queries] @ unit.T, dtype=np.float32)

"""Scores of candidates from vectors."""

from __future__ import annotations

from typing import TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from graphbox.metrics import DeviceScores, ScoreBlock
from graphbox.train.transfer import tensor_on

Floats = TypeVar("Floats", NDArray[np.float32], Tensor)


def cosine_scores(vectors: NDArray[np.float32]) -> ScoreBlock:
    """Return the function that scores candidates by the cosine of their vector and the query's."""
    norm = np.linalg.norm(vectors, axis=1, keepdims=True)
    unit = (vectors / np.where(norm > 0, norm, 1.0)).astype(np.float32)
    return lambda queries: np.asarray(unit[queries] @ unit.T, dtype=np.float32)


def product_scores(queries: Tensor, candidates: Tensor) -> ScoreBlock | DeviceScores:
    """Return the function that scores candidates by inner products, float32, where the vectors are.

    In host memory they are ranked by NumPy, as torch took half as long again there.

    Args:
        queries: float32 [nodes, dim].
        candidates: float32 [candidates, dim], on the same device.
    """
    if queries.device.type == "cpu":
        of_queries, of_candidates = queries.numpy(), candidates.numpy()
        return lambda nodes: np.asarray(of_queries[nodes] @ of_candidates.T, dtype=np.float32)
    return DeviceScores(lambda nodes: queries[tensor_on(nodes, queries.device)] @ candidates.T)


def largest_products(queries: Floats, candidates: Floats) -> Floats:
    """Return the inner products of queries and candidates, of a query of several vectors the largest.

    Args:
        queries: float32 [queries, n * dim], n vectors of each, one after the other.
        candidates: float32 [candidates, dim], on the same device.

    Returns:
        float32 [queries, candidates].
    """
    dim = candidates.shape[1]
    scores = queries[:, :dim] @ candidates.T
    for start in range(dim, queries.shape[1], dim):
        products = queries[:, start : start + dim] @ candidates.T
        if isinstance(scores, Tensor):
            torch.maximum(scores, products, out=scores)
        else:
            np.maximum(scores, products, out=scores)
    return scores

"""EASE: item-item weights in closed form (Steck, WWW 2019)."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from scipy.linalg import lapack

from graphbox.errors import UsageError

_MIRRORED_ROWS = 512


class EaseGram:
    """The products of all pairs of targets, of which each strength of the penalty makes other weights.

    See Steck, "Embarrassingly shallow autoencoders for sparse data", WWW 2019.

    Args:
        answers: 0/1 [queries, targets].
    """

    def __init__(self, answers: sp.csr_array) -> None:
        self._products = (sp.csr_array(answers.T) @ answers).toarray().astype(np.float32, order="F")

    def weights(self, penalty: float) -> NDArray[np.float32]:
        """Return the weights B, float32 [targets, targets], that minimize ``|X - XB|² + penalty |B|²``.

        The diagonal of B is zero. With P = (X'X + penalty I)^-1 it is -P / diag(P) elsewhere, a column
        divided by its own entry of the diagonal.

        Args:
            penalty: strength of the L2 penalty, positive: it makes the products invertible.

        Raises:
            UsageError: ``penalty`` is not positive.
        """
        if not penalty > 0:
            raise UsageError(f"expected a positive penalty, received {penalty}", where="penalty")
        size = len(self._products)
        inverse = self._products.copy(order="F")
        inverse[np.arange(size), np.arange(size)] += np.float32(penalty)
        inverse, failed = lapack.spotrf(inverse, lower=1, overwrite_a=1)
        if not failed:
            inverse, failed = lapack.spotri(inverse, lower=1, overwrite_c=1)
        if failed:
            raise UsageError(
                f"expected a penalty that makes the products of {size:,} targets invertible, "
                f"received {penalty}",
                where="penalty",
                hint="a larger one does",
            )
        _mirror(inverse)
        inverse = inverse.T  # equal to it, and in the order of rows, which products with sparse rows read
        inverse /= -np.diagonal(inverse).copy()
        np.fill_diagonal(inverse, 0.0)
        return np.asarray(inverse)


def fit_ease(answers: sp.csr_array, penalty: float) -> Callable[[NDArray[np.int64]], NDArray[np.float32]]:
    """Return the scores of EASE: the known answers of a query times the weights.

    Args:
        answers: 0/1 [queries, targets].
        penalty: see :meth:`EaseGram.weights`.
    """
    return scores_of_weights(answers, EaseGram(answers).weights(penalty))


def scores_of_weights(
    answers: sp.csr_array, weights: NDArray[np.float32]
) -> Callable[[NDArray[np.int64]], NDArray[np.float32]]:
    """Return what maps queries, int64 [b], to their scores, float32 [b, targets].

    Args:
        answers: 0/1 [queries, targets].
        weights: float32 [targets, targets].
    """
    return lambda queries: np.asarray(answers[queries] @ weights, dtype=np.float32)


def _mirror(lower: NDArray[np.float32]) -> None:
    """Copy what is below the diagonal above it, block by block: without another matrix of that size."""
    for first in range(0, len(lower), _MIRRORED_ROWS):
        last = min(first + _MIRRORED_ROWS, len(lower))
        lower[first:last, last:] = lower[last:, first:last].T
        block = lower[first:last, first:last]
        above = np.triu_indices(last - first, 1)
        block[above] = block.T[above]

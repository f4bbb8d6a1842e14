"""Choice of hidden neurons to keep, and weights by which the kept ones stand in for the removed ones.

With the activations ``H`` [n, neurons] of calibration feeds and the next weight ``W`` [neurons, m], removing
neurons changes the output ``H W`` least if the kept rows of ``W`` are fitted again by least squares. In terms
of ``G = H'H + ridge``, removing neuron ``j`` then costs ``|W_j|^2 / (G^-1)_jj``: the saliency of the Optimal
Brain Surgeon (Hassibi and Stork, 1993) for a linear layer. The cheapest neuron is removed, weights and costs
of the others are updated, and so on: two neurons that stand in for each other are not removed together.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

__all__ = ["Moments", "Refit", "keep_each", "keep_neurons"]

_RIDGE = 1e-4
"""Relative to the mean squared activation; keeps correlated neurons and few rows from exploding weights."""
_SMALLEST_RIDGE = 1e-9
_REMOVALS_BEFORE_COPY = 32
_TINY = np.finfo(np.float64).tiny

Doubles = npt.NDArray[np.float64]


class Moments:
    """Sums over calibration rows: enough for least squares with and without an intercept.

    Args:
        neurons: length of the activations.
    """

    def __init__(self, neurons: int) -> None:
        self.rows = 0
        self.sums = np.zeros(neurons)
        self.products = np.zeros((neurons, neurons))

    def add(self, activations: npt.NDArray[np.float32]) -> None:
        """Add rows [n, neurons]."""
        wide = activations.reshape(-1, len(self.sums)).astype(np.float64)
        self.rows += len(wide)
        self.sums += wide.sum(axis=0)
        self.products += wide.T @ wide

    def second(self, *, centred: bool) -> Doubles:
        """Return the mean products of activations, or of their distances from the mean."""
        mean = self.sums / self.rows
        return self.products / self.rows - (np.outer(mean, mean) if centred else 0.0)


@dataclass(frozen=True, eq=False)
class Refit:
    """Kept neurons, ascending; their weights [kept, m]; the addition to the bias [m], zeros without one."""

    kept: npt.NDArray[np.int64]
    weight: Doubles
    bias: Doubles


def keep_neurons(moments: Moments, weight: npt.NDArray[np.float32], count: int, *, has_bias: bool) -> Refit:
    """Choose neurons to keep and fit the next layer's weights to them.

    Args:
        moments: of the activations.
        weight: float32 [neurons, m].
        count: neurons to keep, at least 1.
        has_bias: whether the next layer can add to its outputs.
    """
    return keep_each(moments, weight, (count,), has_bias=has_bias)[0]


def keep_each(
    moments: Moments, weight: npt.NDArray[np.float32], counts: Sequence[int], *, has_bias: bool
) -> list[Refit]:
    """Do `keep_neurons` for several counts, in the time of the smallest one.

    Args:
        moments: of the activations.
        weight: float32 [neurons, m].
        counts: numbers of neurons to keep, descending.
        has_bias: whether the next layer can add to its outputs.
    """
    gram = moments.second(centred=has_bias)
    ridge = _RIDGE * float(np.trace(gram)) / len(gram)
    # Neurons that are constant on the calibration feeds have no variance to be relative to.
    ridge += _SMALLEST_RIDGE * float(np.trace(moments.second(centred=False))) / len(gram) or 1.0
    target = weight.astype(np.float64)
    mean = moments.sums / moments.rows
    refits = []
    for kept in _cheapest_removed(gram + ridge * np.eye(len(gram)), target, counts):
        fitted = _fitted(gram, target, kept, ridge)
        bias = mean @ target - mean[kept] @ fitted if has_bias else np.zeros(target.shape[1])
        refits.append(Refit(kept, fitted, bias))
    return refits


def _cheapest_removed(
    curvature: Doubles, target: Doubles, counts: Sequence[int]
) -> Iterator[npt.NDArray[np.int64]]:
    """Yield the neurons that are left when the cheapest one is removed again and again, at each count."""
    inverse, fitted = np.linalg.inv(curvature), target.copy()
    kept = np.arange(len(target))
    for count in counts:
        while len(kept) > count:
            is_kept = np.ones(len(kept), bool)
            for _ in range(min(_REMOVALS_BEFORE_COPY, len(kept) - count)):
                cost = np.square(fitted).sum(axis=1) / np.maximum(np.diag(inverse), _TINY)
                cost[~is_kept] = np.inf
                cheapest = int(cost.argmin())
                is_kept[cheapest] = False
                column = inverse[:, cheapest] / inverse[cheapest, cheapest]
                fitted -= np.outer(column, fitted[cheapest])
                inverse -= np.outer(column, inverse[cheapest])
            kept, fitted, inverse = kept[is_kept], fitted[is_kept], inverse[np.ix_(is_kept, is_kept)]
        yield kept


def _fitted(gram: Doubles, target: Doubles, kept: npt.NDArray[np.int64], ridge: float) -> Doubles:
    """Return the weights of the kept neurons; the ridge pulls towards their own weights, not to zero."""
    own = gram[np.ix_(kept, kept)]
    regular = own + ridge * np.eye(len(kept))
    return np.asarray(np.linalg.solve(regular, gram[kept] @ target + ridge * target[kept]))

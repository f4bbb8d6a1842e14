"""Exact degree histograms in little memory."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from graphbox.graph.schema import Int64Array

_DENSE_DEGREES = 1 << 16


@dataclass(frozen=True)
class DegreeBin:
    """Nodes with a degree from ``low`` to ``high``, both included."""

    low: int
    high: int
    nodes: int


class DegreeHistogram:
    """Counts nodes by degree.

    It is exact and still small: ``k`` distinct degrees need at least ``k * (k - 1) / 2`` edges, so 10 billion
    edges have no more than about 141,000 of them.
    """

    def __init__(self) -> None:
        self._dense: Int64Array = np.zeros(_DENSE_DEGREES, np.int64)
        self._sparse: dict[int, int] = {}

    def add(self, degrees: npt.NDArray[np.integer[Any]]) -> None:
        """Count the nodes whose degrees (integers [n], 0 or more) are given."""
        if not degrees.size:
            return
        large = degrees >= _DENSE_DEGREES
        if large.any():
            values, nodes = np.unique(degrees[large], return_counts=True)
            for degree, count in zip(values.tolist(), nodes.tolist(), strict=True):
                self._sparse[degree] = self._sparse.get(degree, 0) + count
            degrees = degrees[~large]
        counts = np.bincount(degrees)
        self._dense[: len(counts)] += counts

    def remove_zeros(self, nodes: int) -> None:
        """Stop counting ``nodes`` nodes of degree 0."""
        self._dense[0] -= nodes

    @property
    def degrees(self) -> Int64Array:
        """The degrees that occur, ascending: int64 [distinct degrees]."""
        return np.concatenate([np.flatnonzero(self._dense), np.array(sorted(self._sparse), np.int64)])

    @property
    def nodes(self) -> Int64Array:
        """Number of nodes of each of :attr:`degrees`: int64 [distinct degrees]."""
        sparse = np.array([self._sparse[degree] for degree in sorted(self._sparse)], np.int64)
        return np.concatenate([self._dense[np.flatnonzero(self._dense)], sparse])

    def bins(self) -> list[DegreeBin]:
        """Return the nodes by degree 0, 1, 2 to 3, 4 to 7 and so on, up to the largest degree."""
        degrees, nodes = self.degrees, self.nodes
        bins = []
        low, high = 0, 0
        while len(degrees) and low <= degrees[-1]:
            chosen = slice(*np.searchsorted(degrees, [low, high + 1]))
            bins.append(DegreeBin(low, high, int(nodes[chosen].sum())))
            low, high = high + 1, 2 * high + 1
        return bins

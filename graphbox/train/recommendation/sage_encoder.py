"""A trained two-tower GraphSAGE, over the neighbourhoods it was given."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from graphbox.graph.schema import EdgeType
from graphbox.models.features import FeatureSizes
from graphbox.models.sage import TwoTowerSAGE

__all__ = ["SageEncoder"]


@dataclass(frozen=True, eq=False)
class SageEncoder:
    """A trained two-tower model with everything that encoding needs.

    Attributes:
        model: in evaluation mode.
        features: what the model knows of the features of its node types.
        inputs: input rows by node type, float32 [nodes, dim].
        neighbors: by relation the fixed sample of neighbours, int32 [nodes of the type, at most F], -1 where
            absent.
        query: float32 [nodes, dim], query vectors of all nodes.
        target: float32 [nodes, dim], target vectors of all nodes.
    """

    model: TwoTowerSAGE
    features: dict[str, FeatureSizes]
    inputs: dict[str, NDArray[np.float32]]
    neighbors: dict[EdgeType, NDArray[np.int32]]
    query: NDArray[np.float32]
    target: NDArray[np.float32]

    def score(self, queries: NDArray[np.int64]) -> NDArray[np.float32]:
        """Return the inner products of queries with all targets: float32 [queries, nodes]."""
        return np.asarray(self.query[queries] @ self.target.T, dtype=np.float32)

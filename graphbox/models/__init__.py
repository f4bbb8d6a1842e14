"""Models: ordinary torch modules over rows of embedding tables, one file each."""

from __future__ import annotations

from graphbox.models.features import FeatureEncoder, NodeFeatures
from graphbox.models.sage import NeighborBlock, SageTower, TwoTowerSAGE, padded_weights

__all__ = [
    "FeatureEncoder",
    "NeighborBlock",
    "NodeFeatures",
    "SageTower",
    "TwoTowerSAGE",
    "padded_weights",
]

"""Models: ordinary torch modules over rows of embedding tables, one file each."""

from __future__ import annotations

from graphbox.models.features import FeatureSizes, LearntFeature, NodeFeatures
from graphbox.models.node_keys import NodeKeys
from graphbox.models.sage import NeighborBlock, TwoTowerSAGE

__all__ = [
    "FeatureSizes",
    "LearntFeature",
    "NeighborBlock",
    "NodeFeatures",
    "NodeKeys",
    "TwoTowerSAGE",
]

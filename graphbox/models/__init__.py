"""Models: ordinary torch modules over rows of embedding tables, one file each."""

from __future__ import annotations

from graphbox.models.features import FeatureSizes, LearntFeature, NodeFeatures
from graphbox.models.sage import NeighborBlock, TwoTowerSAGE
from graphbox.models.skip_gram import NodeKeys, SkipGram

__all__ = [
    "FeatureSizes",
    "LearntFeature",
    "NeighborBlock",
    "NodeFeatures",
    "NodeKeys",
    "SkipGram",
    "TwoTowerSAGE",
]

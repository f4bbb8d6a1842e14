"""Models: ordinary torch modules over rows of embedding tables, one file each."""

from __future__ import annotations

from graphbox.models.features import FeatureEncoder, FeatureSizes, LearntFeature, NodeFeatures
from graphbox.models.sage import NeighborBlock, SageTower, TwoTowerSAGE, padded_weights
from graphbox.models.skip_gram import NodeKeys, SkipGram

__all__ = [
    "FeatureEncoder",
    "FeatureSizes",
    "LearntFeature",
    "NeighborBlock",
    "NodeFeatures",
    "NodeKeys",
    "SageTower",
    "SkipGram",
    "TwoTowerSAGE",
    "padded_weights",
]

"""Sections `models`: one module for each family of models. ``graphbox.config.kinds`` finds the kinds."""

from __future__ import annotations

from graphbox.config.models.clicks import (
    ClickModelSection,
    DCNConfig,
    DeepFMConfig,
    DINConfig,
    MMoEConfig,
    WideAndDeepConfig,
)
from graphbox.config.models.distillation import DistillationSection, RankingDistillationSection
from graphbox.config.models.graph_network import (
    EDGE_FEATURE_LAYERS,
    DenseNetworkSection,
    GraphNetworkConfig,
    MlpConfig,
    NetworkConfig,
    NetworkSection,
    TwoTowerConfig,
)
from graphbox.config.models.knowledge_graph import (
    ComplExConfig,
    DistMultConfig,
    KnowledgeGraphSection,
    RotatEConfig,
    TransEConfig,
)
from graphbox.config.models.own_module import OwnModuleConfig
from graphbox.config.models.recommendation import LightGCNConfig, MatrixFactorizationConfig
from graphbox.config.models.sage import SageConfig
from graphbox.config.models.section import ModelSection
from graphbox.config.models.sequences import ComiRecConfig, GRU4RecConfig, SASRecConfig, SequenceSection
from graphbox.config.models.temporal import TemporalConfig
from graphbox.config.models.walks import (
    DeepWalkConfig,
    LineConfig,
    Metapath2VecConfig,
    Node2VecConfig,
    SkipGramSection,
)

__all__ = [
    "EDGE_FEATURE_LAYERS",
    "ClickModelSection",
    "ComiRecConfig",
    "ComplExConfig",
    "DCNConfig",
    "DINConfig",
    "DeepFMConfig",
    "DeepWalkConfig",
    "DenseNetworkSection",
    "DistMultConfig",
    "DistillationSection",
    "GRU4RecConfig",
    "GraphNetworkConfig",
    "KnowledgeGraphSection",
    "LightGCNConfig",
    "LineConfig",
    "MMoEConfig",
    "MatrixFactorizationConfig",
    "Metapath2VecConfig",
    "MlpConfig",
    "ModelSection",
    "NetworkConfig",
    "NetworkSection",
    "Node2VecConfig",
    "OwnModuleConfig",
    "RankingDistillationSection",
    "RotatEConfig",
    "SASRecConfig",
    "SageConfig",
    "SequenceSection",
    "SkipGramSection",
    "TemporalConfig",
    "TransEConfig",
    "TwoTowerConfig",
    "WideAndDeepConfig",
]

"""Sections `models`: one module for each family of models, and the union of all their kinds.

A new kind of model is a class here, a member of ``ModelConfig``, and a line in ``graphbox.train.registry``
that names its trainer.
"""

from __future__ import annotations

from typing import Annotated, get_args

from pydantic import Field

from graphbox.config.models.clicks import ClickModelSection, DCNConfig, DeepFMConfig, WideAndDeepConfig
from graphbox.config.models.custom import CustomConfig
from graphbox.config.models.graph_network import GraphNetworkConfig
from graphbox.config.models.knowledge_graph import (
    ComplExConfig,
    DistMultConfig,
    KnowledgeGraphSection,
    RotatEConfig,
    TransEConfig,
)
from graphbox.config.models.recommendation import LightGCNConfig, MatrixFactorizationConfig
from graphbox.config.models.sage import SageConfig
from graphbox.config.models.section import ModelSection
from graphbox.config.models.temporal import TemporalConfig
from graphbox.config.models.walks import (
    DeepWalkConfig,
    LineConfig,
    Metapath2VecConfig,
    Node2VecConfig,
    SkipGramSection,
)

__all__ = [
    "MODEL_SECTIONS",
    "ClickModelSection",
    "ComplExConfig",
    "CustomConfig",
    "DCNConfig",
    "DeepFMConfig",
    "DeepWalkConfig",
    "DistMultConfig",
    "GraphNetworkConfig",
    "KnowledgeGraphSection",
    "LightGCNConfig",
    "LineConfig",
    "MatrixFactorizationConfig",
    "Metapath2VecConfig",
    "ModelConfig",
    "ModelSection",
    "Node2VecConfig",
    "RotatEConfig",
    "SageConfig",
    "SkipGramSection",
    "TemporalConfig",
    "TransEConfig",
    "WideAndDeepConfig",
]

ModelConfig = Annotated[
    GraphNetworkConfig
    | CustomConfig
    | DeepWalkConfig
    | Node2VecConfig
    | Metapath2VecConfig
    | LineConfig
    | SageConfig
    | LightGCNConfig
    | MatrixFactorizationConfig
    | DeepFMConfig
    | DCNConfig
    | WideAndDeepConfig
    | DistMultConfig
    | ComplExConfig
    | TransEConfig
    | RotatEConfig
    | TemporalConfig,
    Field(discriminator="kind"),
]

MODEL_SECTIONS: dict[str, type[ModelSection]] = {
    get_args(section.model_fields["kind"].annotation)[0]: section
    for section in get_args(get_args(ModelConfig)[0])
}
"""The section of each kind of model."""

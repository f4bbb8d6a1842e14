"""Kinds of recommendation models: LightGCN, matrix factorization, two-tower GraphSAGE."""

from __future__ import annotations

from graphbox.config import LightGCNConfig, MatrixFactorizationConfig, ModelKind, SageConfig
from graphbox.config.model_kind import TORCH_OPTIMIZERS

lightgcn = ModelKind(
    LightGCNConfig,
    "graphbox.train.recommendation.trainer:RecommendationTrainer",
    footprint="graphbox.train.recommendation.footprint:LightGCNFootprint",
)
matrix_factorization = ModelKind(
    MatrixFactorizationConfig,
    "graphbox.train.recommendation.trainer:RecommendationTrainer",
    streaming_trainer="graphbox.train.stream.factorization:StreamingFactorization",
    footprint="graphbox.train.recommendation.footprint:MatrixFactorizationFootprint",
)
sage = ModelKind(
    SageConfig,
    "graphbox.train.recommendation.sage:make_sage_trainer",
    footprint="graphbox.train.recommendation.footprint:SageFootprint",
    libraries=(TORCH_OPTIMIZERS,),
)

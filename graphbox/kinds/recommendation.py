"""Kinds of recommendation models: LightGCN, matrix factorization, two-tower GraphSAGE."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from graphbox.config import LightGCNConfig, MatrixFactorizationConfig, ModelKind, RunConfig, SageConfig
from graphbox.config.model_kind import TORCH_OPTIMIZERS

if TYPE_CHECKING:
    from graphbox.train.plan.counts import GraphCounts
    from graphbox.train.plan.footprint import Footprint
    from graphbox.train.registry import Assignment
    from graphbox.train.stream.trainer import StreamingTrainer
    from graphbox.train.trainer import Trainer

__all__ = ["lightgcn", "matrix_factorization", "sage"]


class _LightGCN(ModelKind[LightGCNConfig]):
    """Rows smoothed over the graph of queries and candidates."""

    def trainer(self) -> Callable[[LightGCNConfig, Assignment], Trainer]:
        from graphbox.train.recommendation.trainer import RecommendationTrainer

        return RecommendationTrainer

    def footprint(
        self, config: LightGCNConfig, counts: GraphCounts, run: RunConfig
    ) -> Footprint[LightGCNConfig]:
        from graphbox.train.recommendation.footprint import LightGCNFootprint

        return LightGCNFootprint(config, counts, run)


class _MatrixFactorization(ModelKind[MatrixFactorizationConfig]):
    """A row for each query and candidate."""

    def trainer(self) -> Callable[[MatrixFactorizationConfig, Assignment], Trainer]:
        from graphbox.train.recommendation.trainer import RecommendationTrainer

        return RecommendationTrainer

    def streaming_trainer(self) -> Callable[[MatrixFactorizationConfig, Assignment], StreamingTrainer]:
        from graphbox.train.stream.factorization import StreamingFactorization

        return StreamingFactorization

    def footprint(
        self, config: MatrixFactorizationConfig, counts: GraphCounts, run: RunConfig
    ) -> Footprint[MatrixFactorizationConfig]:
        from graphbox.train.recommendation.footprint import MatrixFactorizationFootprint

        return MatrixFactorizationFootprint(config, counts, run)


class _Sage(ModelKind[SageConfig]):
    """Two GraphSAGE towers over rows and features, pretrained by walks on demand."""

    LIBRARIES = (TORCH_OPTIMIZERS,)

    def trainer(self) -> Callable[[SageConfig, Assignment], Trainer]:
        from graphbox.train.recommendation.sage import make_sage_trainer

        return make_sage_trainer

    def footprint(self, config: SageConfig, counts: GraphCounts, run: RunConfig) -> Footprint[SageConfig]:
        from graphbox.train.recommendation.footprint import SageFootprint

        return SageFootprint(config, counts, run)


lightgcn = _LightGCN(LightGCNConfig)
matrix_factorization = _MatrixFactorization(MatrixFactorizationConfig)
sage = _Sage(SageConfig)

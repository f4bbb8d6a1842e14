"""Kinds that learn embeddings from walks and edges: DeepWalk, node2vec, metapath2vec, LINE."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from graphbox.config import (
    DeepWalkConfig,
    LineConfig,
    Metapath2VecConfig,
    ModelKind,
    Node2VecConfig,
    RunConfig,
)

if TYPE_CHECKING:
    from graphbox.train.plan.counts import GraphCounts
    from graphbox.train.plan.footprint import Footprint
    from graphbox.train.registry import Assignment
    from graphbox.train.stream.trainer import StreamingTrainer
    from graphbox.train.trainer import Trainer

__all__ = ["deepwalk", "line", "metapath2vec", "node2vec"]


class _DeepWalk(ModelKind[DeepWalkConfig]):
    """Skip-gram over walks across all edge types, uniform or by node2vec's ``p`` and ``q``."""

    def trainer(self) -> Callable[[DeepWalkConfig, Assignment], Trainer]:
        from graphbox.train.walks.skip_gram import make_deepwalk_trainer

        return make_deepwalk_trainer

    def streaming_trainer(self) -> Callable[[DeepWalkConfig, Assignment], StreamingTrainer]:
        from graphbox.train.stream.walks import make_streaming_walks

        return make_streaming_walks

    def footprint(
        self, config: DeepWalkConfig, counts: GraphCounts, run: RunConfig
    ) -> Footprint[DeepWalkConfig]:
        from graphbox.train.walks.footprint import DeepWalkFootprint

        return DeepWalkFootprint(config, counts, run)


class _Metapath2Vec(ModelKind[Metapath2VecConfig]):
    """Skip-gram over walks along metapaths."""

    def trainer(self) -> Callable[[Metapath2VecConfig, Assignment], Trainer]:
        from graphbox.train.walks.skip_gram import make_skip_gram_trainer

        return make_skip_gram_trainer

    def footprint(
        self, config: Metapath2VecConfig, counts: GraphCounts, run: RunConfig
    ) -> Footprint[Metapath2VecConfig]:
        from graphbox.train.walks.footprint import MetapathFootprint

        return MetapathFootprint(config, counts, run)


class _Line(ModelKind[LineConfig]):
    """Embeddings of edges."""

    def trainer(self) -> Callable[[LineConfig, Assignment], Trainer]:
        from graphbox.train.walks.line import make_line_trainer

        return make_line_trainer

    def footprint(self, config: LineConfig, counts: GraphCounts, run: RunConfig) -> Footprint[LineConfig]:
        from graphbox.train.walks.footprint import LineFootprint

        return LineFootprint(config, counts, run)


deepwalk = _DeepWalk(DeepWalkConfig)
node2vec = _DeepWalk(Node2VecConfig)
metapath2vec = _Metapath2Vec(Metapath2VecConfig)
line = _Line(LineConfig)

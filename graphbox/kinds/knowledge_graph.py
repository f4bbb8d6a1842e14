"""Kinds of knowledge-graph embeddings: DistMult, ComplEx, TransE, RotatE."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from graphbox.config import (
    ComplExConfig,
    DistMultConfig,
    KnowledgeGraphSection,
    ModelKind,
    RotatEConfig,
    RunConfig,
    TransEConfig,
)

if TYPE_CHECKING:
    from graphbox.train.plan.counts import GraphCounts
    from graphbox.train.plan.footprint import Footprint
    from graphbox.train.registry import Assignment
    from graphbox.train.trainer import Trainer

__all__ = ["complex_", "distmult", "rotate", "transe"]


class _KnowledgeGraph(ModelKind[KnowledgeGraphSection]):
    """Rows of entities and relations whose score tells true triples from others."""

    def trainer(self) -> Callable[[KnowledgeGraphSection, Assignment], Trainer]:
        from graphbox.train.completion.trainer import CompletionTrainer

        return CompletionTrainer

    def footprint(
        self, config: KnowledgeGraphSection, counts: GraphCounts, run: RunConfig
    ) -> Footprint[KnowledgeGraphSection]:
        from graphbox.train.completion.footprint import BilinearFootprint

        return BilinearFootprint(config, counts, run)


class _Translation(_KnowledgeGraph):
    """The same, by distances."""

    def footprint(
        self, config: KnowledgeGraphSection, counts: GraphCounts, run: RunConfig
    ) -> Footprint[KnowledgeGraphSection]:
        from graphbox.train.completion.footprint import TranslationFootprint

        return TranslationFootprint(config, counts, run)


distmult = _KnowledgeGraph(DistMultConfig)
complex_ = _KnowledgeGraph(ComplExConfig)
transe = _Translation(TransEConfig)
rotate = _Translation(RotatEConfig)

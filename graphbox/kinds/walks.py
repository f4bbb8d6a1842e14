"""Kinds that learn embeddings from walks and edges: DeepWalk, node2vec, metapath2vec, LINE."""

from __future__ import annotations

from graphbox.config import DeepWalkConfig, LineConfig, Metapath2VecConfig, ModelKind, Node2VecConfig


def _walks_over_all_types(section: type[DeepWalkConfig | Node2VecConfig]) -> ModelKind:
    """Return the kind of a section: skip-gram over walks across all edge types."""
    return ModelKind(
        section,
        "graphbox.train.walks.skip_gram:make_deepwalk_trainer",
        streaming_trainer="graphbox.train.stream.walks:make_streaming_walks",
        footprint="graphbox.train.walks.footprint:DeepWalkFootprint",
    )


deepwalk = _walks_over_all_types(DeepWalkConfig)
node2vec = _walks_over_all_types(Node2VecConfig)
metapath2vec = ModelKind(
    Metapath2VecConfig,
    "graphbox.train.walks.skip_gram:make_skip_gram_trainer",
    footprint="graphbox.train.walks.footprint:MetapathFootprint",
)
line = ModelKind(
    LineConfig,
    "graphbox.train.walks.line:make_line_trainer",
    footprint="graphbox.train.walks.footprint:LineFootprint",
)

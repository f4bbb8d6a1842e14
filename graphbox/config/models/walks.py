"""Models that learn embeddings from walks."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from graphbox.config.models.section import ModelSection
from graphbox.config.section import EdgeTypeList, PositiveFloat, PositiveInt, Section

__all__ = ["Metapath2VecConfig", "SkipGramSection"]


class SkipGramSection(Section):
    """How skip-gram with negative samples learns from metapath walks (Dong et al., KDD 2017)."""

    metapaths: Annotated[
        tuple[Annotated[tuple[EdgeTypeList, ...], Field(min_length=1)], ...], Field(min_length=1)
    ]
    """Each a list of edge types that a walk follows in turn, again and again."""
    walks_per_node: PositiveInt = 1
    """Walks from each node, for each metapath and epoch."""
    walk_length: PositiveInt = 8
    """Steps of a walk."""
    window: PositiveInt = 2
    """Largest distance, in steps, between a centre and its context."""
    negatives: PositiveInt = 256
    """Negatives drawn for each batch; all its pairs share them."""
    negative_weight: PositiveFloat = 2.0
    """How many independent negatives the shared ones count as, for each pair."""
    negative_exponent: Annotated[float, Field(ge=0.0)] = 1.0
    """Negatives are drawn by how often walks visit a node, to this power."""
    subsample: Annotated[float, Field(ge=0.0)] = 1e-3
    """Visits of nodes that make up more than this share of all are thinned out (word2vec); 0: none are."""
    epochs: PositiveInt = 10
    """Passes over all start nodes."""
    batch_size: PositiveInt = 64
    """Walks of each metapath in a batch."""
    learning_rate: PositiveFloat = 0.2
    """Learning rate of the embedding tables (row-wise Adagrad)."""


class Metapath2VecConfig(ModelSection, SkipGramSection):
    """Skip-gram with negative samples over metapath walks (Dong et al., KDD 2017)."""

    kind: Literal["metapath2vec"]
    """Kind of model."""
    dim: PositiveInt = 64
    """Length of an embedding."""

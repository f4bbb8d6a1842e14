"""Sections `tasks`: what embeddings are for, and what is held out to measure it."""

from __future__ import annotations

from typing import Annotated, Literal, get_args

from pydantic import Field

from graphbox.config.section import EdgeTypeList, Fraction, PositiveInt, Section, TypeName

__all__ = ["TASK_KINDS", "ClassifyTaskConfig", "RecommendTaskConfig", "SplitConfig", "TaskConfig"]


class SplitConfig(Section):
    """What every task needs to know to hold data out."""

    group: EdgeTypeList | None = None
    """Edge type whose target groups nodes; a group is never split between train, validation and test."""
    validation_fraction: Fraction = 0.1
    """Share held out for choosing among epochs."""
    test_fraction: Fraction = 0.2
    """Share held out for the figures that are reported."""


class ClassifyTaskConfig(SplitConfig):
    """Predict a categorical feature of a node from its frozen embedding, by logistic regression."""

    kind: Literal["classify"]
    """Kind of task."""
    node_type: TypeName
    """Node type to classify."""
    label: str
    """Categorical node feature to predict; models of this task do not read it."""
    baselines: tuple[Literal["majority", "neighbors_vote"], ...] = ("majority", "neighbors_vote")
    """Baselines reported beside the models."""


class RecommendTaskConfig(SplitConfig):
    """Rank nodes as targets of held-out edges."""

    kind: Literal["recommend"]
    """Kind of task."""
    node_type: TypeName
    """Node type of queries and candidates."""
    relations: Annotated[tuple[TypeName, ...], Field(min_length=1)]
    """Relations from `node_type` to `node_type` whose edges are held out."""
    exclude_relations: tuple[TypeName, ...] = ()
    """A pair of groups joined by one of these relations is not tested: the answer would leak."""
    alternative: str | None = None
    """Edge feature that numbers groups of alternatives; only single alternatives are tested."""
    category: str | None = None
    """Categorical node feature for the baseline `popular_within_category`."""
    k: PositiveInt = 20
    """Length of the ranked lists for recall@k and ndcg@k."""
    baselines: tuple[
        Literal["popular", "popular_within_category", "adamic_adar", "personalized_pagerank", "user_knn"], ...
    ] = ("popular", "popular_within_category", "adamic_adar", "personalized_pagerank", "user_knn")
    """Baselines reported beside the models."""


TaskConfig = Annotated[ClassifyTaskConfig | RecommendTaskConfig, Field(discriminator="kind")]

TASK_KINDS: tuple[str, ...] = tuple(
    get_args(section.model_fields["kind"].annotation)[0] for section in get_args(get_args(TaskConfig)[0])
)
"""The kinds of tasks."""

"""Tasks of kind `recommend`."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal, Self

from pydantic import Field, model_validator

from graphbox.config.section import PositiveInt, TypeName
from graphbox.config.tasks.splits import (
    RANDOM_SPLIT,
    GivenSplitConfig,
    HeldOutSection,
    LeaveLastOutSplitConfig,
    RandomSplitConfig,
    TimeSplitConfig,
)
from graphbox.config.tasks.task_kind import TaskKind

RecommendationBaseline = Literal[
    "popular",
    "popular_within_category",
    "adamic_adar",
    "personalized_pagerank",
    "user_knn",
    "gfcf",
    "ials",
    "ease",
]
"""Baselines of recommendation: none trains by gradients."""


class RecommendTaskConfig(HeldOutSection):
    """Rank nodes as targets of held-out edges."""

    EVALUATION_KEYS: ClassVar[frozenset[str]] = frozenset({"k", "category", "baselines", "baseline_queries"})
    """Keys that can change without training again."""

    kind: Literal["recommend"]
    """Kind of task."""
    node_type: TypeName
    """Node type of queries: who is recommended something."""
    target_type: TypeName | None = None
    """Node type of candidates: what is recommended; `node_type` when absent."""
    relations: Annotated[tuple[TypeName, ...], Field(min_length=1)]
    """Relations from `node_type` to `target_type` whose edges are answers."""
    split: Annotated[
        RandomSplitConfig | TimeSplitConfig | LeaveLastOutSplitConfig | GivenSplitConfig,
        Field(discriminator="kind"),
    ] = RANDOM_SPLIT
    """Rule by which edges are held out."""
    exclude_relations: tuple[TypeName, ...] = ()
    """A pair of groups joined by one of these relations is not tested: the answer would leak."""
    alternative: str | None = None
    """Edge feature that numbers groups of alternatives; only single alternatives are tested."""
    category: str | None = None
    """Categorical feature of `node_type` for the baseline `popular_within_category`."""
    k: PositiveInt = 20
    """Length of the ranked lists for recall@k and ndcg@k."""
    baselines: tuple[RecommendationBaseline, ...] | None = None
    """Baselines reported beside the models. When absent: all that need no setting and work for the types, but
    those that would take more than a minute on the graph, or too much memory; the report says which."""

    baseline_queries: PositiveInt | Literal["all"] = 5_000
    """Most queries to measure baselines on; of more, a uniform sample drawn with the run's seed; or `all`.
    Models are always measured on all queries."""

    @property
    def candidate_type(self) -> str:
        """Node type of candidates."""
        return self.node_type if self.target_type is None else self.target_type

    @property
    def deciding_metric(self) -> str:
        """The figure of the report that says which of two models is better."""
        return f"recall@{self.k}"

    @model_validator(mode="after")
    def _check(self) -> Self:
        self.check_split(self.split.kind)
        return self


KIND = TaskKind(
    RecommendTaskConfig,
    held_out="graphbox.train.tasks.recommend:RecommendSplit",
    splitting="graphbox.train.splitting.recommend:split_recommend",
    evaluation="graphbox.train.evaluate:evaluate_ranked",
    baselines="graphbox.train.baselines:recommend_baselines",
)

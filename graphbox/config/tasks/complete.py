"""Tasks of kind `complete`: the links that a knowledge graph lacks."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal, Self

from pydantic import Field, model_validator

from graphbox.config.section import EdgeTypeList
from graphbox.config.tasks.splits import (
    RANDOM_SPLIT,
    GivenSplitConfig,
    HeldOutFractions,
    RandomSplitConfig,
)
from graphbox.config.tasks.task_kind import TaskKind

CompletionBaseline = Literal["popular", "rules"]
"""Baselines of completion: none trains by gradients."""


class CompleteTaskConfig(HeldOutFractions):
    """Find the tails of held-out triples (head, relation, tail), and their heads, by the rest of each."""

    EVALUATION_KEYS: ClassVar[frozenset[str]] = frozenset({"baselines"})
    """Keys that can change without training again."""

    kind: Literal["complete"]
    """Kind of task."""
    relations: Annotated[tuple[EdgeTypeList, ...], Field(min_length=1)] | None = None
    """Edge types whose edges are the triples; all when absent, but reverse ones and those held out."""
    relation_feature: str | None = None
    """Categorical edge feature that divides an edge type into relations, so that a table `head relation tail`
    is one edge type; without it each edge type is a relation."""
    split: Annotated[RandomSplitConfig | GivenSplitConfig, Field(discriminator="kind")] = RANDOM_SPLIT
    """Rule by which triples are held out. At random all triples between two entities are in one part."""
    baselines: tuple[CompletionBaseline, ...] = ("popular", "rules")
    """Baselines reported beside the models: the most frequent tails and heads of each relation; and rules of
    one step, which know by which other relations two entities tend to be linked as well, either way."""

    @property
    def deciding_metric(self) -> str:
        """The figure of the report that says which of two models is better."""
        return "mrr"

    @model_validator(mode="after")
    def _check(self) -> Self:
        self.check_split(self.split.kind)
        return self


KIND = TaskKind(
    CompleteTaskConfig,
    held_out="graphbox.train.tasks.complete:CompleteSplit",
    splitting="graphbox.train.splitting.complete:split_complete",
    evaluation="graphbox.train.completion.evaluation:evaluate_completion",
    baselines="graphbox.train.completion.baselines:completion_baselines",
)

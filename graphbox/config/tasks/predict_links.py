"""Tasks of kind `predict_links`."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal, Self

from pydantic import Field, model_validator

from graphbox.config.section import PositiveInt, TypeName
from graphbox.config.tasks.splits import (
    RANDOM_SPLIT,
    GivenSplitConfig,
    HeldOutFractions,
    LeaveLastOutSplitConfig,
    RandomSplitConfig,
    TimeSplitConfig,
)
from graphbox.config.tasks.task_kind import TaskKind

LinkBaseline = Literal["popularity", "adamic_adar", "seen_before", "seen_before_online"]
"""Baselines of link prediction: none is trained."""


class PredictLinksTaskConfig(HeldOutFractions):
    """Tell held-out edges from pairs of nodes that no edge joins."""

    EVALUATION_KEYS: ClassVar[frozenset[str]] = frozenset({"hits", "baselines"})
    """Keys that can change without training again."""

    kind: Literal["predict_links"]
    """Kind of task."""
    node_type: TypeName
    """Node type that the edges leave from."""
    target_type: TypeName | None = None
    """Node type that the edges arrive at; `node_type` when absent."""
    relations: Annotated[tuple[TypeName, ...], Field(min_length=1)]
    """Relations from `node_type` to `target_type` whose edges are to be told."""
    split: Annotated[
        RandomSplitConfig | TimeSplitConfig | LeaveLastOutSplitConfig | GivenSplitConfig,
        Field(discriminator="kind"),
    ] = RANDOM_SPLIT
    """Rule by which edges are held out. With times, and a split that is not random, each edge is an event of
    its own, and pairs that were joined before are predicted again; else pairs are held out whole."""
    exclude_relations: tuple[TypeName, ...] = ()
    """A pair joined by one of these relations is not tested: the answer would leak."""
    negatives: PositiveInt = 1
    """Targets drawn for each held-out edge in its target's place, none of which an edge joins to the source,
    in any part or in none, nor an excluded relation. The seed of the run decides them."""
    negative_distribution: Literal["uniform", "degree"] = "uniform"
    """Distribution of the negatives: all alike, or by the number of training edges that arrive at them."""
    negative_relations: tuple[TypeName, ...] = ()
    """Edge types from `node_type` to `target_type` that hold negatives, taken instead of drawn ones. The
    split cuts them where it cuts the edges. No model sees them."""
    events_per_batch: PositiveInt = 200
    """Held-out events in the order of time that are scored before the first of them is known, where models
    and baselines learn on through time."""
    hits: tuple[PositiveInt, ...] = (1, 3, 10)
    """The ranks among its negatives up to which an edge counts as a hit; those that no edge can miss, as it
    has too few negatives, are left out of the report."""
    baselines: tuple[LinkBaseline, ...] | None = None
    """Baselines reported beside the models. When absent: all that the task's edges allow and that take
    seconds."""

    @property
    def candidate_type(self) -> str:
        """Node type that the edges arrive at."""
        return self.node_type if self.target_type is None else self.target_type

    @property
    def deciding_metric(self) -> str:
        """The figure of the report that says which of two models is better."""
        return "average_precision"

    @model_validator(mode="after")
    def _check(self) -> Self:
        self.check_split(self.split.kind)
        return self


KIND = TaskKind(
    PredictLinksTaskConfig,
    held_out="graphbox.train.tasks.predict_links:LinkSplit",
    splitting="graphbox.train.splitting.predict_links:split_links",
    evaluation="graphbox.train.links.evaluation:evaluate_links",
    baselines="graphbox.train.links.baselines:link_baselines",
)

"""Tasks of kind `next`."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal, Self

from pydantic import Field, model_validator

from graphbox.config.section import PositiveInt, TypeName
from graphbox.config.tasks.splits import HeldOutFractions, LeaveLastOutSplitConfig, TimeSplitConfig
from graphbox.config.tasks.task_kind import TaskKind

NextBaseline = Literal["popular", "markov", "item_knn"]
"""Baselines of next items: none trains by gradients."""

LEAVE_LAST_OUT_SPLIT = LeaveLastOutSplitConfig(kind="leave_last_out")


class NextTaskConfig(HeldOutFractions):
    """Rank items as the next event of a node, given its events so far in the order of time.

    Events are edges with a `timestamp`. Those of one node at one time are ordered by a hash of both ids, the
    same in any order of the table's rows; where the order of rows matters, number the rows and name that
    column as the `timestamp`.
    """

    EVALUATION_KEYS: ClassVar[frozenset[str]] = frozenset({"k", "baselines", "baseline_queries"})
    """Keys that can change without training again."""

    kind: Literal["next"]
    """Kind of task."""
    node_type: TypeName
    """Node type whose events are in order: users, sessions."""
    target_type: TypeName | None = None
    """Node type of items; `node_type` when absent."""
    relations: Annotated[tuple[TypeName, ...], Field(min_length=1)]
    """Relations from `node_type` to `target_type` whose edges are events, all in one order. Import edges
    with `keep_duplicates: true` where an item can come again."""
    split: Annotated[LeaveLastOutSplitConfig | TimeSplitConfig, Field(discriminator="kind")] = (
        LEAVE_LAST_OUT_SPLIT
    )
    """Rule by which events are held out. Each is predicted from all events of its node before it, those held
    out included; an event without any before it is not tested."""
    repeat: bool = False
    """Whether an item of the history is a candidate. If not, events that repeat one are not tested."""
    k: PositiveInt = 10
    """Length of the ranked lists for recall@k, which is the hit rate, and ndcg@k."""
    baselines: tuple[NextBaseline, ...] | None = None
    """Baselines reported beside the models. When absent: all."""
    baseline_queries: PositiveInt | Literal["all"] = 5_000
    """Most events to measure baselines on; of more, a uniform sample drawn with the run's seed; or `all`.
    Models are always measured on all events."""

    @property
    def candidate_type(self) -> str:
        """Node type of items."""
        return self.node_type if self.target_type is None else self.target_type

    @property
    def deciding_metric(self) -> str:
        """The figure of the report that says which of two models is better."""
        return f"ndcg@{self.k}"

    @model_validator(mode="after")
    def _check(self) -> Self:
        self.check_split(self.split.kind)
        return self


KIND = TaskKind(
    NextTaskConfig,
    held_out="graphbox.train.tasks.next:NextSplit",
    splitting="graphbox.train.splitting.next:split_next",
    evaluation="graphbox.train.sequences.evaluation:evaluate_next",
    baselines="graphbox.train.sequences.baselines:next_baselines",
)

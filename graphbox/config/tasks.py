"""The section `tasks` of the run file: what embeddings are for, and what is held out to measure it."""

from __future__ import annotations

from typing import Annotated, Literal, Self, get_args

from pydantic import Field, model_validator
from pydantic_core import PydanticCustomError

from graphbox.config.section import EdgeTypeList, Fraction, PositiveInt, Section, TypeName

__all__ = [
    "TASK_KINDS",
    "ClassifyTaskConfig",
    "GivenSplitConfig",
    "LeaveLastOutSplitConfig",
    "RandomSplitConfig",
    "RecommendTaskConfig",
    "RecommendationBaseline",
    "TaskConfig",
    "TimeSplitConfig",
]

RecommendationBaseline = Literal[
    "popular",
    "popular_within_category",
    "adamic_adar",
    "personalized_pagerank",
    "user_knn",
    "gfcf",
    "ials",
]
"""What ranks without training by gradients."""


# --------------------------------------------------------------------------------------- splits


class RandomSplitConfig(Section):
    """A seeded hash of the original ids decides; the same ids fall into the same parts in any graph."""

    kind: Literal["random"]
    """Kind of split."""


class TimeSplitConfig(Section):
    """The latest edges are tested, those before them are for validation; edges need a `timestamp`."""

    kind: Literal["time"]
    """Kind of split."""


class LeaveLastOutSplitConfig(Section):
    """Each query's latest edge is tested, the one before it is for validation; edges need a `timestamp`.

    A query with fewer than three edges is in training alone.
    """

    kind: Literal["leave_last_out"]
    """Kind of split."""


class GivenSplitConfig(Section):
    """The data says what is held out: in a column, or in tables of their own.

    Where it names no validation part, `validation_fraction` of its training part becomes one, at random.
    """

    kind: Literal["given"]
    """Kind of split."""
    feature: str | None = None
    """Categorical feature that names the part: of the nodes (classify), or of the edges (recommend). A
    missing value is in no part."""
    train: tuple[str, ...] = ("train", "training")
    """Values of the feature that mean training."""
    validation: tuple[str, ...] = ("validation", "valid", "val", "dev")
    """Values of the feature that mean validation."""
    test: tuple[str, ...] = ("test", "testing")
    """Values of the feature that mean test."""
    ignored: tuple[str, ...] = ()
    """Values of the feature that mean no part: not learnt from, not tested."""
    validation_relations: tuple[TypeName, ...] = ()
    """Relations (recommend) whose edges are the validation part; no model sees them while it trains."""
    test_relations: tuple[TypeName, ...] = ()
    """Relations (recommend) whose edges are the test part; no model ever sees them."""

    @model_validator(mode="after")
    def _check_source(self) -> Self:
        if (self.feature is None) == (not self.test_relations):
            raise PydanticCustomError(
                "not_together",
                "expected either `feature` or `test_relations`, received {received}",
                {
                    "received": "neither" if self.feature is None else "both",
                    "hint": "`feature` is a column with train, validation and test in it; `test_relations` "
                    "are edge types with a table of their own",
                },
            )
        if self.feature is not None and self.validation_relations:
            raise PydanticCustomError(
                "not_together",
                "`validation_relations` go with `test_relations`, not with `feature`",
                {"hint": "leave them out: the feature names the validation part"},
            )
        return self


_RANDOM = RandomSplitConfig(kind="random")


class HeldOutSection(Section):
    """What every task needs to know to hold data out."""

    group: EdgeTypeList | None = None
    """Edge type whose target groups nodes; a group is never split between train, validation and test."""
    validation_fraction: Fraction = 0.1
    """Share held out for choosing among epochs."""
    test_fraction: Fraction = 0.2
    """Share held out for the figures that are reported."""

    def _check_split(self, kind: str) -> None:
        """Refuse settings that a kind of split has no use for."""
        unused = {
            "random": (),
            "time": ("group",),
            "leave_last_out": ("group", "validation_fraction", "test_fraction"),
            "given": ("group", "test_fraction"),
        }[kind]
        for key in unused:
            # A run file with all defaults written out says nothing by them.
            if getattr(self, key) != type(self).model_fields[key].default:
                raise PydanticCustomError(
                    "not_together",
                    "`{key}` has no meaning with a split of kind {kind}",
                    {"key": key, "kind": kind, "hint": f"leave `{key}` out, or the section `split`"},
                )


# ---------------------------------------------------------------------------------------- tasks


class ClassifyTaskConfig(HeldOutSection):
    """Predict a categorical feature of nodes: by logistic regression on embeddings, or by the model."""

    kind: Literal["classify"]
    """Kind of task."""
    node_type: TypeName
    """Node type to classify."""
    label: str
    """Categorical node feature to predict; models of this task do not read it."""
    split: Annotated[RandomSplitConfig | GivenSplitConfig, Field(discriminator="kind")] = _RANDOM
    """Which nodes are held out."""
    baselines: tuple[Literal["majority", "neighbors_vote"], ...] = ("majority", "neighbors_vote")
    """Baselines reported beside the models."""

    @model_validator(mode="after")
    def _check(self) -> Self:
        self._check_split(self.split.kind)
        if isinstance(self.split, GivenSplitConfig) and self.split.test_relations:
            raise PydanticCustomError(
                "not_together",
                "a task of kind classify holds out nodes: `split` needs a `feature` of theirs",
                {"hint": "name the column that says train, validation or test"},
            )
        return self


class RecommendTaskConfig(HeldOutSection):
    """Rank nodes as targets of held-out edges."""

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
    ] = _RANDOM
    """Which edges are held out."""
    exclude_relations: tuple[TypeName, ...] = ()
    """A pair of groups joined by one of these relations is not tested: the answer would leak."""
    alternative: str | None = None
    """Edge feature that numbers groups of alternatives; only single alternatives are tested."""
    category: str | None = None
    """Categorical feature of `node_type` for the baseline `popular_within_category`."""
    k: PositiveInt = 20
    """Length of the ranked lists for recall@k and ndcg@k."""
    baselines: tuple[RecommendationBaseline, ...] | None = None
    """Baselines reported beside the models. When absent: all that need no setting and work for the types;
    `gfcf` and `ials`, which compute for minutes on large graphs, run where they are named."""

    @property
    def candidate_type(self) -> str:
        """Node type of candidates."""
        return self.node_type if self.target_type is None else self.target_type

    @model_validator(mode="after")
    def _check(self) -> Self:
        self._check_split(self.split.kind)
        return self


TaskConfig = Annotated[ClassifyTaskConfig | RecommendTaskConfig, Field(discriminator="kind")]

TASK_KINDS: tuple[str, ...] = tuple(
    get_args(section.model_fields["kind"].annotation)[0] for section in get_args(get_args(TaskConfig)[0])
)
"""The kinds of tasks."""

"""Tasks of kind `click`."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal, Self

from pydantic import Field, model_validator
from pydantic_core import PydanticCustomError

from graphbox.config.section import Section, TypeName
from graphbox.config.tasks.splits import (
    RANDOM_SPLIT,
    GivenSplitConfig,
    HeldOutFractions,
    RandomSplitConfig,
)
from graphbox.config.tasks.task_kind import TaskKind


class RowTimeSplitConfig(Section):
    """The latest rows are tested, those before them are for validation; rows of one time stay together."""

    kind: Literal["time"]
    """Kind of split."""
    feature: str
    """Number or integer of a row that says when it came to be; models do not read it unless they name it."""


class FurtherLabelConfig(Section):
    """A further label of the same rows, such as whether what was clicked was bought."""

    label: Annotated[str, Field(max_length=200)]
    """Boolean or two-valued categorical feature. A row without a category does not count for this label,
    neither in training nor in the report; one with an empty boolean is skipped by the import."""
    positive: str | None = None
    """The category that is positive, as `positive` of the task."""


class ClickTaskConfig(HeldOutFractions):
    """Predict the probability that a row of a log is positive: that an impression is clicked."""

    EVALUATION_KEYS: ClassVar[frozenset[str]] = frozenset({"baselines"})
    """Keys that can change without training again."""

    kind: Literal["click"]
    """Kind of task."""
    node_type: TypeName
    """Node type whose nodes are the rows of the log."""
    label: str
    """Boolean or two-valued categorical feature to predict; models of this task do not read it. A row without
    a value is in no part."""
    positive: str | None = None
    """The category that means a click, where the label is categorical; without it the second one of the two
    in ascending order, such as 1 of 0 and 1."""
    also: tuple[FurtherLabelConfig, ...] = ()
    """Further labels of the rows. Models of kind `mmoe` learn all labels, the other kinds the first alone; no
    model of this task reads any of them."""
    group: str | None = None
    """Categorical or integer feature that says whose a row is, such as the user: the report has the area
    under the curve within groups (GAUC), those rows left out that have no value."""
    split: Annotated[
        RandomSplitConfig | RowTimeSplitConfig | GivenSplitConfig, Field(discriminator="kind")
    ] = RANDOM_SPLIT
    """Rule by which rows are held out."""
    baselines: tuple[Literal["prior", "logistic_regression"], ...] = ("prior", "logistic_regression")
    """Baselines reported beside the models: the share of positives for every row, and a logistic regression
    on the same features."""

    @property
    def labels(self) -> tuple[str, ...]:
        """All labels, the first one first."""
        return (self.label, *(each.label for each in self.also))

    @property
    def deciding_metric(self) -> str:
        """The figure of the report that says which of two models is better: of the first label."""
        return "auc"

    @model_validator(mode="after")
    def _check(self) -> Self:
        twice = [label for place, label in enumerate(self.labels) if label in self.labels[:place]]
        if twice:
            raise PydanticCustomError(
                "duplicate",
                "expected each label once, received `{name}` more than once",
                {"name": twice[0], "hint": "leave it out of `also`"},
            )
        if not isinstance(self.split, GivenSplitConfig):
            return self
        if self.test_fraction != type(self).model_fields["test_fraction"].default:
            raise PydanticCustomError(
                "not_together",
                "`test_fraction` has no meaning with a split of kind given",
                {"hint": "leave `test_fraction` out, or the section `split`"},
            )
        if self.split.test_relations:
            raise PydanticCustomError(
                "not_together",
                "a task of kind click holds out rows: `split` needs a `feature` of theirs",
                {"hint": "name the column that says train, validation or test"},
            )
        return self


KIND = TaskKind(
    ClickTaskConfig,
    held_out="graphbox.train.tasks.click:ClickSplit",
    splitting="graphbox.train.splitting.click:split_click",
    evaluation="graphbox.train.click.evaluation:evaluate_click",
    baselines="graphbox.train.click.evaluation:click_baselines",
)

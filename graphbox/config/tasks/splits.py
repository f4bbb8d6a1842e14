"""Held-out parts of a task: keys for every kind of task."""

from __future__ import annotations

from typing import Literal, Self

from pydantic import model_validator
from pydantic_core import PydanticCustomError

from graphbox.config.section import EdgeTypeList, Fraction, Section, TypeName


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

    Where it names no validation part, `validation_fraction` of its training part becomes one, at random; of
    events with a time (predict_links) the latest.
    """

    kind: Literal["given"]
    """Kind of split."""
    feature: str | None = None
    """Categorical feature that names the part: of the nodes (classify), or of the edges (recommend,
    predict_links, complete). A missing value is in no part."""
    train: tuple[str, ...] = ("train", "training")
    """Values of the feature that mean training."""
    validation: tuple[str, ...] = ("validation", "valid", "val", "dev")
    """Values of the feature that mean validation."""
    test: tuple[str, ...] = ("test", "testing")
    """Values of the feature that mean test."""
    ignored: tuple[str, ...] = ()
    """Values of the feature that mean no part: not learnt from, not tested."""
    validation_relations: tuple[TypeName, ...] = ()
    """Relations (recommend, predict_links, complete) whose edges are the validation part; no model sees them
    while it trains."""
    test_relations: tuple[TypeName, ...] = ()
    """Relations (recommend, predict_links, complete) whose edges are the test part; no model ever sees
    them."""

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


RANDOM_SPLIT = RandomSplitConfig(kind="random")
"""The split of a task that says none."""


class HeldOutFractions(Section):
    """Held-out fractions, keys of every task."""

    validation_fraction: Fraction = 0.1
    """Share held out for choosing among epochs."""
    test_fraction: Fraction = 0.2
    """Share held out for the figures that are reported."""

    def check_split(self, kind: str) -> None:
        """Refuse settings that a kind of split has no use for."""
        unused = {
            "random": (),
            "time": ("group",),
            "leave_last_out": ("group", "validation_fraction", "test_fraction"),
            "given": ("group", "test_fraction"),
        }[kind]
        for key in unused:
            # A run file with all defaults written out says nothing by them.
            if key in type(self).model_fields and getattr(self, key) != type(self).model_fields[key].default:
                raise PydanticCustomError(
                    "not_together",
                    "`{key}` has no meaning with a split of kind {kind}",
                    {"key": key, "kind": kind, "hint": f"leave `{key}` out, or the section `split`"},
                )


class HeldOutSection(HeldOutFractions):
    """Keys of tasks whose nodes may come in groups."""

    group: EdgeTypeList | None = None
    """Edge type whose target groups nodes; a group is never split between train, validation and test."""

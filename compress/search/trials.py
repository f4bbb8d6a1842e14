"""Trials of a search for smaller models, and their log."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from graphbox.compress.latency import Latency
from graphbox.compress.limits import Figures
from graphbox.compress.recipe import Recipe
from graphbox.trial_log import TrialLog

__all__ = ["RecipeTrialLog", "Trial"]


@dataclass(frozen=True)
class Trial:
    """One recipe, tried.

    Attributes:
        recipe: what was done.
        source: the part of the search that proposed it: ``ladder``, ``budget``, ``tuning`` or ``sampler``.
        state: ``measured``, or ``refused`` where the model or the target does not allow the recipe.
        reason: why it was refused.
        size_bytes: of the version.
        parts_bytes: of the ONNX part, the tables and the rest.
        metrics: on the validation part.
        latency: on the target.
        seconds: that the trial took.
    """

    recipe: Recipe
    source: str
    state: Literal["measured", "refused"]
    reason: str | None = None
    size_bytes: int = 0
    parts_bytes: Mapping[str, int] = field(default_factory=dict)
    metrics: Mapping[str, float] = field(default_factory=dict)
    latency: Latency | None = None
    seconds: float = 0.0

    @property
    def figures(self) -> Figures:
        """Figures to compare with limits."""
        return Figures(self.size_bytes, self.latency, self.metrics)

    def as_dict(self) -> dict[str, Any]:
        """Return the trial as plain values."""
        latency = None if self.latency is None else vars(self.latency)
        return {**vars(self), "recipe": self.recipe.as_dict(), "latency": latency}

    @classmethod
    def of_dict(cls, values: Mapping[str, Any]) -> Trial:
        """Return the trial of `as_dict`."""
        latency = values["latency"]
        return cls(
            **{
                **values,
                "recipe": Recipe.of_dict(values["recipe"]),
                "latency": None if latency is None else Latency(**latency),
            }
        )


class RecipeTrialLog(TrialLog[Trial]):
    """Trials of recipes, see :class:`graphbox.trial_log.TrialLog`."""

    @staticmethod
    def key(trial: Trial) -> str:
        """Return the key of the recipe."""
        return trial.recipe.key

    @staticmethod
    def as_dict(trial: Trial) -> dict[str, Any]:
        """Return a trial as plain values."""
        return trial.as_dict()

    @staticmethod
    def of_dict(values: Any) -> Trial:
        """Return the trial of plain values."""
        return Trial.of_dict(values)

    def find(self, recipe: Recipe) -> Trial | None:
        """Return the trial of a recipe; None: it was not tried."""
        return self.with_key(recipe.key)

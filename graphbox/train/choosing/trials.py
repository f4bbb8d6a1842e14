"""Trials of a model's settings, and their log."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal

from graphbox.train.choosing.pruning import Curve
from graphbox.trial_log import TrialLog

__all__ = ["SettingsTrial", "SettingsTrialLog", "key_of"]


def key_of(settings: Mapping[str, Any]) -> str:
    """Return a text that is the same for equal settings."""
    return json.dumps(dict(settings), sort_keys=True, separators=(",", ":"))


@dataclass(frozen=True)
class SettingsTrial:
    """One choice of settings, tried.

    Attributes:
        settings: values by key.
        source: ``suggested`` by the kind of model, or found by the ``search``.
        why: reason of a suggestion; of a refused trial what was refused.
        state: ``measured``; ``pruned`` where it was ended early, as it was worse than most; ``refused`` where
            no such model can be trained; ``stopped`` where the time was over first.
        metric: name of the figure on the validation part.
        value: the figure; of a pruned trial the best until then; None of those refused or stopped.
        cost: what a better trial has less of: the figure, or minus it.
        epochs: epochs that were trained.
        best_epoch: the epoch after which the model was best; None: the last.
        seconds: that the trial took.
        median: of a pruned trial the median that its figure was worse than.
        curve: how its cost fell, see :data:`graphbox.train.choosing.pruning.Curve`; empty where the
            validation part is not measured in training.
    """

    settings: Mapping[str, Any]
    source: Literal["suggested", "search"]
    why: str
    state: Literal["measured", "pruned", "refused", "stopped"]
    metric: str = ""
    value: float | None = None
    cost: float | None = None
    epochs: int = 0
    best_epoch: int | None = None
    seconds: float = 0.0
    median: float | None = None
    curve: Curve = ()

    @property
    def key(self) -> str:
        """Key of the settings."""
        return key_of(self.settings)


class SettingsTrialLog(TrialLog[SettingsTrial]):
    """Trials of one model's settings, see :class:`graphbox.trial_log.TrialLog`."""

    @staticmethod
    def key(trial: SettingsTrial) -> str:
        """Return the key of the settings."""
        return trial.key

    @staticmethod
    def as_dict(trial: SettingsTrial) -> dict[str, Any]:
        """Return a trial as plain values."""
        return asdict(trial)

    @staticmethod
    def of_dict(values: Any) -> SettingsTrial:
        """Return the trial of plain values."""
        curve = tuple((float(share), float(cost)) for share, cost in values.get("curve", ()))
        return SettingsTrial(**{**values, "curve": curve})

    @property
    def seconds(self) -> float:
        """Time of all trials."""
        return sum(trial.seconds for trial in self)

    @property
    def best(self) -> SettingsTrial | None:
        """The first of the best trials; None: none was measured."""
        return min(self.measured, key=lambda trial: trial.cost or 0.0, default=None)

    @property
    def measured(self) -> list[SettingsTrial]:
        """Trials that were trained to their end."""
        return [trial for trial in self if trial.state == "measured"]

    def find(self, settings: Mapping[str, Any]) -> SettingsTrial | None:
        """Return the trial of some settings; None: they were not tried."""
        return self.with_key(key_of(settings))

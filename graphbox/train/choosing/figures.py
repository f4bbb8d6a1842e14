"""Figure that decides about a trial, as its training logs it."""

from __future__ import annotations

from dataclasses import dataclass

from graphbox.config import TaskConfig
from graphbox.train.choosing.pruning import Reports
from graphbox.train.metrics_log import MetricsLog
from graphbox.train.trainer import Selection, Trainer

__all__ = ["TrialFigure"]

_PREFIX = "validation_"


@dataclass(frozen=True)
class TrialFigure:
    """Figure of the validation part that decides about a trial.

    Attributes:
        selection: its name in the log, and which values are better.
        epochs: most epochs of the training.
    """

    selection: Selection
    epochs: int

    @classmethod
    def of_trainer(cls, trainer: Trainer, task: TaskConfig) -> TrialFigure:
        """Return the figure by which a model ends at its best state, else the deciding one of its task."""
        return cls(trainer.selection or Selection(_PREFIX + task.deciding_metric), trainer.epochs)

    @property
    def name(self) -> str:
        """Name of the figure, without the part it is of."""
        return self.selection.metric.removeprefix(_PREFIX)

    def cost(self, value: float) -> float:
        """Return what a better trial has less of; of a cost, the figure."""
        return value if self.selection.smaller_is_better else -value

    def reports(self, log: MetricsLog) -> Reports:
        """Return what was measured so far; empty where training does not measure the figure."""
        return [
            (epoch / self.epochs, self.cost(value)) for epoch, value in log.figures(self.selection.metric)
        ]

"""Trainers of the user's own, named by an import path in the run file."""

from __future__ import annotations

from graphbox.config import CustomConfig
from graphbox.errors import UsageError
from graphbox.train.import_path import import_by_path
from graphbox.train.registry import Assignment
from graphbox.train.trainer import Trainer

__all__ = ["make_custom_trainer"]


def make_custom_trainer(config: CustomConfig, assignment: Assignment) -> Trainer:
    """Return the trainer that the user's own code makes for a section of kind ``custom``.

    Raises:
        UsageError: the import path names nothing that can be called, or it returns no trainer.
    """
    where = f"models.{assignment.name}.trainer"
    made = import_by_path(config.trainer, where)(config, assignment)
    if not isinstance(made, Trainer):
        raise UsageError(
            f"expected a graphbox.train.Trainer, received {type(made).__name__}",
            where=where,
            hint=f"`{config.trainer}` has to return an object of a class derived from Trainer",
        )
    return made

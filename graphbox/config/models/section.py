"""What the sections of all kinds of models have in common."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from graphbox.config.section import Name, Section

__all__ = ["ModelSection"]


class ModelSection(Section):
    """Base of the section of a kind of model; its field `kind` is a literal that names the kind."""

    TASK_KINDS: ClassVar[tuple[str, ...]] = ("classify", "recommend", "predict_links")
    """Kinds of tasks that models of the kind do."""

    RANKS_OTHER_TYPES: ClassVar[bool] = True
    """Whether models of the kind do tasks of kind recommend whose candidates are of another node type."""

    BUDGETS: ClassVar[tuple[str, ...]] = ()
    """Keys of the section `memory` that models of the kind keep to."""

    ALL_ROWS_WITH: ClassVar[Mapping[str, str]] = {}
    """Settings with which the tables cannot have a budget, and why."""

    task: Name | None = None
    """Task the model is trained for or evaluated on, and whose held-out data it does not see; without one it
    sees the whole graph and is not evaluated."""

    @classmethod
    def undivided(cls, task_kind: str | None, values: Mapping[str, Any]) -> str | None:  # noqa: ARG003
        """Return why several processes cannot train a model of the kind together; None: they can.

        Args:
            task_kind: the kind of its task; None: it has none, or one that is not known.
            values: its settings by key, as they are in the run file; those left out have their defaults.
        """
        return "its batches are not divided among processes"

    @property
    def sees_validation(self) -> bool:
        """Whether the model learns from the validation part of its task as well."""
        return False

"""What the sections of all kinds of models have in common."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from graphbox.config.section import Name, Section

__all__ = ["ModelSection"]


class ModelSection(Section):
    """Base of the section of a kind of model; its field `kind` is a literal that names the kind."""

    TASK_KINDS: ClassVar[tuple[str, ...]] = ("classify", "recommend", "predict_links")
    """Kinds of tasks that models of the kind do."""

    BUDGETS: ClassVar[tuple[str, ...]] = ()
    """Keys of the section `memory` that models of the kind keep to."""

    ALL_ROWS_WITH: ClassVar[Mapping[str, str]] = {}
    """Settings with which the tables cannot have a budget, and why."""

    UNDIVIDED: ClassVar[str | None] = "its batches are not divided among processes"
    """Why several processes cannot train models of the kind together; None: they can."""

    task: Name | None = None
    """Task the model is trained for or evaluated on, and whose held-out data it does not see; without one it
    sees the whole graph and is not evaluated."""

    @property
    def sees_validation(self) -> bool:
        """Whether the model learns from the validation part of its task as well."""
        return False

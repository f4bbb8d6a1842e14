"""What the sections of all kinds of models have in common."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from graphbox.config.graph_schema import EdgeTypeSchema
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

    DIVIDES: ClassVar[bool] = False
    """Whether several processes can train a model of the kind together, with some settings at least."""

    PREDICTS: ClassVar[bool] = False
    """Whether `graphbox predict` takes models of the kind."""

    EMBEDS_OTHER_GRAPHS: ClassVar[bool] = False
    """Whether models of the kind embed the nodes of graphs that they were not trained on."""

    PARTS_IN_TIME: ClassVar[bool] = False
    """Whether the parts of a task have to follow one another in time."""

    ALL_ROWS_WITH: ClassVar[Mapping[str, str]] = {}
    """Settings with which the tables cannot have a budget, and why."""

    task: Name | None = None
    """Task the model is trained for or evaluated on, and whose held-out data it does not see; without one it
    sees the whole graph and is not evaluated."""
    kind: str
    """Kind of model."""

    @classmethod
    def undivided(cls, task_kind: str | None, values: Mapping[str, Any]) -> str | None:  # noqa: ARG003
        """Return why several processes cannot train a model of the kind together; None: they can.

        Args:
            task_kind: the kind of its task; None: it has none, or one that is not known.
            values: its settings by key, as they are in the run file; those left out have their defaults.
        """
        return None if cls.DIVIDES else "its batches are not divided among processes"

    @classmethod
    def budget_refusal(
        cls,
        budget: str,
        model: str,
        task_kind: str | None,  # noqa: ARG003
        values: Mapping[str, Any],
        edges: Sequence[EdgeTypeSchema],  # noqa: ARG003
    ) -> tuple[str, str] | None:
        """Return why a model cannot keep to one of `BUDGETS`, and what to do; None: it can.

        Args:
            budget: key of the section `memory`.
            model: name of the model.
            task_kind: see :meth:`undivided`.
            values: see :meth:`undivided`.
            edges: edge types of the graph, as far as they are known.
        """
        for setting, reason in cls.ALL_ROWS_WITH.items() if budget == "tables" else ():
            if values.get(setting):
                return (
                    f"expected tables that can have a budget, received `{model}` with `{setting}`: {reason}",
                    f"leave `models.{model}.{setting}` out, or the budget",
                )
        return None

    @classmethod
    def import_paths(cls, values: Mapping[str, Any]) -> dict[str, str]:  # noqa: ARG003
        """Return the settings that are import paths of the user's own code, by key.

        Args:
            values: settings by key, which need not be valid.
        """
        return {}

    @property
    def sees_validation(self) -> bool:
        """Whether the model learns from the validation part of its task as well."""
        return False

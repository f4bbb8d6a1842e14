"""What the sections of all kinds of models have in common."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from graphbox.config.section import Name, Section, StartFrom


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

    TEACHES: ClassVar[tuple[str, ...]] = ()
    """Kinds of tasks in which models of the kind can teach others and, where they have `distil`, be taught:
    `classify` where they classify nodes themselves, without a classifier over their embeddings; `recommend`
    where their vectors come from the links that they learnt alone."""

    EMBEDS_OTHER_GRAPHS: ClassVar[bool] = False
    """Whether models of the kind embed the nodes of graphs that they were not trained on."""

    EXPORT_FORMS: ClassVar[tuple[str, ...]] = ("vectors",)
    """Values of `export.NAME.form` for models of the kind, the default first; none where there is no choice
    of stored vectors."""

    PARTS_IN_TIME: ClassVar[bool] = False
    """Whether the parts of a task have to follow one another in time."""

    READS_KNOWN_LINKS: ClassVar[bool] = False
    """Whether what models of the kind predict depends on the links that are known at that moment."""

    WARM_STARTS: ClassVar[bool] = False
    """Whether models of the kind can start from an earlier run. Closed forms have nothing to take over."""

    IN_MEMORY: ClassVar[Mapping[str, str]] = {}
    """Why models of the kind keep what other budgets are for in memory, and what it takes, by the key of the
    budget."""

    ALL_ROWS_WITH: ClassVar[Mapping[str, str]] = {}
    """Settings with which the tables cannot have a budget, and why."""

    task: Name | None = None
    """Task the model is trained for or evaluated on, and whose held-out data it does not see; without one it
    sees the whole graph and is not evaluated."""
    kind: str
    """Kind of model."""
    start_from: StartFrom | None = None
    """Run whose rows and weights the training starts from: its id; a name of runs, of which the newest that
    trained the model is taken; either with `/MODEL` for a model of another name; or the folder of a model's
    checkpoints, which begins with `/`, `./` or `../`. The run has a model of the same kind and size, of the
    same task and seed. Rows are matched by original ids; nodes that came since get new ones."""

    @classmethod
    def undivided(cls, task_kind: str | None, values: Mapping[str, Any]) -> str | None:  # noqa: ARG003
        """Return why several processes cannot train a model of the kind together; None: they can.

        Args:
            task_kind: the kind of its task; None: it has none, or one that is not known.
            values: its settings by key, as they are in the run file; those left out have their defaults.
        """
        return None if cls.DIVIDES else "its batches are not divided among processes"

    @classmethod
    def budget_refusal(cls, budget: str, model: str, values: Mapping[str, Any]) -> tuple[str, str] | None:
        """Return why a model cannot keep to one of `BUDGETS`, and what to do; None: it can.

        Args:
            budget: key of the section `memory`.
            model: name of the model.
            values: see :meth:`undivided`.
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

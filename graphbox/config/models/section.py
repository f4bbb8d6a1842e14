"""Base of the sections of all kinds of models."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from typing import Any, ClassVar, Self

from pydantic import ValidationInfo, field_validator, model_validator
from pydantic_core import PydanticCustomError

from graphbox.config.choices import Candidate, Choices, DataFacts, Duration
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

    READS_NO_EDGES: ClassVar[bool] = False
    """Whether models of the kind know nodes without their neighbours."""

    ENCODES_CANDIDATES: ClassVar[bool] = False
    """Whether the vectors of candidates can be exported as an encoder too (`export.NAME.tower`)."""

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

    CHOSEN: ClassVar[tuple[str, ...]] = ()
    """Settings that :meth:`suggestions` chooses by the data where the run file leaves them out."""

    SPACE: ClassVar[Mapping[str, Choices]] = {}
    """Settings that `tune` searches where the run file leaves them out, and their values; none: models of the
    kind are not tuned."""

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
    tune: Duration | None = None
    """Time for a search of the settings in `auto` on the validation part, like `10min`; the model is what the
    best ones made. Without it only a few settings that suit the data are compared."""
    auto: tuple[str, ...] | None = None
    """Settings that are chosen before the training, by the data and on the validation part. Default: those
    that the run file leaves out, of the ones that the kind can choose, or with `tune` of the ones that it can
    search. `[]`: none, so that all defaults count as they are here."""

    @field_validator("tune")
    @classmethod
    def _check_tune(cls, tune: float | None) -> float | None:
        if tune is not None and not cls.SPACE:
            raise PydanticCustomError(
                "tune",
                "expected no `tune`: this kind of model has no settings to search",
                {"hint": "leave it out"},
            )
        return tune

    @field_validator("auto")
    @classmethod
    def _check_auto(cls, auto: tuple[str, ...] | None, info: ValidationInfo) -> tuple[str, ...] | None:
        known = {*cls.CHOSEN, *(cls.SPACE if info.data.get("tune") is not None else ())}
        for name in auto or ():
            if name not in known:
                raise PydanticCustomError(
                    "auto",
                    "expected settings that can be chosen, received `{name}`",
                    {"name": name, "hint": f"these can: {', '.join(sorted(known)) or 'none'}"},
                )
        return auto

    @model_validator(mode="after")
    def _fill_auto(self) -> Self:
        if self.auto is None:
            # Frozen for others: what was left out is known here alone, and a dumped section has it.
            object.__setattr__(
                self, "auto", self.left_out(self.model_fields_set, tuned=self.tune is not None)
            )
        return self

    @classmethod
    def left_out(cls, given: Collection[str], *, tuned: bool) -> tuple[str, ...]:
        """Return the settings to choose: those that a run file leaves out.

        Args:
            given: keys that the run file has.
            tuned: whether it asks for a search.
        """
        searched = cls.SPACE if tuned else ()
        return tuple(name for name in dict.fromkeys([*cls.CHOSEN, *searched]) if name not in given)

    def suggestions(self, facts: DataFacts) -> tuple[Candidate, ...]:  # noqa: ARG002
        """Return settings that suit the data, the first where they are not compared; none: the defaults.

        Each is about settings of `CHOSEN` alone; those that `auto` lacks keep their values.

        Args:
            facts: what is known of the data.
        """
        return ()

    def settled(self, settings: Mapping[str, Any]) -> Self:
        """Return the section with chosen settings, of those in `auto`; nothing is left to choose.

        Raises:
            pydantic.ValidationError: a setting is not valid.
        """
        chosen = {name: value for name, value in settings.items() if name in (self.auto or ())}
        values = self.model_dump(mode="json", exclude={"tune"})
        # In JSON mode lists stand for tuples; chosen settings may come from a file.
        return type(self).model_validate_json(json.dumps({**values, **chosen, "auto": []}))

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
    def input_refusal(
        cls,
        node_type: str,  # noqa: ARG003
        has_features: bool,  # noqa: ARG003
        embeddings: Collection[str] | None,  # noqa: ARG003
    ) -> tuple[str, str] | None:
        """Return why models of the kind cannot encode nodes of a type, and what to do; None: they can.

        Args:
            node_type: one of those that the task is about.
            has_features: whether the model reads features of it.
            embeddings: the setting of that name; None: it is left out.
        """
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

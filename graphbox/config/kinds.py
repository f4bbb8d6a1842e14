"""Registry of model kinds: entry points of the group ``graphbox.models``, each loaded when it is first used.

A kind that cannot be loaded raises an error when a run file uses it; all other kinds keep working.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from importlib import metadata
from json import dumps
from typing import Annotated, Any, TypeAlias

from pydantic import GetCoreSchemaHandler, GetJsonSchemaHandler, ValidationInfo
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema, PydanticCustomError, PydanticKnownError, core_schema

from graphbox.config.model_kind import ModelKind
from graphbox.config.models.section import ModelSection
from graphbox.errors import BackendMissingError, UsageError, did_you_mean

ENTRY_POINT_GROUP = "graphbox.models"
_OWN_DISTRIBUTION = "graphbox"


@dataclass(frozen=True)
class _Mistake:
    """Why a kind cannot be loaded.

    Attributes:
        message: expected and received.
        where: entry point, with its distribution and the line at fault.
        hint: what to do.
    """

    message: str
    where: str
    hint: str


def model_kind(name: str) -> ModelKind:
    """Return the kind of a name.

    Raises:
        UsageError: no entry point has the name, or several have.
        BackendMissingError: its entry point cannot be imported or names no such kind.
    """
    if name not in _entry_points():
        raise UsageError(
            f"expected a kind of model, one of {', '.join(_entry_points())}, received `{name}`",
            hint=did_you_mean(name, _entry_points()) or "install the package that has it",
        )
    found = _load(name)
    if isinstance(found, ModelKind):
        return found
    raise BackendMissingError(found.message, where=found.where, hint=found.hint)


def model_kinds() -> dict[str, ModelKind]:
    """Return all kinds that can be loaded by name: those of graphbox first, then those of other packages."""
    found = {name: _load(name) for name in _entry_points()}
    return {name: kind for name, kind in found.items() if isinstance(kind, ModelKind)}


def kinds_that(can: Callable[[type[ModelSection]], bool]) -> list[str]:
    """Return the names of the kinds whose section ``can`` accepts."""
    return [name for name, kind in model_kinds().items() if can(kind.section)]


def budget_refusal(
    section: type[ModelSection], kind: str, budget: str, model: str, values: Mapping[str, Any]
) -> tuple[str, str] | None:
    """Return why a model cannot keep to a budget, and what to do; None: it can.

    Args:
        section: of its kind.
        kind: name of the kind.
        budget: key of the section `memory`.
        model: name of the model.
        values: its settings by key, as they are in the run file.
    """
    if budget in section.BUDGETS:
        return section.budget_refusal(budget, model, values)
    reason = f": {section.IN_MEMORY[budget]}" if budget in section.IN_MEMORY else ""
    able = " or ".join(kinds_that(lambda each: budget in each.BUDGETS))
    received = f"received `{model}` of kind {kind}{reason}"
    return (
        f"expected models that keep their {budget} within a budget, {received}",
        f"leave it out, or train models of kind {able} in a run of their own",
    )


def section_of(name: object) -> type[ModelSection] | None:
    """Return the section of the kind of a name; None: there is no such kind, or it cannot be loaded."""
    found = _load(name) if isinstance(name, str) and name in _entry_points() else None
    return found.section if isinstance(found, ModelKind) else None


def line_of_error(error: Exception) -> str | None:
    """Return the last line of a module's own code that an error passed through; None: there is none."""
    if isinstance(error, SyntaxError) and error.filename:
        return f"{error.filename}:{error.lineno}"
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        if frame.name == "<module>":
            return f"{frame.filename}:{frame.lineno}"
    return None


@cache
def _entry_points() -> Mapping[str, tuple[metadata.EntryPoint, ...]]:
    found: dict[str, tuple[metadata.EntryPoint, ...]] = {}
    every = metadata.entry_points(group=ENTRY_POINT_GROUP)
    for each in sorted(every, key=lambda each: _distribution_name(each) != _OWN_DISTRIBUTION):
        found[each.name] = (*found.get(each.name, ()), each)
    return found


@cache
def _load(name: str) -> ModelKind | _Mistake:
    entry_point, *others = _entry_points()[name]
    if others:
        return _Mistake(
            f"expected one package with a kind of model `{name}`, received "
            + " and ".join(_in_words(each) for each in (entry_point, *others)),
            _line_of(others[-1]),
            "uninstall one of them, or give the kind another name",
        )
    try:
        found = entry_point.load()
    except Exception as error:  # noqa: BLE001 - the module is of another package: it can raise anything
        reason = (str(error) or type(error).__name__).splitlines()[0]
        return _Mistake(
            f"expected to import the kind of model `{name}`, {_in_words(entry_point)}, received "
            f"{type(error).__name__}: {reason}",
            line_of_error(error) or _line_of(entry_point),
            "correct the module or the entry point, and install the package again",
        )
    if isinstance(found, ModelKind) and found.name == name:
        return found
    received = f"one named `{found.name}`" if isinstance(found, ModelKind) else _in_short(found)
    return _Mistake(
        f"expected a graphbox.config.ModelKind named `{name}`, received {received} from "
        f"{_in_words(entry_point)}",
        _line_of(entry_point),
        "an entry point names an object of a class derived from ModelKind, and has the name of its kind",
    )


def _in_short(value: object) -> str:
    if isinstance(value, type):
        return f"the class {value.__name__}"
    return f"an object of type {type(value).__name__}"


def _distribution_name(entry_point: metadata.EntryPoint) -> str:
    return entry_point.dist.name if entry_point.dist else ""


def _in_words(entry_point: metadata.EntryPoint) -> str:
    """Return the import path of an entry point and its distribution."""
    distribution = entry_point.dist
    of = f"{distribution.name} {distribution.version}" if distribution else "a package without metadata"
    return f"`{entry_point.value}` of {of}"


def _line_of(entry_point: metadata.EntryPoint) -> str:
    """Return the file and line that declare an entry point."""
    distribution = entry_point.dist
    text = distribution.read_text("entry_points.txt") if distribution else None
    for number, line in enumerate((text or "").splitlines(), start=1):
        key, equals, value = line.partition("=")
        if equals and (key.strip(), value.strip()) == (entry_point.name, entry_point.value):
            return f"entry_points.txt of {_distribution_name(entry_point)}:{number}"
    return f"entry points of {_distribution_name(entry_point) or 'an unknown package'}"


class _ByKind:
    """Annotation of a section of a model: validated by the class that its ``kind`` names.

    Behaves as pydantic's discriminated union of all sections, which loads only the kind that is used.
    """

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.with_info_plain_validator_function(_validated)

    def __get_pydantic_json_schema__(
        self, schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        return {"type": "object"}  # `config_schema` has the sections of all kinds


ModelConfig: TypeAlias = Annotated[ModelSection, _ByKind()]
"""Section of a model of any kind."""


def _validated(value: Any, info: ValidationInfo) -> ModelSection:
    if isinstance(value, ModelSection):
        return value
    if not isinstance(value, dict):
        raise PydanticKnownError("model_attributes_type")
    if "kind" not in value:
        raise PydanticKnownError("union_tag_not_found", {"discriminator": "'kind'"})
    kind = value["kind"]
    if not isinstance(kind, str) or kind not in _entry_points():
        expected = ", ".join(f"'{name}'" for name in _entry_points())
        raise PydanticKnownError(
            "union_tag_invalid", {"discriminator": "'kind'", "tag": str(kind), "expected_tags": expected}
        )
    found = _load(kind)
    if isinstance(found, _Mistake):
        context = {"text": f"{found.where}: {found.message}", "hint": found.hint}
        raise PydanticCustomError("model_kind", "{text}", context)
    section = found.section
    # In JSON mode lists stand for tuples, also where sections are strict.
    return section.model_validate_json(dumps(value)) if info.mode == "json" else section.model_validate(value)

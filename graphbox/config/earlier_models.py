"""Models of a run file that take something from others of it: teachers, and rows that tell positions.

Models are trained in the order of the run file, so what one takes comes from those before it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from graphbox.config.kinds import kinds_that, section_of
from graphbox.config.source import KeyPath

Mistake = tuple[KeyPath, str, str | None]
"""Key, what was expected and received, what to do."""

_TEACHERS: Mapping[object, str] = {
    "classify": "that tells classes itself",
    "recommend": "that ranks by the links that it learnt alone",
}
"""Requirement of a teacher, by the kind of its task."""

_ALL_LEARNT = "train_and_validation"


def mistakes_of_earlier_models(
    name: str, models: Mapping[str, Any], tasks: Mapping[str, Any]
) -> Iterator[Mistake]:
    """Yield why a model cannot take from others what it is to; names that nothing has are passed over.

    Args:
        name: of the model.
        models: the section `models`, as plain values.
        tasks: the section `tasks`, likewise.
    """
    model = models[name]
    key: KeyPath = ("models", name, "distil")
    teachers = _teachers(model)
    task = tasks.get(str(model.get("task")))
    kind = task.get("kind") if isinstance(task, Mapping) else None
    section = section_of(model.get("kind"))
    taught = () if section is None else section.TEACHES
    if teachers and kind is not None and taught and kind not in taught:
        received = f"`{model.get('task')}` of kind {kind}"
        message = f"expected a task of kind {' or '.join(taught)} beside `distil`, received {received}"
        yield key, message, "leave `distil` out"
        return
    for number, teacher in enumerate(teachers):
        place = (*key, "teachers", number)
        if teacher in teachers[:number]:
            yield place, f"expected each teacher once, received `{teacher}` again", "leave it out"
        elif isinstance(models.get(teacher), Mapping):
            yield from _mistakes_of_order(place, name, teacher, models) or _mistakes_of_teacher(
                place, model, teacher, models[teacher], kind
            )
    positions = model.get("positions")
    if isinstance(positions, str) and positions in models:
        yield from _mistakes_of_order(("models", name, "positions"), name, positions, models)


def _mistakes_of_order(place: KeyPath, name: str, other: str, models: Mapping[str, Any]) -> list[Mistake]:
    if other == name:
        return [(place, f"expected another model than `{name}`, received itself", "name another one")]
    if list(models).index(other) < list(models).index(name):
        return []
    way = _way(other, name, models)
    if way:
        shown = " takes from ".join(f"`{each}`" for each in (name, *way))
        return [
            (place, f"expected models that do not wait for each other, received {shown}", "break the cycle")
        ]
    return [
        (
            place,
            (
                f"expected a model that comes before `{name}`, as models are trained in this order, received "
                f"`{other}`, which comes after it"
            ),
            f"write `{other}` above `{name}`",
        )
    ]


def _mistakes_of_teacher(
    place: KeyPath, model: Mapping[str, Any], teacher: str, taught_by: Mapping[str, Any], task_kind: object
) -> Iterator[Mistake]:
    section = section_of(taught_by.get("kind"))
    if section is not None and task_kind in _TEACHERS and task_kind not in section.TEACHES:
        able = ", ".join(kinds_that(lambda other: task_kind in other.TEACHES))
        yield (
            place,
            (
                f"expected a teacher {_TEACHERS[task_kind]}, received `{teacher}` of kind "
                f"{taught_by.get('kind')}"
            ),
            f"models of kind {able} do",
        )
    elif taught_by.get("task") != model.get("task"):
        yield (
            place,
            (
                f"expected a teacher of the task `{model.get('task')}`, received `{teacher}` of the task "
                f"`{taught_by.get('task')}`"
            ),
            "a model learns its own task",
        )
    elif taught_by.get("train_on") == _ALL_LEARNT != model.get("train_on"):
        yield (
            place,
            (
                f"expected a teacher that has not seen the validation part, on which the model is measured, "
                f"received `{teacher}` with `train_on: {_ALL_LEARNT}`"
            ),
            "train both on the same parts",
        )


def _way(first: str, last: str, models: Mapping[str, Any]) -> list[str]:
    """Return names by which a model comes to take from another; none where it does not."""
    ways, seen = [[first]], {first}
    while ways:
        way = ways.pop(0)
        if way[-1] == last:
            return way
        model = models.get(way[-1])
        for following in _taken_from(model) if isinstance(model, Mapping) else ():
            if following not in seen:
                seen.add(following)
                ways.append([*way, following])
    return []


def _taken_from(model: Mapping[str, Any]) -> list[str]:
    positions = model.get("positions")
    return [*_teachers(model), *([positions] if isinstance(positions, str) else [])]


def _teachers(model: Mapping[str, Any]) -> list[str]:
    section = model.get("distil")
    listed = section.get("teachers") if isinstance(section, Mapping) else None
    return [each for each in listed if isinstance(each, str)] if isinstance(listed, list) else []

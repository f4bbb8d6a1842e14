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
    if teachers and kind not in {None, "classify"}:
        received = f"`{model.get('task')}` of kind {kind}"
        message = f"expected a task of kind classify beside `distil`, received {received}"
        yield key, message, "leave `distil` out"
        return
    for number, teacher in enumerate(teachers):
        place = (*key, "teachers", number)
        if teacher in teachers[:number]:
            yield place, f"expected each teacher once, received `{teacher}` again", "leave it out"
        elif isinstance(models.get(teacher), Mapping):
            yield from _mistakes_of_order(place, name, teacher, models) or _mistakes_of_teacher(
                place, model, teacher, models[teacher]
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
    place: KeyPath, model: Mapping[str, Any], teacher: str, taught_by: Mapping[str, Any]
) -> Iterator[Mistake]:
    section = section_of(taught_by.get("kind"))
    if section is not None and not section.CLASSIFIES:
        able = ", ".join(kinds_that(lambda other: other.CLASSIFIES))
        yield (
            place,
            (
                f"expected a teacher that tells classes itself, received `{teacher}` of kind "
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

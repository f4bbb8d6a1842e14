"""`graphbox runs compare`: what two runs have in common, and what not."""

from __future__ import annotations

import io
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Annotated, Any

import typer

from graphbox.cli.session import Session
from graphbox.cli.text import duration, metric, table

if TYPE_CHECKING:
    from rich.console import Console

    from graphbox.workspace import RunRecord

_ABSENT = "-"


def compare_runs(
    session: Session,
    first: Annotated[str, typer.Argument(help="Id of a run; `last` is the newest.")],
    second: Annotated[str, typer.Argument(help="Id of the run it is compared with.")],
) -> None:
    """Compare two runs: which settings differ, and what each reached and took."""
    with session.workspace() as workspace:
        runs = workspace.run(first), workspace.run(second)
    settings = _differences(*(dict(_flat(_config(run))) for run in runs))
    metrics = _side_by_side(*(dict(_metrics(run)) for run in runs))
    seconds = _side_by_side(*({s.name: s.seconds for s in run.stages if s.seconds} for run in runs))
    document = {
        "runs": [run.id for run in runs],
        "settings": [{"key": key, "values": list(values)} for key, values in settings.items()],
        "metrics": [
            {"task": task, "model": model, "metric": name, "values": list(values)}
            for (task, model, name), values in metrics.items()
        ],
        "seconds": [{"stage": stage, "values": list(values)} for stage, values in seconds.items()],
    }

    def show(console: Console) -> None:
        names = tuple(run.id for run in runs)
        rows: list[tuple[str, ...]] = [(key, *map(_shown, values)) for key, values in settings.items()]
        if rows:
            console.print(table("Settings that differ", ("key", *names), rows))
        else:
            console.print("the settings are the same")
        console.print()
        rows = [
            (task, model, name, *map(_figure, values), _change(*values))
            for (task, model, name), values in metrics.items()
        ]
        if rows:
            columns = ("task", "model", "metric", *names, "change")
            console.print(table("Metrics", columns, rows, columns[3:]))
            console.print()
        rows = [(stage, *map(duration, values)) for stage, values in seconds.items()]
        console.print(table("Time", ("stage", *names), rows, names))

    session.answer(document, show)


def _config(run: RunRecord) -> Any:
    from ruamel.yaml import YAML

    return YAML(typ="safe", pure=True).load(io.StringIO(run.config))


def _flat(value: Any, key: str = "") -> Iterator[tuple[str, Any]]:
    """Give each setting by its dotted key; lists are settings as a whole."""
    if not isinstance(value, Mapping):
        yield key, value
        return
    for name, inner in value.items():
        yield from _flat(inner, f"{key}.{name}" if key else str(name))


def _metrics(run: RunRecord) -> Iterator[tuple[tuple[str, str, str], float]]:
    """Give each figure of the models by task, model and name; no counts, no buckets of popularity."""
    for task, models in (run.report.get("metrics") or {}).items():
        for model, values in models.items():
            for name, value in values.items():
                if isinstance(value, float) and "in_degree" not in name:
                    yield (task, model, name), value


def _differences(first: Mapping[str, Any], second: Mapping[str, Any]) -> dict[str, tuple[Any, Any]]:
    both = _side_by_side(first, second)
    return {key: values for key, values in both.items() if values[0] != values[1]}


def _side_by_side(first: Mapping[Any, Any], second: Mapping[Any, Any]) -> dict[Any, tuple[Any, Any]]:
    """Return the values of both by key, None where one has none."""
    return {key: (first.get(key), second.get(key)) for key in dict.fromkeys([*first, *second])}


def _shown(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()  # as run files say it
    return _ABSENT if value is None else str(value)


def _change(first: float | None, second: float | None) -> str:
    return "" if first is None or second is None else f"{second - first:+.4f}"


def _figure(value: float | None) -> str:
    return _ABSENT if value is None else metric(value)

"""Changed settings of a run: the stages that have to run again, and why."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from graphbox.config import RunConfig, load_config, result_settings
from graphbox.errors import UsageError
from graphbox.pipeline.stage import Stage
from graphbox.workspace import RunRecord

_MOST_NAMED = 3


def changed_stages(record: RunRecord, config: RunConfig, stages: Iterable[Stage]) -> dict[str, str]:
    """Return the finished stages that read settings which differ in ``config``: name → reason."""
    before = load_config(record.path / "config.yaml", check_files=False)
    finished = {stage.name for stage in record.stages if stage.state == "finished"}
    changes = {}
    for stage in stages:
        if stage.reads is None or stage.name not in finished:
            continue
        keys = changed_keys(stage.reads(before), stage.reads(config))
        if keys:
            more = f" and {len(keys) - _MOST_NAMED} more" if len(keys) > _MOST_NAMED else ""
            changes[stage.name] = f"{', '.join(keys[:_MOST_NAMED])}{more} changed"
    return changes


def changed_keys(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[str]:
    """Return the dotted keys whose values differ, in the order of ``before``, then ``after``."""
    old, new = dict(_flat(before)), dict(_flat(after))
    missing = object()
    return [key for key in {**old, **new} if old.get(key, missing) != new.get(key, missing)]


def check_overrides(before: RunConfig, after: RunConfig, stage: Stage) -> None:
    """Check that only settings of ``stage`` differ.

    Raises:
        UsageError: another setting that changes results differs.
    """
    own = stage.reads or (lambda _: {})
    allowed = set(changed_keys(own(before), own(after)))
    for key in changed_keys(result_settings(before), result_settings(after)):
        if key not in allowed:
            settings = dict(_flat(own(after)))
            raise UsageError(
                f"expected settings of the stage `{stage.name}`, received `{key}`",
                where=key,
                hint=f"change it in the run file and run that; settings here: {', '.join(settings)}",
            )


def _flat(values: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield each value that is no mapping with its dotted key."""
    for key, value in values.items():
        if isinstance(value, Mapping) and value:
            yield from _flat(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value

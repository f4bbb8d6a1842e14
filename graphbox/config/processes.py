"""Check of `processes` in a run file: models that several processes cannot train together."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from graphbox.config.kinds import kinds_that
from graphbox.config.models.section import ModelSection

ONE_PROCESS_FOLLOWS = "expected one process for a model that follows a stream"


def refusal_of_processes(
    model: str, section: type[ModelSection], task_kind: str | None, values: Mapping[str, Any]
) -> tuple[str, str] | None:
    """Return why several processes cannot train a model, and what to do; None: they can.

    Args:
        model: its name.
        section: the section of its kind.
        task_kind: the kind of its task; None: it has none, or one that is not known.
        values: its settings by key; those that are left out have their defaults.
    """
    reason = section.undivided(task_kind, values)
    if reason is None:
        return None
    message = (
        f"expected a model that several processes can train, received `{model}` of kind "
        f"{values.get('kind')}: {reason}"
    )
    able = kinds_that(lambda section: section.DIVIDES)
    return message, f"leave `processes` out, or train models of kind {', '.join(able)}"

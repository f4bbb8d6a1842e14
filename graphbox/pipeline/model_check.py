"""Mistakes in import paths of the section ``models``, found by importing what they name."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from graphbox.config.kinds import section_of
from graphbox.errors import UsageError


def model_mistakes(models: Mapping[str, Any]) -> Iterator[tuple[tuple[str | int, ...], str, str | None]]:
    """Yield key, message and hint for each import path that cannot be imported.

    Args:
        models: the section, as plain values that need not be valid.
    """
    for name, section in models.items():
        known = section_of(section.get("kind")) if isinstance(section, dict) else None
        for key, path in known.import_paths(section).items() if known is not None else ():
            mistake = _import_mistake(path)
            if mistake is not None:
                yield ("models", name, key), *mistake


def _import_mistake(path: str) -> tuple[str, str | None] | None:
    from graphbox.train.import_path import import_by_path

    try:
        import_by_path(path, "")
    except UsageError as error:
        return error.message, error.hint
    except Exception as error:  # noqa: BLE001 - the module is the user's: it can raise anything
        reason = (str(error) or type(error).__name__).splitlines()[0]
        return (
            f"importing `{path}` raises {type(error).__name__}: {reason}",
            "correct the module, or the path",
        )
    return None

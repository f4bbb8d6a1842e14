"""Small JSON documents in the folder of a run."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from graphbox.errors import FormatError

__all__ = ["read_record"]

RecordT = TypeVar("RecordT")


def read_record(path: Path, make: Callable[..., RecordT], hint: str) -> RecordT:
    """Return what ``make`` returns for the keys and values of a JSON file.

    Args:
        path: of the file.
        make: called with the values by key.
        hint: what to do about a damaged file.

    Raises:
        FileNotFoundError: there is no file.
        FormatError: the file is damaged.
    """
    text = path.read_bytes()
    try:
        values: dict[str, Any] = json.loads(text)
        return make(**values)
    except (ValueError, TypeError, RecursionError) as error:
        raise FormatError(
            f"expected a JSON object as a training writes it, received a damaged file: {error}",
            where=str(path),
            hint=hint,
        ) from error

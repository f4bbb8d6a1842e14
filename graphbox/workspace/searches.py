"""Searches for compressed versions of a model, as a workspace keeps them."""

from __future__ import annotations

import json
import re
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from graphbox.errors import FormatError

__all__ = ["PROGRESS_FILE", "REPORT_FILE", "SearchRecord", "list_searches"]

REPORT_FILE = "report.json"
"""Name of the report of a finished search."""
PROGRESS_FILE = "progress.json"
"""Name of the report so far of a search that has not finished; it is removed when there is a whole one."""

_FOLDER = re.compile(r"([1-9][0-9]{0,8})-([0-9a-f]{12})")


@dataclass(frozen=True)
class SearchRecord:
    """A search for compressed versions.

    Attributes:
        version: that is compressed.
        key: stands for what its figures depend on: files, data, target, runtime, threads, batch.
        path: its folder.
    """

    version: int
    key: str
    path: Path

    @property
    def id(self) -> str:
        """Name of the search among those of its model."""
        return f"{self.version}-{self.key}"

    def updated_at(self) -> datetime:
        """Return when the newest of its files was written."""
        times = []
        for name in (REPORT_FILE, PROGRESS_FILE):
            with suppress(FileNotFoundError):
                times.append((self.path / name).stat().st_mtime)
        return datetime.fromtimestamp(max(times, default=0.0), UTC)

    def report(self) -> dict[str, Any] | None:
        """Return the report; None: the search has never finished.

        Raises:
            FormatError: the file is damaged.
        """
        return _read(self.path / REPORT_FILE)

    def progress(self) -> dict[str, Any] | None:
        """Return the report so far; None: nothing was tried since the search finished.

        Raises:
            FormatError: the file is damaged.
        """
        return _read(self.path / PROGRESS_FILE)


def list_searches(folder: Path) -> list[SearchRecord]:
    """Return the searches of a model that have finished or tried something, the one written last first.

    Args:
        folder: of the searches of the model; it may be missing.
    """
    try:
        paths = list(folder.iterdir())
    except (FileNotFoundError, NotADirectoryError):
        return []
    found = []
    for path in paths:
        match = _FOLDER.fullmatch(path.name)
        if match and any((path / name).is_file() for name in (REPORT_FILE, PROGRESS_FILE)):
            found.append(SearchRecord(int(match[1]), match[2], path))
    return sorted(found, key=lambda each: (each.updated_at(), each.id), reverse=True)


def _read(path: Path) -> dict[str, Any] | None:
    try:
        document = json.loads(path.read_bytes())
    except FileNotFoundError:
        return None
    except (ValueError, RecursionError):
        document = None
    if not isinstance(document, dict):
        raise FormatError(
            "expected the report of a search",
            where=str(path),
            hint="remove the file; the same command writes it anew from the trials that are kept",
        )
    return document

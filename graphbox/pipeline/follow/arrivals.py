"""The chunks that have come into a folder, in their order, and whether each is whole."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import TypeAlias

from graphbox.config import StreamConfig
from graphbox.errors import NotFoundError, UsageError

_TIME_NAME = re.compile(r"(?:[A-Za-z_]+=)?\d")
_TOKEN = re.compile(r"(\d+)")
_DATE = re.compile(r"(?<!\d)(\d{4})[-_.]?(\d{2})[-_.]?(\d{2})(?!\d)")
_DATE_AND_HOUR = re.compile(r"(?<!\d)(\d{4})(\d{2})(\d{2})\d{2}(?:\d{2}){0,2}(?!\d)")
_UNFINISHED = (".tmp", ".temp", ".partial", ".part", ".inprogress", ".crdownload", ".filepart", "~")

Order: TypeAlias = tuple[tuple[tuple[int, int, str], ...], ...]


def order_of(name: str) -> Order:
    """Return what a chunk's name is sorted by: part by part of its path, numbers by their value."""
    return tuple(
        tuple(
            (0, int(token), "") if token.isdecimal() else (1, 0, token)
            for token in _TOKEN.split(part)
            if token
        )
        for part in name.split("/")
    )


def date_of(name: str) -> date | None:
    """Return the date that stands in a chunk's name, as in ``20261101/04``, ``dt=2026-11-01``; None: none."""
    for found in (*_DATE.finditer(name), *_DATE_AND_HOUR.finditer(name)):
        try:
            return date(*(int(part) for part in found.groups()))
        except ValueError:
            continue
    return None


@dataclass(frozen=True)
class Arrival:
    """A chunk that is there, whole or not.

    Attributes:
        name: its path in the stream's folder.
        path: of its folder, or of the file that it is.
        missing: what it lacks to be whole; None: nothing.
    """

    name: str
    path: Path
    missing: str | None

    @property
    def is_folder(self) -> bool:
        """Whether it is a folder of files."""
        return self.path.is_dir()


class Arrivals:
    """Looks into the folder of a stream.

    Args:
        folder: the folder.
        config: the section ``stream``.

    Raises:
        NotFoundError: there is no such folder.
        UsageError: it is a URL.
    """

    def __init__(self, folder: str, config: StreamConfig) -> None:
        if "://" in folder:
            raise UsageError(
                f"expected a folder of this machine, received the URL {folder}",
                where="stream.folder",
                hint="mount it, or copy each chunk into a folder and its marker last",
            )
        self.folder = Path(folder)
        self._config = config
        if not self.folder.is_dir():
            raise NotFoundError(
                "expected a folder in which chunks appear, there is none",
                where=folder,
                hint="make it, or name another one; it may be empty",
            )

    def scan(self) -> list[Arrival]:
        """Return the chunks that are there, in their order."""
        if self._config.chunks is not None:
            paths = [
                path for path in self.folder.glob(self._config.chunks) if path.is_dir() or self._is_data(path)
            ]
        else:
            paths = list(self._time_folders(self.folder))
        if not paths and self._config.chunks is None:
            paths = [path for path in self.folder.iterdir() if self._is_data(path)]
        named = {path.relative_to(self.folder).as_posix(): path for path in paths}
        names = sorted(named, key=order_of)
        files = [name for name in names if not named[name].is_dir()]
        any_marked = any(self._is_marked(named[name]) for name in files)
        arrivals = []
        for name in names:
            path = named[name]
            if path.is_dir():
                missing = self._missing_in_folder(path)
            else:
                missing = self._missing_of_file(path, is_last=name == files[-1], any_marked=any_marked)
            arrivals.append(Arrival(name, path, missing))
        return arrivals

    def _time_folders(self, folder: Path) -> Iterator[Path]:
        """Yield the innermost folders whose names, and those of all around them, begin with a digit."""
        for path in folder.iterdir():
            if path.is_dir() and _TIME_NAME.match(path.name):
                inner = list(self._time_folders(path))
                yield from inner or [path]

    def _is_data(self, path: Path) -> bool:
        """Return whether a path is a file that holds data, or will."""
        name = path.name
        if name[0] in "._" or name in self._config.markers or name.endswith(_UNFINISHED):
            return False
        return not any(name.endswith(end) for end in self._marker_suffixes()) and path.is_file()

    def _marker_suffixes(self) -> list[str]:
        return list(dict.fromkeys([".done", *(f".{marker}" for marker in self._config.markers)]))

    def _is_marked(self, path: Path) -> bool:
        if path.is_dir() and any((path / marker).exists() for marker in self._config.markers):
            return True
        return any(path.with_name(path.name + end).exists() for end in self._marker_suffixes())

    def _missing_in_folder(self, path: Path) -> str | None:
        if self._is_marked(path) or self._has_settled(path):
            return None
        return f"a marker in it ({', '.join(self._config.markers)})"

    def _missing_of_file(self, path: Path, *, is_last: bool, any_marked: bool) -> str | None:
        if self._is_marked(path) or self._has_settled(path):
            return None
        if any_marked:
            return f"its marker {path.name}.done, as others have one"
        return f"a later file, or its marker {path.name}.done" if is_last else None

    def _has_settled(self, path: Path) -> bool:
        if self._config.settle_seconds is None:
            return False
        files = [path, *path.rglob("*")] if path.is_dir() else [path]
        latest = max(file.stat().st_mtime for file in files)
        return time.time() - latest >= self._config.settle_seconds

"""Log of the trials of a search: each finished one is a line of a file, so that none runs twice."""

from __future__ import annotations

import json
import os
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Generic, TypeVar

from graphbox.durable import NO_ROOM, flush_to_disk
from graphbox.errors import DoesNotFitError, FormatError

__all__ = ["TrialLog"]

TrialT = TypeVar("TrialT")


class TrialLog(ABC, Generic[TrialT]):
    """Finished trials of one search, in order: a file of JSON lines, each flushed to the disk.

    An unfinished last line, which a killed process leaves, is dropped.

    Args:
        path: of the file, in an existing folder.

    Raises:
        FormatError: a whole line is no trial.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._trials: dict[str, TrialT] = {}
        content = path.read_bytes() if path.exists() else b""
        whole = content.rfind(b"\n") + 1
        for line in content[:whole].splitlines():
            trial = self._parsed(line)
            self._trials[self.key(trial)] = trial
        if whole < len(content):
            os.truncate(path, whole)

    def __len__(self) -> int:
        return len(self._trials)

    def __iter__(self) -> Iterator[TrialT]:
        return iter(self._trials.values())

    @staticmethod
    @abstractmethod
    def key(trial: TrialT) -> str:
        """Return the text by which a trial is found again."""

    @staticmethod
    @abstractmethod
    def as_dict(trial: TrialT) -> Mapping[str, Any]:
        """Return a trial as plain values."""

    @staticmethod
    @abstractmethod
    def of_dict(values: Any) -> TrialT:
        """Return the trial of :meth:`as_dict`; values of another document raise any error of Python's own."""

    def with_key(self, key: str) -> TrialT | None:
        """Return the trial with a key; None: it was not tried."""
        return self._trials.get(key)

    def add(self, trial: TrialT) -> None:
        """Append a finished trial; it is on the disk when this returns.

        Raises:
            DoesNotFitError: the disk is full; the unfinished line is dropped when the file is read.
        """
        line = json.dumps(self.as_dict(trial), separators=(",", ":")) + "\n"
        is_new = not self._path.exists()
        try:
            with self._path.open("ab") as stream:
                stream.write(line.encode())
                stream.flush()
                os.fsync(stream.fileno())
            if is_new:
                flush_to_disk(self._path.parent)
        except OSError as error:
            if error.errno not in NO_ROOM:
                raise
            raise DoesNotFitError(
                f"there is no room to note a finished trial: {error.strerror}",
                where=str(self._path),
                hint="free some space; the same command continues",
            ) from None
        self._trials[self.key(trial)] = trial

    def _parsed(self, line: bytes) -> TrialT:
        try:
            return self.of_dict(json.loads(line))
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
            raise FormatError(
                f"expected a line for each trial, received {line[:80]!r}",
                where=str(self._path),
                hint="remove the file; the search begins anew",
            ) from None

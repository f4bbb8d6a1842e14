"""Trials of settings, kept in a file: what was finished is never trained again, whatever ends the process."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from graphbox.durable import NO_ROOM, flush_to_disk
from graphbox.errors import DoesNotFitError, FormatError

__all__ = ["SettingsTrial", "SettingsTrialLog", "key_of"]


def key_of(settings: Mapping[str, Any]) -> str:
    """Return a text that is the same for equal settings."""
    return json.dumps(dict(settings), sort_keys=True, separators=(",", ":"))


@dataclass(frozen=True)
class SettingsTrial:
    """One choice of settings, tried.

    Attributes:
        settings: values by key.
        source: ``suggested`` by the kind of model, or found by the ``search``.
        why: reason of a suggestion; of a refused trial what was refused.
        state: ``measured``; ``refused`` where no such model can be trained; ``stopped`` where the time was
            over first.
        metric: name of the figure on the validation part.
        value: the figure; None unless it was measured.
        cost: what a better trial has less of: the figure, or minus it.
        epochs: epochs that were trained.
        best_epoch: the epoch after which the model was best; None: the last.
        seconds: that the trial took.
    """

    settings: Mapping[str, Any]
    source: Literal["suggested", "search"]
    why: str
    state: Literal["measured", "refused", "stopped"]
    metric: str = ""
    value: float | None = None
    cost: float | None = None
    epochs: int = 0
    best_epoch: int | None = None
    seconds: float = 0.0

    @property
    def key(self) -> str:
        """Key of the settings."""
        return key_of(self.settings)


class SettingsTrialLog:
    """Finished trials of one model, in order: a file of JSON lines, each flushed to the disk.

    A line that a killed process left unfinished is dropped.

    Args:
        path: of the file; its folder is there.

    Raises:
        FormatError: a whole line is no trial.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._trials: dict[str, SettingsTrial] = {}
        content = path.read_bytes() if path.exists() else b""
        whole = content.rfind(b"\n") + 1
        for line in content[:whole].splitlines():
            trial = _parsed(line, path)
            self._trials[trial.key] = trial
        if whole < len(content):
            os.truncate(path, whole)

    def __len__(self) -> int:
        return len(self._trials)

    def __iter__(self) -> Iterator[SettingsTrial]:
        return iter(self._trials.values())

    @property
    def seconds(self) -> float:
        """Time that all trials took."""
        return sum(trial.seconds for trial in self)

    @property
    def best(self) -> SettingsTrial | None:
        """The first of the best trials; None: none was measured."""
        measured = [trial for trial in self if trial.cost is not None]
        return min(measured, key=lambda trial: trial.cost or 0.0, default=None)

    def find(self, settings: Mapping[str, Any]) -> SettingsTrial | None:
        """Return the trial of some settings; None: they were not tried."""
        return self._trials.get(key_of(settings))

    def add(self, trial: SettingsTrial) -> None:
        """Keep a finished trial; it is on the disk when this returns.

        Raises:
            DoesNotFitError: the disk is full; what was written of the line is dropped when the file is read.
        """
        is_new = not self._path.exists()
        try:
            with self._path.open("ab") as stream:
                stream.write(json.dumps(asdict(trial), separators=(",", ":")).encode() + b"\n")
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
        self._trials[trial.key] = trial


def _parsed(line: bytes, path: Path) -> SettingsTrial:
    try:
        return SettingsTrial(**json.loads(line))
    except (ValueError, TypeError, AttributeError, RecursionError):
        raise FormatError(
            f"expected a line for each trial, received {line[:80]!r}",
            where=str(path),
            hint="remove the file; the search begins anew",
        ) from None

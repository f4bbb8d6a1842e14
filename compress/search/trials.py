"""Trials of a search, kept in a file: what was finished is never run again, whatever ends the process."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from graphbox.compress.latency import Latency
from graphbox.compress.limits import Figures
from graphbox.compress.recipe import Recipe
from graphbox.durable import NO_ROOM, flush_to_disk
from graphbox.errors import DoesNotFitError, FormatError

__all__ = ["Trial", "TrialLog"]


@dataclass(frozen=True)
class Trial:
    """One recipe, tried.

    Attributes:
        recipe: what was done.
        source: the part of the search that proposed it: ``ladder``, ``budget``, ``tuning`` or ``sampler``.
        state: ``measured``, or ``refused`` where the model or the target does not allow the recipe.
        reason: why it was refused.
        size_bytes: of the version.
        parts_bytes: of the ONNX part, the tables and the rest.
        metrics: on the validation part.
        latency: on the target.
        seconds: that the trial took.
    """

    recipe: Recipe
    source: str
    state: Literal["measured", "refused"]
    reason: str | None = None
    size_bytes: int = 0
    parts_bytes: Mapping[str, int] = field(default_factory=dict)
    metrics: Mapping[str, float] = field(default_factory=dict)
    latency: Latency | None = None
    seconds: float = 0.0

    @property
    def figures(self) -> Figures:
        """What limits are about."""
        return Figures(self.size_bytes, self.latency, self.metrics)

    def as_dict(self) -> dict[str, Any]:
        """Return the trial as plain values."""
        latency = None if self.latency is None else vars(self.latency)
        return {**vars(self), "recipe": self.recipe.as_dict(), "latency": latency}

    @classmethod
    def of_dict(cls, values: Mapping[str, Any]) -> Trial:
        """Return the trial of `as_dict`."""
        latency = values["latency"]
        return cls(
            **{
                **values,
                "recipe": Recipe.of_dict(values["recipe"]),
                "latency": None if latency is None else Latency(**latency),
            }
        )


class TrialLog:
    """Finished trials of one search, in order: a file of JSON lines, each flushed to the disk.

    A line that a killed process left unfinished is dropped.

    Args:
        path: of the file; its folder is there.

    Raises:
        FormatError: a whole line is no trial.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._trials: dict[str, Trial] = {}
        whole = 0
        if path.exists():
            content = path.read_bytes()
            for line in content.splitlines(keepends=True):
                if not line.endswith(b"\n"):
                    break
                whole += len(line)
                trial = _parsed(line, path)
                self._trials[trial.recipe.key] = trial
            if whole < len(content):
                os.truncate(path, whole)

    def __len__(self) -> int:
        return len(self._trials)

    def __iter__(self) -> Iterator[Trial]:
        return iter(self._trials.values())

    def find(self, recipe: Recipe) -> Trial | None:
        """Return the trial of a recipe; None: it was not tried."""
        return self._trials.get(recipe.key)

    def add(self, trial: Trial) -> None:
        """Keep a finished trial; it is on the disk when this returns.

        Raises:
            DoesNotFitError: the disk is full; what was written of the line is dropped when the file is read.
        """
        line = json.dumps(trial.as_dict(), separators=(",", ":")) + "\n"
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
        self._trials[trial.recipe.key] = trial


def _parsed(line: bytes, path: Path) -> Trial:
    try:
        return Trial.of_dict(json.loads(line))
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise FormatError(
            f"expected a line for each trial, received {line[:80]!r}",
            where=str(path),
            hint="remove the file; the search begins anew",
        ) from None

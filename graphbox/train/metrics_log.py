"""``metrics.jsonl``: the figures of a training as it goes, one JSON line for each point."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from graphbox.durable import write_atomically
from graphbox.errors import NotFoundError


class MetricsLog:
    """Appends points to the ``metrics.jsonl`` of a run; several models write to it one after the other.

    Args:
        path: the file.
        model: name of the model that is trained.
    """

    def __init__(self, path: Path, model: str) -> None:
        self._path = path
        self._model = model

    def rewind(self, points: int) -> None:
        """Keep the first ``points`` points of the model: a training that goes on writes the others again.

        A last line that was cut off when the process died is dropped too.
        """
        self._path.parent.mkdir(parents=True, exist_ok=True)
        if not self._path.exists():
            return
        lines = self._path.read_bytes().splitlines(keepends=True)
        kept, left = [], points
        for line in lines:
            owner = _model_of(line)
            left -= owner == self._model
            if owner is not None and (owner != self._model or left >= 0):
                kept.append(line)
        if kept != lines:
            with write_atomically(self._path) as stream:
                stream.writelines(kept)

    def take_over(self, other: Path) -> None:
        """Replace the points of the model by those of another file; without that file they stay."""
        if not other.exists():
            return
        self.rewind(0)
        with self._path.open("ab") as stream:
            stream.write(
                b"".join(each for each in other.read_bytes().splitlines(keepends=True) if _model_of(each))
            )

    def add(self, step: int, epoch: int, time_s: float, values: Mapping[str, float]) -> None:
        """Append a point.

        Args:
            step: batches trained so far.
            epoch: epochs finished so far.
            time_s: seconds trained so far, those before an interruption included.
            values: the figures.

        Raises:
            NotFoundError: the run's folder is gone.
        """
        point = {
            "model": self._model,
            "step": step,
            "epoch": epoch,
            "time_s": round(time_s, 3),
            "values": dict(values),
        }
        try:
            with self._path.open("ab") as stream:
                stream.write(json.dumps(point).encode() + b"\n")
        except FileNotFoundError:
            raise NotFoundError(
                "expected the folder of the run, it was removed while its model was trained",
                where=str(self._path.parent),
                hint="what was trained went with it: train again",
            ) from None

    def figures(self, name: str) -> list[tuple[int, float]]:
        """Return epochs finished and the figure, of each point of the model that has it, in order."""
        if not self._path.exists():
            return []
        points = (json.loads(line) for line in self._path.read_bytes().splitlines())
        return [
            (int(point["epoch"]), float(point["values"][name]))
            for point in points
            if point["model"] == self._model and name in point["values"]
        ]


def _model_of(line: bytes) -> str | None:
    """Return the model of a point; None where the line was cut off."""
    try:
        point: dict[str, Any] = json.loads(line)
    except ValueError:
        return None
    return str(point["model"])

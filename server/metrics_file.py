"""Reading ``metrics.jsonl``: the points a run has measured, one JSON line each, written while it runs."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt
import orjson
from pydantic import ValidationError

from graphbox.server.schema import MetricPoint, MetricSeries, RunMetrics

__all__ = ["MetricsTail", "read_metrics", "thin"]

_READ_BYTES = 1 << 20
# A phase of training names its loss: `pretrain_loss`. `validation_log_loss` is a metric.
_PHASE_LOSS = re.compile(r"(?!validation_)(?P<phase>\w+)_loss")


_SeriesKey = tuple[str, str | None, str]
"""Model, phase and quantity."""


class MetricsTail:
    """Reads the complete lines a file has gained since the last call.

    Args:
        path: the file; it may not exist yet.
        after: number of lines to skip, as seen by a reader before.
    """

    def __init__(self, path: Path, after: int = 0) -> None:
        self._path = path
        self._skip = after
        self._offset = 0
        self._partial = b""
        self.line = 0
        """Number of complete lines read or skipped."""

    def lines(self) -> Iterator[tuple[int, bytes]]:
        """Yield the number, from 1, and the bytes of each new line.

        A file that has become shorter was written anew, as when a run resumes from a checkpoint: it
        is read from its start again.
        """
        try:
            with self._path.open("rb") as file:
                if file.seek(0, 2) < self._offset:
                    self._start_again()
                yield from self._new_lines(file)
                if self.line < self._skip:  # fewer lines than were seen before: written anew, too
                    self._start_again()
                    yield from self._new_lines(file)
        except FileNotFoundError:
            return

    def _start_again(self) -> None:
        self._offset, self._partial, self.line, self._skip = 0, b"", 0, 0

    def _new_lines(self, file: BinaryIO) -> Iterator[tuple[int, bytes]]:
        file.seek(self._offset)
        while chunk := file.read(_READ_BYTES):
            self._offset += len(chunk)
            *complete, self._partial = (self._partial + chunk).split(b"\n")
            for text in complete:
                self.line += 1
                if self.line > self._skip:
                    yield self.line, text


def parse_point(text: bytes) -> MetricPoint | None:
    """Return the point of one line, or None for a line that holds none."""
    try:
        content: Any = orjson.loads(text)
        phase = _phase_of(content["values"])
        return MetricPoint.model_validate({"epoch": None, "time_s": None, "phase": phase, **content})
    except (orjson.JSONDecodeError, ValidationError, KeyError, TypeError):
        return None


def _phase_of(keys: Iterable[str]) -> str | None:
    """Return the phase of training that a point with these quantities belongs to, or None."""
    matches = (_PHASE_LOSS.fullmatch(key) for key in keys)
    return next((match["phase"] for match in matches if match), None)


def read_metrics(path: Path, max_points: int) -> RunMetrics:
    """Read all points of a run, as one series for each model, phase and quantity.

    Args:
        path: the file; one that does not exist has no points.
        max_points: longest series to return; longer ones are thinned.
    """
    steps: dict[_SeriesKey, list[int]] = {}
    values: dict[_SeriesKey, list[float]] = {}
    non_finite: dict[_SeriesKey, int] = {}
    damaged = 0
    tail = MetricsTail(path)
    for _, text in tail.lines():
        point = parse_point(text)
        if point is None:
            damaged += 1
            continue
        for key, value in point.values.items():
            series = (point.model, point.phase, key)
            steps.setdefault(series, [])
            values.setdefault(series, [])
            if value is None or not math.isfinite(value):
                non_finite[series] = non_finite.get(series, 0) + 1
                continue
            steps[series].append(point.step)
            values[series].append(value)
    return RunMetrics(
        series=[
            _series(series, steps[series], values[series], non_finite.get(series, 0), max_points)
            for series in steps
        ],
        last_line=tail.line,
        damaged_lines=damaged,
    )


def _series(
    series: _SeriesKey, steps: list[int], values: list[float], non_finite: int, max_points: int
) -> MetricSeries:
    model, phase, key = series
    if len(steps) > max_points:
        kept = thin(np.array(steps, dtype=np.float64), np.array(values), max_points)
        steps = [steps[position] for position in kept]
        values = [values[position] for position in kept]
    return MetricSeries(model=model, phase=phase, key=key, steps=steps, values=values, non_finite=non_finite)


def thin(x: npt.NDArray[np.float64], y: npt.NDArray[np.float64], count: int) -> npt.NDArray[np.int64]:
    """Choose ``count`` points of a line so that its picture stays the same.

    Largest triangle three buckets (S. Steinarsson, Downsampling Time Series for Visual
    Representation, 2013, section 4.2): the first and the last point, and of each bucket between
    them the point that spans the largest triangle with the one chosen before and the mean of the
    next bucket.

    Args:
        x: float64[n], ascending.
        y: float64[n].
        count: points to keep, 3 <= count < n.

    Returns:
        int64[count], ascending positions.
    """
    edges = np.linspace(1, len(x) - 1, count - 1).astype(np.int64)
    chosen = np.zeros(count, dtype=np.int64)
    for bucket in range(count - 2):
        first, last = edges[bucket], edges[bucket + 1]
        after = slice(last, edges[bucket + 2]) if bucket + 2 < len(edges) else slice(len(x) - 1, len(x))
        before = chosen[bucket]
        area = np.abs(
            (x[before] - x[after].mean()) * (y[first:last] - y[before])
            - (x[before] - x[first:last]) * (y[after].mean() - y[before])
        )
        chosen[bucket + 1] = first + int(area.argmax())
    chosen[-1] = len(x) - 1
    return chosen

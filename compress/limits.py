"""Limits on a compressed model: bytes, latency, quality; and how far a model is from keeping them."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from graphbox.config import MaxDrop
from graphbox.errors import UsageError

__all__ = ["Figures", "Limits", "Violation", "parse_milliseconds", "parse_minimum"]

_MAX_SIZE, _MAX_P99 = "--max-size", "--max-p99"
_TIME = re.compile(r"\s*([0-9]+(?:\.[0-9]+)?)\s*(us|ms|s)\s*")
_MILLISECONDS = {"us": 1e-3, "ms": 1.0, "s": 1e3}


@dataclass(frozen=True)
class Figures:
    """Measurements of one model that limits are about.

    Attributes:
        size_bytes: of the whole version.
        p99_ms: of one call on the target; None: it was not measured.
        metrics: on the validation part.
    """

    size_bytes: int
    p99_ms: float | None
    metrics: Mapping[str, float]


@dataclass(frozen=True)
class Violation:
    """One limit that a model exceeds.

    Attributes:
        limit: as a user writes it, e.g. ``--max-size``.
        allowed: by the limit.
        received: from the model.
        excess: how far beyond, relative to the limit.
    """

    limit: str
    allowed: float
    received: float
    excess: float

    @property
    def is_of_quality(self) -> bool:
        """True if the limit is on a metric, not on bytes or time."""
        return self.limit not in {_MAX_SIZE, _MAX_P99}


@dataclass(frozen=True)
class Limits:
    """What a compressed model may cost and must reach. Each limit may be left out.

    Attributes:
        max_size_bytes: of the whole version.
        max_p99_ms: 99th percentile of the latency of one call on the target.
        minimums: least values of metrics on the validation part.
        max_drop: of the deciding metric.
    """

    max_size_bytes: int | None = None
    max_p99_ms: float | None = None
    minimums: Mapping[str, float] = field(default_factory=dict)
    max_drop: MaxDrop | None = None

    @property
    def bounds_quality(self) -> bool:
        """Whether a limit is about quality."""
        return self.max_drop is not None or bool(self.minimums)

    def least(self, metric: str, original: float) -> float | None:
        """Return the least value that the deciding metric may have; None: it is not limited.

        Args:
            metric: the one that decides.
            original: its value for the original model.
        """
        least = [value for name, value in self.minimums.items() if name == metric]
        if self.max_drop is not None:
            least.append(self.max_drop.floor(original))
        return max(least, default=None)

    def violations(self, figures: Figures, metric: str, original: float) -> list[Violation]:
        """Return the limits that a model exceeds.

        Args:
            figures: of the model.
            metric: the one that decides.
            original: its value for the original model.
        """
        return list(self._violations(figures, metric, original))

    def check_metrics(self, metrics: Mapping[str, float]) -> None:
        """Reject minimums of metrics that are not measured.

        Raises:
            UsageError: a metric is unknown.
        """
        for name in self.minimums:
            if name not in metrics:
                raise UsageError(
                    f"expected one of the measured metrics {sorted(metrics)}, received `{name}`",
                    where="--min",
                )

    def _violations(self, figures: Figures, metric: str, original: float) -> Iterator[Violation]:
        if self.max_size_bytes is not None and figures.size_bytes > self.max_size_bytes:
            yield _above(_MAX_SIZE, self.max_size_bytes, figures.size_bytes)
        if self.max_p99_ms is not None and figures.p99_ms is not None and figures.p99_ms > self.max_p99_ms:
            yield _above(_MAX_P99, self.max_p99_ms, figures.p99_ms)
        for name, least in self.minimums.items():
            yield from _below(f"--min {name}", least, figures.metrics[name])
        if self.max_drop is not None:
            yield from _below("--max-drop", self.max_drop.floor(original), figures.metrics[metric])


def parse_milliseconds(text: str) -> float:
    """Return milliseconds from ``3ms``, ``250us`` or ``0.01s``.

    Raises:
        UsageError: there is no unit, or it is not positive.
    """
    match = _TIME.fullmatch(text)
    value = 0.0 if match is None else float(match[1]) * _MILLISECONDS[match[2]]
    if value <= 0:
        raise UsageError(f"expected a time like 3ms or 250us, received `{text}`", where="--max-p99")
    return value


def parse_minimum(text: str) -> tuple[str, float]:
    """Return metric and least value from ``recall@20=0.40``.

    Raises:
        UsageError: it is something else.
    """
    name, separator, value = text.partition("=")
    try:
        least = float(value)
    except ValueError:
        least = math.nan
    if not separator or not name.strip() or not math.isfinite(least):
        raise UsageError(f"expected a minimum like recall@20=0.40, received `{text}`", where="--min")
    return name.strip(), least


def _above(limit: str, allowed: float, received: float) -> Violation:
    return Violation(limit, allowed, received, (received - allowed) / allowed)


def _below(limit: str, least: float, received: float) -> Iterator[Violation]:
    if not received >= least:  # NaN is below
        excess = (least - received) / abs(least) if least else least - received
        yield Violation(limit, least, received, excess if math.isfinite(excess) else math.inf)

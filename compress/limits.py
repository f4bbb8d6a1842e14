"""Limits on a compressed model: bytes, latency, quality; and how far a model is from keeping them."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

from graphbox.compress.latency import NOISE, Latency, Percentile
from graphbox.config import LatencyLimit, MaxDrop
from graphbox.errors import UsageError

__all__ = ["Figures", "Limits", "Violation", "parse_minimum"]

_MAX_SIZE, _MAX_P50, _MAX_P99 = "--max-size", "--max-p50", "--max-p99"


@dataclass(frozen=True)
class Figures:
    """Measurements of one model that limits are about.

    Attributes:
        size_bytes: of the whole version.
        latency: of one call on the target; None: it was not measured.
        metrics: on the validation part.
    """

    size_bytes: int
    latency: Latency | None
    metrics: Mapping[str, float]


@dataclass(frozen=True)
class Violation:
    """One limit that a model exceeds.

    Attributes:
        limit: as a user writes it, e.g. ``--max-size``.
        allowed: by the limit.
        received: from the model.
        excess: how far beyond, relative to the limit.
        unit: of both, ``%`` of the original's, ``ms`` or nothing.
    """

    limit: str
    allowed: float
    received: float
    excess: float
    unit: str = ""

    @property
    def is_of_quality(self) -> bool:
        """True if the limit is on a metric, not on bytes or time."""
        return self.limit not in {_MAX_SIZE, _MAX_P50, _MAX_P99}

    @property
    def is_of_size(self) -> bool:
        """True if the limit is on bytes."""
        return self.limit == _MAX_SIZE

    def __str__(self) -> str:
        digits = 6 if not self.unit else 4
        allowed, received = (f"{each:.{digits}g}{self.unit}" for each in (self.allowed, self.received))
        return f"{self.limit} {allowed} (it has {received})"


@dataclass(frozen=True)
class Limits:
    """Limits on a compressed model. Each may be left out.

    Attributes:
        max_size_bytes: size of the whole version.
        max_p50: median latency of one call on the target.
        max_p99: 99th percentile of the latency of one call on the target.
        minimums: least values of metrics on the validation part.
        max_drop: drop of the deciding metric.
    """

    max_size_bytes: int | None = None
    max_p50: LatencyLimit | None = None
    max_p99: LatencyLimit | None = None
    minimums: Mapping[str, float] = field(default_factory=dict)
    max_drop: MaxDrop | None = None

    @property
    def bounds_quality(self) -> bool:
        """Whether a limit is about quality."""
        return self.max_drop is not None or bool(self.minimums)

    @property
    def of_latency(self) -> dict[Percentile, LatencyLimit]:
        """The limits of latency."""
        given: dict[Percentile, LatencyLimit | None] = {"p50": self.max_p50, "p99": self.max_p99}
        return {percentile: limit for percentile, limit in given.items() if limit is not None}

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

        A relative limit of latency is exceeded by more than half a step of 5 %: less is noise.

        Args:
            figures: of the model.
            metric: the one that decides.
            original: its value for the original model.
        """
        return list(self._violations(figures, metric, original))

    def may_keep(self, figures: Figures, metric: str, original: float) -> bool:
        """Return whether a model is within the limits, or may be when its latency is measured again.

        That is where not all repeats of the measurement are above the limit of the median.

        Args:
            figures: of the model.
            metric: the one that decides.
            original: its value for the original model.
        """
        if (latency := figures.latency) is not None:
            fastest = replace(latency, p50_ms=min(latency.p50_ms, latency.p50_min_ms))
            figures = replace(figures, latency=fastest)
        return not self.violations(figures, metric, original)

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
            excess = figures.size_bytes / self.max_size_bytes - 1
            yield Violation(_MAX_SIZE, self.max_size_bytes, figures.size_bytes, excess)
        if figures.latency is not None:
            for percentile, limit in self.of_latency.items():
                yield from _too_slow(percentile, limit, figures.latency)
        for name, least in self.minimums.items():
            yield from _below(f"--min {name}", least, figures.metrics[name])
        if self.max_drop is not None:
            yield from _below("--max-drop", self.max_drop.floor(original), figures.metrics[metric])


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


def _too_slow(percentile: Percentile, limit: LatencyLimit, latency: Latency) -> Iterator[Violation]:
    option = _MAX_P50 if percentile == "p50" else _MAX_P99
    if not limit.relative:
        received = latency.milliseconds(percentile)
        if received > limit.value:
            yield Violation(option, limit.value, received, received / limit.value - 1, "ms")
    elif (ratio := latency.ratio(percentile)) > limit.value * NOISE:
        yield Violation(option, 100 * limit.value, 100 * ratio, ratio / limit.value - 1, "%")


def _below(limit: str, least: float, received: float) -> Iterator[Violation]:
    if not received >= least:  # NaN is below
        excess = (least - received) / abs(least) if least else least - received
        yield Violation(limit, least, received, excess if math.isfinite(excess) else math.inf)

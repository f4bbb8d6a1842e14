"""A model version beside the active one: quality, size, latency of a request."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from graphbox.workspace.records import BenchRecord, ModelRecord


@dataclass(frozen=True)
class Pair:
    """One figure of a version and of the active one; None where it was not measured."""

    version: float | None
    active: float | None


@dataclass(frozen=True)
class Comparison:
    """A model version beside the active version of its name.

    Attributes:
        version: its number.
        active: number of the active version.
        metric: name of the metric that decides; None where the version has none.
        quality: the metric of both, on the test part; higher is better.
        not_comparable: why the metrics say nothing about which version is better; None: they do.
        size_bytes: of the folders.
        request_ms: median latency of the same request, end to end.
        request: what was asked: ``neighbors``, ``answers`` or ``infer``; None where each was asked another.
    """

    version: int
    active: int
    metric: str | None
    quality: Pair
    not_comparable: str | None
    size_bytes: Pair
    request_ms: Pair
    request: str | None

    @property
    def is_better(self) -> bool:
        """Whether the version has the higher metric, on the same test part."""
        new, old = self.quality.version, self.quality.active
        return self.not_comparable is None and new is not None and old is not None and new > old

    def as_dict(self) -> dict[str, Any]:
        """Return plain values."""
        return asdict(self)


def compare(record: ModelRecord, active: ModelRecord) -> Comparison:
    """Compare a version with the active one of the same name."""
    new, old = record.request, active.request
    is_same = new is not None and old is not None and _request(new) == _request(old)
    request = new or old
    return Comparison(
        version=record.version,
        active=active.version,
        metric=record.deciding_metric,
        quality=Pair(record.quality, active.quality),
        not_comparable=_not_comparable(record, active),
        size_bytes=Pair(record.size_bytes, active.size_bytes),
        request_ms=Pair(
            new.p50_ms if new and (is_same or old is None) else None,
            old.p50_ms if old and (is_same or new is None) else None,
        ),
        request=request.operation if request and (is_same or new is None or old is None) else None,
    )


def _request(bench: BenchRecord) -> tuple[str, int, str, int]:
    return bench.operation, bench.batch, bench.target, bench.threads


def _not_comparable(record: ModelRecord, active: ModelRecord) -> str | None:
    """Return why the metrics of two versions cannot be compared, or None."""
    if record.task != active.task:
        return (
            f"version {record.version} is for the task {record.task}, "
            f"version {active.version} for {active.task}"
        )
    unmeasured = _unmeasured(record) or _unmeasured(active)
    if unmeasured is not None:
        return unmeasured
    if record.deciding_metric != active.deciding_metric:
        return (
            f"version {record.version} is measured by {record.deciding_metric}, "
            f"version {active.version} by {active.deciding_metric}"
        )
    if record.measured_on != active.measured_on:
        return f"version {active.version} was measured on another version of the graph or another test part"
    return None


def _unmeasured(record: ModelRecord) -> str | None:
    """Return why a version cannot be compared with any, or None."""
    if record.task is None:
        return f"version {record.version} has no task to be measured on"
    if record.deciding_metric is None or record.measured_on is None:
        return f"it is not known what version {record.version} was measured on: an earlier release made it"
    return f"version {record.version} has no {record.deciding_metric}" if record.quality is None else None

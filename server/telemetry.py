"""Counters of the server, in the text format of Prometheus.

A counter is a few additions under a lock that nothing holds while it computes or waits, so
``/metrics`` answers while models run. Model statistics carry the names Triton gives them, so
dashboards made for Triton show graphbox models unchanged.
"""

from __future__ import annotations

import threading
import time
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Any

from prometheus_client import CollectorRegistry
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
    UnknownMetricFamily,
)
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest
from prometheus_client.process_collector import ProcessCollector
from prometheus_client.registry import Collector

from graphbox.deploy.lookup_counter import LookupCounter

__all__ = ["InferenceTimes", "ModelStatistics", "Telemetry"]

_METHODS = frozenset({"DELETE", "GET", "HEAD", "OPTIONS", "PATCH", "POST", "PUT"})
_LATENCY_BUCKETS_S = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0)


class LatencyHistogram:
    """How many durations fell into each bucket. One addition costs a tenth of prometheus_client's."""

    __slots__ = ("_counts", "_sum_s")

    def __init__(self) -> None:
        self._counts = [0] * (len(_LATENCY_BUCKETS_S) + 1)
        self._sum_s = 0.0

    def add(self, seconds: float) -> None:
        """Count one duration."""
        self._counts[bisect_left(_LATENCY_BUCKETS_S, seconds)] += 1
        self._sum_s += seconds

    def add_to(self, family: HistogramMetricFamily, labels: list[str]) -> None:
        """Report the counts under these labels."""
        bounds = [*map(str, _LATENCY_BUCKETS_S), "+Inf"]
        cumulative = accumulate(self._counts)
        family.add_metric(labels, list(zip(bounds, cumulative, strict=True)), self._sum_s)


@dataclass(slots=True)
class Duration:
    """How often something happened and how long it took in total."""

    count: int = 0
    ns: int = 0

    def add(self, ns: int) -> None:
        """Count one more, which took ``ns``."""
        self.count += 1
        self.ns += ns

    def as_json(self) -> dict[str, int]:
        """Return the object the KServe statistics use."""
        return {"count": self.count, "ns": self.ns}


@dataclass(slots=True)
class InferenceTimes:
    """Where the time of one inference went, in nanoseconds."""

    total_ns: int
    queue_ns: int
    input_ns: int
    infer_ns: int
    output_ns: int


@dataclass(slots=True)
class BatchStatistics:
    """Executions at one batch size."""

    compute_input: Duration = field(default_factory=Duration)
    compute_infer: Duration = field(default_factory=Duration)
    compute_output: Duration = field(default_factory=Duration)


class ModelStatistics:
    """Statistics of one model version since the server started. Safe to use from any thread.

    Args:
        lookups: counter of its looked-up rows; None: it has no stored vectors to look up.
    """

    def __init__(self, lookups: LookupCounter | None = None) -> None:
        self.lookups = lookups
        self._lock = threading.Lock()
        self._success = Duration()
        self._fail = Duration()
        self._queue = Duration()
        self._compute_input = Duration()
        self._compute_infer = Duration()
        self._compute_output = Duration()
        self._batches: dict[int, BatchStatistics] = {}
        self._latency = LatencyHistogram()
        self._last_inference_ms = 0
        self._rows = 0

    def succeeded(self, rows: int, times: InferenceTimes) -> None:
        """Count one answered request with ``rows`` rows."""
        with self._lock:
            self._success.add(times.total_ns)
            self._queue.add(times.queue_ns)
            self._compute_input.add(times.input_ns)
            self._compute_infer.add(times.infer_ns)
            self._compute_output.add(times.output_ns)
            # Batch sizes are chosen by clients: the number of different ones kept is bounded.
            if rows in self._batches or len(self._batches) < 256:
                batch = self._batches.setdefault(rows, BatchStatistics())
                batch.compute_input.add(times.input_ns)
                batch.compute_infer.add(times.infer_ns)
                batch.compute_output.add(times.output_ns)
            self._latency.add(times.total_ns / 1e9)
            self._rows += rows
            self._last_inference_ms = time.time_ns() // 1_000_000

    def failed(self, total_ns: int) -> None:
        """Count one request that was refused or failed."""
        with self._lock:
            self._fail.add(total_ns)

    def add_latency_to(self, family: HistogramMetricFamily, labels: list[str]) -> None:
        """Report the durations of answered requests under these labels."""
        with self._lock:
            self._latency.add_to(family, labels)

    @property
    def used(self) -> bool:
        """Whether any request was counted."""
        return bool(self._success.count or self._fail.count)

    def as_json(self) -> dict[str, Any]:
        """Return what the KServe statistics extension answers for one model version."""
        with self._lock:
            return {
                "last_inference": self._last_inference_ms,
                "inference_count": self._rows,
                "execution_count": self._success.count,
                "inference_stats": {
                    "success": self._success.as_json(),
                    "fail": self._fail.as_json(),
                    "queue": self._queue.as_json(),
                    "compute_input": self._compute_input.as_json(),
                    "compute_infer": self._compute_infer.as_json(),
                    "compute_output": self._compute_output.as_json(),
                },
                "batch_stats": [
                    {
                        "batch_size": rows,
                        "compute_input": batch.compute_input.as_json(),
                        "compute_infer": batch.compute_infer.as_json(),
                        "compute_output": batch.compute_output.as_json(),
                    }
                    for rows, batch in sorted(self._batches.items())
                ],
            }


class _ModelCollector(Collector):
    """Turns model statistics into metrics when they are asked for."""

    def __init__(self, statistics: Callable[[], Iterable[tuple[str, str, ModelStatistics]]]) -> None:
        self._statistics = statistics

    def collect(self) -> Iterator[Metric]:
        labels = ["model", "version"]
        counters = {
            # As counters they would end in _total, which Triton's names do not.
            name: UnknownMetricFamily(name, text, labels=labels)
            for name, text in {
                "nv_inference_request_success": "Requests answered",
                "nv_inference_request_failure": "Requests refused or failed",
                "nv_inference_count": "Rows answered",
                "nv_inference_exec_count": "Model executions",
                "nv_inference_request_duration_us": "Time of answered requests in microseconds",
                "nv_inference_queue_duration_us": "Time spent waiting for a thread in microseconds",
                "nv_inference_compute_input_duration_us": "Time spent reading inputs in microseconds",
                "nv_inference_compute_infer_duration_us": "Time spent in the model in microseconds",
                "nv_inference_compute_output_duration_us": "Time spent writing outputs in microseconds",
            }.items()
        }
        latency = HistogramMetricFamily(
            "graphbox_inference_duration_seconds", "Time of answered requests", labels=labels
        )
        rows = CounterMetricFamily(
            "graphbox_lookup_rows", "Rows of stored vectors answered for ids", labels=labels
        )
        default_rows = CounterMetricFamily(
            "graphbox_lookup_default_rows",
            "Rows among them that were the default row, as the id is unknown",
            labels=labels,
        )
        for model, version, statistics in self._statistics():
            statistics.add_latency_to(latency, [model, version])
            if statistics.lookups is not None:
                for family, count in zip((rows, default_rows), statistics.lookups.counts(), strict=True):
                    family.add_metric([model, version], count)
            numbers = statistics.as_json()
            times = numbers["inference_stats"]
            for name, value in {
                "nv_inference_request_success": times["success"]["count"],
                "nv_inference_request_failure": times["fail"]["count"],
                "nv_inference_count": numbers["inference_count"],
                "nv_inference_exec_count": numbers["execution_count"],
                "nv_inference_request_duration_us": times["success"]["ns"] / 1e3,
                "nv_inference_queue_duration_us": times["queue"]["ns"] / 1e3,
                "nv_inference_compute_input_duration_us": times["compute_input"]["ns"] / 1e3,
                "nv_inference_compute_infer_duration_us": times["compute_infer"]["ns"] / 1e3,
                "nv_inference_compute_output_duration_us": times["compute_output"]["ns"] / 1e3,
            }.items():
                counters[name].add_metric([model, version], value)
        yield from counters.values()
        yield from (latency, rows, default_rows)


class _PendingCollector(Collector):
    """Reports how many model executions wait for a thread."""

    def __init__(self, pending: Callable[[], int]) -> None:
        self._pending = pending

    def collect(self) -> Iterator[Metric]:
        yield GaugeMetricFamily(
            "graphbox_pending_executions", "Model executions queued or running", self._pending()
        )


class _RequestCollector(Collector):
    """Counts HTTP requests and their durations by route."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counts: dict[tuple[str, str, str], int] = {}
        self._latencies: dict[str, LatencyHistogram] = {}

    def add(self, method: str, route: str, status: str, seconds: float) -> None:
        key = method, route, status
        with self._lock:
            self._counts[key] = self._counts.get(key, 0) + 1
            latency = self._latencies.get(route)
            if latency is None:
                latency = self._latencies[route] = LatencyHistogram()
            latency.add(seconds)

    def collect(self) -> Iterator[Metric]:
        counts = CounterMetricFamily(
            "graphbox_http_requests", "HTTP requests", labels=["method", "route", "status"]
        )
        latency = HistogramMetricFamily(
            "graphbox_http_request_duration_seconds",
            "Time from the headers to the end of the answer",
            labels=["route"],
        )
        with self._lock:
            for key, count in self._counts.items():
                counts.add_metric(list(key), count)
            for route, histogram in self._latencies.items():
                histogram.add_to(latency, [route])
        yield counts
        yield latency


class Telemetry:
    """The metrics of one server, in a registry of its own."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self._requests = _RequestCollector()
        self.registry.register(self._requests)
        ProcessCollector(registry=self.registry)

    def watch(
        self, statistics: Callable[[], Iterable[tuple[str, str, ModelStatistics]]], pending: Callable[[], int]
    ) -> None:
        """Report these model statistics and this number of waiting executions too."""
        self.registry.register(_ModelCollector(statistics))
        self.registry.register(_PendingCollector(pending))

    def request(self, method: str, route: str, status: int, seconds: float) -> None:
        """Count one HTTP request. Status 0: the client left before the answer."""
        # Clients choose the method; the number of different labels must not be theirs to choose.
        known = method if method in _METHODS else "other"
        self._requests.add(known, route, str(status or "disconnected"), seconds)

    def text(self) -> tuple[bytes, str]:
        """Return the metrics as text and its content type."""
        return generate_latest(self.registry), CONTENT_TYPE_LATEST

"""Counters of the server, in the text format of Prometheus.

A counter is a few additions to shared memory (`graphbox.server.counters`) under a lock that nothing holds
while it computes or waits, so ``/metrics`` answers while models run, and any worker answers the sums of all.
Model statistics carry the names Triton gives them, so dashboards made for Triton show graphbox models
unchanged. Metrics of processes have a label ``worker``.
"""

from __future__ import annotations

import threading
import time
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
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
from graphbox.deploy.nearest.recall import RecallCounter
from graphbox.server.counters import Counters, total
from graphbox.server.live_rows import RowsCollector

__all__ = ["PENDING_EXECUTIONS", "InferenceTimes", "ModelStatistics", "Telemetry"]

PENDING_EXECUTIONS = "pending executions"
_SERVING = "serving"
"""Gauge of the model executions that are queued or running."""

_METHODS = frozenset({"DELETE", "GET", "HEAD", "OPTIONS", "PATCH", "POST", "PUT"})
_LATENCY_BUCKETS_NS = tuple(
    round(seconds * 1e9)
    for seconds in (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0)
)
_BUCKETS = len(_LATENCY_BUCKETS_NS) + 1
_ROUTE_SLOTS = 1 + _BUCKETS


def _add_latency(
    family: HistogramMetricFamily, labels: list[str], counts: Sequence[int], sum_ns: int
) -> None:
    """Report durations under these labels: how many fell into each bucket, and their sum."""
    bounds = [*(str(bound / 1e9) for bound in _LATENCY_BUCKETS_NS), "+Inf"]
    family.add_metric(labels, list(zip(bounds, accumulate(counts), strict=True)), sum_ns / 1e9)


@dataclass(slots=True)
class InferenceTimes:
    """Times of the parts of one inference, in nanoseconds."""

    total_ns: int
    queue_ns: int
    input_ns: int
    infer_ns: int
    output_ns: int


# Counters of a model version, of one of its batch sizes, and of its lookups, by position in their records.
# Each is in one place: the number of answered requests is the sum of the buckets, times of the model are
# sums over batch sizes.
_SUCCESS_NS, _QUEUE_NS, _FAIL, _FAIL_NS, _LAST_MS, _EXECUTIONS, _FIRST_BUCKET = range(7)
_MODEL_SLOTS = _FIRST_BUCKET + _BUCKETS
_BATCH_COUNT, _BATCH_ROWS, _BATCH_INPUT_NS, _BATCH_INFER_NS, _BATCH_OUTPUT_NS, _BATCH_SLOTS = range(6)
_LOOKUP_SLOTS = 2
_RECALL_SLOTS = 3
# Clients choose the batch sizes: a worker keeps a bounded number of them, and one record of all others.
_MOST_BATCH_SIZES = 256
_OTHER_SIZES = "other"


class ModelStatistics:
    """Statistics of one signature of a model version since the server started, over all its workers.

    Safe to use from any thread. Nothing is kept in the object: one made anew continues to count.

    Args:
        counters: of the server.
        name: name of the model.
        version: its version.
        suffix: suffix of the signature.
        has_lookups: whether it looks up rows of stored vectors.
    """

    def __init__(
        self, counters: Counters, name: str, version: int, suffix: str = "", *, has_lookups: bool = False
    ) -> None:
        self._counters = counters
        self._key = (name, str(version), suffix)
        self._has_lookups = has_lookups
        self._lock = threading.Lock()
        self._own: memoryview[int] | None = None
        self._batches: dict[int, memoryview[int]] = {}

    @property
    def lookups(self) -> LookupCounter | None:
        """Counter of the rows looked up in this worker; None: there are no stored vectors to look up."""
        if not self._has_lookups:
            return None
        return LookupCounter(self._counters.record(("lookups", *self._key), "", _LOOKUP_SLOTS))

    def lookup_counts(self) -> tuple[int, int] | None:
        """Return looked-up rows and default rows among them; None where nothing is looked up."""
        if not self._has_lookups:
            return None
        rows, default_rows = self._sums("lookups") or (0, 0)
        return rows, default_rows

    @property
    def recall(self) -> RecallCounter:
        """Counter of the sampled nearest nodes in this worker."""
        return RecallCounter(self._counters.record(("recall", *self._key), "", _RECALL_SLOTS))

    def recall_counts(self) -> tuple[int, int, int] | None:
        """Return sampled queries, their nearest nodes and those found; None where nothing is ranked."""
        sums = self._sums("recall")
        return (sums[0], sums[1], sums[2]) if sums else None

    def succeeded(self, rows: int, times: InferenceTimes, executions: int = 1) -> None:
        """Count one answered request.

        Args:
            rows: of the request.
            times: where its time went.
            executions: of the model that are counted with it: 1 for one of the requests that were joined.
        """
        total_ns = times.total_ns
        with self._lock:
            own = self._own or self._open()
            own[_SUCCESS_NS] += total_ns
            own[_QUEUE_NS] += times.queue_ns
            own[_EXECUTIONS] += executions
            own[_FIRST_BUCKET + bisect_left(_LATENCY_BUCKETS_NS, total_ns)] += 1
            own[_LAST_MS] = time.time_ns() // 1_000_000
            batch = self._batches.get(rows) or self._open_batch(rows)
            batch[_BATCH_COUNT] += 1
            batch[_BATCH_ROWS] += rows
            batch[_BATCH_INPUT_NS] += times.input_ns
            batch[_BATCH_INFER_NS] += times.infer_ns
            batch[_BATCH_OUTPUT_NS] += times.output_ns

    def failed(self, total_ns: int) -> None:
        """Count one request that was refused or failed."""
        with self._lock:
            own = self._own or self._open()
            own[_FAIL] += 1
            own[_FAIL_NS] += total_ns

    def add_latency_to(self, family: HistogramMetricFamily, labels: list[str]) -> None:
        """Report the durations of answered requests under these labels."""
        sums = self._sums("model") or [0] * _MODEL_SLOTS
        _add_latency(family, labels, sums[_FIRST_BUCKET:], sums[_SUCCESS_NS])

    @property
    def used(self) -> bool:
        """Whether any worker has counted a request, or a sampled query."""
        sums = self._sums("model")
        return bool(sums and (sums[_FAIL] or any(sums[_FIRST_BUCKET:]))) or any(self._sums("recall"))

    def as_json(self) -> dict[str, Any]:
        """Return what the KServe statistics extension answers for one model version."""
        records = self._counters.records(("model", *self._key)).get("", [])
        sums = total(records) or [0] * _MODEL_SLOTS
        by_size = {
            size: total(of_workers)
            for size, of_workers in self._counters.records(("batch", *self._key)).items()
        }
        _, rows, *compute_ns = map(sum, zip([0] * _BATCH_SLOTS, *by_size.values(), strict=True))
        answered = sum(sums[_FIRST_BUCKET:])
        by_size.pop(_OTHER_SIZES, None)
        return {
            "last_inference": max((record[_LAST_MS] for record in records), default=0),
            "inference_count": rows,
            "execution_count": sums[_EXECUTIONS],
            "inference_stats": {
                "success": _duration(answered, sums[_SUCCESS_NS]),
                "fail": _duration(sums[_FAIL], sums[_FAIL_NS]),
                "queue": _duration(answered, sums[_QUEUE_NS]),
                **_compute_times(answered, compute_ns),
                # Clients of Triton read these, too; there is no cache.
                "cache_hit": _duration(0, 0),
                "cache_miss": _duration(0, 0),
            },
            "batch_stats": [
                {"batch_size": int(size), **_compute_times(counted[_BATCH_COUNT], counted[_BATCH_INPUT_NS:])}
                for size, counted in sorted(by_size.items(), key=lambda item: int(item[0]))
            ],
        }

    def _sums(self, kind: str) -> list[int]:
        return total(self._counters.records((kind, *self._key)).get("", []))

    def _open(self) -> memoryview[int]:
        self._own = self._counters.record(("model", *self._key), "", _MODEL_SLOTS)
        return self._own

    def _open_batch(self, rows: int) -> memoryview[int]:
        is_bounded = len(self._batches) < _MOST_BATCH_SIZES
        size = str(rows) if is_bounded else _OTHER_SIZES
        batch = self._counters.record(("batch", *self._key), size, _BATCH_SLOTS)
        if is_bounded:
            self._batches[rows] = batch
        return batch


def _duration(count: int, ns: int) -> dict[str, int]:
    """Return the object the KServe statistics use."""
    return {"count": count, "ns": ns}


def _compute_times(count: int, ns: Sequence[int]) -> dict[str, dict[str, int]]:
    """Return the parts of so many executions: reading inputs, the model, writing outputs."""
    names = ("compute_input", "compute_infer", "compute_output")
    return {name: _duration(count, part) for name, part in zip(names, ns, strict=True)}


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
        recall = [
            CounterMetricFamily(f"graphbox_nearest_{name}", text, labels=labels)
            for name, text in (
                ("sampled_queries", "Queries that an index answered and that were ranked exactly, too"),
                ("sampled_neighbors", "Nearest nodes of these queries by exact ranking"),
                ("found_neighbors", "Nodes among them that the index found"),
            )
        ]
        for model, version, statistics in self._statistics():
            for family, count in zip(recall, statistics.recall_counts() or (), strict=False):
                family.add_metric([model, version], count)
            statistics.add_latency_to(latency, [model, version])
            for family, count in zip((rows, default_rows), statistics.lookup_counts() or (), strict=False):
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
        yield from (latency, rows, default_rows, *recall)


class _WorkerCollector(Collector):
    """Reports the gauges of the workers that run, and what the kernel accounts to their processes."""

    def __init__(self, counters: Counters) -> None:
        self._counters = counters

    def collect(self) -> Iterator[Metric]:
        running = self._counters.process_ids()
        yield GaugeMetricFamily(
            "graphbox_workers", "Worker processes that serve", self._counters.gauge_total(_SERVING)
        )
        yield GaugeMetricFamily(
            "graphbox_pending_executions",
            "Model executions queued or running",
            self._counters.gauge_total(PENDING_EXECUTIONS),
        )
        families: dict[str, Metric] = {}
        for worker, process_id in running.items():
            # Registered nowhere: its metrics have no label for the worker.
            for metric in ProcessCollector(pid=partial(str, process_id), registry=None).collect():
                family = families.setdefault(metric.name, metric)
                labelled = [
                    sample._replace(labels={**sample.labels, "worker": str(worker)})
                    for sample in metric.samples
                ]
                family.samples = labelled if family is metric else family.samples + labelled
        yield from families.values()


class _RequestCollector(Collector):
    """Counts the requests of a protocol and their durations.

    Args:
        counters: of all workers.
        protocol: ``http`` or ``grpc``.
        noun: what is counted, for the help text.
        labels: names of the labels of a count. The last is the only one of a duration, and may hold spaces.
    """

    def __init__(self, counters: Counters, protocol: str, noun: str, labels: Sequence[str]) -> None:
        self._counters = counters
        self._protocol = protocol
        self._noun = noun
        self._labels = labels
        self._lock = threading.Lock()
        self._own: dict[tuple[str, ...], tuple[memoryview[int], memoryview[int]]] = {}

    def add(self, labels: tuple[str, ...], seconds: float) -> None:
        """Count one request."""
        ns = int(seconds * 1e9)
        with self._lock:
            count, latency = self._own.get(labels) or self._open(labels)
            count[0] += 1
            latency[0] += ns
            latency[1 + bisect_left(_LATENCY_BUCKETS_NS, ns)] += 1

    def _open(self, labels: tuple[str, ...]) -> tuple[memoryview[int], memoryview[int]]:
        self._own[labels] = (
            self._counters.record((f"{self._protocol} requests",), " ".join(labels), 1),
            self._counters.record((f"{self._protocol} durations",), labels[-1], _ROUTE_SLOTS),
        )
        return self._own[labels]

    def collect(self) -> Iterator[Metric]:
        prefix = f"graphbox_{self._protocol}_request"
        counts = CounterMetricFamily(f"{prefix}s", self._noun, labels=self._labels)
        latency = HistogramMetricFamily(
            f"{prefix}_duration_seconds",
            "Time from the headers to the end of the answer",
            labels=self._labels[-1:],
        )
        for name, records in self._counters.records((f"{self._protocol} requests",)).items():
            counts.add_metric(name.split(" ", len(self._labels) - 1), total(records)[0])
        for label, records in self._counters.records((f"{self._protocol} durations",)).items():
            sum_ns, *buckets = total(records)
            _add_latency(latency, [label], buckets, sum_ns)
        yield counts
        yield latency


class Telemetry:
    """The metrics of one server over all its workers, in a registry of its own.

    Attributes:
        registry: the registry.
    """

    def __init__(self, counters: Counters) -> None:
        self.registry = CollectorRegistry()
        self._serving = counters.gauge(_SERVING)
        self._requests = _RequestCollector(counters, "http", "HTTP requests", ("method", "status", "route"))
        self._calls = _RequestCollector(counters, "grpc", "gRPC calls", ("status", "method"))
        self.registry.register(self._requests)
        self.registry.register(self._calls)
        self.registry.register(_WorkerCollector(counters))
        self.registry.register(RowsCollector(counters))

    def mark_serving(self) -> None:
        """Count this worker among those that serve; it is no longer once its process has ended."""
        self._serving[0] = 1

    def request(self, method: str, route: str, status: int, seconds: float) -> None:
        """Count an HTTP request; status 0: the client left before the answer."""
        # Clients choose the method; the number of different labels must not be theirs to choose.
        known = method if method in _METHODS else "other"
        self._requests.add((known, str(status or "disconnected"), route), seconds)

    def call(self, method: str, status: str, seconds: float) -> None:
        """Count a call of gRPC by the path of its method and the name of its status."""
        self._calls.add((status, method), seconds)

    def watch(self, statistics: Callable[[], Iterable[tuple[str, str, ModelStatistics]]]) -> None:
        """Report these model statistics too."""
        self.registry.register(_ModelCollector(statistics))

    def text(self) -> tuple[bytes, str]:
        """Return the metrics as text and its content type."""
        return generate_latest(self.registry), CONTENT_TYPE_LATEST

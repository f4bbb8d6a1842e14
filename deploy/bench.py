"""Latency and throughput of calls of deployed models, measured so that two of them can be compared fairly.

A call is a part of what a client waits for: `graphbox.server.bench` measures whole requests.

Each batch size is measured in several repeats; with several models the repeats alternate between them, so
that a disturbance of the machine hits all. Reported is the median over the repeats.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from graphbox.deploy.model import DeployedModel, Operation
from graphbox.errors import UsageError

__all__ = [
    "MIN_REPEATS",
    "QUERY_POOL",
    "WARM_UP_CALLS",
    "BatchLatency",
    "BenchReport",
    "bench",
    "bench_together",
    "check_bench",
    "summarize",
]

QUERY_POOL = 64
WARM_UP_CALLS = 3
MIN_REPEATS = 5


@dataclass(frozen=True)
class BatchLatency:
    """One batch size. Latencies are of one call; each figure is the median over the repeats.

    Attributes:
        batch: queries of one call.
        p50_ms: median latency; ``p50_min_ms`` and ``p50_max_ms`` are its extremes over the repeats.
        p99_ms: 99th percentile of the latency.
        rows_per_s: queries answered in a second by one caller.
        calls: timed calls of all repeats together.
        repeats: how many.
    """

    batch: int
    p50_ms: float
    p50_min_ms: float
    p50_max_ms: float
    p99_ms: float
    rows_per_s: float
    calls: int
    repeats: int


@dataclass(frozen=True)
class BenchReport:
    """Measurements of one model, and the program that ran it."""

    operation: Operation
    effective: Mapping[str, Any]
    batches: tuple[BatchLatency, ...]

    def as_dict(self) -> dict[str, Any]:
        """Return the report as plain values."""
        return asdict(self)


def bench(
    model: DeployedModel,
    batch_sizes: Sequence[int] = (1, 32, 256),
    seconds: float = 1.0,
    repeats: int = MIN_REPEATS,
    operation: Operation | None = None,
    k: int = 10,
    seed: int = 0,
) -> BenchReport:
    """Measure one model; see `bench_together`."""
    return bench_together({"model": model}, batch_sizes, seconds, repeats, operation, k, seed)["model"]


def bench_together(
    models: Mapping[str, DeployedModel],
    batch_sizes: Sequence[int] = (1, 32, 256),
    seconds: float = 1.0,
    repeats: int = MIN_REPEATS,
    operation: Operation | None = None,
    k: int = 10,
    seed: int = 0,
) -> dict[str, BenchReport]:
    """Measure several models on the same queries, their repeats alternating.

    Args:
        models: by any name; all have to know the same queries.
        batch_sizes: queries of one call.
        seconds: of timed calls for each model and batch size, over all repeats; at least one call each.
        repeats: at least 5.
        operation: one that all models offer; what the first is for by default: ``encode`` from node indices,
            ``neighbors`` with the ``k`` nearest of each, ``predict`` from rows, ``answer`` with the ``k``
            best answers of each, or ``program``, the ONNX part alone on feeds made before.
        k: neighbours or answers of each query.
        seed: of the queries.

    Returns:
        The report of each model.

    Raises:
        UsageError: when there is nothing to measure.
    """
    check_bench(batch_sizes, repeats, seconds)
    chosen = {name: model.check_operation(operation) for name, model in models.items()}
    batches: dict[str, list[BatchLatency]] = {name: [] for name in models}
    for batch in batch_sizes:
        calls = {name: _calls(model, chosen[name], batch, k, seed) for name, model in models.items()}
        for call in calls.values():
            for number in range(WARM_UP_CALLS):
                call(number)
        samples: dict[str, list[npt.NDArray[np.int64]]] = {name: [] for name in models}
        for _ in range(repeats):
            for name, call in calls.items():
                samples[name].append(_timed(call, seconds / repeats))
        for name, repeated in samples.items():
            batches[name].append(summarize(batch, repeated))
    return {
        name: BenchReport(chosen[name], dict(model.effective), tuple(batches[name]))
        for name, model in models.items()
    }


def check_bench(batch_sizes: Sequence[int], repeats: int, seconds: float) -> None:
    """Reject settings that measure nothing.

    Raises:
        UsageError: a batch size or the time is not positive, or there are too few repeats.
    """
    if not batch_sizes or min(batch_sizes) < 1 or repeats < MIN_REPEATS or seconds <= 0:
        raise UsageError(
            f"expected batch sizes of at least 1, at least {MIN_REPEATS} repeats and a positive time, "
            f"received {list(batch_sizes)}, {repeats} and {seconds}"
        )


def _calls(
    model: DeployedModel, operation: Operation, batch: int, k: int, seed: int
) -> Callable[[int], object]:
    """Return a function that answers the i-th of a fixed pool of queries."""
    count = model.num_queries
    if not count:
        raise UsageError("expected a model with at least one query to measure it, received none")
    return model.calls(operation, np.random.default_rng(seed).integers(0, count, (QUERY_POOL, batch)), k)


def _timed(call: Callable[[int], object], seconds: float) -> npt.NDArray[np.int64]:
    """Return the duration of each call in nanoseconds, for as many calls as fit into the time."""
    durations: list[int] = []
    stop = time.perf_counter_ns() + int(seconds * 1e9)
    start = time.perf_counter_ns()
    while not durations or start < stop:
        call(len(durations))
        end = time.perf_counter_ns()
        durations.append(end - start)
        start = end
    return np.array(durations)


def summarize(batch: int, repeats: Sequence[npt.NDArray[np.int64]]) -> BatchLatency:
    """Return the figures of the durations in nanoseconds of each repeat."""
    median = [float(np.median(durations)) / 1e6 for durations in repeats]
    tail = [float(np.percentile(durations, 99)) / 1e6 for durations in repeats]
    rate = [batch * len(durations) / (float(durations.sum()) / 1e9) for durations in repeats]
    return BatchLatency(
        batch=batch,
        p50_ms=float(np.median(median)),
        p50_min_ms=min(median),
        p50_max_ms=max(median),
        p99_ms=float(np.median(tail)),
        rows_per_s=float(np.median(rate)),
        calls=sum(len(durations) for durations in repeats),
        repeats=len(repeats),
    )

"""Frozen records of a workspace: graphs, runs and models."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any, Literal

RunState = Literal["created", "running", "finished", "failed", "interrupted"]
Operation = Literal["neighbors", "answers", "infer", "program", "model"]
"""Measured operation. Requests to a server over loopback: ``neighbors`` and ``answers`` (REST, for one
id), ``infer`` (KServe v2). Parts of a request: ``program``, the ONNX part on prepared feeds; ``model``, the
model's call in Python, as earlier releases measured it."""
StageState = Literal["pending", "running", "finished", "failed", "interrupted", "skipped"]


@dataclass(frozen=True)
class EdgeTypeCount:
    """An edge type and how many edges it has."""

    source: str
    relation: str
    target: str
    edges: int


@dataclass(frozen=True)
class GraphRecord:
    """An imported graph.

    Attributes:
        fingerprint: SHA-256 of the import's settings and source files; equal means nothing changed.
        node_types: number of nodes by node type.
    """

    name: str
    path: Path
    size_bytes: int
    created_at: datetime
    node_types: Mapping[str, int]
    edge_types: tuple[EdgeTypeCount, ...]
    fingerprint: str
    run_id: str | None


@dataclass(frozen=True)
class StageRecord:
    """One stage of a run.

    Attributes:
        seconds: wall-clock time, summed over resumptions; None before it started.
        peak_bytes: largest resident memory of the process during the stage.
        outputs: what the stage recorded for the ones after it.
    """

    name: str
    state: StageState
    seconds: float | None = None
    peak_bytes: int | None = None
    outputs: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class RunRecord:
    """A run of a run file.

    Attributes:
        state: ``interrupted`` also when the process that ran it is gone without a word.
        stage: the running stage, or the last one that started.
        heartbeat: when the running process was last known to be alive.
        error: ``code``, ``message``, ``where`` and ``hint`` of what ended it, or None.
        config: the resolved run file (YAML).
        config_digest: SHA-256 of everything in it that changes results.
        report: ``metrics``, ``baselines``, ``export``, ``compress`` and ``bench``, as far as they exist.
    """

    id: str
    name: str
    state: RunState
    stage: str | None
    stages: tuple[StageRecord, ...]
    created_at: datetime
    updated_at: datetime
    heartbeat: datetime | None
    error: Mapping[str, Any] | None
    path: Path
    size_bytes: int
    config: str
    config_digest: str
    report: Mapping[str, Any]

    @property
    def seconds(self) -> float:
        """Wall-clock time of all stages together."""
        return sum(stage.seconds or 0.0 for stage in self.stages)


@dataclass(frozen=True)
class BenchRecord:
    """Measured latency and throughput of one operation of a model version at one batch size.

    Attributes:
        target: the adapter that ran it.
        batch: rows of one call.
        operation: see `Operation`.
    """

    target: str
    batch: int
    threads: int
    p50_ms: float
    p99_ms: float
    rows_per_s: float
    measured_at: datetime
    operation: Operation

    @property
    def is_request(self) -> bool:
        """Whether whole requests were measured, from the body received to the body of the answer."""
        return self.operation in ("neighbors", "answers", "infer")


@dataclass(frozen=True)
class ModelRecord:
    """A version of a model: an artifact in ``models/<name>/<version>/``.

    Attributes:
        kind: ``encoder`` (rows and an ONNX model) or ``embedding`` (rows only).
        precision: of the dense part and the rows, for example ``float32`` or ``int8``.
        parent: version it was made from by compression, or None.
        active: whether the name alone means this version.
        deciding_metric: the metric of its task that says which of two versions is better; None: not known.
        measured_on: digest of what ``metrics`` were measured on: version of the graph, task and test part.
            Metrics of two versions can be compared where it is the same. None: not known.
    """

    name: str
    version: int
    kind: str
    task: str | None
    path: Path
    size_bytes: int
    precision: str
    parent: int | None
    run_id: str | None
    metrics: Mapping[str, Mapping[str, float]]
    bench: tuple[BenchRecord, ...]
    created_at: datetime
    active: bool
    deciding_metric: str | None = None
    measured_on: str | None = None

    @property
    def request(self) -> BenchRecord | None:
        """The measurement of its smallest request, end to end: what `latency` means of a model."""
        requests = (bench for bench in self.bench if bench.is_request)
        return min(requests, key=lambda bench: (bench.operation == "infer", bench.batch), default=None)

    @property
    def quality(self) -> float | None:
        """The value of the deciding metric."""
        if self.task is None or self.deciding_metric is None:
            return None
        return self.metrics.get(self.task, {}).get(self.deciding_metric)


@dataclass(frozen=True)
class EventRecord:
    """Something that happened to a graph, run or model."""

    time: datetime
    kind: Literal["graph", "run", "model"]
    name: str
    event: str
    detail: Mapping[str, Any]

"""The JSON of the REST interface: one model for each shape, from which the OpenAPI document is made.

Questions to models and their answers are in `graphbox.server.question_schema`.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from graphbox.workspace import Operation
from graphbox.workspace.traffic import DEFAULT_TOLERANCE

__all__ = [
    "Answer",
    "AuditEntry",
    "BenchPoint",
    "CanaryRequest",
    "CanaryState",
    "DeploymentTarget",
    "EdgeTypeCount",
    "EventEnd",
    "GraphSummary",
    "Health",
    "MetricPoint",
    "MetricSeries",
    "ModelSummary",
    "ModelVersion",
    "NodeTypeCount",
    "Overview",
    "Problem",
    "Promotion",
    "Readiness",
    "RunDetail",
    "RunError",
    "RunMetrics",
    "RunReport",
    "RunState",
    "RunSummary",
    "ShadowOutputState",
    "ShadowRequest",
    "ShadowState",
    "StageState",
    "StageSummary",
    "Traffic",
]

RunState = Literal["created", "running", "finished", "failed", "interrupted"]
StageState = Literal["pending", "running", "finished", "failed", "interrupted", "skipped"]
TaskMetrics = dict[str, dict[str, float | None]]


class Answer(BaseModel):
    """Base of every answer: fields are fixed, and all of them are always present."""

    model_config = ConfigDict(extra="forbid", json_schema_serialization_defaults_required=True)


class Problem(Answer):
    """An error: what was expected and received, where, and what to do next."""

    code: str = Field(description="stable machine-readable name of the kind of error")
    message: str = Field(description="what was expected and what was received")
    where: str | None = Field(default=None, description="the parameter, file or id the message is about")
    hint: str | None = Field(default=None, description="what to do next")
    choices: list[str] = Field(
        default=[], description="code `ambiguous_id`: the node types that have the id; empty otherwise"
    )
    request_id: str = Field(description="also in the X-Request-ID header and in the server's log")


class Health(Answer):
    """Whether the process is up."""

    status: Literal["ok"] = "ok"
    version: str


class Readiness(Answer):
    """Whether the server should receive requests."""

    ready: bool = Field(description="models are preloaded, and each of them has a version that answers")
    available: list[str] = Field(description="models that answer")
    loading: list[str] = Field(description="models that are about to be opened")
    failed: dict[str, str] = Field(description="reason by model name, of the models that cannot answer")


class Overview(Answer):
    """Counts of what the workspace holds."""

    version: str = Field(description="version of graphbox")
    workspace_name: str | None = Field(description="name of the workspace folder; null when there is none")
    graphs: int
    runs: int
    models: int
    running: int = Field(description="runs in state `running`")
    can_promote: bool = Field(
        description="this client can promote versions: the server has a workspace, the token the scope manage"
    )
    follows: bool = Field(
        description="the server switches to versions that become active; false: only at SIGHUP"
    )


class AuditEntry(Answer):
    """A request that changed something, or tried to."""

    id: int = Field(description="later entries have higher numbers")
    time: datetime
    client: str = Field(description="name of the token")
    address: str = Field(description="of the client")
    action: str
    model: str | None
    version: int | None
    detail: dict[str, Any] = Field(description="further values of the request")
    request_id: str
    result: Literal["begun", "ok", "refused", "failed"] = Field(
        description="`begun`: the server ended before it noted the result"
    )
    message: str | None = Field(description="why it was refused or failed")


class NodeTypeCount(Answer):
    """A node type and its number of nodes."""

    name: str
    nodes: int


class EdgeTypeCount(Answer):
    """An edge type and its number of edges."""

    source: str
    relation: str
    target: str
    edges: int


class GraphSummary(Answer):
    """A graph of the workspace."""

    name: str
    size_bytes: int
    created_at: datetime
    node_types: list[NodeTypeCount]
    edge_types: list[EdgeTypeCount]


class RunSummary(Answer):
    """A run of a pipeline."""

    id: str
    name: str
    state: RunState
    stage: str | None = Field(description="the stage that runs, or ran last")
    created_at: datetime
    updated_at: datetime
    seconds: float = Field(description="time spent in stages")
    size_bytes: int


class StageSummary(Answer):
    """One stage of a run."""

    name: str
    state: StageState
    seconds: float | None
    peak_bytes: int | None = Field(description="largest memory use of the process during the stage")


class RunReport(Answer):
    """Measurements of a run. ``metrics`` and ``baselines``: task, then model, then metric.

    ``training``: by model; its ``chosen`` has the settings that the data chose, and each trial.
    """

    training: dict[str, Any] = {}
    metrics: dict[str, TaskMetrics] = {}
    baselines: dict[str, TaskMetrics] = {}
    baselines_left_out: dict[str, dict[str, str]] = Field(
        default={}, description="task, then baseline: why it did not run"
    )
    notes: dict[str, dict[str, str]] = Field(
        default={}, description="task, then model: what its validation and test figures mean"
    )
    export: dict[str, Any] = {}
    compress: dict[str, Any] = {}
    bench: dict[str, Any] = {}


class RunError(Answer):
    """Error that ended a run."""

    code: str
    message: str
    where: str | None = None
    hint: str | None = None


class RunDetail(RunSummary):
    """A run with its stages, its resolved run file and its report."""

    stages: list[StageSummary]
    config: str = Field(description="the resolved run file, YAML")
    report: RunReport
    error: RunError | None
    resumable: bool = Field(description="`graphbox runs resume` can continue it as it is")
    removable: bool = Field(description="`graphbox runs rm` can remove it: no process runs it")


class MetricSeries(Answer):
    """One measured quantity over the steps of one phase of a model's training."""

    model: str
    phase: str | None = Field(
        default=None, description="phase of the training, such as `pretrain`; null: the training itself"
    )
    key: str
    steps: list[int]
    values: list[float]
    non_finite: int = Field(default=0, description="points left out because they were NaN or infinite")


class RunMetrics(Answer):
    """The measured quantities of a run."""

    series: list[MetricSeries]
    last_line: int = Field(
        description="lines of metrics.jsonl read; `after` of the event stream continues from here"
    )
    damaged_lines: int = Field(default=0, description="lines that are no metric point and were left out")


class MetricPoint(Answer):
    """Data of the event ``point``: what one line of metrics.jsonl says."""

    model: str
    phase: str | None = Field(description="as in MetricSeries")
    step: int
    epoch: float | None
    time_s: float | None
    values: dict[str, float | None]


class EventEnd(Answer):
    """Data of the event ``end``, the last one of a stream."""

    state: RunState


class BenchPoint(Answer):
    """Latency and throughput of a model at one batch size."""

    operation: Operation = Field(
        description="what was measured: the requests `neighbors`, `answers` and `infer`, end to end but for "
        "the network; `program`, the ONNX part alone; `model`, a call in Python, of earlier releases"
    )
    target: str = Field(description="the adapter that ran it")
    threads: int
    batch: int
    p50_ms: float
    p99_ms: float
    rows_per_s: float


class ComparedFigure(Answer):
    """A figure of a version and of the active version; null where it was not measured."""

    version: float | None
    active: float | None


class VersionComparison(Answer):
    """A version beside the active version of its model."""

    active: int = Field(description="number of the active version")
    metric: str | None = Field(description="the metric that decides; higher is better")
    quality: ComparedFigure = Field(description="the metric, on the test part")
    not_comparable: str | None = Field(description="why the metrics cannot be compared; null: they can")
    size_bytes: ComparedFigure
    request_ms: ComparedFigure = Field(description="median latency of the same request, end to end")
    request: str | None = Field(description="what was asked; null where they were not asked the same")


class Running(Answer):
    """The program that runs an open model version, as it reports itself."""

    adapter: str
    device: str
    provider: str = Field(description="the part of the runtime that runs the model")
    precision: str = Field(description="of the matrix products")
    threads: int = Field(description="of one call; 0: not reported")
    runtime: str = Field(description="name and version")
    measured_ms: dict[str, list[float]] = Field(
        default_factory=dict,
        description="by target, median milliseconds of a call with 1 and with 32 rows, where `auto` had a "
        "choice",
    )
    nearest: dict[str, str] = Field(
        default_factory=dict,
        description="by node type of queries, what ranks nearest nodes: `exact`, `index`, or `building` "
        "while exact ranking answers until the index is ready",
    )


class ModelVersion(Answer):
    """One version of a model."""

    version: int
    kind: str
    task: str | None
    precision: str
    size_bytes: int
    parent: int | None = Field(description="the version this one was made from by compression")
    run_id: str | None
    created_at: datetime
    active: bool = Field(description="the version the workspace has promoted")
    metrics: TaskMetrics = Field(description="task, then metric")
    deciding_metric: str | None = Field(description="the metric of its task that decides; null: not known")
    comparison: VersionComparison | None = Field(
        description="the version beside the active one; null for that one itself"
    )
    bench: list[BenchPoint]
    served: bool = Field(description="this version answers requests that name no version")
    promotable: bool = Field(description="it belongs to the workspace, which can promote it")
    failure: str | None = Field(description="why this version cannot be served; null if nothing failed")
    running: Running | None = Field(description="the program that runs it; null where it is not open")


class CanaryState(Answer):
    """The version that answers a share of the requests that name no version."""

    version: int
    percent: float = Field(description="share of the requests")
    available: bool = Field(description="it is open; else the active version gets its requests")
    unavailable_requests: int = Field(
        description="requests of its share that the active version answered since the server started"
    )


class ShadowOutputState(Answer):
    """Differences of one output of the shadow; null where nothing was compared."""

    name: str = Field(description="of the output, after the signature's where that is not the whole model")
    rows: int = Field(description="rows compared")
    different_share: float | None = Field(description="share of the rows that differ beyond the tolerance")
    mean_difference: float | None = Field(description="mean absolute difference of numbers")
    largest_difference: float | None = Field(description="largest absolute difference of numbers")
    overlap: float | None = Field(
        description="share of the ids in the lists of the active version that the shadow lists, too"
    )


class ShadowState(Answer):
    """The version on which answered requests are repeated, and how its outputs differ, over all servers."""

    version: int
    percent: float = Field(description="share of the requests that are repeated")
    tolerance: float = Field(description="largest absolute difference of equal numbers")
    available: bool = Field(description="it is open; else its requests are dropped")
    calls: int = Field(description="requests compared")
    failed: int = Field(description="requests that it could not answer")
    dropped: int = Field(description="requests not repeated, as the server was busy or it was not open")
    active_ms: float | None = Field(description="mean execution time of compared requests, active version")
    shadow_ms: float | None = Field(description="mean execution time of compared requests, shadow")
    error: str | None = Field(description="why it could not answer the last of the failed requests")
    outputs: list[ShadowOutputState]


class Traffic(Answer):
    """Versions of a model that get a share of its requests besides the active one."""

    canary: CanaryState | None = Field(description="null: there is none")
    shadow: ShadowState | None = Field(description="null: there is none")


class ModelSummary(Answer):
    """A model with its versions, newest first."""

    name: str
    versions: list[ModelVersion]
    canary: CanaryState | None = Field(default=None, description="null: there is none")
    shadow: ShadowState | None = Field(default=None, description="null: there is none")


class Promotion(BaseModel):
    """The version to promote."""

    model_config = ConfigDict(extra="forbid")

    version: int = Field(ge=1, description="version of the model")


class CanaryRequest(BaseModel):
    """The version to answer a share of the requests."""

    model_config = ConfigDict(extra="forbid")

    version: int = Field(ge=1, description="version of the model, not the active one")
    percent: float = Field(ge=0, le=100, description="share of the requests; 0 ends the canary")


class ShadowRequest(BaseModel):
    """The version to repeat answered requests on."""

    model_config = ConfigDict(extra="forbid")

    version: int = Field(ge=1, description="version of the model, not the active one")
    percent: float = Field(default=100, ge=0, le=100, description="share of the requests; 0 ends the shadow")
    tolerance: float = Field(
        default=DEFAULT_TOLERANCE, ge=0, description="largest absolute difference of equal numbers"
    )


class DeploymentTarget(Answer):
    """A device that an adapter can use, or the reason why it cannot."""

    adapter: str
    distribution: str = Field(description="the package the adapter comes from, with its version")
    device: str | None
    kind: Literal["cpu", "gpu", "npu", "other"] | None
    description: str | None = Field(description="what the device is called")
    available: bool
    reason: str | None = Field(description="why it is not available")
    details: dict[str, str] = {}

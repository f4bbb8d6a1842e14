"""The JSON of searches for compressed versions; the rest is in `graphbox.server.schema`."""

from __future__ import annotations

import math
from datetime import datetime
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, ConfigDict, Field

from graphbox.server.schema import Answer

__all__ = [
    "Compression",
    "CompressionBounds",
    "CompressionDrift",
    "CompressionLatency",
    "CompressionPoint",
    "CompressionRecipe",
    "CompressionSummary",
    "CompressionTrial",
    "UnfinishedCompression",
]


def _finite(value: Any) -> Any:
    return None if isinstance(value, float) and not math.isfinite(value) else value


Figure = Annotated[float | None, BeforeValidator(_finite)]
"""A measured figure; null where it is no number."""


class _Kept(Answer):
    """A part of a report, which a later release may have written: what it adds is left out."""

    model_config = ConfigDict(extra="ignore")


class CompressionRecipe(_Kept):
    """Methods for the parts of one model."""

    dense: str = Field(description="method of the ONNX part; `float32`: it stays as it is")
    tables: dict[str, str] = Field(description="codec of each table; those left out stay as they are")
    float_layers: list[str] = Field(description="layers of the ONNX part that stay float32")
    kept_neurons: float = Field(description="share of the hidden neurons that are kept")
    by_layer: bool = Field(default=False, description="whether hidden layers differ in the share they keep")
    max_neighbors: int | None = Field(
        default=None, description="most neighbours that are kept of a node in a relation; null: all of them"
    )
    tuned: bool = Field(default=False, description="whether the ONNX part is fine-tuned")
    unchanged: list[str] = Field(default=[], description="tables that stay as they are")


class CompressionLatency(_Kept):
    """Latency of one call in a process, measured in turns with the original."""

    p50_ms: float
    p50_min_ms: float = Field(description="smallest median of a repeat")
    p50_max_ms: float = Field(description="largest median of a repeat")
    p99_ms: float
    original_p50_ms: float = Field(description="of the original, in the same turns")
    original_p99_ms: float = Field(description="of the original, in the same turns")


class CompressionTrial(_Kept):
    """One recipe, tried."""

    key: str = Field(description="digest of the recipe")
    name: str = Field(description="the recipe in words")
    recipe: CompressionRecipe
    source: str = Field(description="what proposed it: `ladder`, `budget`, `tuning` or `sampler`")
    state: Literal["measured", "refused"]
    reason: str | None = Field(description="why it was refused")
    size_bytes: int = Field(description="0 where it was refused")
    parts_bytes: dict[str, int]
    metrics: dict[str, Figure] = Field(description="on the validation part")
    latency: CompressionLatency | None
    seconds: float = Field(description="that the trial took")
    exceeds: list[str] = Field(default=[], description="limits that it exceeds, as options of the command")
    standard_error: Figure = Field(
        default=None, description="the largest that the deciding metric can have; null: not known"
    )


class CompressionPoint(CompressionTrial):
    """A model that none beats in size, latency and quality, within the limits."""

    version: int | None = Field(description="the version of the model that it became")


class CompressionBounds(_Kept):
    """Limits as numbers; null: there is none."""

    size_bytes: int | None = Field(default=None, description="largest size of a version")
    p50_ms: float | None = Field(default=None, description="largest median latency")
    p50_ratio: float | None = Field(
        default=None, description="the same, relative to that of the original in the same turns"
    )
    p99_ms: float | None = Field(default=None, description="largest 99th percentile of the latency")
    p99_ratio: float | None = Field(
        default=None, description="the same, relative to that of the original in the same turns"
    )
    metric: float | None = Field(default=None, description="least value of the deciding metric")


class CompressionDrift(_Kept):
    """The deciding metric of one group of targets, by popularity."""

    group: str = Field(description="links in training, e.g. `in_degree_5_to_50`")
    positives: int = Field(description="links to find in the group")
    original: Figure = Field(description="metric of the original")
    chosen: Figure = Field(description="metric of the chosen version")


class UnfinishedCompression(_Kept):
    """A search that has not finished since it was started or continued."""

    trials: int = Field(description="tried so far, those of earlier searches included")
    limits: list[str] = Field(description="as options of the command")
    command: str = Field(description="continues it")
    failure: str | None = Field(description="why it ended; null: it runs or was killed")


class CompressionSummary(Answer):
    """A search for compressed versions of a model."""

    id: str = Field(description="`version`-`key`")
    version: int = Field(description="the version that is compressed")
    key: str = Field(description="stands for what the figures depend on")
    state: Literal["finished", "unfinished", "damaged"] = Field(
        description="`unfinished` also where a search that had finished was continued; `damaged`: its report"
        " cannot be read"
    )
    running: bool = Field(description="a process searches for compressed versions of this version")
    updated_at: datetime
    trials: int = Field(description="models that were tried, the original among them")
    chosen_version: int | None = Field(description="the version that was chosen; null: none yet")


class Compression(CompressionSummary):
    """A search with its report. Where it was continued and has not finished, the report is that of before."""

    metric: str = Field(description="that decides, on the validation part; higher is better")
    limits: list[str] = Field(description="as options of the command")
    bounds: CompressionBounds
    original: CompressionTrial
    tried: list[CompressionTrial] = Field(description="all trials of the report, in their order")
    points: list[CompressionPoint] = Field(description="smallest first; empty where nothing was found yet")
    chosen: str | None = Field(description="`key` of the chosen point; null: none yet")
    metrics_test: dict[str, Figure] = Field(description="of the chosen version on the test part")
    drift: list[CompressionDrift] = Field(
        default=[],
        description="on the validation part, in the order of the report; empty where the task does not"
        " measure its metric by popularity, or nothing was found yet",
    )
    rejected: list[CompressionTrial] = Field(
        description="within the limits at first, not when they were measured again"
    )
    layer_errors: dict[str, Figure] = Field(
        description="relative error of the output where one layer alone is quantized"
    )
    table_errors: dict[str, dict[str, Figure]] = Field(description="relative error by table and codec")
    command: str = Field(description="repeats the search")
    environment: str = Field(description="target, device, runtime, threads and batch, in words")
    unfinished: UnfinishedCompression | None = Field(description="null: the search has finished")

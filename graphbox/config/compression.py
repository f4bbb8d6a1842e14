"""Section `compress` of the run file: methods, limits and the search for the models within them."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import Annotated, Any, Final, Literal, TypeAlias

from pydantic import AfterValidator, Discriminator, Field, Tag
from pydantic_core import PydanticCustomError

from graphbox.config.byte_size import ByteSize
from graphbox.config.section import PositiveFloat, PositiveInt, Section
from graphbox.errors import UsageError

_TIME = re.compile(r"\s*([0-9]+(?:\.[0-9]+)?)\s*(us|ms|s)\s*")
_MILLISECONDS: Final = {"us": 1e-3, "ms": 1.0, "s": 1e3}
_PERCENT = re.compile(r"\s*([0-9]+(?:\.[0-9]+)?)\s*%\s*")


@dataclass(frozen=True)
class MaxDrop:
    """Largest allowed drop of a metric.

    Attributes:
        value: of the metric itself, or a fraction of what the original reaches.
        relative: whether it is a fraction.
    """

    value: float
    relative: bool = False

    def floor(self, original: float) -> float:
        """Return the least allowed value of the metric, given that of the original."""
        return original - self.value * (abs(original) if self.relative else 1.0)

    def __str__(self) -> str:
        return f"{100 * self.value:g}%" if self.relative else f"{self.value:g}"


def parse_max_drop(given: float | str) -> MaxDrop:
    """Return a drop from ``0.005`` (of the metric itself) or ``0.5%`` (of what the original reaches).

    Raises:
        UsageError: it is neither, or not between 0 and 1.
    """
    percent = _PERCENT.fullmatch(str(given))
    try:
        drop = MaxDrop(float(given)) if percent is None else MaxDrop(float(percent[1]) / 100, relative=True)
    except ValueError:
        drop = MaxDrop(-1.0)
    if isinstance(given, bool) or not 0 <= drop.value <= 1:
        raise UsageError(
            f"expected a drop like 0.005 or 0.5%, between 0 and 1, received `{given}`", where="--max-drop"
        )
    return drop


@dataclass(frozen=True)
class LatencyLimit:
    """Largest allowed percentile of the latency of a call.

    Attributes:
        value: in milliseconds, or a fraction of the original's, measured in the same turns.
        relative: whether it is a fraction.
    """

    value: float
    relative: bool = False

    def __str__(self) -> str:
        return f"{100 * self.value:g}%" if self.relative else f"{self.value:g}ms"


def parse_latency_limit(given: float | str, option: str) -> LatencyLimit:
    """Return a limit from ``3ms``, ``250us``, a number of milliseconds, or ``100%`` of the original's.

    Args:
        given: the limit.
        option: of the command line, for errors.

    Raises:
        UsageError: a text without a unit, or not positive.
    """
    limit = LatencyLimit(-1.0)
    if isinstance(given, str):
        if percent := _PERCENT.fullmatch(given):
            limit = LatencyLimit(float(percent[1]) / 100, relative=True)
        elif time := _TIME.fullmatch(given):
            limit = LatencyLimit(float(time[1]) * _MILLISECONDS[time[2]])
    elif not isinstance(given, bool):
        limit = LatencyLimit(float(given))
    if not 0 < limit.value < math.inf:
        raise UsageError(
            f"expected a time like 3ms or 250us, or like 100% of the original's, received `{given}`",
            where=option,
        )
    return limit


def _check_latency_limit(given: Any) -> Any:
    try:
        limit = parse_latency_limit(given, "")
    except UsageError:
        limit = None
    if limit is None or (isinstance(given, str) and not limit.relative):
        raise PydanticCustomError(
            "latency_limit", "expected milliseconds like 3, or like 100% of the original's"
        )
    return given


def _check_max_drop(given: Any) -> Any:
    try:
        parse_max_drop(given)
    except UsageError:
        raise PydanticCustomError("max_drop", "expected a drop like 0.005 or 0.5%, between 0 and 1") from None
    return given


RowPrecision: TypeAlias = Literal[
    "float32",
    "float16",
    "int8",
    "int4_clustered",
    "int4",
    "int4_int3_tiers",
    "int3_clustered",
    "int3",
    "int3_int2_tiers",
    "int2_clustered",
    "int2",
    "residual16",
    "int4_pruned",
    "residual8",
]
"""Precision of embedding rows."""

OTHER_TABLES: Final = "*"
"""Stands for the tables that a mapping does not name."""

_MaxLatency = Annotated[float | str, AfterValidator(_check_latency_limit)]


def _form_of_tables(given: Any) -> str:
    return "by table" if isinstance(given, dict) else "for all"


TablePrecisions = Annotated[
    Annotated[RowPrecision, Tag("for all")] | Annotated[dict[str, RowPrecision], Tag("by table")],
    Discriminator(_form_of_tables),
]
"""One precision for the rows of all tables, or that of each named one."""


def precisions_by_table(given: RowPrecision | dict[str, RowPrecision]) -> dict[str, RowPrecision]:
    """Return precisions by table; that of the tables that are not named is the one of `OTHER_TABLES`."""
    return given if isinstance(given, dict) else {OTHER_TABLES: given}


class SearchConfig(Section):
    """Limits on a compressed model, and the number of models that are tried."""

    max_size: ByteSize | None = None
    """Largest size of the model version in bytes."""
    max_p50_ms: _MaxLatency | None = None
    """Largest median latency of one call on `bench.target`, in milliseconds, or relative like `100%` to that
    of the original in the same turns, above which half a step of 5 % is noise."""
    max_p99_ms: _MaxLatency | None = None
    """Largest 99th percentile of the latency, likewise."""
    min: dict[str, float] = Field(default_factory=dict)
    """Least values of metrics on the validation part, e.g. `recall@20: 0.40`."""
    trials: PositiveInt = 20
    """Models that are tried at most."""
    minutes: PositiveFloat | None = None
    """Time after which no trial is begun; without it there is no bound."""
    batch: PositiveInt = 1
    """Queries of one call whose latency is measured."""
    seed: Annotated[int, Field(ge=0)] = 0
    """Seed of the proposals."""


class CompressConfig(Section):
    """Compression of an artifact, and limits on its loss of quality."""

    dense: Literal["auto", "float32", "float16", "int8", "int8_static", "int8_weights", "int4_weights"] = (
        "auto"
    )
    """Precision of the ONNX model. `auto`: the fastest that the target of `bench` runs. `int8`: activations
    are quantized row by row at run time; `int8_static`: by ranges measured on queries; `int8_weights` and
    `int4_weights`: weights in blocks, fastest for single rows; `float16`: half the size, no faster."""
    tables: TablePrecisions = "int8"
    """Precision of the embedding rows: one for all tables, or by table, like `{package: int3, "*": int8}`,
    where `"*"` stands for the others; without it they stay as they are, or are searched. Integers have a
    scale and a bias for each row; int4, int3 and int2 rotate rows first. `clustered`: the centroid of a row's
    cluster is subtracted before, which makes the error smaller where rows lie in clusters. `tiers`: the same,
    with more bits for the quarter of the rows that is read most. `pruned`: of all rows but that quarter only
    the cluster is kept. `residual`: 16 or 8 bytes a row and codebooks that faiss trains (graphbox[ann]), for
    tables that are smaller so than in int2."""
    max_neighbors: PositiveInt | None = None
    """Most neighbours that an encoder keeps of a node in a relation: those whose mean is closest to that of
    all. Without it all are kept."""
    max_drop: Annotated[float | str, AfterValidator(_check_max_drop)] = 0.01
    """Largest allowed loss of the task's first metric on the validation part, absolute, or relative like
    `0.5%`; more is refused with exit code 6."""
    search: SearchConfig | None = None
    """Search for the models within limits; `dense`, `tables` (of the tables that are named) and
    `max_neighbors`, where they are given, are not searched."""

"""The report of a compression: size and quality, before and after."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from graphbox.artifact import Manifest
from graphbox.compress.dense import ConversionReport
from graphbox.compress.tables import TableError

__all__ = ["BeforeAfter", "CompressReport", "MetricDrop", "sizes_of"]


@dataclass(frozen=True)
class BeforeAfter:
    """One figure of the original and of the compressed model."""

    before: float
    after: float


@dataclass(frozen=True)
class MetricDrop:
    """The metric that decides, measured on the validation part of both models as they are served.

    Attributes:
        name: of the metric; higher is better.
        before: of the original.
        after: of the compressed model.
        drop: ``before - after``.
        max_drop: above it the model is refused.
    """

    name: str
    before: float
    after: float
    drop: float
    max_drop: float


@dataclass(frozen=True)
class CompressReport:
    """The outcome of one compression.

    Attributes:
        metric: the task's metric that decides.
        metrics_before: all metrics of the original on the validation part.
        metrics_after: those of the compressed model.
        metrics_test: those of the compressed model on the test part, measured when all was decided.
        size_bytes: of the whole folder, without its manifest.
        parts_bytes: of the dense part, the tables and the rest.
        dense: conversion of the ONNX part; None when it was left as it is, or there is none.
        tables: the error that quantization made in each table.
    """

    metric: MetricDrop
    metrics_before: Mapping[str, float]
    metrics_after: Mapping[str, float]
    metrics_test: Mapping[str, float]
    size_bytes: BeforeAfter
    parts_bytes: Mapping[str, BeforeAfter]
    dense: ConversionReport | None
    tables: Mapping[str, TableError]

    def as_dict(self) -> dict[str, Any]:
        """Return the report as plain values."""
        return asdict(self)


def sizes_of(manifest: Manifest) -> dict[str, int]:
    """Return the bytes of a model's parts: ``dense``, ``tables`` and ``other``."""
    sizes = {"dense": 0, "tables": 0, "other": 0}
    for path, record in manifest.files.items():
        is_dense = manifest.onnx is not None and path == manifest.onnx.path
        part = "dense" if is_dense else "tables" if path.startswith("tables/") else "other"
        sizes[part] += record.bytes
    return sizes

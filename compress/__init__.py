"""Smaller and faster models: quantization of the ONNX part and of embedding rows, with report and gate."""

from __future__ import annotations

if __name__ != "graphbox.compress":
    raise ImportError(
        "import this package as `graphbox.compress`, not as `compress`: two copies would not share state"
    )

from graphbox.compress.apply import Evaluate, compress
from graphbox.compress.quantize import QuantizationReport, QuantizedOnnx, quantize_onnx
from graphbox.compress.report import BeforeAfter, CompressReport, MetricDrop
from graphbox.compress.tables import (
    HalfRows,
    QuantizedRows,
    TableError,
    halve_table,
    quantize_rows,
    quantize_table,
)

__all__ = [
    "BeforeAfter",
    "CompressReport",
    "Evaluate",
    "HalfRows",
    "MetricDrop",
    "QuantizationReport",
    "QuantizedOnnx",
    "QuantizedRows",
    "TableError",
    "compress",
    "halve_table",
    "quantize_onnx",
    "quantize_rows",
    "quantize_table",
]

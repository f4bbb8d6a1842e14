"""Smaller and faster models: conversion of the ONNX part and of embedding rows, with report and gate.

The conversions of the ONNX part are in `graphbox.compress.dense`.
"""

from __future__ import annotations

if __name__ != "graphbox.compress":
    raise ImportError(
        "import this package as `graphbox.compress`, not as `compress`: two copies would not share state"
    )

from graphbox.compress.apply import Evaluate, compress
from graphbox.compress.budget import BudgetedCodecs, BudgetedTable, choose_codecs, sampled_errors
from graphbox.compress.report import BeforeAfter, CompressReport, MetricDrop
from graphbox.compress.tables import CODEC_OF_PRECISION, TableError, table_error

__all__ = [
    "CODEC_OF_PRECISION",
    "BeforeAfter",
    "BudgetedCodecs",
    "BudgetedTable",
    "CompressReport",
    "Evaluate",
    "MetricDrop",
    "TableError",
    "choose_codecs",
    "compress",
    "sampled_errors",
    "table_error",
]

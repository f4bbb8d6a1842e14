"""Importing tables into the on-disk graph format, out of core, with a report of what was skipped."""

from __future__ import annotations

from graphbox.graph.ingest.importing import import_graph
from graphbox.graph.ingest.report import DegreeReport, EdgeTypeReport, ImportReport, NodeTypeReport
from graphbox.graph.ingest.skipped import SkippedRows

__all__ = [
    "DegreeReport",
    "EdgeTypeReport",
    "ImportReport",
    "NodeTypeReport",
    "SkippedRows",
    "import_graph",
]

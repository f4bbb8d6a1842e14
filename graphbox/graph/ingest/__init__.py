"""Importing tables into the on-disk graph format, out of core, with a report of what was skipped."""

from __future__ import annotations

from graphbox.graph.ingest.importing import Progress, import_graph
from graphbox.graph.ingest.report import DegreeReport, EdgeTypeReport, ImportReport, NodeTypeReport
from graphbox.graph.ingest.rows import EdgeReader, EdgeRows, IdKinds, NodeReader, NodeRows, open_source
from graphbox.graph.ingest.skipped import SkippedRows

__all__ = [
    "DegreeReport",
    "EdgeReader",
    "EdgeRows",
    "EdgeTypeReport",
    "IdKinds",
    "ImportReport",
    "NodeReader",
    "NodeRows",
    "NodeTypeReport",
    "Progress",
    "SkippedRows",
    "import_graph",
    "open_source",
]

"""Workspaces: folders of graphs, runs and models, with a database of what exists and its history."""

from __future__ import annotations

from graphbox.workspace.chunk_log import ChunkLog, read_chunks
from graphbox.workspace.folders import folder_size, valid_name
from graphbox.workspace.graph_manifest import TABLES_DIGITS
from graphbox.workspace.graphs import IMPORTED
from graphbox.workspace.heartbeat import Heartbeat, Sign, last_sign
from graphbox.workspace.locks import writer_lock
from graphbox.workspace.records import (
    BenchRecord,
    EdgeTypeCount,
    EventRecord,
    GraphRecord,
    ModelRecord,
    RunRecord,
    StageRecord,
)
from graphbox.workspace.run_writer import RunWriter
from graphbox.workspace.workspace import Workspace

__all__ = [
    "IMPORTED",
    "TABLES_DIGITS",
    "BenchRecord",
    "ChunkLog",
    "EdgeTypeCount",
    "EventRecord",
    "GraphRecord",
    "Heartbeat",
    "ModelRecord",
    "RunRecord",
    "RunWriter",
    "Sign",
    "StageRecord",
    "Workspace",
    "folder_size",
    "last_sign",
    "read_chunks",
    "valid_name",
    "writer_lock",
]

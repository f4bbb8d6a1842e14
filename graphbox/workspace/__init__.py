"""Workspaces: folders of graphs, runs and models, with a database of what exists and its history."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from graphbox.workspace.chunk_log import ChunkLog, read_chunks
from graphbox.workspace.comparison import Comparison, Pair, compare
from graphbox.workspace.folders import folder_size, valid_name
from graphbox.workspace.graph_manifest import TABLES_DIGITS
from graphbox.workspace.heartbeat import Heartbeat, Sign, last_sign
from graphbox.workspace.locks import writer_lock
from graphbox.workspace.records import (
    BenchRecord,
    EdgeTypeCount,
    EventRecord,
    GraphRecord,
    ModelRecord,
    Operation,
    RunRecord,
    StageRecord,
)

if TYPE_CHECKING:
    from graphbox.workspace.graphs import IMPORTED as IMPORTED
    from graphbox.workspace.run_writer import RunWriter as RunWriter
    from graphbox.workspace.servers import RunningServer as RunningServer
    from graphbox.workspace.workspace import Workspace as Workspace

_MODULE_OF = {
    "IMPORTED": "graphbox.workspace.graphs",
    "RunWriter": "graphbox.workspace.run_writer",
    "RunningServer": "graphbox.workspace.servers",
    "Workspace": "graphbox.workspace.workspace",
}
"""Names that need the database: loaded on first use."""

__all__ = [
    "IMPORTED",
    "TABLES_DIGITS",
    "BenchRecord",
    "ChunkLog",
    "Comparison",
    "EdgeTypeCount",
    "EventRecord",
    "GraphRecord",
    "Heartbeat",
    "ModelRecord",
    "Operation",
    "Pair",
    "RunRecord",
    "RunWriter",
    "RunningServer",
    "Sign",
    "StageRecord",
    "Workspace",
    "compare",
    "folder_size",
    "last_sign",
    "read_chunks",
    "valid_name",
    "writer_lock",
]


def __dir__() -> list[str]:
    return __all__


def __getattr__(name: str) -> Any:
    if name in _MODULE_OF:
        return getattr(importlib.import_module(_MODULE_OF[name]), name)
    raise AttributeError(f"module 'graphbox.workspace' has no attribute {name!r}")

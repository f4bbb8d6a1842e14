"""Following a stream: which chunks have come, which tables they hold, and their way into the graph."""

from __future__ import annotations

from graphbox.pipeline.follow.arrivals import Arrival, Arrivals
from graphbox.pipeline.follow.feed import FolderFeed
from graphbox.pipeline.follow.tables import ChunkTables

__all__ = ["Arrival", "Arrivals", "ChunkTables", "FolderFeed"]

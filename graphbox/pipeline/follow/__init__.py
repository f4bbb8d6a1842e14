"""Following a stream: which chunks have come, which tables they hold, and their way into the graph."""

from __future__ import annotations

from graphbox.pipeline.follow.feed import FolderFeed

__all__ = ["FolderFeed"]

"""Compaction: a graph's base and the changes after it become a new base."""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, TypeAlias

from graphbox.graph.format import LOCK_TIMEOUT_S, FolderWriter, read_manifest
from graphbox.graph.merge import DEFAULT_MEMORY_BYTES, write_edges, write_nodes
from graphbox.graph.schema import edge_type_text
from graphbox.graph.store import Graph

__all__ = ["CompactReport", "compact", "compact_in_background", "needs_compaction"]

MAX_CHANGES = 32
"""A graph with more changes than this should be compacted ..."""
MAX_FILES = 1000
"""... or with more files, all of which are opened when the graph is; ..."""
MAX_CHANGED_SHARE = 0.25
"""... and so should one whose changes added or removed more than this share of the base's edges."""

Progress: TypeAlias = Callable[[str, int, int], None]
"""Called with what is being written, and how many of how many types are done."""


@dataclass(frozen=True)
class CompactReport:
    """What a compaction did.

    Attributes:
        path: the graph's folder.
        changes: how many changes became part of the base.
        before_bytes: bytes of all arrays before.
        after_bytes: bytes of all arrays after.
        seconds: time taken.
    """

    path: Path
    changes: int
    before_bytes: int
    after_bytes: int
    seconds: float

    def as_dict(self) -> dict[str, Any]:
        """Return plain values for ``--json``."""
        return {**asdict(self), "path": str(self.path)}


def needs_compaction(path: Path) -> bool:
    """Return whether a graph has more changes than it should be read with."""
    manifest = read_manifest(path)
    if not manifest["deltas"]:
        return False
    if len(manifest["deltas"]) > MAX_CHANGES or len(manifest["files"]) > MAX_FILES:
        return True
    base = sum(entry["num_edges"] for entry in manifest["edge_types"])
    changed = 0
    for delta in manifest["deltas"]:
        for entry in delta["edge_types"]:
            changed += entry["num_edges"]
            if "removed" in entry:
                changed += manifest["files"][entry["removed"]]["shape"][0]
    return bool(changed > MAX_CHANGED_SHARE * base)


def compact(
    path: Path,
    progress: Progress | None = None,
    *,
    memory_bytes: int = DEFAULT_MEMORY_BYTES,
    lock_timeout_s: float = LOCK_TIMEOUT_S,
) -> CompactReport:
    """Make a graph's base and the changes after it one new base.

    What was removed is gone from the disk afterwards. Node indices and stable edge ids stay; edge ids are
    positions again. Readers are not held up: those that have the graph open keep it as it was.

    Args:
        path: the graph's folder.
        progress: called before each node type and edge type.
        memory_bytes: about the most memory to take for blocks of edges and features.
        lock_timeout_s: seconds to wait for another process that writes the same graph.

    Raises:
        NotFoundError: there is no graph.
        DoesNotFitError: the disk has not enough room; old and new lie on it until the end.
        TimeLimitError: another process is writing the graph.
    """
    started = time.monotonic()
    with FolderWriter(path, lock_timeout_s, activity="compacting") as writer:
        graph = Graph.open(path)
        before_bytes = graph.size_bytes or 0
        changes = len(read_manifest(path)["deltas"])
        if not changes:
            return CompactReport(path, 0, before_bytes, before_bytes, time.monotonic() - started)
        writer.reserve(before_bytes)
        own = [edge_type for edge_type in graph.edge_types if not graph.is_reverse(edge_type)]
        total = len(graph.node_types) + len(own)
        nodes, edges = [], []
        for number, node_type in enumerate(graph.node_types):
            if progress is not None:
                progress(f"nodes {node_type}", number, total)
            nodes.append(write_nodes(writer, node_type, graph.node_table(node_type), memory_bytes))
        for number, edge_type in enumerate(own, len(nodes)):
            if progress is not None:
                progress(f"edges {edge_type_text(edge_type)}", number, total)
            edges.append(write_edges(writer, edge_type, graph.own_edges(edge_type), memory_bytes))
        for entry in (*nodes, *edges):
            # They quote rows that were skipped, and what was removed may stand in them.
            entry.get("imported", {}).pop("examples", None)
        writer.commit({"name": graph.name, "node_types": nodes, "edge_types": edges})
        after_bytes = writer.size_bytes
    return CompactReport(path, changes, before_bytes, after_bytes, time.monotonic() - started)


def compact_in_background(
    path: Path, *, memory_bytes: int = DEFAULT_MEMORY_BYTES, lock_timeout_s: float = LOCK_TIMEOUT_S
) -> Future[CompactReport]:
    """Compact a graph in another thread of this process; see :func:`compact`.

    Returns:
        What gives the report, or raises what :func:`compact` raised, when it is done.
    """
    executor = ThreadPoolExecutor(1, thread_name_prefix="compact")
    try:
        return executor.submit(compact, path, memory_bytes=memory_bytes, lock_timeout_s=lock_timeout_s)
    finally:
        executor.shutdown(wait=False)

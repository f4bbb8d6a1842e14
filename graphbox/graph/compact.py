"""Compaction: a graph's base and the changes after it become a new base."""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, TypeAlias, TypeVar

from graphbox.errors import TimeLimitError
from graphbox.graph.compaction_writer import CompactionWriter
from graphbox.graph.format import LOCK_TIMEOUT_S, read_manifest
from graphbox.graph.lock import compaction_lock
from graphbox.graph.merge import DEFAULT_MEMORY_BYTES, write_edges, write_nodes
from graphbox.graph.rebase import rebase
from graphbox.graph.schema import edge_type_text
from graphbox.graph.store import Graph

MAX_CHANGES = 32
"""A graph with more changes than this should be compacted ..."""
MAX_FILES = 1000
"""... or with more files, all of which are opened when the graph is; ..."""
MAX_CHANGED_SHARE = 0.25
"""... and so should one whose changes added or removed more than this share of the base's edges."""

Report = TypeVar("Report")

Progress: TypeAlias = Callable[[str, int, int], None]
"""Called with what is being written, and how many of how many types are done."""


@dataclass(frozen=True)
class CompactReport:
    """Result of a compaction.

    Attributes:
        path: the graph's folder.
        changes: number of changes merged into the base.
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
    positions again. Nobody is held up: readers keep the graph as they have opened it, and other processes may
    go on changing it. Changes that they commit meanwhile follow the new base; their writers wait only while
    it takes its place.

    Args:
        path: the graph's folder.
        progress: called before each node type and edge type.
        memory_bytes: about the most memory to take for blocks of edges and features.
        lock_timeout_s: seconds to wait for another compaction of the same graph. At the end, another writer
            is waited for at least 10 s, and as long as the compaction took.

    Raises:
        NotFoundError: there is no graph, or it was removed meanwhile.
        FormatError: files are damaged; they are named, and nothing was changed.
        ConflictError: the graph was imported anew meanwhile.
        DoesNotFitError: the disk has not enough room; old and new lie on it until the end.
        TimeLimitError: another process is compacting the graph, or was writing it all the time at the end.
    """
    started = time.monotonic()
    read_manifest(path)  # before a lock file is made where no graph is
    with compaction_lock(path, lock_timeout_s):
        graph = Graph.open(path)
        before_bytes = graph.size_bytes or 0
        changes = len(graph.manifest["deltas"])
        if not changes:
            return CompactReport(path, 0, before_bytes, before_bytes, time.monotonic() - started)
        graph.check_digests()  # the new base has digests of its own, in which damage would no longer show
        with CompactionWriter(path, graph.manifest) as writer:
            writer.reserve(before_bytes)
            nodes, edges = _written(graph, writer, progress, memory_bytes)
            took_s = time.monotonic() - started
            writer.commit_rebased(
                lambda now: rebase(graph, changes, writer, nodes, edges, now),
                max(lock_timeout_s, LOCK_TIMEOUT_S, took_s),
            )
            after_bytes = writer.size_bytes
    return CompactReport(path, changes, before_bytes, after_bytes, time.monotonic() - started)


def _written(
    graph: Graph, writer: CompactionWriter, progress: Progress | None, memory_bytes: int
) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Write all nodes and edges of a graph and return what the manifest shall say of them."""
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
    return nodes, edges


def compact_if_needed(path: Path, *, memory_bytes: int = DEFAULT_MEMORY_BYTES) -> CompactReport | None:
    """Compact a graph that has many changes (:func:`needs_compaction`), unless another process is at it.

    Returns:
        The report; None when there was nothing to do, or a later change has to do it.

    Raises:
        NotFoundError, ConflictError, DoesNotFitError: as :func:`compact` does.
    """
    if not needs_compaction(path):
        return None
    try:
        return compact(path, memory_bytes=memory_bytes, lock_timeout_s=0)
    except TimeLimitError:
        return None


def in_background(work: Callable[[], Report]) -> Future[Report]:
    """Start ``work``, a compaction, in a thread of its own, while this process goes on changing the graph.

    Returns:
        What gives the result, or raises what ``work`` raised, when it is done. A process that ends waits
        for it.
    """
    executor = ThreadPoolExecutor(1, thread_name_prefix="compact")
    try:
        return executor.submit(work)
    finally:
        executor.shutdown(wait=False)

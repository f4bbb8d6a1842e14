"""Size of a graph from its manifest, without opening the graph: see docs/formats/graph.md."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from graphbox.workspace.records import EdgeTypeCount

TABLES_DIGITS = 32
"""Number of hexadecimal digits of a fingerprint that identify the tables, also after a change."""
_FINGERPRINT_DIGITS = 64
_CHECKSUM = re.compile(rb'^ "checksum": "([^"]+)"', re.MULTILINE)
_HEAD_BYTES = 512


@dataclass(frozen=True)
class GraphContent:
    """Content of a graph folder.

    Attributes:
        checksum: checksum of the manifest; it changes whenever anything does.
        node_types: number of nodes by node type, removed ones not counted.
        edge_types: number of edges by edge type.
        base: folder of the arrays before all changes.
        num_changes: number of changes since.
    """

    checksum: str
    node_types: Mapping[str, int]
    edge_types: tuple[EdgeTypeCount, ...]
    base: str
    num_changes: int

    @property
    def state(self) -> str:
        """Base, number of changes and checksum in one text, to compare with what is in the folder later."""
        return f"{self.base} {self.num_changes} {self.checksum}"


def read_content(path: Path) -> GraphContent | None:
    """Return what the graph in a folder holds; None when there is none that could be read."""
    try:
        manifest = json.loads((path / "manifest.json").read_bytes())
        return _content(manifest)
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None  # opening the graph says what is wrong with it


def read_checksum(path: Path) -> str | None:
    """Return the checksum that the manifest of a graph folder has; None when there is no manifest.

    It is near the beginning of the text: the rest is not read.
    """
    try:
        with (path / "manifest.json").open("rb") as file:
            found = _CHECKSUM.search(file.read(_HEAD_BYTES))
    except OSError:
        return None
    return None if found is None else found[1].decode()


def _content(manifest: Mapping[str, Any]) -> GraphContent:
    files = manifest["files"]

    def live(entry: Mapping[str, Any], count: str) -> int:
        removed = entry.get("removed")
        return int(entry[count]) - (int(files[removed]["shape"][0]) if removed else 0)

    nodes: dict[str, int] = {}
    edges: dict[tuple[str, str, str], int] = {}
    for part in (manifest, *manifest["deltas"]):
        for entry in _entries(part, "node_types"):
            nodes[entry["name"]] = nodes.get(entry["name"], 0) + live(entry, "num_nodes")
        for entry in _entries(part, "edge_types"):
            source, relation, target = entry["type"]
            edge_type = (source, relation, target)
            edges[edge_type] = edges.get(edge_type, 0) + live(entry, "num_edges")
    counts = (EdgeTypeCount(*edge_type, count) for edge_type, count in edges.items())
    base, num_changes = str(manifest["base"]), len(manifest["deltas"])
    return GraphContent(str(manifest["checksum"]), nodes, tuple(counts), base, num_changes)


def _entries(part: Mapping[str, Any], key: str) -> Iterable[Mapping[str, Any]]:
    found: Iterable[Mapping[str, Any]] = part[key]
    return found


def changed_fingerprint(before: str, checksum: str) -> str:
    """Return the fingerprint of a graph after a change: it still tells from which tables it was imported.

    Args:
        before: the fingerprint before the change.
        checksum: of the manifest now.
    """
    digest = hashlib.sha256(f"{before} {checksum}".encode()).hexdigest()
    return f"{before[:TABLES_DIGITS]}+{digest}"[:_FINGERPRINT_DIGITS]


def found_fingerprint(before: str, state: str, now: GraphContent, *, has_same_counts: bool) -> str:
    """Return the fingerprint of a graph whose folder a program changed without the workspace.

    A change keeps the base and adds to its changes; compaction ends them and keeps the counts. Anything else
    is another graph, which no tables tell.

    Args:
        before: its fingerprint in the record ...
        state: ... and what :attr:`GraphContent.state` was then.
        now: what the folder holds.
        has_same_counts: whether the record has the same numbers of nodes and edges.
    """
    base, num_changes, _ = state.split(" ", 2)
    if base == now.base:
        return changed_fingerprint(before, now.checksum)
    if int(num_changes) and (now.num_changes or has_same_counts):
        return before if has_same_counts else changed_fingerprint(before, now.checksum)
    return new_fingerprint(now)


def new_fingerprint(content: GraphContent) -> str:
    """Return the fingerprint of a graph that was not made of tables."""
    return hashlib.sha256(f"found {content.checksum}".encode()).hexdigest()

"""What the manifest of a graph says of its size, without opening the graph: see docs/formats/graph.md."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from graphbox.workspace.records import EdgeTypeCount

__all__ = ["TABLES_DIGITS", "GraphContent", "changed_fingerprint", "read_content"]

TABLES_DIGITS = 32
"""How many hexadecimal digits of a fingerprint tell the tables, also after a change."""
_FINGERPRINT_DIGITS = 64


@dataclass(frozen=True)
class GraphContent:
    """What a graph folder holds.

    Attributes:
        checksum: of the manifest; it changes whenever anything does.
        node_types: number of nodes by node type, removed ones not counted.
        edge_types: number of edges by edge type.
    """

    checksum: str
    node_types: Mapping[str, int]
    edge_types: tuple[EdgeTypeCount, ...]


def read_content(path: Path) -> GraphContent | None:
    """Return what the graph in a folder holds; None when there is none that could be read."""
    try:
        manifest = json.loads((path / "manifest.json").read_bytes())
        return _content(manifest)
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None  # opening the graph says what is wrong with it


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
    return GraphContent(str(manifest["checksum"]), nodes, tuple(counts))


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

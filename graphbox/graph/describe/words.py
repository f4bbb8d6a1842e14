"""Numbers and facts of a description in words."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from graphbox.graph.describe.description import (
    Description,
    EdgeTypeDescription,
    FeatureDescription,
    NodeTypeDescription,
)
from graphbox.graph.source import STORED_AGAIN
from graphbox.words import byte_size, counted


def headline(description: Description, separator: str) -> str:
    """Return the totals of a graph on one line."""
    removed = sum(entry.removed for entry in description.node_types)
    parts = [counted(description.nodes, "node"), counted(description.edges, "edge")]
    if removed:
        parts.append(f"{counted(removed, 'node')} removed")
    parts.append("in memory" if description.size_bytes is None else byte_size(description.size_bytes))
    return separator.join(parts)


def facts(entry: NodeTypeDescription | EdgeTypeDescription) -> list[str]:
    """Return what else there is to say of a type, beside its name and size."""
    if isinstance(entry, NodeTypeDescription):
        ids = "text ids" if entry.id_type == "string" else "integer ids"
        isolated = [f"{entry.isolated:,} isolated"] if entry.isolated else []
        removed = [f"{entry.removed:,} removed"] if entry.removed else []
        return [ids, *isolated, *removed, *_skipped(entry.imported, "nodes")]
    found = []
    if entry.weight:
        found.append("weights")
    if entry.timestamp:
        found.append("timestamps")
    if entry.self_loops:
        found.append(f"{entry.self_loops:,} self-loop{'s' * (entry.self_loops != 1)}")
    if entry.duplicate_edges:
        found.append(f"{entry.duplicate_edges:,} repeated")
    return [*found, *_skipped(entry.imported, "edges")]


def _skipped(imported: Mapping[str, Any], kept: str) -> list[str]:
    skipped = int(imported.get("rows", 0)) - int(imported.get(kept, 0))
    copies = int(imported.get("skipped", {}).get(STORED_AGAIN, 0))
    found = [f"{copies:,} {STORED_AGAIN} passed over"] if copies else []
    return [*found, f"{counted(skipped, 'row')} skipped"] if skipped > 0 else found


def feature_facts(feature: FeatureDescription) -> list[str]:
    """Return what there is to say of a feature's values."""
    found = []
    if feature.dim is not None:
        found.append(f"{feature.dim:,} numbers each")
    if feature.categories is not None:
        found.append(f"{feature.categories:,} categories")
    if feature.true is not None and feature.rows:
        found.append(f"{feature.true:,} true ({100 * feature.true / feature.rows:.1f} %)")
    if feature.values is not None:
        found.append(f"{feature.values:,} values, up to {feature.longest:,} each")
    if feature.min is not None and feature.max is not None and feature.p50 is not None:
        found.append(f"{number(feature.min)} to {number(feature.max)}, median {number(feature.p50)}")
    if feature.missing:
        found.append(f"{feature.missing:,} missing")
    if feature.constant:
        found.append("all the same")
    return found


def number(value: float) -> str:
    """Return a value of a feature: ``5,635,090``, ``0.25``, ``1.2e-07``."""
    whole = float(value).is_integer() and abs(value) < 1e15
    return f"{int(value):,}" if whole else f"{value:,.6g}"


def degree_label(degree: int) -> str:
    """Return a power of two in up to four characters, in units of 1024: ``512``, ``16k``, ``1M``."""
    for unit in ("", "k", "M"):
        if degree < 1024:
            return f"{degree}{unit}"
        degree //= 1024
    return f"{degree}G"


def short_count(count: float) -> str:
    """Return a number in up to four characters: ``950``, ``1k``, ``16k``, ``2.1M``."""
    for unit in ("", "k", "M", "G"):
        if count < 999.5 or unit == "G":
            return (
                f"{count:.1f}{unit}" if unit and count < 9.95 and count % 1 >= 0.05 else f"{count:.0f}{unit}"
            )
        count /= 1000
    return ""

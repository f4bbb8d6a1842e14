"""Changes that were committed while a compaction ran, said against the base that it wrote.

A change names nodes by indices, which stay, and edges by ids, which compaction renumbers: where the ids of
the edges that it added start is a number in the manifest, and those of the removed ones are looked up anew.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from graphbox.graph.adjacency import search_between, search_rows
from graphbox.graph.array_file import map_array
from graphbox.graph.compaction_writer import CompactionWriter, Rebased
from graphbox.graph.ids import string_array
from graphbox.graph.layout import add_strings
from graphbox.graph.schema import EdgeType, Int64Array, edge_type_text
from graphbox.graph.snapshot import LiveEdgeTable, as_live
from graphbox.graph.store import Graph

Entry = Mapping[str, Any]
Array = npt.NDArray[Any]


def rebase(
    graph: Graph,
    num_changes: int,
    writer: CompactionWriter,
    node_types: Sequence[dict[str, Any]],
    edge_types: Sequence[dict[str, Any]],
    now: Entry,
) -> Rebased:
    """Return the graph of now on the base that was written of an earlier state of it.

    Takes time in proportion to the changes since.

    Args:
        graph: the graph that was compacted.
        num_changes: how many changes it had.
        writer: what wrote the new base; takes arrays of edge ids that are others now.
        node_types: what the manifest shall say of the nodes of the new base ...
        edge_types: ... and of its edges.
        now: the manifest of now.
    """
    return _Rebase(graph, writer, node_types, edge_types, now).rebased(now["deltas"][num_changes:])


class _Rebase:
    def __init__(
        self,
        graph: Graph,
        writer: CompactionWriter,
        node_types: Sequence[dict[str, Any]],
        edge_types: Sequence[dict[str, Any]],
        now: Entry,
    ) -> None:
        self._graph = graph
        self._writer = writer
        self._node_types = node_types
        self._edge_types = edge_types
        self._files: Entry = now["files"]
        self._new = {_edge_type(entry): entry for entry in edge_types}
        self._replaced: set[str] = set()

    def rebased(self, deltas: Sequence[Entry]) -> Rebased:
        """Return the new base followed by these changes."""
        self._restore_categories(deltas)
        changes = [
            {
                **delta,
                "edge_types": [self._edge_change(delta["folder"], each) for each in delta["edge_types"]],
            }
            for delta in deltas
        ]
        return Rebased(list(self._node_types), list(self._edge_types), changes, frozenset(self._replaced))

    # Edge ids

    def _edge_change(self, folder: str, entry: Entry) -> dict[str, Any]:
        edge_type = _edge_type(entry)
        if edge_type not in self._new:  # brought by a change since
            return dict(entry)
        table = as_live(self._graph.own_edges(edge_type))
        moved = self._new[edge_type]["num_edges"] - table.num_edge_ids
        changed = {**entry, "first": entry["first"] + moved}
        if "removed" in entry and table.is_changed:
            removed = self._array(entry["removed"])
            is_known = removed < table.num_edge_ids
            known = self._positions(table, self._new[edge_type], removed[is_known])
            name = f"changes/{folder}/edges/{edge_type_text(edge_type)}/removed"
            self._replaced.add(entry["removed"])
            changed["removed"] = self._writer.add(
                name, np.concatenate([np.sort(known), removed[~is_known] + moved])
            )
        return changed

    def _positions(self, table: LiveEdgeTable, new: Entry, edge_ids: Int64Array) -> Int64Array:
        """Return the ids of edges in the new base: those with the same ends and the same stable id."""
        source, target = table.ends(edge_ids)
        indptr, indices, stable = (
            self._writer.array(new[name]) for name in ("indptr", "indices", "edge-ids")
        )
        low, high = (search_rows(indptr, indices, target, source, side=side) for side in ("left", "right"))
        return search_between(stable, low, high, table.stable_ids(edge_ids), side="left")

    def _array(self, name: str) -> Array:
        return map_array(self._writer.path / name, self._files[name])

    # Categories

    def _restore_categories(self, deltas: Sequence[Entry]) -> None:
        """Bring back categories of which only removed rows were left, and that a change has used since."""
        for entry in self._node_types:
            table = self._graph.node_table(entry["name"])
            changes = [
                each for delta in deltas for each in delta["node_types"] if each["name"] == entry["name"]
            ]
            for feature in _categorical(entry):
                known = table.template(feature["name"]).categories
                self._restore(feature, known, self._codes(changes, feature["name"]))
        for entry in self._edge_types:
            edges = as_live(self._graph.own_edges(_edge_type(entry)))
            changes = [
                each for delta in deltas for each in delta["edge_types"] if each["type"] == entry["type"]
            ]
            for feature in _categorical(entry):
                known = edges.template(feature["name"]).categories
                self._restore(feature, known, self._codes(changes, feature["name"]))

    def _codes(self, changes: Sequence[Entry], name: str) -> Int64Array:
        """Return the codes of a feature's categories that changes use: int64, ascending."""
        columns = [
            np.unique(self._array(feature["values"]))
            for change in changes
            for feature in (*change["features"], *change.get("updates", ()))
            if feature["name"] == name
        ]
        return np.unique(np.concatenate([np.zeros(0, np.int64), *columns])).astype(np.int64)

    def _restore(self, feature: dict[str, Any], known: pa.Array | None, codes: Int64Array) -> None:
        paths = feature["categories"]
        written = string_array(*(self._writer.array(paths[name]) for name in ("offsets", "text"))).to_pylist()
        texts = [] if known is None else known.to_pylist()
        used = [code for code in codes.tolist() if 0 <= code < len(written) and written[code] != texts[code]]
        if not used:
            return
        for code in used:
            written[code] = texts[code]
        name = paths["offsets"].removeprefix(f"{self._writer.folder}/").removesuffix("-offsets.npy")
        self._writer.drop(paths.values())
        feature["categories"] = add_strings(self._writer, name, pa.array(written, pa.large_string()))


def _categorical(entry: Entry) -> Iterator[dict[str, Any]]:
    return (feature for feature in entry["features"] if "categories" in feature)


def _edge_type(entry: Entry) -> EdgeType:
    source, relation, target = entry["type"]
    return (source, relation, target)

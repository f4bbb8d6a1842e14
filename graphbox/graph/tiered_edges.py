"""Edges of a graph on disk: whole lists of neighbours, and single edges by position, changes included."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from graphbox.errors import NotFoundError
from graphbox.graph.adjacency import ragged
from graphbox.graph.schema import Int64Array
from graphbox.graph.snapshot import Direction, LiveEdgeTable
from graphbox.graph.tables import OwnEdges
from graphbox.graph.tier import Lists

Array = npt.NDArray[Any]
Payload = Literal["weight", "timestamp"]


@dataclass(frozen=True, eq=False)
class TieredEdges:
    """The neighbours of one edge type: whole lists, and edge by edge.

    Edges have positions: those of the base's lists first, then those of the lists that changes touched. Safe
    for several Python threads.

    Attributes:
        lists: those of the base, if there is one.
        by_id: has weights and timestamps in the order of edge ids, for a reverse edge type.
        overlay: the lists that changes touched, if there are some.
        backwards: whether the edge type is a reverse one.
    """

    lists: Lists | None
    by_id: Lists | None
    overlay: EdgeOverlay | None
    backwards: bool

    @property
    def num_base_edges(self) -> int:
        """Number of positions in the base's lists."""
        return 0 if self.lists is None else self.lists.num_items

    def neighbor_lists(self, nodes: Int64Array) -> tuple[Int64Array, Array]:
        """Return the neighbours of nodes: offsets int64 [n + 1], and integers, those of one node ascending.

        Args:
            nodes: node indices [n], in range, repeated ones too.
        """
        bounds = self.bounds(nodes)
        lengths = bounds[:, 1] - bounds[:, 0]
        has_edges = lengths > 0
        columns = self.columns_between(nodes[has_edges], bounds[has_edges], ())
        offsets = np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths)])
        return offsets, columns.get("indices", np.zeros(0, np.int64))

    def bounds(self, nodes: Int64Array) -> Int64Array:
        """Return the positions at which the lists of nodes begin and end: int64 [n, 2].

        Args:
            nodes: node indices [n] of the target type, in range, repeated ones too.
        """
        if self.overlay is None:
            return np.zeros((len(nodes), 2), np.int64) if self.lists is None else self.lists.bounds(nodes)
        changed, places = self.overlay.find(nodes)
        bounds = np.zeros((len(nodes), 2), np.int64)
        if self.lists is not None:
            bounds[~changed] = self.lists.bounds(nodes[~changed])
        bounds[changed] = self.overlay.bounds(places[changed]) + self.num_base_edges
        return bounds

    def lists_between(
        self, nodes: Int64Array, bounds: Int64Array, payload: Sequence[Payload]
    ) -> tuple[Int64Array, dict[str, Array]]:
        """Return whole lists whose bounds are known: the positions of their edges, and what is at these.

        Args:
            nodes: node indices [n], each once, with one edge or more.
            bounds: int64 [n, 2], what :meth:`bounds` gave for them.
            payload: what to read besides the neighbours, which are ``indices``.
        """
        positions = ragged(bounds[:, 0], bounds[:, 1] - bounds[:, 0])
        return positions, self.columns_between(nodes, bounds, payload)

    def columns_between(
        self, nodes: Int64Array, bounds: Int64Array, payload: Sequence[Payload]
    ) -> dict[str, Array]:
        """Return what :meth:`lists_between` does, without the positions."""
        lengths = bounds[:, 1] - bounds[:, 0]
        in_base = bounds[:, 0] < self.num_base_edges
        columns: dict[str, Array] = {}
        if self.lists is not None:
            columns = _columns(self.lists, self.by_id, nodes[in_base], bounds[in_base], payload)
        if self.overlay is None or in_base.all():
            return columns
        from_base = np.repeat(in_base, lengths)
        there = ragged(bounds[~in_base, 0], lengths[~in_base]) - self.num_base_edges
        changed = {"indices": self.overlay.indices} | {name: self.overlay.all(name) for name in payload}
        for name, values in changed.items():
            base = columns.get(name, values[:0])
            columns[name] = np.empty(len(from_base), np.result_type(base, values))
            columns[name][from_base], columns[name][~from_base] = base, values[there]
        return columns

    def neighbors(self, positions: Int64Array) -> Array:
        """Return the neighbour of each edge: int32 or int64 [n]."""
        return self._at(positions, "indices", None if self.overlay is None else self.overlay.indices)

    def edge_ids(self, positions: Int64Array) -> Int64Array:
        """Return the ids of edges, int64 [n], as samplers in memory give them."""
        if self.overlay is None:
            return positions
        ids = self.overlay.positions if self.backwards else self.overlay.edge_ids
        in_base = positions < self.num_base_edges
        found = positions.copy()
        found[~in_base] = ids[positions[~in_base] - self.num_base_edges]
        return found

    @property
    def index_bytes(self) -> int:
        """The bytes of a neighbour's index."""
        if self.lists is not None:
            return self.lists.item_bytes("indices")
        return 8 if self.overlay is None else self.overlay.indices.itemsize

    def has(self, name: Payload) -> bool:
        """Return whether edges have weights or timestamps."""
        lists = self.by_id if self.by_id is not None else self.lists
        if lists is not None:
            return name in lists.names
        return self.overlay is not None and self.overlay.has(name)

    def payload(self, name: Payload, positions: Int64Array) -> Array:
        """Return the weights (float32) or timestamps (int64) of edges."""
        overlay = None if self.overlay is None or not self.overlay.has(name) else self.overlay.all(name)
        return self._at(positions, name, overlay)

    def _at(self, positions: Int64Array, name: str, overlay: Array | None) -> Array:
        if overlay is None or not len(overlay):
            return self._base_at(name, positions)
        in_base = positions < self.num_base_edges
        if not in_base.any():
            return overlay[positions - self.num_base_edges]
        base = self._base_at(name, positions[in_base])
        found = np.empty(len(positions), np.result_type(base, overlay))
        found[in_base] = base
        found[~in_base] = overlay[positions[~in_base] - self.num_base_edges]
        return found

    def _base_at(self, name: str, positions: Int64Array) -> Array:
        if self.lists is None:
            return np.zeros(0, np.int64)
        if self.by_id is not None and name != "indices":
            return self.by_id.items_at(name, self.lists.items_at("edge_ids", positions, whole_pass=True))
        return self.lists.items_at(name, positions, whole_pass=True)


class EdgeOverlay:
    """The lists of the rows that changes touched, with their payload."""

    def __init__(self, table: OwnEdges, direction: Direction) -> None:
        assert isinstance(table, LiveEdgeTable)  # noqa: S101 - narrows the type; the caller has looked
        self._table = table
        self._payloads: dict[Payload, Array] = {}
        overlay = table.overlay(direction)
        self.rows, self.offsets = overlay.rows, overlay.indptr
        self.indices, self.edge_ids, self.positions = overlay.indices, overlay.edge_ids, overlay.positions
        base = table.base
        self.base_rows = 0
        if not table.is_new:
            self.base_rows = len(base.csc.indptr) - 1 if direction == "in" else base.csc.num_sources

    @property
    def size_bytes(self) -> int:
        """Bytes held now."""
        if not len(self.rows):
            return 0
        arrays = (self.rows, self.offsets, self.indices, self.edge_ids, self.positions)
        return sum(each.nbytes for each in (*arrays, *self._payloads.values()))

    def find(self, index: Int64Array) -> tuple[npt.NDArray[np.bool_], Int64Array]:
        """Return which rows are not the base's, and where the touched ones stand here (-1: without edges)."""
        place = np.searchsorted(self.rows, index)
        found = np.zeros(len(index), bool)
        inside = place < len(self.rows)
        found[inside] = self.rows[place[inside]] == index[inside]
        return found | (index >= self.base_rows), np.where(found, place, -1)

    def bounds(self, places: Int64Array) -> Int64Array:
        """Return where the lists at ``places`` (-1: without edges) begin and end here: int64 [n, 2]."""
        known = places >= 0
        found = np.where(known, places, 0)
        starts = np.where(known, self.offsets[found], 0)
        return np.stack([starts, np.where(known, self.offsets[np.where(known, found + 1, 0)], 0)], axis=1)

    def has(self, name: Payload) -> bool:
        """Return whether the edges have weights or timestamps."""
        return name in self._table.columns

    def all(self, name: Payload) -> Array:
        """Return the weights or timestamps of all edges here, in their order."""
        if name not in self._payloads:
            values = self._table.column_at(name, self.edge_ids)
            if values is None:
                raise NotFoundError(f"the edges have no {name}")
            self._payloads[name] = values
        return self._payloads[name]


def _columns(
    lists: Lists, by_id: Lists | None, index: Int64Array, bounds: Int64Array, payload: Sequence[Payload]
) -> dict[str, Array]:
    """Read lists of the base whose bounds are known.

    Args:
        lists: in- or out-neighbours.
        by_id: None; or what has weights and timestamps in the order of edge ids, if ``lists`` shall be the
            in-neighbours of the reverse edge type.
        index: of which nodes.
        bounds: of their lists.
        payload: what else to read.
    """
    if by_id is None:
        return dict(lists.read(index, ("indices", *payload), bounds=bounds, whole_pass=True).items)
    read = lists.read(index, ("indices", *(["edge_ids"] if payload else [])), bounds=bounds, whole_pass=True)
    columns = {"indices": read.items["indices"]}
    for name in payload:
        columns[name] = by_id.items_at(name, read.items["edge_ids"], whole_pass=True)
    return columns


def interleaved(
    first: npt.NDArray[np.bool_],
    first_offsets: Int64Array,
    second_offsets: Int64Array,
    values: Sequence[tuple[Array, Array]],
) -> tuple[Any, ...]:
    """Return offsets and values of lists taken from the first where ``first``, else from the second.

    Args:
        first: bool [n].
        first_offsets: int64 [number of True + 1].
        second_offsets: int64 [number of False + 1].
        values: arrays of items of the first and of the second.
    """
    lengths = np.empty(len(first), np.int64)
    lengths[first], lengths[~first] = np.diff(first_offsets), np.diff(second_offsets)
    offsets = np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths)])
    here = ragged(offsets[:-1][first], lengths[first])
    there = ragged(offsets[:-1][~first], lengths[~first])
    merged = []
    for one, other in values:
        both = np.empty(offsets[-1], np.result_type(one, other))
        both[here], both[there] = one, other
        merged.append(both)
    return (offsets, *merged)

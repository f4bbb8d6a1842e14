"""The edges of a changed graph: the base's arrays, what changes added and removed, and both seen as one.

Samplers do not need both merged: :meth:`LiveEdgeTable.overlay` gives full new lists of the touched rows only,
which takes time and memory in proportion to the changes; every other row is the base's.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from graphbox import _core
from graphbox.graph.adjacency import csr_of, index_dtype, ragged, search_between, search_rows
from graphbox.graph.array_file import release_pages
from graphbox.graph.columns import Column, SegmentedColumn
from graphbox.graph.overlay import Overlay, TouchedRows
from graphbox.graph.schema import CSC, CSR, EdgeType, FeatureKind, Float32Array, IndexArray, Int64Array
from graphbox.graph.tables import Direction, EdgeTable, LazyMapping, OwnEdges, added_up, columns_of

__all__ = ["Direction", "EdgeChange", "LiveEdgeTable", "LiveLists", "as_live"]

_NO_IDS = np.zeros(0, np.int64)
_BLOCK_EDGES = 1 << 22


@dataclass(frozen=True, eq=False)
class EdgeChange:
    """Edges of one type that one change of a graph added and removed.

    Attributes:
        first: id of the first edge that it added.
        source: integers [n], sources of the edges that it added ...
        target: integers [n], ... and their targets; sorted by target, then source.
        weight: float32 [n] or None.
        timestamp: int64 [n] or None.
        features: further columns of these edges.
        categories: categories that it added after those before, by feature.
        removed: int64, ascending: ids of the edges that it removed.
        imported: counts of rows read, kept and skipped, by kind.
    """

    first: int
    source: IndexArray
    target: IndexArray
    weight: Float32Array | None = None
    timestamp: Int64Array | None = None
    features: Mapping[str, Column] = field(default_factory=dict)
    categories: Mapping[str, pa.Array] = field(default_factory=dict)
    removed: Int64Array = field(default_factory=lambda: _NO_IDS)
    imported: Mapping[str, Any] = field(default_factory=dict)

    @property
    def num_added(self) -> int:
        """Number of edges that it added."""
        return len(self.source)


@dataclass(frozen=True, eq=False)
class LiveLists:
    """The neighbours of every row as samplers read them: the base's lists, but for the touched rows.

    Attributes:
        indptr: int64 [base's rows + 1] and ...
        indices: ... int32 or int64: the lists of the base; the id of an edge is its position.
        num_rows: number of rows, those that changes added among them.
        num_sources: number of nodes that the entries of ``indices`` are from.
        overlay: the new lists, as the native core looks them up ...
        overlay_indptr: ... where the list of each touched row starts: int64 [touched rows + 1] ...
        overlay_ids: ... and the id of each edge in them, never the one in the reverse edge type.
        table: the edges.
        direction: of the lists.
    """

    indptr: Int64Array
    indices: IndexArray
    num_rows: int
    num_sources: int
    overlay: _core.Overlay
    overlay_indptr: Int64Array
    overlay_ids: Int64Array
    table: LiveEdgeTable
    direction: Direction

    @property
    def base(self) -> CSC | CSR | None:
        """The base's lists, with weights and timestamps; None where a change added the edge type."""
        if self.table.is_new:
            return None
        return self.table.base.csc if self.direction == "in" else self.table.base.csr

    def overlay_column(self, name: Literal["weight", "timestamp"]) -> npt.NDArray[Any] | None:
        """Return the weight or timestamp of each edge of the new lists, None where edges have none."""
        return self.table.column_at(name, self.overlay_ids)


@dataclass(frozen=True, eq=False)
class _Added:
    """All edges that changes added, in the order of their ids."""

    source: Int64Array
    target: Int64Array
    alive: npt.NDArray[np.bool_]


class LiveEdgeTable(OwnEdges):
    """The edges of one type after some changes.

    Args:
        base: the edges before, or None when a change added the type: it has no rows then.
        changes: the changes, in order.
        num_sources: number of nodes of the source type.
        num_targets: number of nodes of the target type.
        reverse: the edge type that holds these edges backwards, or None.
    """

    def __init__(
        self,
        base: EdgeTable | None,
        changes: Sequence[EdgeChange],
        num_sources: int,
        num_targets: int,
        *,
        reverse: EdgeType | None = None,
    ) -> None:
        self.is_new = base is None
        self.base = _no_edges(changes, num_sources) if base is None else base
        self.changes = tuple(changes)
        self.num_sources = num_sources
        self.num_targets = num_targets
        self.reverse = reverse
        self.imported = added_up([self.base.imported, *(change.imported for change in changes)])
        self._lists: dict[tuple[Direction, bool], LiveLists] = {}

    # Counts and ids

    @property
    def num_base_edges(self) -> int:
        """Number of edges of the base, removed ones among them."""
        return self.base.num_edges

    @property
    def num_edges(self) -> int:
        """Number of edges."""
        return self.num_edge_ids - sum(len(change.removed) for change in self.changes)

    @property
    def num_edge_ids(self) -> int:
        """Number of edge ids."""
        return self.num_base_edges + sum(change.num_added for change in self.changes)

    @property
    def num_stable(self) -> int:
        """Number of stable ids that were ever given."""
        return self.base.num_stable + self.num_edge_ids - self.num_base_edges

    @property
    def is_changed(self) -> bool:
        """Whether any edge was added or removed."""
        return any(change.num_added or len(change.removed) for change in self.changes)

    @cached_property
    def removed(self) -> Int64Array:
        """Ids of all removed edges: int64, ascending."""
        return np.sort(np.concatenate([_NO_IDS, *(change.removed for change in self.changes)]))

    def stable_ids(self, edge_ids: Int64Array) -> Int64Array:
        """Return the numbers that the edges keep through compaction."""
        in_base = edge_ids < self.num_base_edges
        stable = edge_ids + (self.base.num_stable - self.num_base_edges)
        stable[in_base] = self.base.stable_ids(edge_ids[in_base])
        return stable

    # Columns by edge id

    @property
    def _payload_parts(self) -> list[tuple[int, CSC | EdgeChange]]:
        """First edge id of each part that has weights and timestamps, and the part."""
        return [(0, self.base.csc), *((each.first, each) for each in self.changes if each.num_added)]

    @property
    def columns(self) -> tuple[Literal["weight", "timestamp"], ...]:
        """Columns that the edges have, of ``weight`` and ``timestamp``; nothing is read."""
        return columns_of(part for _, part in self._payload_parts)

    def payload(self, name: Literal["weight", "timestamp"]) -> SegmentedColumn | None:
        """Return the weights or timestamps by edge id, to be read in part; None: there are none."""
        if name not in self.columns:
            return None
        kind: FeatureKind = "number" if name == "weight" else "integer"
        return SegmentedColumn(
            [(first, Column(kind, getattr(part, name))) for first, part in self._payload_parts]
        )

    def column_at(
        self, name: Literal["weight", "timestamp"], edge_ids: Int64Array
    ) -> npt.NDArray[Any] | None:
        """Return the weights or timestamps of some edges, reading no others; None: there are none."""
        payload = self.payload(name)
        return None if payload is None else payload.take(edge_ids).values

    def column(self, name: str) -> SegmentedColumn:
        """Return a feature, to be read in ranges of edge ids."""
        changed = [(each.first, each.features[name]) for each in self.changes if name in each.features]
        added = [change.categories[name] for change in self.changes if name in change.categories]
        return SegmentedColumn([(0, self.base.features[name]), *changed], added)

    @cached_property
    def features(self) -> Mapping[str, Column]:
        """Further columns, in the order of edge ids; what they hold of removed edges means nothing."""
        return LazyMapping(self.base.features, lambda name: self.column(name).read_all())

    # Adjacency

    @cached_property
    def _added(self) -> _Added:
        added = [change for change in self.changes if change.num_added]
        source = np.concatenate([_NO_IDS, *(change.source.astype(np.int64) for change in added)])
        target = np.concatenate([_NO_IDS, *(change.target.astype(np.int64) for change in added)])
        alive = np.ones(len(source), bool)
        alive[self.removed[self.removed >= self.num_base_edges] - self.num_base_edges] = False
        return _Added(source, target, alive)

    def base_adjacency(self, direction: Direction) -> tuple[Int64Array, IndexArray, Int64Array | None]:
        """Return the base's lists: ``indptr``, ``indices``, and the edge ids where they are not positions."""
        if direction == "in":
            return self.base.csc.indptr, self.base.csc.indices, None
        csr = self.base.stored_csr or self.base.csr
        return csr.indptr, csr.indices, csr.edge_ids

    @property
    def base_order(self) -> Int64Array:
        """The ids of the base's edges in the order of their sources, then targets."""
        return self.base.base_order

    def ends(self, edge_ids: Int64Array) -> tuple[Int64Array, Int64Array]:
        """Return the source and the target of each edge, removed ones too."""
        return self._rows_of(edge_ids, "out"), self._rows_of(edge_ids, "in")

    def _rows_of(self, edge_ids: Int64Array, direction: Direction) -> Int64Array:
        """Return the row of each edge: its target or its source."""
        rows = np.empty(len(edge_ids), np.int64)
        in_base = edge_ids < self.num_base_edges
        csc, its_ids = self.base.csc, edge_ids[in_base]
        if direction == "in":
            rows[in_base] = np.searchsorted(csc.indptr, its_ids, side="right") - 1
        else:
            rows[in_base] = csc.indices[its_ids]
        added = self._added.target if direction == "in" else self._added.source
        rows[~in_base] = added[edge_ids[~in_base] - self.num_base_edges]
        return rows

    def _added_rows(self, direction: Direction) -> tuple[Int64Array, Int64Array, Int64Array]:
        """Return row, neighbour and id of the added edges that are left, sorted in this order."""
        added = self._added
        position = np.flatnonzero(added.alive)
        rows, columns = (added.target, added.source) if direction == "in" else (added.source, added.target)
        order = np.lexsort((position, columns[position], rows[position]))
        position = position[order]
        return rows[position], columns[position], position + self.num_base_edges

    def degrees(self, direction: Direction, start: int, stop: int) -> Int64Array:
        """Return the lengths of the lists of rows ``start`` to ``stop - 1``: int64."""
        indptr = self.base_adjacency(direction)[0]
        bounds = indptr[start : stop + 1]
        degrees = np.zeros(stop - start, np.int64)
        degrees[: max(len(bounds) - 1, 0)] = np.diff(bounds)
        release_pages(indptr)
        added = self._rows_added[direction]
        removed = self._rows_removed[direction]
        for rows, sign in ((added, 1), (removed, -1)):
            part = rows[slice(*np.searchsorted(rows, [start, stop]).tolist())] - start
            if len(part):
                degrees += sign * np.bincount(part, minlength=stop - start)
        return degrees

    @cached_property
    def _rows_added(self) -> dict[Direction, Int64Array]:
        """The rows of added edges that are left, ascending."""
        alive = self._added.alive
        return {"in": np.sort(self._added.target[alive]), "out": np.sort(self._added.source[alive])}

    @cached_property
    def _rows_removed(self) -> dict[Direction, Int64Array]:
        """The rows of removed edges of the base, ascending."""
        source, target = self.ends(self.removed[self.removed < self.num_base_edges])
        return {"in": np.sort(target), "out": np.sort(source)}

    def touched(self, direction: Direction) -> TouchedRows:
        """Return what changes did to the rows of one direction."""
        return TouchedRows(*self._added_rows(direction), np.unique(self._rows_of(self.removed, direction)))

    def overlay(self, direction: Direction, part: TouchedRows | None = None) -> Overlay:
        """Return the new lists of the touched rows of one direction, in proportion to what was touched.

        For ``out`` the base's out-neighbours are needed: derived once where they are not kept on disk.

        Args:
            direction: which.
            part: those of the touched rows whose lists are wanted; None for all.
        """
        num_columns = self.num_sources if direction == "in" else self.num_targets
        part = self.touched(direction) if part is None else part
        rows, columns, ids = part.rows, part.columns, part.edge_ids
        touched = np.union1d(rows, part.removed_from)
        indptr, indices, edge_ids = self.base_adjacency(direction)
        known = touched[touched < len(indptr) - 1]
        lengths = indptr[known + 1] - indptr[known]
        position = ragged(indptr[known], lengths)
        base_ids = position if edge_ids is None else edge_ids[position]
        kept = ~_is_in(base_ids, self.removed)
        rows = np.concatenate([np.repeat(known, lengths)[kept], rows])
        columns = np.concatenate([indices[position[kept]].astype(np.int64), columns])
        positions = np.concatenate([position[kept], ids])
        ids = np.concatenate([base_ids[kept], ids])
        # Of repeated edges the base's come first: their ids are lower.
        order = np.lexsort((ids, columns, rows))
        bounds = np.searchsorted(rows[order], touched)
        return Overlay(
            rows=touched,
            indptr=np.append(bounds, len(order)).astype(np.int64),
            indices=columns[order].astype(index_dtype(num_columns)),
            edge_ids=ids[order],
            positions=positions[order],
        )

    def overlay_bytes(self, directions: Sequence[Direction]) -> int:
        """Return the most bytes that the new lists of the touched rows take, found without making them.

        Counted are the lists with the ids of their edges, weights and timestamps, and what the table keeps of
        added and removed edges to make them.

        Args:
            directions: which lists; for ``out`` the base's out-neighbours are needed.
        """
        if not self.is_changed:
            return 0
        per_edge = 2 * _NO_IDS.itemsize  # its id in both directions
        payloads = [column for name in self.columns if (column := self.payload(name)) is not None]
        per_edge += sum(column.read(0, 0).values.itemsize for column in payloads)
        num_added = self.num_edge_ids - self.num_base_edges
        total = num_added * (2 * _NO_IDS.itemsize + 1) + self.removed.nbytes
        removed_from_base = int(np.searchsorted(self.removed, self.num_base_edges))
        for direction in directions:
            part = self.touched(direction)
            touched = np.union1d(part.rows, part.removed_from)
            indptr, _, _ = self.base_adjacency(direction)
            known = touched[touched < len(indptr) - 1]
            edges = int((indptr[known + 1] - indptr[known]).sum()) - removed_from_base + len(part.rows)
            num_columns = self.num_sources if direction == "in" else self.num_targets
            total += edges * (per_edge + np.dtype(index_dtype(num_columns)).itemsize)
            total += (2 * len(touched) + 1) * _NO_IDS.itemsize
        return total

    def lists(self, direction: Direction, *, reverse_ids: bool = False) -> CSC | CSR | LiveLists:
        """Return the neighbours of every row of one direction, without merging base and changes."""
        if not self.is_new and not self.is_changed:
            return self.csc if direction == "in" else self.csr
        key = (direction, reverse_ids)
        if key not in self._lists:
            indptr, indices, _ = self.base_adjacency(direction)
            overlay = self.overlay(direction)
            if self.is_new:
                indices = indices.astype(overlay.indices.dtype)
            num_rows, num_columns = self.num_targets, self.num_sources
            if direction == "out":
                num_rows, num_columns = num_columns, num_rows
            named = overlay.positions if reverse_ids else overlay.edge_ids
            native = _core.Overlay(overlay.rows, overlay.indptr, overlay.indices, named, num_rows)
            self._lists[key] = LiveLists(
                indptr,
                indices,
                num_rows,
                num_columns,
                native,
                overlay.indptr,
                overlay.edge_ids,
                self,
                direction,
            )
        return self._lists[key]

    @cached_property
    def csc(self) -> CSC:
        """The in-neighbours of the targets: the base's and the changes', merged in memory once."""
        if not self.is_new and not self.is_changed:
            csc = self.base.csc
            indptr = _extended(csc.indptr, self.num_targets)
            return CSC(indptr, csc.indices, self.num_sources, csc.weight, csc.timestamp)
        indptr, indices, ids = self._merged("in")
        weight, timestamp = (
            None if payload is None else payload.read_all().values[ids]
            for payload in (self.payload("weight"), self.payload("timestamp"))
        )
        return CSC(indptr, indices, self.num_sources, weight, timestamp, ids)

    @cached_property
    def csr(self) -> CSR:
        """The out-neighbours of the sources: the base's and the changes', merged in memory once."""
        if self.base.stored_csr is None:
            return csr_of(self.csc)
        indptr, indices, ids = self._merged("out")
        weight, timestamp = (
            None if payload is None else payload.read_all().values[ids]
            for payload in (self.payload("weight"), self.payload("timestamp"))
        )
        return CSR(indptr, indices, ids, self.num_targets, weight, timestamp)

    def _merged(self, direction: Direction) -> tuple[Int64Array, IndexArray, Int64Array]:
        """Return ``indptr``, ``indices`` and edge ids of all rows."""
        num_rows, num_columns = self.num_targets, self.num_sources
        if direction == "out":
            num_rows, num_columns = num_columns, num_rows
        indptr, indices, edge_ids = self.base_adjacency(direction)
        keep_id = np.ones(self.num_base_edges, bool)
        keep_id[self.removed[self.removed < self.num_base_edges]] = False
        keep = keep_id if edge_ids is None else keep_id[edge_ids]
        kept_before = np.concatenate([np.zeros(1, np.int64), np.cumsum(keep, dtype=np.int64)])
        kept_indptr = _extended(kept_before[indptr], num_rows)
        kept_indices: IndexArray = indices[keep].astype(index_dtype(num_columns), copy=False)
        kept_ids = np.flatnonzero(keep) if edge_ids is None else edge_ids[keep]
        rows, columns, ids = self._added_rows(direction)
        at = search_rows(kept_indptr, kept_indices, rows, columns, side="right")
        added_before = np.concatenate(
            [np.zeros(1, np.int64), np.cumsum(np.bincount(rows, minlength=num_rows), dtype=np.int64)]
        )
        return (
            kept_indptr + added_before,
            np.insert(kept_indices, at, columns),
            np.insert(kept_ids, at, ids),
        )

    # Searching, in proportion to what is asked for

    def _ranges(self, source: Int64Array, target: Int64Array) -> list[tuple[Int64Array, Int64Array]]:
        """Return, for the base and each change, the edge ids from ``first`` to ``last - 1`` of each pair."""
        base = self.base.csc
        low, high = (
            search_rows(base.indptr, base.indices, target, source, side=side) for side in ("left", "right")
        )
        ranges = [(low, high)]
        for change in self.changes:
            bounds = (np.searchsorted(change.target, target, side=side) for side in ("left", "right"))
            first, last = (bound.astype(np.int64) for bound in bounds)
            low, high = (
                search_between(change.source, first, last, source, side=side) for side in ("left", "right")
            )
            ranges.append((low + change.first, high + change.first))
        return ranges

    def contains(self, source: Int64Array, target: Int64Array) -> npt.NDArray[np.bool_]:
        """Return whether there is an edge from each source to its target: bool [n]."""
        count = np.zeros(len(source), np.int64)
        for low, high in self._ranges(source, target):
            count += high - low - (np.searchsorted(self.removed, high) - np.searchsorted(self.removed, low))
        return np.asarray(count > 0)

    def find(self, source: Int64Array, target: Int64Array) -> Int64Array:
        """Return the ids of all edges between any source and its target: int64, ascending."""
        ids = [ragged(low, high - low) for low, high in self._ranges(source, target)]
        return self._left(np.unique(np.concatenate([_NO_IDS, *ids])))

    def incident(self, sources: Int64Array, targets: Int64Array) -> Int64Array:
        """Return the ids of all edges out of some sources or into some targets: int64, ascending.

        Args:
            sources: int64, ascending. Where the base's out-neighbours are not kept, all its edges are read.
            targets: int64, ascending.
        """
        added = self._added
        hit = _is_in(added.source, sources) | _is_in(added.target, targets)
        ids = [np.flatnonzero(hit) + self.num_base_edges]
        csc, csr = self.base.csc, self.base.stored_csr
        ids.append(_lists(csc.indptr, targets))
        if csr is not None:
            ids.append(csr.edge_ids[_lists(csr.indptr, sources)])
        elif len(sources):
            ids += _edges_out_of(csc.indices, sources)
        return self._left(np.unique(np.concatenate(ids)))

    def removal(self, edge_ids: Int64Array) -> EdgeChange:
        """Return the change that removes edges.

        Args:
            edge_ids: int64, ascending.
        """
        none = np.zeros(0, index_dtype(max(self.num_sources, self.num_targets)))
        columns = self.base.csc
        return EdgeChange(
            first=self.num_edge_ids,
            source=none,
            target=none,
            weight=None if columns.weight is None else columns.weight[:0],
            timestamp=None if columns.timestamp is None else columns.timestamp[:0],
            removed=edge_ids,
        )

    def _left(self, ids: Int64Array) -> Int64Array:
        return ids[~_is_in(ids, self.removed)]

    def reversed_as(self, reverse: EdgeType) -> LiveEdgeTable:
        """Return the same edges, which ``reverse`` holds backwards."""
        base = None if self.is_new else self.base
        return LiveEdgeTable(base, self.changes, self.num_sources, self.num_targets, reverse=reverse)


def _no_edges(changes: Sequence[EdgeChange], num_sources: int) -> EdgeTable:
    """Return the base of an edge type that a change added: no rows, with the columns of the change."""
    first = next(iter(changes), None)
    weight, timestamp = (None, None) if first is None else (first.weight, first.timestamp)
    csc = CSC(
        indptr=np.zeros(1, np.int64),
        indices=np.zeros(0, index_dtype(num_sources)),
        num_sources=num_sources,
        weight=None if weight is None else weight[:0],
        timestamp=None if timestamp is None else timestamp[:0],
    )
    features = {} if first is None else {name: each.slice(0, 0) for name, each in first.features.items()}
    return EdgeTable(csc, features)


def _is_in(values: npt.NDArray[np.integer[Any]], ascending: Int64Array) -> npt.NDArray[np.bool_]:
    """Return whether each value is one of those in an ascending array."""
    if not len(ascending):
        return np.zeros(len(values), bool)
    position = np.minimum(np.searchsorted(ascending, values), len(ascending) - 1)
    return np.asarray(ascending[position] == values)


def _extended(indptr: Int64Array, num_rows: int) -> Int64Array:
    """Return where the rows start when empty ones have been added at the end."""
    missing = num_rows + 1 - len(indptr)
    return np.concatenate([indptr, np.full(missing, indptr[-1])]) if missing else indptr


def _lists(indptr: Int64Array, rows: Int64Array) -> Int64Array:
    """Return the positions of the lists of some rows; rows beyond the last are empty."""
    known = rows[rows < len(indptr) - 1]
    return ragged(indptr[known], indptr[known + 1] - indptr[known])


def _edges_out_of(indices: IndexArray, sources: Int64Array) -> list[Int64Array]:
    """Return the positions at which some sources stand, found by reading all of them in blocks."""
    found = []
    for start in range(0, len(indices), _BLOCK_EDGES):
        hit = _is_in(indices[start : start + _BLOCK_EDGES], sources)
        found.append(np.flatnonzero(hit) + start)
        release_pages(indices)
    return found


def as_live(table: OwnEdges) -> LiveEdgeTable:
    """Return the edges of a type as a table that changes can follow."""
    if isinstance(table, LiveEdgeTable):
        return table
    if not isinstance(table, EdgeTable):
        raise TypeError(f"expected edges in arrays, received {type(table).__name__}")
    return LiveEdgeTable(table, (), table.csc.num_sources, table.csc.num_targets, reverse=table.reverse)

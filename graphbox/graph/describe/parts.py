"""A graph's lists and columns as they are looked at: in ranges, also where changes stand beside the base.

Pages of mapped files are given back behind each range, so that looking at a graph takes little memory.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import pyarrow as pa

from graphbox.errors import FormatError
from graphbox.graph.array_file import release_pages
from graphbox.graph.columns import Column
from graphbox.graph.live_nodes import LiveColumn, LiveNodeTable, extended_categories
from graphbox.graph.overlay import Overlay
from graphbox.graph.schema import EdgeType, FeatureKind, IndexArray, Int64Array, edge_type_text
from graphbox.graph.snapshot import Direction, LiveEdgeTable
from graphbox.graph.tables import EdgeTable, NodeTable, OwnEdges

BLOCK_ROWS = 1 << 20
BLOCK_EDGES = 1 << 20


# Adjacency


@dataclass(frozen=True, eq=False)
class Block:
    """Some entries of neighbouring rows.

    Attributes:
        rows: int64 [rows].
        lengths: how many of the entries each row has: int64 [rows].
        entries: the neighbours, row by row.
        before: the entry before the first one where its row began in the block before, else None.
    """

    rows: Int64Array
    lengths: Int64Array
    entries: IndexArray
    before: int | None

    def num_repeated(self) -> int:
        """Return how many entries equal the one before them in their row."""
        if not len(self.entries):
            return 0
        same_as_before = self.entries[1:] == self.entries[:-1]
        starts = np.cumsum(self.lengths[:-1])
        starts = starts[(starts > 0) & (starts < len(self.entries))]
        same_as_before[starts - 1] = False
        goes_on = self.before is not None and int(self.entries[0]) == self.before
        return int(same_as_before.sum()) + goes_on

    def num_loops(self) -> int:
        """Return how many entries are their own row."""
        return int((np.repeat(self.rows.astype(self.entries.dtype), self.lengths) == self.entries).sum())


@dataclass(frozen=True, eq=False)
class Lists:
    """The neighbours of every row, of the base and in an overlay of what changes touched.

    Attributes:
        indptr: of the base.
        indices: of the base.
        num_columns: every neighbour is below it.
        where: named in messages.
        overlay: the new lists of some rows, or None.
    """

    indptr: Int64Array
    indices: IndexArray
    num_columns: int
    where: str
    overlay: Overlay | None = None

    def degrees(self, start: int, stop: int) -> Int64Array:
        """Return the lengths of the lists of rows ``start`` to ``stop - 1``.

        Raises:
            FormatError: the offsets do not rise: a file is damaged.
        """
        bounds = self.indptr[start : stop + 1]
        degrees = np.zeros(stop - start, np.int64)
        if len(bounds):
            degrees[: len(bounds) - 1] = bounds[1:] - bounds[:-1]
            self._check(bool((degrees >= 0).all()) and bounds[-1] <= len(self.indices), "rising offsets")
            release_pages(self.indptr)
        if self.overlay is not None:
            low, high = np.searchsorted(self.overlay.rows, [start, stop])
            lengths = self.overlay.indptr[low + 1 : high + 1] - self.overlay.indptr[low:high]
            degrees[self.overlay.rows[low:high] - start] = lengths
        return degrees

    def blocks(self, *, block_rows: int = BLOCK_ROWS, block_edges: int = BLOCK_EDGES) -> Iterator[Block]:
        """Go through all entries in blocks of bounded size.

        Raises:
            FormatError: offsets do not rise, or a neighbour is none: a file is damaged.
        """
        for block in self._checked(_blocks(self.indptr, self.indices, block_rows, block_edges)):
            yield block if self.overlay is None else _without_rows(block, self.overlay.rows)
        if self.overlay is not None:
            for block in _blocks(self.overlay.indptr, self.overlay.indices, block_rows, block_edges):
                yield Block(self.overlay.rows[block.rows], block.lengths, block.entries, block.before)

    def _checked(self, blocks: Iterator[Block]) -> Iterator[Block]:
        for block in blocks:
            self._check(bool((block.lengths >= 0).all()), "rising offsets")
            self._check(int(block.lengths.sum()) == len(block.entries), "as many edges as the offsets say")
            inside = block.entries.min() >= 0 and block.entries.max() < self.num_columns
            self._check(bool(inside), f"nodes from 0 to {self.num_columns - 1}")
            yield block

    def _check(self, sound: bool, expected: str) -> None:
        if not sound:
            raise FormatError(
                f"expected {expected}, received others: a file is damaged",
                where=self.where,
                hint="`graphbox describe NAME --verify` tells which; import the graph again",
            )


def _blocks(indptr: Int64Array, indices: IndexArray, block_rows: int, block_edges: int) -> Iterator[Block]:
    for first in range(0, len(indptr) - 1, block_rows):
        starts = np.array(indptr[first : first + block_rows + 1])
        release_pages(indptr)
        for low in range(int(starts[0]), int(starts[-1]), block_edges):
            high = min(low + block_edges, int(starts[-1]))
            top = int(np.searchsorted(starts, low, "right")) - 1
            bottom = int(np.searchsorted(starts, high, "left"))
            bounds = np.clip(starts[top : bottom + 1], low, high)
            yield Block(
                rows=np.arange(first + top, first + bottom),
                lengths=bounds[1:] - bounds[:-1],
                entries=np.asarray(indices[low:high]),
                before=int(indices[low - 1]) if starts[top] < low else None,
            )
            release_pages(indices)


def _without_rows(block: Block, rows: Int64Array) -> Block:
    """Return a block without the entries of some rows (ascending)."""
    low, high = np.searchsorted(rows, [block.rows[0], block.rows[-1] + 1])
    if low == high:
        return block
    gone = np.zeros(len(block.rows), np.bool_)
    gone[rows[low:high] - block.rows[0]] = True
    entries = block.entries[~np.repeat(gone, block.lengths)]
    return Block(block.rows, np.where(gone, 0, block.lengths), entries, None if gone[0] else block.before)


def in_lists(edge_type: EdgeType, edges: OwnEdges, num_sources: int) -> Lists:
    """Return the in-neighbours of the targets."""
    return _lists(edge_type, edges, "in", num_sources)


def out_lists(edge_type: EdgeType, edges: OwnEdges, num_targets: int) -> Lists | None:
    """Return the out-neighbours of the sources where they are kept, else None."""
    base = edges.base if isinstance(edges, LiveEdgeTable) else edges
    kept = isinstance(base, EdgeTable) and base.stored_csr is not None
    return _lists(edge_type, edges, "out", num_targets) if kept else None


def _lists(edge_type: EdgeType, edges: OwnEdges, direction: Direction, num_columns: int) -> Lists:
    where = edge_type_text(edge_type)
    if isinstance(edges, LiveEdgeTable):
        indptr, indices, _ = edges.base_adjacency(direction)
        return Lists(
            indptr, indices, num_columns, where, edges.overlay(direction) if edges.is_changed else None
        )
    if direction == "out" and isinstance(edges, EdgeTable) and edges.stored_csr is not None:
        return Lists(edges.stored_csr.indptr, edges.stored_csr.indices, num_columns, where)
    return Lists(edges.csc.indptr, edges.csc.indices, num_columns, where)


def has_weight(edges: OwnEdges) -> bool:
    """Return whether edges have weights."""
    return _first_part(edges).weight is not None


def has_timestamp(edges: OwnEdges) -> bool:
    """Return whether edges have timestamps."""
    return _first_part(edges).timestamp is not None


class _Payload(Protocol):
    @property
    def weight(self) -> object: ...

    @property
    def timestamp(self) -> object: ...


def _first_part(edges: OwnEdges) -> _Payload:
    if not isinstance(edges, LiveEdgeTable):
        return edges.csc
    return edges.changes[0] if edges.base is None else edges.base.csc


# Features


class Rows(Protocol):
    """A feature that is read in ranges of rows."""

    @property
    def kind(self) -> FeatureKind:
        """How it is kept."""
        ...

    @property
    def categories(self) -> pa.Array | None:
        """The categories by code, or None."""
        ...

    def __len__(self) -> int: ...

    def read(self, start: int, stop: int) -> Column:
        """Return rows ``start`` to ``stop - 1``."""
        ...


@dataclass(frozen=True, eq=False)
class _Whole:
    """A feature whose rows are in one column."""

    column: Column

    @property
    def kind(self) -> FeatureKind:
        return self.column.kind

    @property
    def categories(self) -> pa.Array | None:
        return self.column.categories

    def __len__(self) -> int:
        return len(self.column)

    def read(self, start: int, stop: int) -> Column:
        release_pages(self.column.values)
        return self.column.slice(start, stop)


def node_features(nodes: NodeTable) -> dict[str, Rows]:
    """Return the features of nodes by name."""
    if isinstance(nodes, LiveNodeTable):
        return dict(nodes.live_features)
    return {name: _Whole(column) for name, column in nodes.features.items()}


def edge_features(edges: OwnEdges) -> dict[str, Rows]:
    """Return the features of edges by name, in the order of edge ids."""
    if not isinstance(edges, LiveEdgeTable):
        return {name: _Whole(column) for name, column in edges.features.items()}
    return {name: _live_edge_feature(edges, name) for name in edges.features}


def _live_edge_feature(edges: LiveEdgeTable, name: str) -> LiveColumn:
    segments = [(each.first, each.features[name]) for each in edges.changes if name in each.features]
    known = None
    if edges.base is not None:
        segments.insert(0, (0, edges.base.features[name]))
        known = edges.base.features[name].categories
    new = [each.categories[name] for each in edges.changes if name in each.categories]
    return LiveColumn(segments, [], removed_edges(edges), extended_categories(known, new))


def removed_edges(edges: OwnEdges) -> Int64Array:
    """Return the ids of removed edges: int64, ascending."""
    return edges.removed if isinstance(edges, LiveEdgeTable) else np.zeros(0, np.int64)

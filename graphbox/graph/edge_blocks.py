"""The edges of one type block by block, in the order of their ids, changes included."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from graphbox.graph.array_file import release_pages
from graphbox.graph.schema import CSC, Float32Array, Int64Array
from graphbox.graph.snapshot import LiveEdgeTable

_NONE: Int64Array = np.zeros(0, np.int64)


class EdgeBlock(NamedTuple):
    """Some edges.

    Attributes:
        source: int64 [n].
        target: int64 [n].
        edge_ids: int64 [n], ascending.
        weight: float32 [n], or None where edges have none.
        timestamp: int64 [n], or None where edges have none.
    """

    source: Int64Array
    target: Int64Array
    edge_ids: Int64Array
    weight: Float32Array | None
    timestamp: Int64Array | None

    def reversed(self) -> EdgeBlock:
        """Return the edges backwards."""
        return self._replace(source=self.target, target=self.source)


def edge_blocks(table: LiveEdgeTable, block_edges: int, without: Int64Array = _NONE) -> Iterator[EdgeBlock]:
    """Give the edges of a type that are not removed; the pages of mapped arrays are given back behind it.

    Args:
        table: the edges.
        block_edges: the most edges to give at a time.
        without: int64, ascending: ids of further edges to leave out.
    """
    left_out = [each for each in (table.removed, without) if len(each)]
    for block in _base_blocks(table.base.csc, block_edges):
        yield _without(block, left_out)
    first = table.num_base_edges
    for change in table.changes:
        for begin in range(0, change.num_added, block_edges):
            part = slice(begin, min(begin + block_edges, change.num_added))
            block = EdgeBlock(
                change.source[part].astype(np.int64),
                change.target[part].astype(np.int64),
                np.arange(first + part.start, first + part.stop),
                None if change.weight is None else change.weight[part],
                None if change.timestamp is None else change.timestamp[part],
            )
            yield _without(block, left_out)
        first += change.num_added


def _base_blocks(csc: CSC, block_edges: int) -> Iterator[EdgeBlock]:
    for first in range(0, csc.num_edges, block_edges):
        last = min(first + block_edges, csc.num_edges)
        begin, end = np.searchsorted(csc.indptr, (first, last - 1), side="right") - 1
        lengths = np.diff(csc.indptr[begin : end + 2].clip(first, last))
        block = EdgeBlock(
            csc.indices[first:last].astype(np.int64),
            np.repeat(np.arange(begin, end + 1, dtype=np.int64), lengths),
            np.arange(first, last),
            None if csc.weight is None else np.array(csc.weight[first:last]),
            None if csc.timestamp is None else np.array(csc.timestamp[first:last]),
        )
        for array in (csc.indptr, csc.indices, csc.weight, csc.timestamp):
            if array is not None:
                release_pages(array)
        yield block


def _without(block: EdgeBlock, left_out: list[Int64Array]) -> EdgeBlock:
    """Return the edges of a block that are in none of some ascending arrays of ids."""
    kept: np.ndarray[tuple[int], np.dtype[np.bool_]] | None = None
    for ids in left_out:
        begin, end = np.searchsorted(ids, (block.edge_ids[0], block.edge_ids[-1] + 1))
        if begin < end:
            kept = np.ones(len(block.source), bool) if kept is None else kept
            kept[ids[begin:end] - block.edge_ids[0]] = False
    if kept is None:
        return block
    return EdgeBlock(
        block.source[kept],
        block.target[kept],
        block.edge_ids[kept],
        None if block.weight is None else block.weight[kept],
        None if block.timestamp is None else block.timestamp[kept],
    )

"""The edges of one type block by block, in the order of their ids, changes included."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from graphbox.graph.array_file import release_pages
from graphbox.graph.schema import CSC, Float32Array, Int64Array
from graphbox.graph.snapshot import LiveEdgeTable

__all__ = ["EdgeBlock", "edge_blocks"]


class EdgeBlock(NamedTuple):
    """Some edges.

    Attributes:
        source: int64 [n].
        target: int64 [n].
        weight: float32 [n], or None where edges have none.
    """

    source: Int64Array
    target: Int64Array
    weight: Float32Array | None


def edge_blocks(table: LiveEdgeTable, block_edges: int) -> Iterator[EdgeBlock]:
    """Give the edges of a type that are not removed; the pages of mapped arrays are given back behind it.

    Args:
        table: the edges.
        block_edges: the most edges to give at a time.
    """
    if table.base is not None:
        yield from _base_blocks(table.base.csc, table.removed, block_edges)
    first = table.num_base_edges
    for change in table.changes:
        for begin in range(0, change.num_added, block_edges):
            part = slice(begin, min(begin + block_edges, change.num_added))
            weight = None if change.weight is None else change.weight[part]
            block = EdgeBlock(
                change.source[part].astype(np.int64), change.target[part].astype(np.int64), weight
            )
            yield _without(block, first + begin, table.removed)
        first += change.num_added


def _base_blocks(csc: CSC, removed: Int64Array, block_edges: int) -> Iterator[EdgeBlock]:
    for first in range(0, csc.num_edges, block_edges):
        last = min(first + block_edges, csc.num_edges)
        begin, end = np.searchsorted(csc.indptr, (first, last - 1), side="right") - 1
        lengths = np.diff(csc.indptr[begin : end + 2].clip(first, last))
        target = np.repeat(np.arange(begin, end + 1, dtype=np.int64), lengths)
        source = csc.indices[first:last].astype(np.int64)
        weight = None if csc.weight is None else np.array(csc.weight[first:last])
        for array in (csc.indptr, csc.indices, csc.weight):
            if array is not None:
                release_pages(array)
        yield _without(EdgeBlock(source, target, weight), first, removed)


def _without(block: EdgeBlock, first: int, removed: Int64Array) -> EdgeBlock:
    """Return the edges of a block, whose ids begin at ``first``, that are not removed."""
    begin, end = np.searchsorted(removed, (first, first + len(block.source)))
    if begin == end:
        return block
    kept = np.ones(len(block.source), bool)
    kept[removed[begin:end] - first] = False
    return EdgeBlock(
        block.source[kept], block.target[kept], None if block.weight is None else block.weight[kept]
    )

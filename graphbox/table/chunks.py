"""Going through a table, a chunk of rows at a time."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from graphbox import _core
from graphbox.native import Int64Array
from graphbox.table.arguments import Float32Array

if TYPE_CHECKING:
    from graphbox.table.table import EmbeddingTable


def chunks_of(table: EmbeddingTable, chunk_rows: int) -> Iterator[tuple[Int64Array, Float32Array]]:
    """Yield keys and rows; see :meth:`graphbox.table.EmbeddingTable.items`."""
    return _scanned(table, chunk_rows) if table.path is None else _listed(table, chunk_rows)


def _scanned(table: EmbeddingTable, chunk_rows: int) -> Iterator[tuple[Int64Array, Float32Array]]:
    """Go through the rows of memory in their order."""
    next_row = 0
    while True:
        keys, rows, next_row = table._current.scan(next_row, chunk_rows)
        if len(keys) == 0:
            return
        yield keys, rows


def _listed(table: EmbeddingTable, chunk_rows: int) -> Iterator[tuple[Int64Array, Float32Array]]:
    """Go through the keys there are now: rows on SSD and in memory change places meanwhile."""
    scan = _core.table_key_scan(table._current)
    while len(keys := scan.next(chunk_rows)) > 0:
        rows = table.pull(keys, create=False)
        there = table.contains(keys)  # after the pull: a key that was erased before it is not given
        if there.any():
            yield keys[there], rows[there]

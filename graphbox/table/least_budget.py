"""The least memory of a table with rows on SSD, as the native table itself computes it."""

from __future__ import annotations

from tempfile import TemporaryDirectory

from graphbox.errors import DoesNotFitError
from graphbox.table.arguments import Optimizer
from graphbox.table.table import EmbeddingTable

_AMPLE_BYTES = 1 << 40


def least_budget_bytes(dim: int, optimizer: Optimizer, rows: int, batch_rows: int) -> int:
    """Return the least ``memory_bytes`` of a table with rows on SSD: for its index, its buffers and a batch.

    Buffers are larger under a larger budget, so an empty table is asked under less and less.

    Args:
        dim: length of a row.
        optimizer: see :class:`graphbox.table.EmbeddingTable`.
        rows: how many the table will have.
        batch_rows: rows that must be in memory at once.
    """
    budget_bytes = _AMPLE_BYTES
    while True:
        try:
            needed_bytes = _needed_bytes(dim, optimizer, rows, batch_rows, budget_bytes)
        except DoesNotFitError:  # the table checks more than it is asked for: what was asked last would do
            return budget_bytes
        if needed_bytes >= budget_bytes:
            return budget_bytes
        budget_bytes = needed_bytes


def _needed_bytes(dim: int, optimizer: Optimizer, rows: int, batch_rows: int, budget_bytes: int) -> int:
    with TemporaryDirectory(prefix="graphbox-table-") as folder:
        table = EmbeddingTable(dim, optimizer, 0.1, path=folder, memory_bytes=budget_bytes)
        try:
            needed_bytes: int = table._current.least_memory_bytes(rows, batch_rows)
        finally:
            table.close()
    return needed_bytes

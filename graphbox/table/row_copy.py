"""Copies whole rows, values and optimizer state, from one table to another."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from graphbox import _core
from graphbox.errors import UsageError
from graphbox.native import Int64Array
from graphbox.table.table import EmbeddingTable

_BLOCK_BYTES = 1 << 20
"""At a time: tables with little memory beside rows on SSD have room for as many rows."""


def check_same_rows(source: EmbeddingTable, target: EmbeddingTable, name: str) -> None:
    """Check that rows of one table can be rows of another.

    Args:
        source: table that has the rows.
        target: table that gets them.
        name: of the table, for messages.

    Raises:
        UsageError: length, dtype or optimizer of the rows differ.
    """
    for what in ("dim", "dtype", "optimizer"):
        expected, received = getattr(target, what), getattr(source, what)
        if expected != received:
            named = f"rows of length {expected}" if what == "dim" else f"rows with {what} {expected}"
            raise UsageError(f"expected {named} in the table `{name}`, received {what} {received}")
    if _core.table_record_bytes(source._current) != _core.table_record_bytes(target._current):
        raise UsageError(f"expected rows with the same policies in the table `{name}`, received others")


def copy_rows(
    source: EmbeddingTable,
    source_keys: Int64Array,
    target: EmbeddingTable,
    keys: Int64Array,
    values: npt.NDArray[np.float32] | None = None,
) -> npt.NDArray[np.bool_]:
    """Copy the rows that keys have in a table to other keys in another table.

    Args:
        source: table that has the rows.
        source_keys: int64 [n]; those without a row are skipped.
        target: table that gets them, in which keys without a row get one; see :func:`check_same_rows`.
        keys: int64 [n], all different.
        values: float32 [n, dim], values in place of those of the rows, which must be float32.

    Returns:
        Whether each row was copied: bool [n].

    Raises:
        DoesNotFitError: the rows exceed the budget of ``target``; earlier blocks are copied.
    """
    record_bytes = _core.table_record_bytes(target._current)
    block = max(1, _BLOCK_BYTES // record_bytes)
    copied = np.zeros(len(keys), np.bool_)
    for begin in range(0, len(keys), block):
        part = slice(begin, begin + block)
        records = np.empty((len(keys[part]), record_bytes), np.uint8)
        has_row = _core.table_read_records(
            source._current, np.ascontiguousarray(source_keys[part]), records, source.threads
        )
        if values is not None:
            new = np.ascontiguousarray(values[part], dtype=np.float32)
            records[:, : 4 * target.dim] = new.view(np.uint8)
        chosen, records = keys[part][has_row], records[has_row]
        target.pull(chosen)  # which makes rows for them
        _core.table_write_records(target._current, chosen, records, target.threads)
        copied[part] = has_row
    return copied

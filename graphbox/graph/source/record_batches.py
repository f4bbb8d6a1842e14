"""From Arrow record batches of any size to batches of bounded size."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import pyarrow as pa

from graphbox.graph.source.table import Batch, plain_column

__all__ = ["bounded_batches"]


def bounded_batches(
    record_batches: Iterator[pa.RecordBatch],
    columns: Sequence[str],
    batch_bytes: int,
    read_bytes: Callable[[int], int],
) -> Iterator[Batch]:
    """Yield record batches as batches of at most about ``batch_bytes``: small ones joined, large ones cut.

    Args:
        record_batches: the rows; they may have further columns.
        columns: the wanted columns.
        batch_bytes: about the most bytes of a batch.
        read_bytes: gives the bytes of input consumed from the number of rows read.
    """
    first_row = 0
    pending: list[pa.RecordBatch] = []
    pending_bytes = 0

    def join() -> Batch:
        rows = pa.Table.from_batches(pending)
        return Batch(
            {name: plain_column(rows.column(name)) for name in columns},
            num_rows=rows.num_rows,
            first_row=first_row,
            read_bytes=read_bytes(first_row + rows.num_rows),
        )

    for record_batch in record_batches:
        for piece in _cut(record_batch.select(list(columns)), batch_bytes):
            if pending and pending_bytes + piece.nbytes > batch_bytes:
                batch = join()
                yield batch
                first_row += batch.num_rows
                pending, pending_bytes = [], 0
            pending.append(piece)
            pending_bytes += piece.nbytes
    if pending:
        yield join()


def _cut(record_batch: pa.RecordBatch, batch_bytes: int) -> Iterator[pa.RecordBatch]:
    """Yield slices of about ``batch_bytes`` at most, at least one row each."""
    if record_batch.nbytes <= batch_bytes:
        if record_batch.num_rows:
            yield record_batch
        return
    if record_batch.num_rows == 1:
        yield record_batch
        return
    rows = max(1, record_batch.num_rows * batch_bytes // record_batch.nbytes)
    for start in range(0, record_batch.num_rows, rows):
        yield record_batch.slice(start, rows)

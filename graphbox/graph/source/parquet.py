"""Parquet files, read in pieces of a row group, only the wanted columns."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import pyarrow as pa
import pyarrow.parquet as pq

from graphbox.errors import GraphboxError
from graphbox.graph.source.record_batches import FileWithSchema, bounded_batches
from graphbox.graph.source.table import Batch, check_columns, plain_column

_MOST_ROWS = 1 << 17
_STREAM_BUFFER_BYTES = 1 << 20


class ParquetTable(FileWithSchema):
    """One Parquet file. A row group larger than a batch is read page by page."""

    def _read_schema(self) -> pa.Schema:
        try:
            with self._file.open() as stream:
                return pq.read_schema(stream)
        except (pa.ArrowException, OSError) as error:
            raise self._damaged(error) from None

    def blocks(
        self, columns: Sequence[str], places: Sequence[float], *, block_bytes: int
    ) -> Iterator[Mapping[str, pa.Array]]:
        """Yield the first rows of row groups from all over the file; see :meth:`Table.blocks`."""
        wanted = check_columns(self.name, columns, self.column_names())
        try:
            with (
                self._file.open() as stream,
                pq.ParquetFile(stream, buffer_size=_STREAM_BUFFER_BYTES, pre_buffer=False) as file,
            ):
                rows = _rows_at_once(file.metadata, wanted, block_bytes)
                groups = file.metadata.num_row_groups
                for group in sorted({int(place * groups) for place in places}) if groups else ():
                    pieces = file.iter_batches(batch_size=rows, row_groups=[group], columns=list(wanted))
                    piece = next(pieces, None)
                    if piece is not None:
                        yield {name: plain_column(piece.column(name)) for name in wanted}
        except (pa.ArrowException, OSError) as error:
            raise self._damaged(error) from None

    def _read(self, wanted: tuple[str, ...], batch_bytes: int) -> Iterator[Batch]:
        try:
            # Without pre_buffer the pages are read as they are needed; with it, whole row groups at once.
            with (
                self._file.open() as stream,
                pq.ParquetFile(
                    stream,
                    buffer_size=_STREAM_BUFFER_BYTES,
                    pre_buffer=False,
                    page_checksum_verification=True,
                ) as file,
            ):
                num_rows = file.metadata.num_rows
                total_bytes = self.size_bytes or 0
                yield from bounded_batches(
                    file.iter_batches(
                        batch_size=_rows_at_once(file.metadata, wanted, batch_bytes), columns=list(wanted)
                    ),
                    wanted,
                    batch_bytes,
                    lambda rows: total_bytes * rows // max(num_rows, 1),
                )
        except GraphboxError:
            raise
        except (pa.ArrowException, OSError) as error:
            raise self._damaged(error) from None

    def _damaged(self, error: Exception) -> GraphboxError:
        return self._file.unreadable(
            error,
            "a Parquet file",
            "write the file again; text belongs into a file that ends in .csv or .tsv",
        )


def _rows_at_once(metadata: pq.FileMetaData, wanted: Sequence[str], batch_bytes: int) -> int:
    """Return how many rows to decode at once so that they are a batch, and stay in the cache."""
    row_bytes = 1
    for group in range(metadata.num_row_groups):
        row_group = metadata.row_group(group)
        chunks = (row_group.column(column) for column in range(row_group.num_columns))
        size = sum(chunk.total_uncompressed_size for chunk in chunks if _is_wanted(chunk, wanted))
        row_bytes = max(row_bytes, size // max(row_group.num_rows, 1))
    return max(1, min(_MOST_ROWS, batch_bytes // row_bytes))


def _is_wanted(chunk: pq.ColumnChunkMetaData, wanted: Sequence[str]) -> bool:
    """Return whether a column chunk belongs to a wanted column: it is that, or inside it."""
    path = chunk.path_in_schema
    return any(path == name or path.startswith(name + ".") for name in wanted)

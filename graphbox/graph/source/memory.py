"""Tables in memory: Arrow tables and streams (Polars, DuckDB, pandas), and mappings of NumPy arrays."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from graphbox.errors import DataError
from graphbox.graph.source.record_batches import bounded_batches
from graphbox.graph.source.table import Batch, Table, check_columns


class StreamTable(Table):
    """An object with ``__arrow_c_stream__``: a data frame or table, or a stream that can be read once."""

    def __init__(self, data: Any, name: str) -> None:
        self.name = name
        self._data = data
        self.reiterable = not isinstance(data, pa.RecordBatchReader) and hasattr(data, "__len__")
        nbytes = getattr(data, "nbytes", None)
        self.size_bytes = nbytes if isinstance(nbytes, int) and self.reiterable else None
        self._stream: pa.RecordBatchReader | None = None  # opened and not read yet
        self._names: tuple[str, ...] | None = None

    def column_names(self) -> tuple[str, ...]:
        """Return the names of the columns, in order."""
        if self._names is None:
            self._stream = self._open()
            self._names = tuple(self._stream.schema.names)
        return self._names

    def batches(self, columns: Sequence[str], *, batch_bytes: int) -> Iterator[Batch]:
        """Yield the rows of some columns, in order; see :meth:`Table.batches`."""
        wanted = check_columns(self.name, columns, self.column_names())
        # One stream at a time: a connection of DuckDB has no more.
        stream, self._stream = self._stream, None
        if stream is None:
            if not self.reiterable:
                raise DataError(
                    "expected a stream that was not read yet, received one that was; it can be read once",
                    where=self.name,
                    hint="pass a table or a file, or one stream for each use",
                )
            stream = self._open()
        return self._read(stream, wanted, batch_bytes)

    def _open(self) -> pa.RecordBatchReader:
        if isinstance(self._data, pa.RecordBatchReader):
            return self._data
        try:
            return pa.RecordBatchReader.from_stream(self._data)
        except Exception as error:
            raise self._unreadable(error) from error

    def _read(
        self, stream: pa.RecordBatchReader, wanted: tuple[str, ...], batch_bytes: int
    ) -> Iterator[Batch]:
        num_rows = 0 if self.size_bytes is None else len(self._data)
        consumed = 0

        def read_bytes(rows: int) -> int:
            return consumed if self.size_bytes is None else self.size_bytes * rows // num_rows

        def counted() -> Iterator[pa.RecordBatch]:
            nonlocal consumed
            for record_batch in stream:
                consumed += record_batch.nbytes
                yield record_batch

        try:
            yield from bounded_batches(counted(), wanted, batch_bytes, read_bytes)
        except (pa.ArrowException, OSError) as error:  # what the producer of the stream says
            raise self._unreadable(error) from error

    def _unreadable(self, error: Exception) -> DataError:
        reason = (str(error) or type(error).__name__).splitlines()[0][:200]
        return DataError(f"expected an Arrow stream of record batches, received: {reason}", where=self.name)


def arrow_table(data: Mapping[str, Any], name: str) -> pa.Table:
    """Return arrays or sequences by column name as an Arrow table; [n, dim] becomes a column of vectors.

    Raises:
        DataError: they differ in length, or one is no column.
    """
    columns = {column: _column(values, f"{name}, column `{column}`") for column, values in data.items()}
    lengths = {column: len(values) for column, values in columns.items()}
    if len(set(lengths.values())) > 1:
        shown = ", ".join(f"`{column}` {length:,}" for column, length in lengths.items())
        raise DataError(f"expected columns of one length, received {shown}", where=name)
    return pa.table(columns)


def _column(values: Any, where: str) -> pa.Array | pa.ChunkedArray:
    if isinstance(values, pa.Array | pa.ChunkedArray):
        return values
    try:
        array = np.asarray(values)
    except ValueError as error:
        raise DataError(f"expected an array, received {error}", where=where) from None
    if array.ndim not in {1, 2}:
        raise DataError(f"expected an array [n] or [n, dim], received shape {list(array.shape)}", where=where)
    return array_from_numpy(array, where)


def array_from_numpy(values: np.ndarray[Any, np.dtype[Any]], where: str) -> pa.Array:
    """Return a NumPy array [n] or [n, dim] as Arrow; text is large_string, [n, dim] fixed-size lists.

    Raises:
        DataError: the array holds something that is no column (objects of mixed kinds, complex numbers).
    """
    if values.ndim == 2:
        flat = array_from_numpy(np.ascontiguousarray(values).reshape(-1), where)
        if values.shape[1] == 0:
            raise DataError("expected vectors of at least one number, received none", where=where)
        return pa.FixedSizeListArray.from_arrays(flat, values.shape[1])
    if not values.dtype.isnative:
        values = values.astype(values.dtype.newbyteorder("="))
    try:
        if values.dtype.kind in "US":
            kind = pa.large_string() if values.dtype.kind == "U" else pa.large_binary()
            return pa.array(values.tolist(), kind).cast(pa.large_string())
        result = pa.array(np.ascontiguousarray(values))
    except (pa.ArrowException, UnicodeError) as error:
        reason = str(error).splitlines()[0][:200]
        raise DataError(
            f"expected numbers, text or times, received {values.dtype}: {reason}", where=where
        ) from None
    return result.cast(pa.large_string()) if pa.types.is_string(result.type) else result

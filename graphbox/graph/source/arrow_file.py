"""Arrow IPC: files (Feather version 2) and streams."""

from __future__ import annotations

import contextlib
import mmap
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa

from graphbox.graph.source.formats import FileOptions
from graphbox.graph.source.location import InputFile
from graphbox.graph.source.read_ahead import read_ahead
from graphbox.graph.source.record_batches import bounded_batches
from graphbox.graph.source.table import Batch, Table, check_columns

_FILE_MAGIC = b"ARROW1"


class ArrowFileTable(Table):
    """One Arrow IPC file or stream, told apart by how it starts.

    A local file is mapped and read in pieces of a record batch. A compressed record batch, or one that is
    not in a local file, is in memory whole while it is read.
    """

    def __init__(self, file: InputFile, options: FileOptions) -> None:
        del options  # nothing to choose
        self._file = file
        self.name = file.name
        self.size_bytes = file.size_bytes
        self._known_schema: pa.Schema | None = None

    def column_names(self) -> tuple[str, ...]:
        """Return the names of the columns, in order."""
        return tuple(self._schema().names)

    def column_types(self) -> Mapping[str, pa.DataType]:
        """Return the types of the columns."""
        return {field.name: field.type for field in self._schema()}

    def _schema(self) -> pa.Schema:
        if self._known_schema is None:
            with self._readable(), self._file.open() as stream:
                self._known_schema = _open_reader(stream, None).schema
        return self._known_schema

    def batches(self, columns: Sequence[str], *, batch_bytes: int) -> Iterator[Batch]:
        """Yield the rows of some columns, in order; see :meth:`Table.batches`."""
        wanted = check_columns(self.name, columns, self.column_names())
        return read_ahead(self._read(wanted, batch_bytes), depth=1)

    def _read(self, wanted: tuple[str, ...], batch_bytes: int) -> Iterator[Batch]:
        mapped = self._file.map()
        with self._readable():
            if mapped is None or not _is_usable_in_place(pa.py_buffer(mapped)):
                yield from self._read_whole_batches(wanted, batch_bytes)
                return
            stream = pa.BufferReader(pa.py_buffer(mapped))
            for batch in _batches(_open_reader(stream, None), wanted, batch_bytes, stream):
                yield batch
                mapped.madvise(mmap.MADV_DONTNEED)  # what is still used is mapped again when it is touched

    def _read_whole_batches(self, wanted: tuple[str, ...], batch_bytes: int) -> Iterator[Batch]:
        names = self.column_names()
        with self._file.open() as stream:
            reader = _open_reader(stream, [names.index(name) for name in wanted])
            yield from _batches(reader, wanted, batch_bytes, stream)

    @contextlib.contextmanager
    def _readable(self) -> Iterator[None]:
        try:
            yield
        except (pa.ArrowException, OSError) as error:
            raise self._file.unreadable(
                error, "an Arrow IPC file or stream", "write the file again as Arrow IPC (Feather version 2)"
            ) from None  # the cause may hold credentials


def _open_reader(stream: pa.NativeFile, columns: list[int] | None) -> Any:
    """Return the reader of a file or stream; of all columns, or of some, whose bytes are then copied."""
    is_file = stream.read(len(_FILE_MAGIC)) == _FILE_MAGIC
    stream.seek(0)
    open_reader = pa.ipc.open_file if is_file else pa.ipc.open_stream
    return open_reader(stream, options=pa.ipc.IpcReadOptions(included_fields=columns))


def _batches(
    reader: Any, wanted: tuple[str, ...], batch_bytes: int, stream: pa.NativeFile
) -> Iterator[Batch]:
    size_bytes = stream.size()
    num_batches = getattr(reader, "num_record_batches", None)
    done = 0

    def record_batches() -> Iterator[pa.RecordBatch]:
        nonlocal done
        if num_batches is None:
            yield from reader
            return
        for index in range(num_batches):
            yield reader.get_batch(index)
            done = index + 1

    def read_bytes(_: int) -> int:
        return (
            int(stream.tell())
            if num_batches is None
            else size_bytes * min(done + 1, num_batches) // num_batches
        )

    yield from bounded_batches(record_batches(), wanted, batch_bytes, read_bytes, validate=True)


def _is_usable_in_place(file: pa.Buffer) -> bool:
    """Return whether the arrays of an IPC file are used where they lie: they are not compressed."""
    reader = _open_reader(pa.BufferReader(file), None)
    if getattr(reader, "num_record_batches", 1) == 0:
        return True
    try:
        first = reader.get_batch(0) if hasattr(reader, "get_batch") else reader.read_next_batch()
    except StopIteration:
        return True
    buffers = [buffer for column in first.columns for buffer in column.buffers() if buffer is not None]
    return all(0 <= buffer.address - file.address <= file.size for buffer in buffers if buffer.size)

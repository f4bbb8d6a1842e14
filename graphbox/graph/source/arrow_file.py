"""Arrow IPC: files (Feather version 2) and streams."""

from __future__ import annotations

import contextlib
import mmap
from collections.abc import Iterator
from typing import Any

import pyarrow as pa

from graphbox.graph.source.record_batches import FileWithSchema, bounded_batches
from graphbox.graph.source.table import Batch

_FILE_MAGIC = b"ARROW1"


class ArrowFileTable(FileWithSchema):
    """One Arrow IPC file or stream, told apart by how it starts.

    A local file is mapped and read in pieces of a record batch. A compressed record batch, or one that is
    not in a local file, is in memory whole while it is read.
    """

    def _read_schema(self) -> pa.Schema:
        with self._readable(), self._file.open() as stream:
            return _open_reader(stream, None).schema

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

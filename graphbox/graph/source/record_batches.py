"""Files of Arrow record batches of any size, read as batches of bounded size."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from graphbox.graph.source.formats import FileOptions
from graphbox.graph.source.location import InputFile
from graphbox.graph.source.read_ahead import read_ahead
from graphbox.graph.source.table import Batch, Table, check_columns, plain_column

_ENOUGH = 4
"""A quarter of a batch is not joined with what follows: that would copy more than it saves."""


class FileWithSchema(Table):
    """One file that says the names and types of its columns."""

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

    def batches(self, columns: Sequence[str], *, batch_bytes: int) -> Iterator[Batch]:
        """Yield the rows of some columns, in order; see :meth:`Table.batches`."""
        wanted = check_columns(self.name, columns, self.column_names())
        return read_ahead(self._read(wanted, batch_bytes), depth=1)

    def _schema(self) -> pa.Schema:
        if self._known_schema is None:
            self._known_schema = self._read_schema()
        return self._known_schema

    @abstractmethod
    def _read_schema(self) -> pa.Schema: ...

    @abstractmethod
    def _read(self, wanted: tuple[str, ...], batch_bytes: int) -> Iterator[Batch]: ...


def bounded_batches(
    record_batches: Iterator[pa.RecordBatch],
    columns: Sequence[str],
    batch_bytes: int,
    read_bytes: Callable[[int], int],
    *,
    validate: bool = False,
) -> Iterator[Batch]:
    """Yield record batches as batches of at most about ``batch_bytes``: small ones joined, large ones cut.

    Args:
        record_batches: the rows; they may have further columns.
        columns: the wanted columns.
        batch_bytes: about the most bytes of a batch.
        read_bytes: gives the bytes of input consumed from the number of rows that were yielded.
        validate: check that the arrays are consistent, where they come from a file as they are.

    Raises:
        pyarrow.ArrowException: the arrays are not consistent.
    """
    first_row = 0
    pending: list[list[pa.Array]] = []
    pending_bytes = 0
    check = _Check() if validate else None

    def join() -> Batch:
        joined = (
            pending[0] if len(pending) == 1 else [pa.concat_arrays(p) for p in zip(*pending, strict=True)]
        )
        num_rows = len(joined[0])
        return Batch(
            dict(zip(columns, joined, strict=True)),
            num_rows=num_rows,
            first_row=first_row,
            read_bytes=read_bytes(first_row + num_rows),
        )

    for record_batch in record_batches:
        chosen = [record_batch.column(name) for name in columns]
        for encoded in _cut(chosen, batch_bytes, check):
            piece = [plain_column(column) for column in encoded]
            piece_bytes = sum(column.nbytes for column in piece)
            is_enough = pending_bytes * _ENOUGH >= batch_bytes or pending_bytes + piece_bytes > batch_bytes
            if pending and is_enough:
                batch = join()
                yield batch
                first_row += batch.num_rows
                pending, pending_bytes = [], 0
            pending.append(piece)
            pending_bytes += piece_bytes
    if pending:
        yield join()


def _cut(columns: list[pa.Array], batch_bytes: int, check: _Check | None) -> Iterator[list[pa.Array]]:
    """Yield slices of about ``batch_bytes`` at most, at least one row each."""
    if not columns or not len(columns[0]):
        return
    if check is not None:
        check.buffers(columns)
    num_rows = len(columns[0])
    size = max(1, sum(_decoded_bytes(column) for column in columns))
    rows = max(1, num_rows * batch_bytes // size)
    for start in range(0, num_rows, rows):
        piece = [column.slice(start, rows) for column in columns]
        if check is not None:
            check.values(piece)
        yield piece


def _decoded_bytes(column: pa.Array) -> int:
    """Return about how many bytes a column takes when its dictionary is decoded."""
    if pa.types.is_dictionary(column.type):
        dictionary = column.dictionary
        return len(column) * (8 + int(dictionary.nbytes) // max(1, len(dictionary)))
    return int(column.nbytes)


class _Check:
    """Checks arrays that come from a file as they are; a dictionary that batches share only once."""

    def __init__(self) -> None:
        self._dictionaries: dict[int, pa.Array] = {}  # the latest checked one by position of the column

    def buffers(self, columns: list[pa.Array]) -> None:
        """Check that the buffers of arrays are as large as they must be, and all of their dictionaries."""
        for position, column in enumerate(columns):
            column.validate()
            if not pa.types.is_dictionary(column.type):
                continue
            checked = self._dictionaries.get(position)
            if checked is None or _buffers(checked) != _buffers(column.dictionary):
                column.dictionary.validate(full=True)
                self._dictionaries[position] = column.dictionary

    def values(self, columns: list[pa.Array]) -> None:
        """Check the values of slices: offsets, UTF-8, and indices into a dictionary."""
        for column in columns:
            if not pa.types.is_dictionary(column.type):
                column.validate(full=True)
                continue
            size = len(column.dictionary)
            bounds = pc.min_max(column.indices).as_py()
            if bounds["min"] is not None and not 0 <= bounds["min"] <= bounds["max"] < size:
                raise pa.ArrowInvalid(
                    f"indices {bounds['min']} to {bounds['max']} into a dictionary of {size}"
                )


def _buffers(array: pa.Array) -> list[tuple[int, int] | None]:
    return [None if buffer is None else (buffer.address, buffer.size) for buffer in array.buffers()]

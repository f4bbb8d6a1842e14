"""NumPy files: ``.npz`` with a column in each array, ``.npy`` with a structured or two-dimensional array."""

from __future__ import annotations

import contextlib
import math
import zipfile
import zlib
from abc import abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import IO, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from numpy.lib import format as npy_format

from graphbox.errors import DataError
from graphbox.graph.source.formats import FileOptions
from graphbox.graph.source.location import InputFile
from graphbox.graph.source.memory import array_from_numpy
from graphbox.graph.source.read_ahead import read_ahead
from graphbox.graph.source.table import Batch, Table, check_columns

_SUFFIX = ".npy"
_TOO_LONG = "expected the array to end where its header says, received more bytes"


@dataclass(frozen=True)
class _Header:
    """Header of a .npy file."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]

    @property
    def row_shape(self) -> tuple[int, ...]:
        return self.shape[1:]

    @property
    def row_bytes(self) -> int:
        return self.dtype.itemsize * math.prod(self.row_shape)


class _NumpyTable(Table):
    """Base class of both kinds of NumPy files: arrays of one length, read side by side, row by row."""

    def __init__(self, file: InputFile, options: FileOptions) -> None:
        self.name = file.name
        self.size_bytes = file.size_bytes
        self._file = file
        self._given_names = options.names

    def batches(self, columns: Sequence[str], *, batch_bytes: int) -> Iterator[Batch]:
        """Yield the rows of some columns, in order; see :meth:`Table.batches`."""
        wanted = check_columns(self.name, columns, self.column_names())
        return read_ahead(self._read(wanted, batch_bytes), depth=1)

    @abstractmethod
    def _read(self, wanted: tuple[str, ...], batch_bytes: int) -> Iterator[Batch]: ...

    @contextlib.contextmanager
    def _readable(self) -> Iterator[None]:
        try:
            yield
        except (zipfile.BadZipFile, zlib.error, ValueError, EOFError, OSError, NotImplementedError) as error:
            raise self._file.unreadable(
                error, "a NumPy file", "write it again with numpy.savez or numpy.save"
            ) from None

    def _read_header(self, stream: IO[bytes], where: str) -> _Header:
        version = npy_format.read_magic(stream)
        if version == (1, 0):
            shape, fortran_order, dtype = npy_format.read_array_header_1_0(stream)
        elif version == (2, 0):
            shape, fortran_order, dtype = npy_format.read_array_header_2_0(stream)
        else:
            raise DataError(
                f"expected version 1.0 or 2.0 of the .npy format, received {version}", where=where
            )
        if dtype.hasobject:
            raise DataError(
                "expected an array of numbers, text or times, received Python objects",
                where=where,
                hint="objects are stored as pickles, which can run code and are never read; convert them, "
                "e.g. array.astype(str)",
            )
        if len(shape) not in {1, 2}:
            raise DataError(f"expected an array [n] or [n, dim], received shape {list(shape)}", where=where)
        if fortran_order and min(shape) > 1:
            raise DataError(
                "expected an array in C order, received one in Fortran order",
                where=where,
                hint="save numpy.ascontiguousarray(array)",
            )
        return _Header(shape, dtype)

    def _rows(self, stream: IO[bytes], header: _Header, count: int) -> npt.NDArray[Any]:
        """Read the next rows of an array."""
        size = count * header.row_bytes
        parts = []
        while size > 0:
            part = stream.read(size)
            if not part:
                raise EOFError(f"the file ends {size:,} bytes early")
            parts.append(part)
            size -= len(part)
        return np.frombuffer(b"".join(parts), header.dtype).reshape(count, *header.row_shape)

    def _progress(self, rows: int, num_rows: int) -> int:
        return (self.size_bytes or 0) * rows // max(num_rows, 1)


class NpzTable(_NumpyTable):
    """An ``.npz`` file: a column for each array, of vectors where it is [n, dim]; read in pieces."""

    def column_names(self) -> tuple[str, ...]:
        """Return the names of the arrays, in order."""
        with self._archive() as archive:
            return tuple(name.removesuffix(_SUFFIX) for name in archive.namelist() if name.endswith(_SUFFIX))

    def _read(self, wanted: tuple[str, ...], batch_bytes: int) -> Iterator[Batch]:
        with self._archive() as archive, contextlib.ExitStack() as opened:
            streams = {name: opened.enter_context(archive.open(name + _SUFFIX)) for name in wanted}
            headers = {name: self._read_header(streams[name], self._place(name)) for name in wanted}
            for name, header in headers.items():
                if header.dtype.names is not None:
                    raise DataError("expected an array without fields, received one", where=self._place(name))
            num_rows = self._num_rows(headers)
            step = max(1, batch_bytes // max(1, sum(header.row_bytes for header in headers.values())))
            for start in range(0, num_rows, step):
                count = min(step, num_rows - start)
                yield Batch(
                    {
                        name: array_from_numpy(self._rows(streams[name], header, count), self._place(name))
                        for name, header in headers.items()
                    },
                    num_rows=count,
                    first_row=start,
                    read_bytes=self._progress(start + count, num_rows),
                )
            for name, stream in streams.items():
                if stream.read(1):  # which also makes the archive compare its checksum
                    raise DataError(_TOO_LONG, where=self._place(name))

    def _num_rows(self, headers: dict[str, _Header]) -> int:
        lengths = {name: header.shape[0] for name, header in headers.items()}
        if len(set(lengths.values())) > 1:
            shown = ", ".join(f"`{name}` {length:,}" for name, length in lengths.items())
            raise DataError(
                f"expected arrays of one length, received {shown}",
                where=self.name,
                hint="a file holds one table: save the columns of each type in a file of their own",
            )
        return next(iter(lengths.values()), 0)

    def _place(self, name: str) -> str:
        return f"{self.name}, array `{name}`"

    @contextlib.contextmanager
    def _archive(self) -> Iterator[zipfile.ZipFile]:
        with self._readable(), self._file.open() as stream, zipfile.ZipFile(stream) as archive:
            yield archive


class NpyTable(_NumpyTable):
    """An ``.npy`` file: a column for each field of a structured array, or each column of one [n, dim].

    The columns of an array without fields are called as the options say, else ``0``, ``1``, and so on.
    """

    def column_names(self) -> tuple[str, ...]:
        """Return the names of the columns, in order."""
        with self._opened() as (_, header):
            return self._names(header)

    def _read(self, wanted: tuple[str, ...], batch_bytes: int) -> Iterator[Batch]:
        with self._opened() as (stream, header):
            names = self._names(header)
            num_rows = header.shape[0]
            step = max(1, batch_bytes // max(1, 2 * header.row_bytes))
            for start in range(0, num_rows, step):
                rows = self._rows(stream, header, min(step, num_rows - start))
                yield Batch(
                    {name: self._column(rows, name, names.index(name)) for name in wanted},
                    num_rows=len(rows),
                    first_row=start,
                    read_bytes=self._progress(start + len(rows), num_rows),
                )
            if stream.read(1):
                raise DataError(_TOO_LONG, where=self.name)

    def _column(self, rows: npt.NDArray[Any], name: str, position: int) -> pa.Array:
        if rows.dtype.names is not None:
            values = rows[rows.dtype.names[position]]
        else:
            values = rows if rows.ndim == 1 else rows[:, position]
        return array_from_numpy(values, f"{self.name}, column `{name}`")

    def _names(self, header: _Header) -> tuple[str, ...]:
        if header.dtype.names is not None and len(header.shape) == 1:
            found: tuple[str, ...] = header.dtype.names
        else:
            found = tuple(str(position) for position in range(math.prod(header.row_shape)))
        if self._given_names is None:
            return found
        if len(self._given_names) != len(found):
            raise DataError(
                f"expected {len(self._given_names)} columns, as names are given, received an array "
                f"{list(header.shape)}",
                where=self.name,
                hint="edges [2, n] are saved the other way round: numpy.ascontiguousarray(edge_index.T)",
            )
        return self._given_names

    @contextlib.contextmanager
    def _opened(self) -> Iterator[tuple[pa.NativeFile, _Header]]:
        with self._readable(), self._file.open() as stream:
            yield stream, self._read_header(stream, self.name)

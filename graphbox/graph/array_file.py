"""Array files: ``.npy`` files with one header they may have, streamed out, checked and memory-mapped."""

from __future__ import annotations

import math
import mmap
import os
import struct
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from io import FileIO
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from graphbox.errors import FormatError, UsageError

HEADER_BYTES = 128
"""Where the data of every array file starts."""

_MAGIC = b"\x93NUMPY\x01\x00"
_DTYPES = ("<f4", "<i4", "<i8", "|b1", "|u1")
_BLOCK_BYTES = 1 << 24
_SMALL_BYTES = 1 << 20
_HINT = "import the graph again"

Array = npt.NDArray[Any]


@dataclass(frozen=True)
class ArrayFile:
    """Where an array lies on disk, in row-major order.

    Attributes:
        path: the file.
        offset: byte at which the data starts.
        dtype: type of its numbers.
        shape: its shape.
    """

    path: Path
    offset: int
    dtype: np.dtype[Any]
    shape: tuple[int, ...]

    @property
    def data_bytes(self) -> int:
        """Bytes of the data."""
        return self.dtype.itemsize * math.prod(self.shape)


def array_header(dtype: np.dtype[Any], shape: tuple[int, ...]) -> bytes:
    """Return the header of a ``.npy`` file of version 1.0, padded with spaces to :data:`HEADER_BYTES`.

    Written here and not by NumPy, whose padding differs between versions: a file has one header it may have,
    and one of a constant length can be put in front of data whose length is known only when it is written.
    """
    text = f"{{'descr': {dtype.str!r}, 'fortran_order': False, 'shape': {shape!r}, }}".encode()
    padding = HEADER_BYTES - len(_MAGIC) - 2 - len(text) - 1
    if padding < 0:
        raise UsageError(f"expected an array of few dimensions, received shape {list(shape)}")
    return _MAGIC + struct.pack("<H", len(text) + padding + 1) + text + b" " * padding + b"\n"


class ArrayWriter:
    """Writes one array file as a stream of blocks of rows.

    Until :meth:`close` the file has no header; a writer that is thrown away leaves a file that is no array.
    Small files are left to the caller to fsync, who does many of them at once.

    Args:
        path: the file, which must not be there yet.
        dtype: type of the numbers.
        row_shape: shape of one row; () for a flat array.
        on_close: called with the shape and the CRC-32C of the data once the file is written.
        on_failure: makes the exception to raise of an ``OSError`` and the bytes that the file has to hold.
    """

    def __init__(
        self,
        path: Path,
        dtype: npt.DTypeLike,
        row_shape: tuple[int, ...] = (),
        *,
        on_close: Callable[[tuple[int, ...], int], str],
        on_failure: Callable[[OSError, int], Exception],
    ) -> None:
        self.path = path
        self.dtype = np.dtype(dtype)
        if self.dtype.str not in _DTYPES:
            raise UsageError(
                f"expected one of {', '.join(_DTYPES)}, received {self.dtype.str!r}", where=str(path)
            )
        self._row_shape = row_shape
        self._on_close = on_close
        self._on_failure = on_failure
        self._rows = 0
        self._digest = 0
        self._file = path.open("xb", buffering=0)
        self._file.seek(HEADER_BYTES)

    @property
    def num_rows(self) -> int:
        """Rows written so far."""
        return self._rows

    def append(self, array: Array) -> None:
        """Write rows [n, *row_shape] after those before; they must be of the array's dtype.

        Raises:
            UsageError: the rows are of another type or shape.
        """
        from graphbox._core import crc32c  # loaded by writers only: opening a graph does without

        if array.dtype != self.dtype or array.shape[1:] != self._row_shape or array.ndim == 0:
            raise UsageError(
                f"expected rows {self.dtype.str} {list(self._row_shape)}, received {array.dtype.str} "
                f"{list(array.shape[1:])}",
                where=str(self.path),
            )
        content = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
        self._rows += len(array)
        try:
            for start in range(0, len(content), _BLOCK_BYTES):
                block = content[start : start + _BLOCK_BYTES]
                self._digest = crc32c(block, self._digest)
                _write_all(self._file, block.data)
        except OSError as error:
            raise self._on_failure(error, self._size_bytes) from error

    @property
    def is_synced(self) -> bool:
        """Whether :meth:`close` had, or will have, the file on disk."""
        return self._size_bytes > _SMALL_BYTES

    @property
    def _size_bytes(self) -> int:
        return HEADER_BYTES + self.dtype.itemsize * math.prod((self._rows, *self._row_shape))

    def close(self) -> str:
        """Write the header, have the file on disk unless it is small, and return the array's path."""
        shape = (self._rows, *self._row_shape)
        with self._file as file:
            try:
                file.seek(0)
                _write_all(file, memoryview(array_header(self.dtype, shape)))
                if self.is_synced:
                    os.fsync(file.fileno())
            except OSError as error:
                raise self._on_failure(error, self._size_bytes) from error
        return self._on_close(shape, self._digest)

    def discard(self) -> None:
        """Close the file without finishing it."""
        self._file.close()


def _write_all(file: FileIO, content: memoryview) -> None:
    """Write all of it: one call may write less, and then the next one says why."""
    while content:
        content = content[file.write(content) :]


def check_array(path: Path, entry: Mapping[str, Any]) -> ArrayFile:
    """Compare a file's size and header with what a manifest says of it; its data is not read.

    Args:
        path: the file.
        entry: ``bytes``, ``dtype`` and ``shape``.

    Raises:
        FormatError: the file is missing, or is another one.
    """
    dtype, shape = _described(path, entry)
    with _opened(path) as descriptor:
        _check_open(descriptor, path, entry, dtype, shape)
    return ArrayFile(path, HEADER_BYTES, dtype, shape)


def map_array(path: str | Path, entry: Mapping[str, Any]) -> Array:
    """Check an array file as :func:`check_array` does and map it into memory, read-only.

    Raises:
        FormatError: the file is missing, or is another one.
    """
    dtype, shape = _described(path, entry)
    with _opened(path) as descriptor:
        size = _check_open(descriptor, path, entry, dtype, shape)
        if 0 in shape:
            return np.empty(shape, dtype)
        mapped = mmap.mmap(descriptor, size, access=mmap.ACCESS_READ)
    return np.frombuffer(mapped, dtype, math.prod(shape), HEADER_BYTES).reshape(shape)


@contextmanager
def _opened(path: str | Path) -> Iterator[int]:
    """Yield a descriptor of a file that a manifest names."""
    try:
        descriptor = os.open(path, os.O_RDONLY)
    except FileNotFoundError as error:
        raise FormatError(
            "expected the file that the manifest names, found none", where=str(path), hint=_HINT
        ) from error
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _described(path: str | Path, entry: Mapping[str, Any]) -> tuple[np.dtype[Any], tuple[int, ...]]:
    if entry["dtype"] not in _DTYPES:
        raise FormatError(
            f"expected one of {', '.join(_DTYPES)}, received {entry['dtype']!r}", where=str(path)
        )
    return np.dtype(entry["dtype"]), tuple(entry["shape"])


def _check_open(
    descriptor: int, path: str | Path, entry: Mapping[str, Any], dtype: np.dtype[Any], shape: tuple[int, ...]
) -> int:
    """Check size and header of an open file and return its size."""
    size = os.fstat(descriptor).st_size
    if size != entry["bytes"]:
        raise FormatError(
            f"expected {entry['bytes']:,} bytes, received {size:,}: the file is damaged or truncated",
            where=str(path),
            hint=_HINT,
        )
    header = array_header(dtype, shape)
    if os.pread(descriptor, len(header), 0) != header or size != HEADER_BYTES + dtype.itemsize * math.prod(
        shape
    ):
        raise FormatError(
            f"expected the header of a .npy array {dtype.str} {list(shape)}, received another one",
            where=str(path),
            hint=_HINT,
        )
    return size


def digest_of(array: Array) -> int:
    """Return the CRC-32C of the data of a mapped array, whose pages are given back behind it."""
    from graphbox._core import crc32c

    content = array.reshape(-1).view(np.uint8)
    digest = 0
    for start in range(0, len(content), _BLOCK_BYTES):
        digest = crc32c(content[start : start + _BLOCK_BYTES], digest)
        release_pages(array)
    return digest


def release_pages(array: Array) -> None:
    """Take the pages of a mapped array out of the process; they are read again when they are used again.

    What reads a graph once from end to end calls this behind itself, so that its memory stays bounded.
    """
    base: Any = array
    while isinstance(base, np.ndarray):
        base = base.base
    if isinstance(base, memoryview):
        base = base.obj
    if isinstance(base, mmap.mmap):
        base.madvise(mmap.MADV_DONTNEED)

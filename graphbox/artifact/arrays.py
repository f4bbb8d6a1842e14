"""Arrays of a model version, as private copies of its files; see `graphbox.artifact.copies`."""

from __future__ import annotations

import io
import math
import mmap
import os
import re
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, Final

import numpy as np
import numpy.typing as npt

from graphbox.durable import NO_ROOM
from graphbox.errors import DataError, DoesNotFitError, FormatError

LARGEST_IN_MEMORY_BYTES: Final = 1 << 30
"""Size of the largest file that is copied into memory; copies of larger ones lie on disk."""
_BLOCK_BYTES = 1 << 24
_CACHE_LINE_BYTES = 64
# Of the magic, the length of the header and the longest header.
_LONGEST_START_BYTES = 8 + 2 + (1 << 16)
_MAGIC = b"\x93NUMPY\x01\x00"
_HEADER = re.compile(
    rb"\{'descr': '(?P<dtype>[<|][biuf][1248])', 'fortran_order': False, "
    rb"'shape': \((?P<shape>|[0-9]{1,18},|[0-9]{1,18}(, [0-9]{1,18}){1,7})\), \} *\n"
)


def private_array(file: Path, largest_in_memory_bytes: int = LARGEST_IN_MEMORY_BYTES) -> npt.NDArray[Any]:
    """Return the array of a ``.npy`` file, read-only, unaffected by later changes of the file.

    A small file is read into memory. A larger one is copied to an unnamed file, which is mapped: its pages
    are read when they are used and can be evicted. The copy lies beside the file, or in the temporary folder
    if the file's folder cannot be written to.

    Args:
        file: with an array that needs no pickle.
        largest_in_memory_bytes: size of the largest file that is read into memory.

    Raises:
        FormatError: the file holds no such array, or less of it than its header says.
        DoesNotFitError: there is no room for the copy.
    """
    try:
        if file.stat().st_size <= largest_in_memory_bytes:
            with file.open("rb") as stream:
                dtype, shape, _ = _read_header(stream, os.fstat(stream.fileno()).st_size)
                content = _aligned_bytes(math.prod(shape) * dtype.itemsize)
                if stream.readinto(content.data) != len(content):
                    raise ValueError("the file became shorter")
            array = content.view(dtype).reshape(shape)
            array.setflags(write=False)
            return array
        with _unnamed_copy(file) as copy, open(copy, "rb", closefd=False) as stream:
            dtype, shape, start = _read_header(stream, os.fstat(copy).st_size)
            mapped = np.memmap(f"/proc/self/fd/{copy}", dtype, "r", start, shape)
            return mapped.view(np.ndarray)
    except (ValueError, OSError) as error:
        raise _unreadable(file, error) from error


def mapped_array(content: mmap.mmap, file: Path) -> npt.NDArray[Any]:
    """Return the array of a mapped ``.npy`` file, read-only if the mapping is.

    Args:
        content: the whole file; stays mapped as long as the array is used.
        file: named in messages.

    Raises:
        FormatError: the content is no such array, or less of it than its header says.
    """
    try:
        dtype, shape, start = _read_header(io.BytesIO(content[:_LONGEST_START_BYTES]), len(content))
    except ValueError as error:
        raise _unreadable(file, error) from error
    array = np.ndarray(shape, dtype, content, start)
    return array if array.flags.aligned else array.copy()  # NumPy's own headers end at a cache line


def reserve(descriptor: int, size_bytes: int, folder: Path, file: Path) -> None:
    """Reserve disk space for a copy: a page that finds no room when it is first written ends the process.

    Args:
        descriptor: of the copy.
        size_bytes: of the file.
        folder: where the copy lies, named in messages.
        file: that is copied, named in messages.

    Raises:
        DoesNotFitError: there is no room.
    """
    try:
        os.posix_fallocate(descriptor, 0, size_bytes)
    except OSError as error:
        if error.errno not in NO_ROOM:
            raise
        raise DoesNotFitError(
            f"expected {size_bytes} bytes free in {folder} for a copy of {file.name}: {error.strerror}",
            where=str(file),
            hint="free disk space, or set TMPDIR to a folder with more where the model is read-only",
        ) from error


def copy_folder(file: Path) -> Path:
    """Return the folder of a file's copy on disk: its own, or the temporary one where that is read-only."""
    return file.parent if os.access(file.parent, os.W_OK) else Path(tempfile.gettempdir())


def _unreadable(file: Path, error: Exception) -> FormatError:
    return FormatError(f"expected an array, could not read one ({error})", where=str(file))


def _aligned_bytes(size_bytes: int) -> npt.NDArray[np.uint8]:
    """Return memory that begins at a cache line, where rows of 64 codes lie in one line instead of two."""
    memory = np.empty(size_bytes + _CACHE_LINE_BYTES, np.uint8)
    start = -memory.ctypes.data % _CACHE_LINE_BYTES
    return memory[start : start + size_bytes]


def _read_header(stream: IO[bytes], size_bytes: int) -> tuple[np.dtype[Any], tuple[int, ...], int]:
    """Return dtype and shape of a ``.npy`` file of version 1.0, and where its numbers begin.

    Args:
        stream: at least the start of the file.
        size_bytes: of the file.

    NumPy evaluates headers as Python, which raises a dozen exceptions, and allocates what a header claims
    before it reads.

    Raises:
        ValueError: there is no such header, or the file has more or fewer numbers than it says.
    """
    stream.seek(0)
    start = stream.read(len(_MAGIC) + 2)
    header = stream.read(int.from_bytes(start[len(_MAGIC) :], "little"))
    found = _HEADER.fullmatch(header) if start.startswith(_MAGIC) else None
    if found is None:
        raise ValueError(f"the header is not that of a row-major array of numbers: {start + header!r:.160}")
    dtype = np.dtype(found["dtype"].decode())
    shape = tuple(int(size) for size in found["shape"].split(b",") if size.strip())
    expected, received = math.prod(shape) * dtype.itemsize, size_bytes - stream.tell()
    if expected != received:
        raise ValueError(f"the header is of {expected} bytes of numbers, there are {received}")
    return dtype, shape, stream.tell()


@contextmanager
def _unnamed_copy(file: Path) -> Iterator[int]:
    """Copy a file to one without a name; give its descriptor."""
    folder = copy_folder(file)
    with file.open("rb") as source, tempfile.TemporaryFile(dir=folder) as copy:
        size = os.fstat(source.fileno()).st_size
        reserve(copy.fileno(), size, folder, file)
        copied = 0
        while copied < size:
            sent = os.sendfile(copy.fileno(), source.fileno(), copied, size - copied)
            if not sent:
                raise FormatError(f"expected {size} bytes, the file became shorter", where=str(file))
            copied += sent
        yield copy.fileno()


def write_array(
    stream: IO[bytes], array: npt.NDArray[Any], rows: npt.NDArray[np.int64] | None = None
) -> None:
    """Write an array as ``.npy``, row-major and little-endian, a block of rows at a time.

    Unlike `numpy.save` it raises an error with its number where the disk is full, and an array that is mapped
    may be larger than memory.

    Args:
        stream: where to.
        array: of one dimension or more, of any dtype but object.
        rows: which rows to write, in their order; None: all.

    Raises:
        OSError: the system refuses to write.
    """
    little = array.dtype.newbyteorder("<")
    count = len(array) if rows is None else len(rows)
    _write_header(stream, little, (count, *array.shape[1:]))
    row_bytes = max(1, array.itemsize * int(np.prod(array.shape[1:])))
    step = max(1, _BLOCK_BYTES // row_bytes)
    for start in range(0, count, step):
        part = slice(start, start + step)
        block = array[part] if rows is None else array[rows[part]]
        stream.write(np.ascontiguousarray(block, dtype=little).data)


def write_row_blocks(
    stream: IO[bytes], blocks: Iterable[npt.NDArray[Any]]
) -> tuple[tuple[int, int], np.dtype[Any]]:
    """Write rows as ``.npy`` as they come, row-major and little-endian.

    Args:
        stream: where to; one that can be positioned.
        blocks: at least one, [n, dim] each, all of the dtype and the length of rows of the first.

    Returns:
        The shape [rows, dim] and the dtype of what was written.

    Raises:
        DataError: there is no block, or they differ.
        OSError: the system refuses to write.
    """
    count, dim, dtype = 0, 0, np.dtype(np.float32)
    for number, block in enumerate(blocks):
        if not number:
            dim, dtype = block.shape[1], block.dtype
            _write_header(stream, dtype.newbyteorder("<"), (0, dim))
        if block.shape[1] != dim or block.dtype != dtype:
            raise DataError(
                f"expected rows of {dim} numbers of type {dtype}, received {block.shape[1]} of type "
                f"{block.dtype}",
                where=f"row {count}",
            )
        stream.write(np.ascontiguousarray(block, dtype=dtype.newbyteorder("<")).data)
        count += len(block)
    if not count:
        raise DataError("expected at least one row, received none")
    # NumPy leaves room in a header for a first dimension of any size, so that it can be written again.
    stream.seek(0)
    _write_header(stream, dtype.newbyteorder("<"), (count, dim))
    return (count, dim), dtype


def _write_header(stream: IO[bytes], dtype: np.dtype[Any], shape: tuple[int, ...]) -> None:
    header = {"descr": np.lib.format.dtype_to_descr(dtype), "fortran_order": False, "shape": shape}
    np.lib.format.write_array_header_1_0(stream, header)

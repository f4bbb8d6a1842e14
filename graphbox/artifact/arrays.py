"""Arrays of a model version, as private copies of its files.

A file that is mapped into memory and truncated by another program ends this process with SIGBUS. A model is
therefore never served from its files themselves.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import numpy as np
import numpy.typing as npt

from graphbox.durable import NO_ROOM
from graphbox.errors import DoesNotFitError, FormatError

_LARGEST_IN_MEMORY_BYTES = 1 << 30
_BLOCK_BYTES = 1 << 24


def private_array(file: Path, largest_in_memory_bytes: int = _LARGEST_IN_MEMORY_BYTES) -> npt.NDArray[Any]:
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
            array: npt.NDArray[Any] = np.load(file, allow_pickle=False)
            array.setflags(write=False)
            return array
        with _unnamed_copy(file) as copy:
            mapped: npt.NDArray[Any] = np.load(f"/proc/self/fd/{copy}", mmap_mode="r", allow_pickle=False)
            return mapped.view(np.ndarray)
    except (ValueError, OSError, EOFError) as error:
        raise FormatError(f"expected an array, could not read one ({error})", where=str(file)) from error


@contextmanager
def _unnamed_copy(file: Path) -> Iterator[int]:
    """Copy a file to one without a name; give its descriptor."""
    folder = file.parent if os.access(file.parent, os.W_OK) else Path(tempfile.gettempdir())
    with file.open("rb") as source, tempfile.TemporaryFile(dir=folder) as copy:
        size = os.fstat(source.fileno()).st_size
        try:
            # A page that finds no room when it is first written would end the process, too.
            os.posix_fallocate(copy.fileno(), 0, size)
        except OSError as error:
            if error.errno not in NO_ROOM:
                raise
            raise DoesNotFitError(
                f"expected {size} bytes free in {folder} for a copy of {file.name}: {error.strerror}",
                where=str(file),
                hint="free disk space, or set TMPDIR to a folder with more where the model is read-only",
            ) from error
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
    shape = (count, *array.shape[1:])
    header = {"descr": np.lib.format.dtype_to_descr(little), "fortran_order": False, "shape": shape}
    np.lib.format.write_array_header_1_0(stream, header)
    row_bytes = max(1, array.itemsize * int(np.prod(array.shape[1:])))
    step = max(1, _BLOCK_BYTES // row_bytes)
    for start in range(0, count, step):
        part = slice(start, start + step)
        block = array[part] if rows is None else array[rows[part]]
        stream.write(np.ascontiguousarray(block, dtype=little).data)

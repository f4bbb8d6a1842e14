"""Named arrays in one file without a name, written by one process and mapped by others of the same program.

The file is 8 bytes with the length of a header, the header (JSON: name to dtype, shape and offset), and the
numbers of each array from a cache line on. It is never stored, so it has no version.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import IO, Any, TypeAlias

import numpy as np
import numpy.typing as npt

__all__ = ["Arrays", "read_bundle", "write_bundle"]

Arrays: TypeAlias = Mapping[str, npt.NDArray[Any]]

_CACHE_LINE_BYTES = 64
_LENGTH_BYTES = 8


def write_bundle(stream: IO[bytes], arrays: Arrays) -> None:
    """Write arrays of numbers or booleans, of any shape, row-major.

    Raises:
        OSError: the system refuses to write.
    """
    places: dict[str, tuple[str, tuple[int, ...], int]] = {}
    size = 0
    for name, array in arrays.items():
        places[name] = (array.dtype.str, array.shape, size)
        size += -(-array.nbytes // _CACHE_LINE_BYTES) * _CACHE_LINE_BYTES
    header = json.dumps(places).encode()
    header += b" " * (-(_LENGTH_BYTES + len(header)) % _CACHE_LINE_BYTES)
    stream.write(len(header).to_bytes(_LENGTH_BYTES, "little") + header)
    for array in arrays.values():
        stream.write(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)
        stream.write(bytes(-array.nbytes % _CACHE_LINE_BYTES))


def read_bundle(content: memoryview) -> Arrays:
    """Return the arrays of a file that `write_bundle` wrote, read-only, without copying them.

    Args:
        content: the whole file; stays in use as long as one of the arrays.
    """
    start = _LENGTH_BYTES + int.from_bytes(content[:_LENGTH_BYTES], "little")
    places = json.loads(bytes(content[_LENGTH_BYTES:start]))
    return {
        name: np.ndarray(tuple(shape), dtype, content, start + offset)
        for name, (dtype, shape, offset) in places.items()
    }

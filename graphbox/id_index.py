"""The native hash index of original ids, for graphs and for served models (docs/formats/graph.md, Ids)."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from itertools import accumulate
from typing import TypeAlias, cast

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

__all__ = ["HashIndex", "IdBuffers", "build_index", "find_ids", "id_buffers", "text_buffers", "valid_rows"]

Int64: TypeAlias = npt.NDArray[np.int64]

HashIndex: TypeAlias = "npt.NDArray[np.int32] | npt.NDArray[np.int64]"
"""Slots of a hash index of ids: node indices, -1 where empty."""

IdBuffers: TypeAlias = "tuple[Int64, npt.NDArray[np.uint8] | None]"
"""Ids as the native core takes them: integers and None, or offsets and text of strings."""


def id_buffers(ids: pa.Array) -> IdBuffers:
    """Return ids as the native core takes them, without copying.

    Args:
        ids: int64 or large_string. What lies under nulls is undefined.
    """
    if pa.types.is_int64(ids.type):
        values = ids.buffers()[1]
        if values is None or not len(ids):
            return np.zeros(0, np.int64), None
        return np.frombuffer(values, np.int64, len(ids), ids.offset * 8), None
    _, offsets, text = ids.buffers()
    content = np.zeros(0, np.uint8) if text is None else np.frombuffer(text, np.uint8)
    if offsets is None or not len(ids):
        return np.zeros(1, np.int64), content
    return np.frombuffer(offsets, np.int64, len(ids) + 1, ids.offset * 8), content


def valid_rows(*arrays: pa.Array) -> npt.NDArray[np.uint8] | None:
    """Return 0 for each row where one of the arrays is null, 1 for the others; None when there is no null."""
    valid: npt.NDArray[np.uint8] | None = None
    for array in arrays:
        if array.null_count:
            rows = pc.is_valid(array).to_numpy(zero_copy_only=False).view(np.uint8)
            valid = rows if valid is None else valid & rows
    return valid


def build_index(
    ids: pa.Array, threads: int, valid: npt.NDArray[np.uint8] | None = None
) -> tuple[HashIndex, int, int | None]:
    """Return the hash index of ids, how many of them occur again, and the row of the first such.

    Args:
        ids: int64 or large_string [n], without nulls.
        threads: at least 1.
        valid: uint8 [n], 0 for ids that are not to be found; None: all are.
    """
    from graphbox import _core

    index, count, repeated = _core.build_ids_index(*id_buffers(ids), valid, threads)
    return cast("HashIndex", index), count, repeated[1] if count else None


def text_buffers(texts: Sequence[bytes]) -> IdBuffers:
    """Return texts in UTF-8 as the native core takes them."""
    offsets = np.fromiter(accumulate(map(len, texts), initial=0), np.int64, len(texts) + 1)
    return offsets, np.frombuffer(b"".join(texts), np.uint8)


def find_ids(
    index: HashIndex,
    known: IdBuffers,
    asked: IdBuffers,
    valid: npt.NDArray[np.uint8] | None,
    threads: int,
    where: str = "",
) -> Int64:
    """Return the row of each asked id, int64 [n]; -1 for an unknown id.

    Args:
        index: of ``known``.
        known: all ids.
        asked: n ids, integers or texts as the known ones.
        valid: uint8 [n], 0 for ids that are not looked up; None: all are.
        threads: at least 1.
        where: the file that a message about a damaged index names.
    """
    return _native_find()(index, *known, *asked, valid, threads, where)


@functools.cache
def _native_find() -> Callable[..., Int64]:
    # The statement takes a microsecond, as long as finding an id.
    from graphbox import _core

    return _core.find_ids

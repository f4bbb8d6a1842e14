"""Alias tables of adjacency with weights: built when first needed, kept as long as the adjacency."""

from __future__ import annotations

import threading
import weakref
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from graphbox import _core
from graphbox.errors import UsageError
from graphbox.native import Int64Array, thread_count
from graphbox.sample.adjacency import Adjacency, LiveAdjacency

__all__ = ["Weights", "alias_table_bytes", "weights_of"]


class Weights(NamedTuple):
    """The weights of an adjacency as the native core draws by them.

    Attributes:
        base: alias tables of the edges in its arrays.
        overlay: those of the new lists of touched rows, where there are some.
    """

    base: _core.AliasTables
    overlay: _core.AliasTables | None


@dataclass(frozen=True)
class _Entry:
    owner: weakref.ref[Any]
    tables: _core.AliasTables
    indptr: Int64Array
    weight: npt.NDArray[Any]

    def is_of(self, indptr: Int64Array, weight: npt.NDArray[Any]) -> bool:
        return _same_memory(self.indptr, indptr) and _same_memory(self.weight, weight)


_lock = threading.RLock()
_entries: dict[
    int, _Entry
] = {}  # by the identity of what they belong to, which takes its entry along when it goes


def alias_table_bytes() -> int:
    """Return the bytes of all alias tables that are kept: 8 for each edge of the adjacency they belong to."""
    with _lock:
        return sum(entry.tables.bytes for entry in list(_entries.values()))


def weights_of(adjacency: Adjacency, name: str, threads: int | None = None) -> Weights:
    """Return the alias tables of an adjacency's weights.

    They are built at the first call (8 bytes for each edge, on all threads) and kept until the adjacency is
    dropped. Its arrays must not be written to meanwhile. Of a changed graph the tables of the base are kept
    with the base, and only the touched rows get new ones.

    Args:
        adjacency: with ``weight``: float32 [edges], all positive and finite.
        name: for messages.
        threads: None: see :func:`graphbox.native.thread_count`. The tables do not depend on it.

    Raises:
        UsageError: there are no weights, or of another dtype or shape.
        DataError: a weight is zero, negative, infinite or not a number.
    """
    if not isinstance(adjacency, LiveAdjacency):
        weight = getattr(adjacency, "weight", None)
        return Weights(_tables(adjacency, adjacency.indptr, weight, name, threads), None)
    base = adjacency.base
    if base is None:
        no_edges = np.zeros(0, np.float32)
        base_tables = _core.AliasTables(np.zeros(1, np.int64), no_edges, name, 1)
    else:
        base_tables = _tables(base, base.indptr, base.weight, name, threads)
    own = _tables(adjacency, adjacency.overlay_indptr, adjacency.overlay_column("weight"), name, threads)
    return Weights(base_tables, own)


def _tables(
    owner: object, indptr: Int64Array, weight: npt.ArrayLike | None, name: str, threads: int | None
) -> _core.AliasTables:
    if weight is None:
        raise UsageError(
            "expected edges with weights, these have none",
            where=name,
            hint="import the edge type with a weight column, or sample it with weighted=False",
        )
    array, rows = np.asarray(weight), np.asarray(indptr)
    if array.dtype != np.float32 or array.ndim != 1:
        raise UsageError(
            f"weight must be float32 with one dimension, received {array.dtype} {array.shape}", where=name
        )
    key = id(owner)
    with _lock:
        entry = _entries.get(key)
        if entry is not None and entry.is_of(rows, array):
            return entry.tables
        tables = _core.AliasTables(
            np.ascontiguousarray(rows), np.ascontiguousarray(array), name, thread_count(threads)
        )
        try:
            reference = weakref.ref(owner, lambda gone: _forget(key, gone))
        except TypeError:  # such an object cannot say when it goes: its tables serve this call only
            return tables
        _entries[key] = _Entry(reference, tables, rows, array)
        return tables


def _forget(key: int, owner: weakref.ref[Any]) -> None:
    with _lock:
        if key in _entries and _entries[key].owner is owner:
            del _entries[key]


def _same_memory(one: npt.NDArray[Any], other: npt.NDArray[Any]) -> bool:
    """Return whether two arrays are the same, both being alive."""
    return (
        one.__array_interface__["data"][0] == other.__array_interface__["data"][0]
        and one.shape == other.shape
        and one.strides == other.strides
    )

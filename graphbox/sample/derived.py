"""Tables derived from adjacency: built when first needed, kept as long as the adjacency."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt

from graphbox import _core
from graphbox.errors import DataError, DoesNotFitError, UsageError
from graphbox.native import Int64Array, thread_count
from graphbox.sample.adjacency import (
    Adjacency,
    Arrays,
    EdgeColumn,
    EdgeColumnName,
    LiveAdjacency,
    edge_column,
)

Table = TypeVar("Table", _core.AliasTables, _core.TimeOrder, _core.WeightSums)
Kept = TypeVar("Kept")
_Build: TypeAlias = Callable[[Int64Array, npt.NDArray[Any], str, int], Table]


class Weights(NamedTuple):
    """The weights of an adjacency as the native core draws by them.

    Attributes:
        base: alias tables of the edges in its arrays.
        overlay: those of the new lists of touched rows, where there are some.
    """

    base: _core.AliasTables
    overlay: _core.AliasTables | None


class Times(NamedTuple):
    """The timestamps of an adjacency as the native core looks them up.

    Attributes:
        base: the order by time of the edges in its arrays.
        overlay: that of the new lists of touched rows, where there are some.
    """

    base: _core.TimeOrder
    overlay: _core.TimeOrder | None


class WeightSums(NamedTuple):
    """The weights of an adjacency in the order of time, as the native core draws by them.

    Attributes:
        base: sums of the weights of the edges in its arrays.
        overlay: those of the new lists of touched rows, where there are some.
    """

    base: _core.WeightSums
    overlay: _core.WeightSums | None


class RelationLists:
    """An index over the lists of relations with one target type, which has those that are not empty.

    To make it all rows are read, so it is made when about as many were read without it.

    Args:
        arrays: the indptr of each relation, all of one length, then the indices of each.
        names: of the relations, for messages.

    Attributes:
        index: as the native core looks it up; None: not yet, or not worth its memory.
    """

    def __init__(self, arrays: Sequence[npt.NDArray[Any]], names: Sequence[str]) -> None:
        self.index: _core.RelationIndex | None = None
        self._indptrs = arrays[: len(names)]
        self._num_edges = [len(indices) for indices in arrays[len(names) :]]
        self._names = list(names)
        self._expanded = 0
        self._making = threading.Lock()
        self._is_decided = False

    @property
    def bytes(self) -> int:
        """Bytes held."""
        return 0 if self.index is None else self.index.bytes

    def count(self, expanded: int, threads: int | None) -> None:
        """Note that a sample has expanded some nodes of the target type."""
        self._expanded += expanded
        if self._is_decided or self._expanded + 1 < len(self._indptrs[0]):
            return
        if self._making.acquire(blocking=False):  # who comes meanwhile does without
            try:
                if not self._is_decided:
                    self.index = self._make(thread_count(threads))
                    self._is_decided = True
            finally:
                self._making.release()

    def _make(self, threads: int) -> _core.RelationIndex | None:
        try:
            return _core.RelationIndex(list(self._indptrs), self._num_edges, self._names, threads)
        except DoesNotFitError:
            return None


@dataclass(frozen=True)
class _Entry:
    owners: tuple[weakref.ref[Any], ...]
    table: Any
    arrays: tuple[npt.NDArray[Any], ...]  # what it was built of

    def is_of(self, arrays: tuple[npt.NDArray[Any], ...]) -> bool:
        return all(map(same_memory, self.arrays, arrays))


_lock = threading.RLock()
# By the identities of what they belong to, which takes its entries along when it goes, and the kind of table.
_entries: dict[tuple[tuple[int, ...], str], _Entry] = {}


def derived_table_bytes() -> int:
    """Return the bytes of all tables that are kept.

    For each edge 8 of alias tables or sums and 12 of orders; of types with several relations also their
    index, see :func:`relation_lists_of`.
    """
    with _lock:
        return sum(entry.table.bytes for entry in list(_entries.values()))


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
    return Weights(*_tables(adjacency, "weight", _core.AliasTables, name, threads))


def times_of(
    adjacency: Adjacency, name: str, threads: int | None = None, node_time: Int64Array | None = None
) -> Times:
    """Return the edges of each node by time; kept as alias tables are (:func:`weights_of`), 12 bytes an edge.

    Args:
        adjacency: with ``timestamp``: int64 [edges], unless nodes have times.
        name: for messages.
        threads: None: see :func:`graphbox.native.thread_count`. The order does not depend on it.
        node_time: int64 [neighbours], the time of each neighbour: that of an edge is its neighbour's. Of one
            adjacency the order by the latest that was asked for is kept. None: edges have times.

    Raises:
        UsageError: there are no timestamps, or of another dtype or shape.
        DataError: neighbours that are no nodes.
    """
    if node_time is None:
        return Times(*_tables(adjacency, "timestamp", _core.TimeOrder, name, threads))

    def part(owner: object, indptr: Int64Array, indices: npt.NDArray[Any]) -> _core.TimeOrder:
        def build(arrays: tuple[npt.NDArray[Any], ...]) -> _core.TimeOrder:
            times = _times_of_edges(arrays[2], arrays[1], name)
            return _core.TimeOrder(arrays[0], times, name, thread_count(threads))

        rows = np.ascontiguousarray(indptr)
        return _kept_of((owner,), "node time", build, (rows, np.asarray(indices), node_time))

    if not isinstance(adjacency, LiveAdjacency):
        return Times(part(adjacency, adjacency.indptr, adjacency.indices), None)
    own = part(adjacency, adjacency.overlay_indptr, adjacency.overlay.indices)
    if adjacency.base is None:
        return Times(_core.TimeOrder(np.zeros(1, np.int64), np.zeros(0, np.int64), name, 1), own)
    return Times(part(adjacency.base, adjacency.base.indptr, adjacency.base.indices), own)


def _times_of_edges(node_time: Int64Array, indices: npt.NDArray[Any], name: str) -> Int64Array:
    try:
        return node_time.take(indices)
    except IndexError:
        wrong = indices[(indices < 0) | (indices >= len(node_time))][0]
        raise DataError(
            f"indices must be in [0, {len(node_time)}), received {wrong}",
            where=name,
            hint="the graph is damaged: import it again",
        ) from None


def weight_sums_of(
    adjacency: Adjacency, name: str, threads: int | None = None, node_time: Int64Array | None = None
) -> WeightSums:
    """Return the sums of an adjacency's weights by time; kept as alias tables are, 8 bytes an edge.

    Args:
        adjacency: with ``weight``: float32 [edges], all positive and finite, and ``timestamp``: int64
            [edges], unless nodes have times.
        name: for messages.
        threads: None: see :func:`graphbox.native.thread_count`. The sums do not depend on it.
        node_time: int64 [neighbours], as for :func:`times_of`.

    Raises:
        UsageError: there are no weights or no timestamps, or of another dtype or shape.
        DataError: a weight is zero, negative, infinite or not a number, or neighbours are no nodes.
    """
    weights = _column(adjacency, "weight", name)
    times = _column(adjacency, "timestamp", name) if node_time is None else (node_time, node_time)
    kind = "weight by time" if node_time is None else "weight by node time"
    orders = times_of(adjacency, name, threads, node_time)

    def part(owner: object, indptr: Int64Array, order: _core.TimeOrder, number: int) -> _core.WeightSums:
        def build(rows: Int64Array, values: npt.NDArray[Any], name: str, count: int) -> _core.WeightSums:
            return _core.WeightSums(order, rows, values, name, count)

        arrays = (indptr, weights[number], times[number])
        return _kept(owner, kind, build, arrays, name, thread_count(threads))

    if not isinstance(adjacency, LiveAdjacency):
        return WeightSums(part(adjacency, adjacency.indptr, orders.base, 0), None)
    if orders.overlay is None:
        raise AssertionError("changed lists have an order of their own")
    own = part(adjacency, adjacency.overlay_indptr, orders.overlay, 1)
    if adjacency.base is None:
        none = _core.WeightSums(orders.base, np.zeros(1, np.int64), weights.base, name, 1)
        return WeightSums(none, own)
    return WeightSums(part(adjacency.base, adjacency.base.indptr, orders.base, 0), own)


def relation_lists_of(
    adjacencies: Sequence[Adjacency], arrays: Sequence[Arrays], names: Sequence[str]
) -> RelationLists:
    """Return the index over relations with one target type, kept as long as their adjacencies.

    It takes 8 bytes for each node and 16 for each list that is not empty, and never more than the indptr of
    the relations do.

    Args:
        adjacencies: of the relations, without changes, all with as many rows.
        arrays: theirs.
        names: of the relations, for messages.
    """
    return _kept_of(
        tuple(adjacencies),
        "relations",
        lambda built_of: RelationLists(built_of, names),
        (*(each.indptr for each in arrays), *(each.indices for each in arrays)),
    )


def _column(adjacency: Adjacency, column: EdgeColumnName, name: str) -> EdgeColumn:
    values = edge_column(adjacency, column, name)
    if values is None:
        raise no_column(column, name)
    return values


def no_column(column: EdgeColumnName, name: str) -> UsageError:
    """Return the error of edges that are to be sampled by what they do not have."""
    return UsageError(
        f"expected edges with a {column}, these have none",
        where=name,
        hint=f"import the edge type with a {column} column, or sample it without",
    )


def _tables(
    adjacency: Adjacency, column: EdgeColumnName, build: _Build[Table], name: str, threads: int | None
) -> tuple[Table, Table | None]:
    values = _column(adjacency, column, name)
    count = thread_count(threads)
    if not isinstance(adjacency, LiveAdjacency):
        return _kept(adjacency, column, build, (adjacency.indptr, values.base), name, count), None
    own = _kept(adjacency, column, build, (adjacency.overlay_indptr, values.overlay), name, count)
    if adjacency.base is None:
        return build(np.zeros(1, np.int64), values.base, name, 1), own
    return _kept(adjacency.base, column, build, (adjacency.base.indptr, values.base), name, count), own


def _kept(
    owner: object,
    kind: str,
    build: _Build[Table],
    arrays: tuple[npt.NDArray[Any], ...],
    name: str,
    threads: int,
) -> Table:
    """Return the table of ``owner`` built of its ``arrays``: indptr, values and what else it depends on."""
    return _kept_of(
        (owner,),
        kind,
        lambda arrays: build(arrays[0], arrays[1], name, threads),
        (np.ascontiguousarray(arrays[0]), *arrays[1:]),
    )


def _kept_of(
    owners: tuple[object, ...],
    kind: str,
    build: Callable[[tuple[npt.NDArray[Any], ...]], Kept],
    arrays: tuple[npt.NDArray[Any], ...],
) -> Kept:
    """Return what ``owners`` have of a kind, built of their ``arrays`` unless it is there."""
    key = (tuple(map(id, owners)), kind)
    with _lock:
        entry = _entries.get(key)
        if entry is not None and entry.is_of(arrays):
            kept: Kept = entry.table
            return kept
        table = build(arrays)
        try:
            references = tuple(weakref.ref(owner, lambda gone: _forget(key, gone)) for owner in owners)
        except TypeError:  # such an object cannot say when it goes: its tables serve this call only
            return table
        _entries[key] = _Entry(references, table, arrays)
        return table


def _forget(key: tuple[tuple[int, ...], str], owner: weakref.ref[Any]) -> None:
    with _lock:
        if key in _entries and any(owner is each for each in _entries[key].owners):
            del _entries[key]


def same_memory(one: npt.NDArray[Any], other: npt.NDArray[Any]) -> bool:
    """Return whether two arrays are the same, both being alive."""
    return one is other or (
        one.__array_interface__["data"][0] == other.__array_interface__["data"][0]
        and one.shape == other.shape
        and one.strides == other.strides
    )

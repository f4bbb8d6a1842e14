"""The nodes of a changed graph: those of its base and of the changes after it, as one table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from graphbox.graph.array_file import release_pages
from graphbox.graph.columns import Column
from graphbox.graph.ids import Ids
from graphbox.graph.schema import FeatureKind, IdType, Int64Array
from graphbox.graph.tables import LazyMapping, NodeTable

_NO_ROWS = np.zeros(0, np.int64)


@dataclass(frozen=True, eq=False)
class NodeChange:
    """What one change of a graph did to the nodes of one type.

    Attributes:
        first: index of the first node that it added.
        ids: ids of the nodes that it added, or None.
        features: features of these nodes.
        updated: int64 [m], ascending: the nodes whose features it set.
        updates: the features that it set, [m] rows each.
        categories: categories that it added after those before, by feature.
        removed: int64, ascending: the nodes that it removed.
        discovered: whether the nodes of a new type are those met at the ends of edges.
    """

    first: int
    ids: Ids | None = None
    features: Mapping[str, Column] = field(default_factory=dict)
    updated: Int64Array = field(default_factory=lambda: _NO_ROWS)
    updates: Mapping[str, Column] = field(default_factory=dict)
    categories: Mapping[str, pa.Array] = field(default_factory=dict)
    removed: Int64Array = field(default_factory=lambda: _NO_ROWS)
    discovered: bool = False

    @property
    def num_added(self) -> int:
        """Number of nodes that it added."""
        return 0 if self.ids is None else len(self.ids)


# Ids


class LiveIds(Ids):
    """Ids of several segments of nodes one after the other, without those of removed nodes.

    Args:
        kind: what the ids are.
        segments: first node index of each segment, and its ids.
        removed: int64, ascending: the nodes that have no id any more.
    """

    def __init__(self, kind: IdType, segments: Sequence[tuple[int, Ids]], removed: Int64Array) -> None:
        self.kind = kind
        self._segments = tuple(segments)
        self._removed = removed

    def __len__(self) -> int:
        first, ids = self._segments[-1]
        return first + len(ids)

    @cached_property
    def values(self) -> pa.Array:
        """All ids as an Arrow array of type large_string or int64, null where a node was removed."""
        return self.read(0, len(self))

    def read(self, start: int, stop: int) -> pa.Array:
        """Return the ids ``start`` to ``stop - 1``, null where a node was removed."""
        parts = [
            ids.values.slice(max(start - first, 0), min(stop, first + len(ids)) - max(start, first))
            for first, ids in self._segments
            if first < stop and start < first + len(ids)
        ]
        values = pa.concat_arrays(parts) if parts else self._segments[0][1].values.slice(0, 0)
        low, high = np.searchsorted(self._removed, [start, stop])
        if low == high:
            return values
        is_removed = np.zeros(len(values), bool)
        is_removed[self._removed[low:high] - start] = True
        return pc.if_else(pa.array(is_removed), pa.scalar(None, values.type), values)

    def take(self, index: Int64Array) -> npt.NDArray[Any]:
        """Return the ids at ``index``: an object array of str, or int64; "" or 0 where a node was removed."""
        taken: npt.NDArray[Any] = np.empty(len(index), object if self.kind == "string" else np.int64)
        for first, ids in self._segments:
            inside = np.flatnonzero((index >= first) & (index < first + len(ids)))
            if len(inside):
                taken[inside] = ids.take(index[inside] - first)
        taken[self._is_removed(index)] = "" if self.kind == "string" else 0
        return taken

    def find(self, ids: pa.Array) -> Int64Array:
        """Return the index of each id, -1 where it is none or null."""
        found = np.full(len(ids), -1, np.int64)
        left = np.arange(len(ids))
        # The last segment first: an id that was removed and added again is the new node's.
        for first, segment in reversed(self._segments):
            if not len(left):
                break
            within = segment.find(ids if len(left) == len(ids) else ids.take(pa.array(left)))
            index = np.where(within < 0, -1, within + first)
            hit = (index >= 0) & ~self._is_removed(index)
            found[left[hit]] = index[hit]
            left = left[~hit]
        return found

    def suggest(self, value: Any) -> str | None:
        """Return ``did you mean `x`?`` for the closest id, or None when nothing is close."""
        suggestions = (segment.suggest(value) for _, segment in reversed(self._segments))
        return next((suggestion for suggestion in suggestions if suggestion is not None), None)

    def _is_removed(self, index: Int64Array) -> npt.NDArray[np.bool_]:
        if not len(self._removed):
            return np.zeros(len(index), bool)
        position = np.minimum(np.searchsorted(self._removed, index), len(self._removed) - 1)
        return np.asarray(self._removed[position] == index)


# Features


_MISSING: dict[str, Any] = {"number": np.nan, "categorical": -1}


def missing_row(
    kind: FeatureKind, row_shape: tuple[int, ...] = (), categories: pa.Array | None = None
) -> Column:
    """Return a column of one row without a value: NaN, -1, no slots, else zero."""
    dtypes = {"number": np.float32, "integer": np.int64, "categorical": np.int32, "boolean": np.bool_}
    if kind == "slots":
        return Column(kind, np.zeros(0, np.int64), None, np.zeros(2, np.int64))
    values: npt.NDArray[Any] = np.full((1, *row_shape), _MISSING.get(kind, 0), dtypes.get(kind, np.float32))
    return Column(kind, values, categories)


def stacked(columns: Sequence[Column]) -> Column:
    """Return the rows of columns of one kind, one after the other; categories are the first one's."""
    if len(columns) == 1:
        return columns[0]
    first = columns[0]
    values = np.concatenate([column.values for column in columns])
    if first.offsets is None:
        return Column(first.kind, values, first.categories)
    lengths = [np.diff(column.offsets) for column in columns if column.offsets is not None]
    return Column(first.kind, values, None, np.concatenate([[0], np.cumsum(np.concatenate(lengths))]))


class LiveColumn:
    """One feature of the nodes of a changed graph, read in ranges of rows.

    Args:
        segments: first row of each segment, and its values; there is at least one.
        updates: rows (ascending) and their new values; later ones hold.
        removed: int64, ascending: rows that have no value any more.
        categories: the categories by code, or None.
    """

    def __init__(
        self,
        segments: Sequence[tuple[int, Column]],
        updates: Sequence[tuple[Int64Array, Column]],
        removed: Int64Array,
        categories: pa.Array | None,
    ) -> None:
        self._segments = tuple(segments)
        self._updates = tuple(updates)
        self._removed = removed
        self.categories = categories
        self.kind = segments[0][1].kind

    @classmethod
    def of(cls, column: Column) -> LiveColumn:
        """Return a column without changes."""
        return cls([(0, column)], (), _NO_ROWS, column.categories)

    def release(self) -> None:
        """Take the pages that were read of mapped arrays out of the process."""
        for _, column in self._segments:
            release_pages(column.values)

    def __len__(self) -> int:
        first, column = self._segments[-1]
        return first + len(column)

    def is_changed(self, rows: Int64Array) -> npt.NDArray[np.bool_]:
        """Return whether rows have another value than in the first segment, or are none of its: bool [n]."""
        first, column = self._segments[0]
        changed = (rows < first) | (rows >= first + len(column))
        for each in (*(updated for updated, _ in self._updates), self._removed):
            changed |= np.isin(rows, each)
        return changed

    def take(self, rows: Int64Array) -> Column:
        """Return any rows, repeated ones too, in their order."""
        parts = [self._segments[0][1].take(_NO_ROWS)]
        place = np.zeros(len(rows), np.int64)
        count = 0
        for first, column in self._segments:
            at = np.flatnonzero((rows >= first) & (rows < first + len(column)))
            parts.append(column.take(rows[at] - first))
            place[at] = np.arange(count, count + len(at))
            count += len(at)
        for updated, values in self._updates:
            at = np.flatnonzero(np.isin(rows, updated))
            parts.append(values.take(np.searchsorted(updated, rows[at])))
            place[at] = np.arange(count, count + len(at))
            count += len(at)
        parts.append(missing_row(self.kind, parts[0].values.shape[1:] if self.kind == "vector" else ()))
        place[np.isin(rows, self._removed)] = count
        taken = stacked(parts).take(place)
        return Column(taken.kind, taken.values, self.categories, taken.offsets)

    def read_all(self) -> Column:
        """Return all rows."""
        return self.read(0, len(self))

    def read(self, start: int, stop: int) -> Column:
        """Return rows ``start`` to ``stop - 1``."""
        parts = [
            column.slice(max(start - first, 0), min(stop - first, len(column)))
            for first, column in self._segments
            if first < stop and start < first + len(column)
        ] or [self._segments[0][1].slice(0, 0)]
        row = np.arange(stop - start)
        count = len(row)
        for rows, values in self._updates:
            low, high = np.searchsorted(rows, [start, stop])
            if low < high:
                parts.append(values.slice(int(low), int(high)))
                row[rows[low:high] - start] = np.arange(count, count + high - low)
                count += int(high - low)
        low, high = np.searchsorted(self._removed, [start, stop])
        if low < high:
            parts.append(missing_row(self.kind, parts[0].values.shape[1:] if self.kind == "vector" else ()))
            row[self._removed[low:high] - start] = count
            count += 1
        read = stacked(parts)
        read = read if count == stop - start else read.take(row)
        return Column(read.kind, read.values, self.categories, read.offsets)


def extended_categories(base: pa.Array | None, added: Sequence[pa.Array]) -> pa.Array | None:
    """Return the categories of a feature after the changes that added some; None where it has none."""
    parts = [*([] if base is None else [base]), *added]
    return pa.concat_arrays(parts) if parts else None


class LiveNodeTable(NodeTable):
    """The nodes of one type after some changes.

    Args:
        base: the nodes before, or None when a change added the type.
        changes: the changes, in order.
    """

    def __init__(self, base: NodeTable | None, changes: Sequence[NodeChange]) -> None:
        added = [change for change in changes if change.ids is not None]
        segments: list[tuple[int, NodeTable | NodeChange]] = [(each.first, each) for each in added]
        if base is not None:
            segments.insert(0, (0, base))
        removed = [*([] if base is None else [base.removed]), *(change.removed for change in changes)]
        all_removed = np.sort(np.concatenate(removed)) if any(map(len, removed)) else _NO_ROWS
        ids = [(first, each.ids) for first, each in segments if each.ids is not None]
        first_table = segments[0][1]

        def live(name: str) -> LiveColumn:
            known = None if base is None else base.features[name].categories
            new = [change.categories[name] for change in changes if name in change.categories]
            return LiveColumn(
                [(first, each.features[name]) for first, each in segments],
                [(each.updated, each.updates[name]) for each in changes if name in each.updates],
                all_removed,
                extended_categories(known, new),
            )

        self.base = base
        self.live_features = LazyMapping(first_table.features, live)
        super().__init__(
            LiveIds(ids[0][1].kind, ids, all_removed),
            LazyMapping(first_table.features, lambda name: self.live_features[name].read_all()),
            all_removed,
            first_table.discovered,
            {} if base is None else base.imported,
        )

    def template(self, name: str) -> Column:
        """Return a feature's column without its rows: its kind, dimension and categories."""
        return self.live_features[name].read(0, 0)

"""Features of nodes and edges as arrays: one value, one vector or a list of values for each row."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from graphbox.fields import Lists
from graphbox.graph.array_file import release_pages
from graphbox.graph.schema import FeatureKind, FeatureSpec, Int64Array

__all__ = [
    "FEATURE_KINDS",
    "Column",
    "FeatureValues",
    "Lists",
    "SegmentedColumn",
    "missing_row",
    "stacked",
]

FEATURE_KINDS: tuple[FeatureKind, ...] = ("number", "integer", "categorical", "boolean", "vector", "slots")

_BoolArray: TypeAlias = npt.NDArray[np.bool_]
_NO_ROWS = np.zeros(0, np.int64)


@dataclass(frozen=True, eq=False)
class Column:
    """The values of one feature of nodes or edges.

    Attributes:
        kind: how they are kept, see :class:`~graphbox.graph.schema.FeatureSpec`.
        values: the array, [n] or [n, dim]; of slots the lists of all rows one after the other, int64.
        categories: large_string array of the categories by code, or None.
        offsets: of slots int64 [n + 1], row ``i`` has ``values[offsets[i]:offsets[i + 1]]``; else None.
    """

    kind: FeatureKind
    values: npt.NDArray[Any]
    categories: pa.Array | None = None
    offsets: Int64Array | None = None

    def __len__(self) -> int:
        return len(self.values) if self.offsets is None else len(self.offsets) - 1

    @cached_property
    def spec(self) -> FeatureSpec:
        """Kind, categories and dimension of the feature."""
        return FeatureSpec(
            kind=self.kind,
            categories=None if self.categories is None else tuple(self.categories.to_pylist()),
            dim=self.values.shape[1] if self.kind == "vector" else None,
        )

    def slice(self, start: int, stop: int) -> Column:
        """Return the column of the rows ``start`` to ``stop - 1``; arrays are views where they can be."""
        if self.offsets is None:
            return Column(self.kind, self.values[start:stop], self.categories)
        bounds = self.offsets[start : stop + 1]
        return Column(self.kind, self.values[bounds[0] : bounds[-1]], None, bounds - bounds[0])

    def take(self, index: Int64Array | _BoolArray) -> Column:
        """Return the column of the rows ``index``."""
        if self.offsets is None:
            return Column(self.kind, self.values[index], self.categories)
        lists = Lists(self.offsets, self.values).take(index)
        return Column(self.kind, lists.values, self.categories, lists.offsets)


_MISSING: dict[str, Any] = {"number": np.nan, "categorical": -1}


def missing_row(kind: FeatureKind, row_shape: tuple[int, ...] = ()) -> Column:
    """Return a column of one row without a value: NaN, -1, no slots, else zero."""
    dtypes = {"number": np.float32, "integer": np.int64, "categorical": np.int32, "boolean": np.bool_}
    if kind == "slots":
        return Column(kind, np.zeros(0, np.int64), None, np.zeros(2, np.int64))
    return Column(kind, np.full((1, *row_shape), _MISSING.get(kind, 0), dtypes.get(kind, np.float32)))


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


class SegmentedColumn:
    """One column of nodes or edges in segments of rows, read in ranges: a base's, and those of changes.

    Args:
        segments: first row of each segment, and its values; there is at least one.
        categories: those that changes added after the first segment's, in order.
        updates: rows (ascending) and their new values; later ones hold.
        removed: int64, ascending: rows that have no value any more.
    """

    def __init__(
        self,
        segments: Sequence[tuple[int, Column]],
        categories: Sequence[pa.Array] = (),
        updates: Sequence[tuple[Int64Array, Column]] = (),
        removed: Int64Array = _NO_ROWS,
    ) -> None:
        first = segments[0][1]
        known = [each for each in (first.categories, *categories) if each is not None]
        self._segments = tuple(segments)
        self._updates = tuple(updates)
        self._removed = removed
        self.categories = pa.concat_arrays(known) if known else None
        self.kind = first.kind

    def __len__(self) -> int:
        first, column = self._segments[-1]
        return first + len(column)

    def release(self) -> None:
        """Take the pages that were read of mapped arrays out of the process."""
        for _, column in self._segments:
            release_pages(column.values)

    def is_changed(self, rows: Int64Array) -> _BoolArray:
        """Return whether rows have another value than in the first segment, or are none of its: bool [n]."""
        first, column = self._segments[0]
        changed = (rows < first) | (rows >= first + len(column))
        for each in (*(updated for updated, _ in self._updates), self._removed):
            changed |= np.isin(rows, each)
        return changed

    def take(self, rows: Int64Array) -> Column:
        """Return any rows, repeated ones too, in their order."""
        parts = [self._segments[0][1].slice(0, 0)]
        place = np.zeros(len(rows), np.int64)
        count = 0
        segment_of = np.searchsorted([first for first, _ in self._segments], rows, side="right") - 1
        for number in np.flatnonzero(np.bincount(segment_of, minlength=1)).tolist():
            first, column = self._segments[number]
            at = np.flatnonzero(segment_of == number)
            parts.append(column.take(rows[at] - first))
            place[at] = np.arange(count, count + len(at))
            count += len(at)
        for updated, values in self._updates:
            at = np.flatnonzero(np.isin(rows, updated))
            parts.append(values.take(np.searchsorted(updated, rows[at])))
            place[at] = np.arange(count, count + len(at))
            count += len(at)
        if len(self._removed):
            parts.append(self._missing_row())
            place[np.isin(rows, self._removed)] = count
        return self._with_categories(stacked(parts).take(place))

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
            parts.append(self._missing_row())
            row[self._removed[low:high] - start] = count
            count += 1
        read = stacked(parts)
        return self._with_categories(read if count == stop - start else read.take(row))

    def read_all(self) -> Column:
        """Return all rows."""
        return self.read(0, len(self))

    def _missing_row(self) -> Column:
        row_shape = self._segments[0][1].values.shape[1:] if self.kind == "vector" else ()
        return missing_row(self.kind, row_shape)

    def _with_categories(self, column: Column) -> Column:
        return Column(column.kind, column.values, self.categories, column.offsets)


FeatureValues: TypeAlias = npt.NDArray[Any] | Lists
"""Values of a feature as read: one entry per row, or lists."""

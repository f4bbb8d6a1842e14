"""Turning table columns into ids, features, weights and timestamps, or saying which cell is wrong."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from graphbox.errors import DataError, UsageError, did_you_mean
from graphbox.graph.schema import FeatureKind, FeatureSpec, Float32Array, IdType, Int64Array
from graphbox.graph.source import SourceTable

__all__ = ["FEATURE_KINDS", "Column", "read_feature", "read_ids", "read_timestamp", "read_weight"]

FEATURE_KINDS: tuple[FeatureKind, ...] = ("number", "integer", "categorical", "boolean", "vector")

_CELL_HINT = "correct the cell, or give the column another kind in the run file"
_PLAIN_INTEGER = r"^(?:0|-?[1-9][0-9]{0,18})$"


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
        """What the array holds."""
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

    def take(self, index: Int64Array | npt.NDArray[np.bool_]) -> Column:
        """Return the column of the rows ``index``."""
        if self.offsets is None:
            return Column(self.kind, self.values[index], self.categories)
        rows = np.flatnonzero(index) if index.dtype == np.bool_ else index
        starts = self.offsets[rows]
        lengths = self.offsets[rows + 1] - starts
        offsets = np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths)])
        positions = np.arange(offsets[-1]) + np.repeat(starts - offsets[:-1], lengths)
        return Column(self.kind, self.values[positions], None, offsets)


# Ids


def read_ids(source: SourceTable, column: str, id_type: IdType | None) -> pa.Array:
    """Return a column of original ids as large_string or int64, nulls kept.

    Args:
        source: the table.
        column: its column.
        id_type: what the ids are; None takes the column's type, and in text int64 when every cell is a plain
            decimal integer of 64 bits.

    Raises:
        DataError: the column is of another type, or a cell is no such id.
    """
    values = source.column(column)
    if pa.types.is_integer(values.type):
        if id_type == "string":
            raise _wrong_type(source, column, "strings", values)
        return _cast(source, column, values, pa.int64(), "a 64-bit signed integer")
    if not pa.types.is_large_string(values.type):
        raise _wrong_type(source, column, "ids (strings or integers)", values)
    if id_type == "string" or (id_type is None and not source.is_text):
        return values
    if id_type == "int64" and not source.is_text:
        raise _wrong_type(source, column, "64-bit integers", values)
    plain = pc.fill_null(pc.match_substring_regex(values, _PLAIN_INTEGER), True)
    if pc.all(plain).as_py() and len(values):
        try:
            return values.cast(pa.int64())
        except pa.ArrowInvalid:  # 19 digits beyond int64
            plain = None
    if id_type is None:
        return values
    if plain is not None:
        _raise_first(source, column, values, pc.invert(plain), "a plain decimal integer")
    return _cast(source, column, values, pa.int64(), "a 64-bit signed integer")


def check_ids(source: SourceTable, column: str, ids: pa.Array) -> None:
    """Raise when an id is missing, empty or has a line break (ids are listed one on a line).

    Raises:
        DataError: naming the first such cell.
    """
    _raise_first(source, column, ids, ids.is_null(), "an id in every row")
    if pa.types.is_large_string(ids.type):
        _raise_first(source, column, ids, pc.equal(ids, ""), "an id in every row")
        _raise_first(
            source, column, ids, pc.match_substring_regex(ids, r"[\r\n]"), "an id without line breaks"
        )


# Features


def read_feature(source: SourceTable, column: str, kind: FeatureKind) -> Column:
    """Return a column as a feature of the given kind.

    Raises:
        UsageError: there is no such kind.
        DataError: the column is of another type, or a cell has no such value.
    """
    readers: dict[str, Callable[[SourceTable, str], Column]] = {
        "number": _number,
        "integer": _integer,
        "categorical": _categorical,
        "boolean": _boolean,
        "vector": _vector,
    }
    if kind not in readers:
        raise UsageError(
            f"expected one of {', '.join(readers)}, received {kind!r}",
            where=f"feature `{column}`",
            hint=did_you_mean(str(kind), readers),
        )
    return readers[kind](source, column)


def _number(source: SourceTable, column: str) -> Column:
    values = source.column(column)
    if not (_is_number(values.type) or _is_readable_text(source, values) or _is_empty(values)):
        raise _wrong_type(source, column, "numbers", values)
    if pa.types.is_integer(values.type):
        numbers = values.cast(pa.float64(), safe=False)
    else:
        numbers = _cast(source, column, values, pa.float64(), "a number")
    return Column("number", pc.fill_null(numbers, np.nan).to_numpy().astype(np.float32))


def _integer(source: SourceTable, column: str) -> Column:
    values = source.column(column)
    if not (pa.types.is_integer(values.type) or _is_readable_text(source, values)):
        raise _wrong_type(source, column, "integers", values)
    _raise_first(
        source, column, values, values.is_null(), "an integer in every row (`number` may be missing)"
    )
    return Column("integer", _cast(source, column, values, pa.int64(), "a 64-bit signed integer").to_numpy())


def _boolean(source: SourceTable, column: str) -> Column:
    values = source.column(column)
    if not (pa.types.is_boolean(values.type) or _is_readable_text(source, values)):
        raise _wrong_type(source, column, "booleans", values)
    _raise_first(
        source, column, values, values.is_null(), "true or false in every row (`categorical` may be missing)"
    )
    booleans = _cast(source, column, values, pa.bool_(), "true or false")
    return Column("boolean", booleans.to_numpy(zero_copy_only=False))


def _categorical(source: SourceTable, column: str) -> Column:
    values = source.column(column)
    kind = values.type
    is_discrete = pa.types.is_large_string(kind) or pa.types.is_integer(kind) or pa.types.is_boolean(kind)
    if not (is_discrete or _is_empty(values)):
        raise _wrong_type(source, column, "strings, integers or booleans", values)
    texts = values.cast(pa.large_string())
    categories = texts.unique().drop_null()
    categories = categories.take(pc.sort_indices(categories))
    codes = pc.fill_null(pc.index_in(texts, value_set=categories), -1)
    return Column("categorical", codes.to_numpy().astype(np.int32), categories)


def _vector(source: SourceTable, column: str) -> Column:
    values = source.column(column)
    if not (
        pa.types.is_list(values.type) or pa.types.is_large_list(values.type) or _is_fixed_list(values.type)
    ):
        raise _wrong_type(source, column, "lists of numbers", values)
    if not _is_number(values.type.value_type):
        raise _wrong_type(source, column, "lists of numbers", values)
    _raise_first(source, column, values, values.is_null(), "a vector in every row")
    lengths = pc.list_value_length(values).to_numpy(zero_copy_only=False)
    dim = int(lengths[0]) if len(lengths) else 0
    _raise_first(
        source, column, values, pa.array(lengths != dim), f"{dim} numbers in every row, as in the first"
    )
    numbers = pc.fill_null(pc.list_flatten(values).cast(pa.float32()), np.nan).to_numpy(zero_copy_only=False)
    return Column("vector", numbers.reshape(len(values), dim))


def read_weight(source: SourceTable, column: str) -> Float32Array:
    """Return a column of edge weights as float32.

    Raises:
        DataError: a cell is no finite positive number.
    """
    weight: Float32Array = _number(source, column).values
    wrong = ~(np.isfinite(weight) & (weight > 0))
    _raise_first(source, column, source.column(column), pa.array(wrong), "a finite positive number")
    return weight


def read_timestamp(source: SourceTable, column: str) -> Int64Array:
    """Return a column of timestamps as int64: integers as they are, timestamps as microseconds UTC.

    Raises:
        DataError: a cell is none.
    """
    values = source.column(column)
    if pa.types.is_timestamp(values.type):
        _raise_first(source, column, values, values.is_null(), "a timestamp in every row")
        microseconds = _cast(source, column, values, pa.timestamp("us", values.type.tz), "whole microseconds")
        timestamp: Int64Array = microseconds.cast(pa.int64()).to_numpy()
        return timestamp
    return _integer(source, column).values


# Checks


def _is_number(kind: pa.DataType) -> bool:
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind))


def _is_empty(values: pa.Array) -> bool:
    """Return whether every cell is missing, in a file that says nothing of the column's type."""
    return bool(pa.types.is_null(values.type))


def _is_fixed_list(kind: pa.DataType) -> bool:
    return bool(pa.types.is_fixed_size_list(kind))


def _is_readable_text(source: SourceTable, values: pa.Array) -> bool:
    return source.is_text and bool(pa.types.is_large_string(values.type))


def _wrong_type(source: SourceTable, column: str, expected: str, values: pa.Array) -> DataError:
    return DataError(
        f"expected {expected}, received values of type {values.type}",
        where=f"{source.path}, column `{column}`",
        hint=_CELL_HINT,
    )


def _raise_first(source: SourceTable, column: str, values: pa.Array, wrong: pa.Array, expected: str) -> None:
    """Raise for the first row where ``wrong`` is true."""
    rows = np.flatnonzero(pc.fill_null(wrong, False).to_numpy(zero_copy_only=False))
    if len(rows):
        received = values[int(rows[0])].as_py()
        shown = "an empty cell" if received is None else repr(received)[:120]
        more = f" (and {len(rows) - 1:,} more such cells)" if len(rows) > 1 else ""
        raise DataError(
            f"expected {expected}, received {shown}{more}",
            where=source.where(int(rows[0]), column),
            hint=_CELL_HINT,
        )


def _cast(source: SourceTable, column: str, values: pa.Array, kind: pa.DataType, expected: str) -> pa.Array:
    """Cast, or raise for the first cell that cannot be."""
    try:
        return values.cast(kind)
    except pa.ArrowInvalid:
        row = _first_failing(values, kind)
    received = repr(values[row].as_py())[:120]
    raise DataError(
        f"expected {expected}, received {received}", where=source.where(row, column), hint=_CELL_HINT
    )


def _first_failing(values: pa.Array, kind: pa.DataType) -> int:
    """Return the first row that cannot be cast, found by halving."""
    low, high = 0, len(values)
    while high - low > 1:
        middle = (low + high) // 2
        try:
            values.slice(low, middle - low).cast(kind)
            low = middle
        except pa.ArrowInvalid:
            high = middle
    return low

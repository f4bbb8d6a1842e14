"""Turning columns of tables into ids, features, weights and timestamps, and telling which rows cannot be.

What a cell becomes depends on the cell and on the column's type alone, never on the batch it came in.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import cached_property
from itertools import islice
from typing import Any, ClassVar, Generic, TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from graphbox import _core
from graphbox.errors import DataError, DoesNotFitError, UsageError, did_you_mean
from graphbox.graph.schema import FeatureKind, FeatureSpec, Float32Array, IdType, Int64Array

__all__ = [
    "FEATURE_KINDS",
    "CategoricalReader",
    "Column",
    "Converted",
    "FeatureReader",
    "FeatureValues",
    "Lists",
    "Wrong",
    "feature_reader",
    "plain_integers",
    "read_ids",
    "read_timestamp",
    "read_weight",
]

FEATURE_KINDS: tuple[FeatureKind, ...] = ("number", "integer", "categorical", "boolean", "vector", "slots")

SLOT_SEPARATOR = "|"
"""What stands between the values of one cell of text, in slots and vectors."""

_CELL_HINT = "correct the cell, or give the column another kind in the run file"
_CATEGORY_BYTES = 150
"""Memory of a category besides its text: its entry in the dictionary of codes and Python's object."""
_MOST_CATEGORIES = 2**31 - 1

BoolArray = npt.NDArray[np.bool_]
Values_co = TypeVar("Values_co", covariant=True)


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

    def take(self, index: Int64Array | BoolArray) -> Column:
        """Return the column of the rows ``index``."""
        if self.offsets is None:
            return Column(self.kind, self.values[index], self.categories)
        lists = Lists(self.offsets, self.values).take(index)
        return Column(self.kind, lists.values, self.categories, lists.offsets)


@dataclass(frozen=True, eq=False)
class Lists:
    """Any number of int64 values for each row.

    Attributes:
        offsets: int64 [n + 1], where the values of each row begin and end.
        values: int64, the values of all rows one after the other.
    """

    offsets: Int64Array
    values: Int64Array

    def take(self, index: Int64Array | BoolArray) -> Lists:
        """Return the lists of the rows ``index``."""
        rows = np.flatnonzero(index) if index.dtype == bool else index
        lengths = self.offsets[rows + 1] - self.offsets[rows]
        offsets = np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths)])
        # The position in `values` of each value taken: its row's start, and its rank within the row.
        positions = np.arange(offsets[-1]) + np.repeat(self.offsets[rows] - offsets[:-1], lengths)
        return Lists(offsets, self.values[positions])


FeatureValues: TypeAlias = npt.NDArray[Any] | Lists
"""What a feature is read as: one entry per row, or lists."""


@dataclass(frozen=True, eq=False)
class Wrong:
    """Rows of a column that cannot be used, for one reason.

    Attributes:
        kind: the reason in a few words; such rows are counted by kind.
        expected: what the cell should hold.
        rows: bool [n].
    """

    kind: str
    expected: str
    rows: BoolArray


@dataclass(frozen=True, eq=False)
class Converted(Generic[Values_co]):
    """The cells of a column as what they stand for.

    Attributes:
        values: one entry per row; unspecified where ``wrong`` has the row.
        wrong: the rows that cannot be used; a row in several of them has the first one's reason.
    """

    values: Values_co
    wrong: tuple[Wrong, ...] = ()


def _found(*candidates: tuple[str, str, BoolArray | None]) -> tuple[Wrong, ...]:
    """Return (kind, expected, rows) as what is wrong, without those that no row has."""
    return tuple(
        Wrong(kind, expected, rows) for kind, expected, rows in candidates if rows is not None and rows.any()
    )


def _nulls(values: pa.Array) -> BoolArray | None:
    return _booleans(values.is_null()) if values.null_count else None


def _booleans(values: pa.Array) -> BoolArray:
    mask: BoolArray = values.to_numpy(zero_copy_only=False)
    return mask


# Text


def _cells(values: pa.Array) -> tuple[Int64Array, npt.NDArray[np.uint8]]:
    """Return offsets int64 [n + 1] and the text of a large_string array; nulls are empty."""
    if values.null_count:
        values = values.fill_null("")
    if not len(values):
        return np.zeros(1, np.int64), np.zeros(0, np.uint8)
    _, offsets, text = values.buffers()
    bounds = np.frombuffer(offsets, np.int64, values.offset + len(values) + 1)[values.offset :]
    return bounds, np.zeros(0, np.uint8) if text is None else np.frombuffer(text, np.uint8)


def _parse_integers(values: pa.Array, *, plain: bool) -> tuple[Int64Array, BoolArray | None]:
    numbers, wrong = np.empty(len(values), np.int64), np.empty(len(values), np.uint8)
    failed = _core.parse_integers(*_cells(values), plain, numbers, wrong)
    return numbers, wrong.view(bool) if failed else None


def _parse_numbers(values: pa.Array) -> tuple[npt.NDArray[np.float64], BoolArray | None]:
    numbers, wrong = np.empty(len(values), np.float64), np.empty(len(values), np.uint8)
    failed = _core.parse_numbers(*_cells(values), numbers, wrong)
    return numbers, wrong.view(bool) if failed else None


def plain_integers(values: pa.Array) -> bool:
    """Return whether every cell of a large_string array that is not missing is a plain decimal integer.

    That is: of 64 bits with a sign, spelled as it is printed, without leading zeros or a plus sign.
    """
    _, wrong = _parse_integers(values, plain=True)
    return wrong is None or bool((wrong == _booleans(values.is_null())).all())


# Ids


def read_ids(values: pa.Array, id_type: IdType, *, is_text: bool, place: str) -> Converted[pa.Array]:
    """Return original ids as large_string or int64; rows without a usable one are null.

    Args:
        values: a column.
        id_type: what the ids are.
        is_text: whether the table's columns are all text, so that integers are parsed.
        place: the column, for messages.

    Raises:
        DataError: the column is of another type.
    """
    if not (pa.types.is_integer(values.type) or pa.types.is_large_string(values.type)):
        raise _wrong_type(place, "ids (strings or integers)", values)
    if id_type == "string":
        if not pa.types.is_large_string(values.type):
            raise _wrong_type(place, "strings", values)
        return _string_ids(values)
    if pa.types.is_integer(values.type):
        numbers, beyond = _to_int64(values)
        missing = _nulls(values)
    elif is_text and pa.types.is_large_string(values.type):
        numbers, beyond = _parse_integers(values, plain=True)
        missing = _nulls(values)
    else:
        raise _wrong_type(place, "64-bit integers", values)
    wrong = _found(
        ("missing id", "an id in every row", missing),
        ("not an integer id", "a plain decimal integer of 64 bits", beyond),
    )
    return Converted(pa.array(numbers, mask=_any(wrong, len(values)) if wrong else None), wrong)


def _string_ids(values: pa.Array) -> Converted[pa.Array]:
    bounds, text = _cells(values)
    used = text[bounds[0] : bounds[-1]]
    breaks = None
    if (used == ord("\n")).any() or (used == ord("\r")).any():
        # Ids are listed one on a line.
        breaks = _booleans(pc.fill_null(pc.match_substring_regex(values, r"[\r\n]"), False))
    wrong = _found(
        ("missing id", "an id in every row", np.diff(bounds) == 0),
        ("id with a line break", "an id without line breaks", breaks),
    )
    if wrong:
        values = pc.if_else(pa.array(_any(wrong, len(values))), pa.scalar(None, pa.large_string()), values)
    return Converted(values, wrong)


def _to_int64(values: pa.Array) -> tuple[Int64Array, BoolArray | None]:
    """Return integers of any width as int64, and where an unsigned one is beyond it."""
    if values.null_count:
        values = values.fill_null(0)
    numbers: Int64Array = values.cast(pa.int64(), safe=False).to_numpy()
    return numbers, numbers < 0 if pa.types.is_uint64(values.type) else None


def _any(wrong: tuple[Wrong, ...], rows: int) -> BoolArray:
    """Return the rows that something is wrong with."""
    mask = np.zeros(rows, bool)
    for each in wrong:
        mask |= each.rows
    return mask


# Weights and timestamps


_TEXT_TIMESTAMP = "an integer such as seconds since 1970 (dates are read from Parquet and Arrow only)"


def read_weight(values: pa.Array, *, is_text: bool, place: str) -> Converted[Float32Array]:
    """Return edge weights as float32, finite and positive.

    Raises:
        DataError: the column is of another type.
    """
    numbers = _read_numbers(values, is_text=is_text, place=place)
    with np.errstate(invalid="ignore"):
        unusable = ~(np.isfinite(numbers.values) & (numbers.values > 0))
    missing = _nulls(values)
    wrong = _found(
        ("missing weight", "a finite positive number", missing),
        *((each.kind, "a finite positive number", each.rows) for each in numbers.wrong),
        ("weight that is not positive", "a finite positive number", unusable),
    )
    return Converted(numbers.values, wrong)


def read_timestamp(values: pa.Array, *, is_text: bool, place: str) -> Converted[Int64Array]:
    """Return timestamps as int64: integers as they are, Arrow timestamps as microseconds UTC.

    Raises:
        DataError: the column is of another type.
    """
    if not pa.types.is_timestamp(values.type):
        return _read_integers(
            values, is_text=is_text, place=place, missing="missing timestamp", expected=_TEXT_TIMESTAMP
        )
    missing = _nulls(values)
    numbers: Int64Array = values.view(pa.int64()).fill_null(0).to_numpy()
    unit = values.type.unit
    if unit == "ns":
        microseconds, fraction = np.divmod(numbers, 1000)
        unusable = fraction != 0
    else:
        factor = {"s": 1_000_000, "ms": 1_000, "us": 1}[unit]
        limit = (2**63 - 1) // factor
        unusable = (numbers > limit) | (numbers < -limit)
        microseconds = np.where(unusable, 0, numbers) * factor
    wrong = _found(
        ("missing timestamp", "a timestamp in every row", missing),
        ("not a timestamp", "whole microseconds within 64 bits", unusable),
    )
    return Converted(microseconds, wrong)


def _read_numbers(values: pa.Array, *, is_text: bool, place: str) -> Converted[Float32Array]:
    """Return numbers as float32, NaN where missing."""
    beyond = None
    if is_text and pa.types.is_large_string(values.type):
        numbers, wrong = _parse_numbers(values)
    elif pa.types.is_float32(values.type):
        return Converted(pc.fill_null(values, np.float32(np.nan)).to_numpy())
    elif _is_number(values.type) or pa.types.is_null(values.type):
        wide = values.cast(pa.float64(), safe=False)
        numbers, wrong = pc.fill_null(wide, np.nan).to_numpy(), None
    else:
        raise _wrong_type(place, "numbers", values)
    missing = _nulls(values)
    if missing is not None:
        numbers = np.where(missing, np.nan, numbers)
        wrong = None if wrong is None else wrong & ~missing
    with np.errstate(over="ignore"):
        narrow = numbers.astype(np.float32)
    if np.isinf(narrow).any():
        beyond = np.isinf(narrow) & np.isfinite(numbers)
    return Converted(
        narrow,
        _found(
            ("not a number", "a number", wrong),
            ("number beyond float32", "a number within the range of float32", beyond),
        ),
    )


def _read_integers(
    values: pa.Array, *, is_text: bool, place: str, missing: str, expected: str = "an integer of 64 bits"
) -> Converted[Int64Array]:
    if is_text and pa.types.is_large_string(values.type):
        numbers, wrong = _parse_integers(values, plain=False)
    elif pa.types.is_integer(values.type):
        numbers, wrong = _to_int64(values)
    else:
        raise _wrong_type(place, "integers", values)
    return Converted(
        numbers,
        _found(
            (missing, "an integer in every row", _nulls(values)),
            ("not an integer", expected, wrong),
        ),
    )


# Features


class FeatureReader(ABC):
    """Reads one feature, batch by batch.

    Args:
        is_text: whether the table's columns are all text.
        place: the column, for messages.
        memory_bytes: what it may hold between batches.
    """

    kind: ClassVar[FeatureKind]
    dtype: ClassVar[type[np.generic]]

    def __init__(self, *, is_text: bool, place: str, memory_bytes: int) -> None:
        self._is_text = is_text
        self._place = place
        self._memory_bytes = memory_bytes

    @property
    def row_shape(self) -> tuple[int, ...] | None:
        """Shape of the values of one row; None as long as no row has shown it."""
        return ()

    @abstractmethod
    def read(self, values: pa.Array) -> Converted[FeatureValues]:
        """Return the values of a batch.

        Raises:
            DataError: the column is of another type.
            DoesNotFitError: what must be held between batches is beyond the memory given.
        """

    def _is_readable_text(self, values: pa.Array) -> bool:
        return self._is_text and bool(pa.types.is_large_string(values.type))


class _Numbers(FeatureReader):
    kind = "number"
    dtype = np.float32

    def read(self, values: pa.Array) -> Converted[FeatureValues]:
        return _read_numbers(values, is_text=self._is_text, place=self._place)


class _Integers(FeatureReader):
    kind = "integer"
    dtype = np.int64

    def read(self, values: pa.Array) -> Converted[FeatureValues]:
        return _read_integers(values, is_text=self._is_text, place=self._place, missing="missing integer")


class _Booleans(FeatureReader):
    kind = "boolean"
    dtype = np.bool_

    def read(self, values: pa.Array) -> Converted[FeatureValues]:
        wrong = None
        if self._is_readable_text(values):
            truth, flags = np.empty(len(values), np.uint8), np.empty(len(values), np.uint8)
            wrong = flags.view(bool) if _core.parse_booleans(*_cells(values), truth, flags) else None
            booleans = truth.view(bool)
        elif pa.types.is_boolean(values.type):
            booleans = _booleans(pc.fill_null(values, False))
        else:
            raise _wrong_type(self._place, "booleans", values)
        found = _found(
            ("missing boolean", "true or false in every row", _nulls(values)),
            ("not a boolean", "true or false", wrong),
        )
        return Converted(booleans, found)


class CategoricalReader(FeatureReader):
    """Reads categories as codes by first appearance, which are final once :meth:`final` has recoded them."""

    kind = "categorical"
    dtype = np.int32

    def __init__(self, *, is_text: bool, place: str, memory_bytes: int) -> None:
        super().__init__(is_text=is_text, place=place, memory_bytes=memory_bytes)
        self._codes: dict[str, int] = {}
        self._text_bytes = 0

    def read(self, values: pa.Array) -> Converted[FeatureValues]:
        """Return int32 codes by first appearance, -1 where missing."""
        kind = values.type
        if not (
            pa.types.is_large_string(kind)
            or pa.types.is_integer(kind)
            or pa.types.is_boolean(kind)
            or pa.types.is_null(kind)
        ):
            raise _wrong_type(self._place, "strings, integers or booleans", values)
        encoded = values.cast(pa.large_string()).dictionary_encode()
        known = len(self._codes)
        codes = [self._codes.setdefault(text, len(self._codes)) for text in encoded.dictionary.to_pylist()]
        self._account(len(self._codes) - known)
        by_position = np.array([*codes, -1], np.int32)
        positions = pc.fill_null(encoded.indices, len(codes)).to_numpy()
        return Converted(by_position[positions])

    def _account(self, added: int) -> None:
        self._text_bytes += sum(map(len, islice(reversed(self._codes), added)))
        held_bytes = self._text_bytes + len(self._codes) * _CATEGORY_BYTES
        if held_bytes > self._memory_bytes or len(self._codes) > _MOST_CATEGORIES:
            raise DoesNotFitError(
                f"expected categories that fit {self._memory_bytes:,} bytes, received {len(self._codes):,} "
                "different ones and more to come",
                where=self._place,
                hint="give the column the kind `slots`, which keeps 64-bit hashes, or give it more memory",
            )

    def final(self) -> tuple[pa.Array, npt.NDArray[np.int32]]:
        """Return the categories, ascending, as large_string, and the final code of each provisional one."""
        texts = pa.array(list(self._codes), pa.large_string())
        order = pc.sort_indices(texts)
        recode = np.empty(len(texts), np.int32)
        recode[order.to_numpy()] = np.arange(len(texts), dtype=np.int32)
        return texts.take(order), recode


class _Vectors(FeatureReader):
    kind = "vector"
    dtype = np.float32

    def __init__(self, *, is_text: bool, place: str, memory_bytes: int) -> None:
        super().__init__(is_text=is_text, place=place, memory_bytes=memory_bytes)
        self._dim: int | None = None

    @property
    def row_shape(self) -> tuple[int, ...] | None:
        return None if self._dim is None else (self._dim,)

    def read(self, values: pa.Array) -> Converted[FeatureValues]:
        missing = _nulls(values)
        if self._is_readable_text(values):
            lists = pc.split_pattern(values, SLOT_SEPARATOR)
        elif _is_list(values.type) and _is_number(values.type.value_type):
            lists = values
        else:
            raise _wrong_type(self._place, "lists of numbers", values)
        lengths = pc.fill_null(pc.list_value_length(lists), 0).to_numpy().astype(np.int64)
        present = np.ones(len(values), bool) if missing is None else ~missing
        if self._dim is None and pa.types.is_fixed_size_list(values.type):
            self._dim = values.type.list_size
        if self._dim is None and present.any():
            self._dim = int(lengths[present.argmax()])
        fitting = present & (lengths == self._dim)
        flat = pc.list_flatten(lists if fitting.all() else lists.filter(pa.array(fitting)))
        numbers = _read_numbers(flat, is_text=self._is_text, place=self._place)
        dim = self._dim or 0
        matrix = np.zeros((len(values), dim), np.float32)
        matrix[fitting] = numbers.values.reshape(-1, dim) if dim else 0
        found = [
            ("missing vector", "a vector in every row", missing),
            ("vector of another length", f"{dim} numbers in every row, as in the first", present & ~fitting),
        ]
        for each in numbers.wrong:
            rows = np.zeros(len(values), bool)
            rows[fitting] = each.rows.reshape(-1, dim).any(axis=1)
            found.append((each.kind, each.expected, rows))
        return Converted(matrix, _found(*found))


class _Slots(FeatureReader):
    kind = "slots"
    dtype = np.int64

    def read(self, values: pa.Array) -> Converted[FeatureValues]:
        if self._is_readable_text(values):
            # An empty cell has no value; split, it would have one empty one.
            cells = pc.if_else(pc.equal(values, ""), pa.scalar(None, values.type), values)
            lists = pc.split_pattern(cells, SLOT_SEPARATOR)
        elif _is_list(values.type) and _is_slot_value(values.type.value_type):
            lists = values
        else:
            raise _wrong_type(self._place, "lists of integers or strings", values)
        lengths = pc.fill_null(pc.list_value_length(lists), 0).to_numpy().astype(np.int64)
        flat = pc.list_flatten(lists)
        offsets = np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths)])
        numbers, unusable = self._values(flat)
        wrong: tuple[Wrong, ...] = ()
        if unusable is not None:
            rows = np.zeros(len(values), bool)
            rows[np.repeat(np.arange(len(values)), lengths)[unusable]] = True
            wrong = _found(("empty slot value", f"values separated by `{SLOT_SEPARATOR}`", rows))
        return Converted(Lists(offsets, numbers), wrong)

    def _values(self, flat: pa.Array) -> tuple[Int64Array, BoolArray | None]:
        missing = _nulls(flat)
        if pa.types.is_integer(flat.type):
            return _to_int64(flat)[0], missing
        texts = flat.cast(pa.large_string())
        cells = _cells(texts)
        hashed = np.empty(len(texts), np.int64)
        _core.hash_strings(*cells, hashed)
        empty = np.diff(cells[0]) == 0
        if self._is_text:
            numbers, other = _parse_integers(texts, plain=True)
            hashed = numbers if other is None else np.where(other, hashed, numbers)
        return hashed, empty if empty.any() else None


def feature_reader(kind: FeatureKind, *, is_text: bool, place: str, memory_bytes: int) -> FeatureReader:
    """Return a reader of a feature of the given kind.

    Args:
        kind: how the feature is read.
        is_text: whether the table's columns are all text.
        place: the column, for messages.
        memory_bytes: what the reader may hold between batches.

    Raises:
        UsageError: there is no such kind.
    """
    readers: dict[str, type[FeatureReader]] = {
        "number": _Numbers,
        "integer": _Integers,
        "categorical": CategoricalReader,
        "boolean": _Booleans,
        "vector": _Vectors,
        "slots": _Slots,
    }
    if kind not in readers:
        raise UsageError(
            f"expected one of {', '.join(readers)}, received {kind!r}",
            where=place,
            hint=did_you_mean(str(kind), readers),
        )
    return readers[kind](is_text=is_text, place=place, memory_bytes=memory_bytes)


# Types


def _is_number(kind: pa.DataType) -> bool:
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind))


def _is_list(kind: pa.DataType) -> bool:
    return bool(pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind))


def _is_slot_value(kind: pa.DataType) -> bool:
    return bool(pa.types.is_integer(kind) or pa.types.is_string(kind) or pa.types.is_large_string(kind))


def _wrong_type(place: str, expected: str, values: pa.Array) -> DataError:
    return DataError(
        f"expected {expected}, received values of type {values.type}", where=place, hint=_CELL_HINT
    )

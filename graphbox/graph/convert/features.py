"""Features of a column, batch by batch."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from itertools import islice
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from graphbox import _core
from graphbox.errors import DoesNotFitError, UsageError, did_you_mean
from graphbox.graph.columns import Column, FeatureValues, Lists, stacked
from graphbox.graph.convert.converted import Converted, booleans, found, nulls, wrong_type
from graphbox.graph.convert.numbers import is_number, read_integers, read_numbers, to_int64
from graphbox.graph.convert.text import SLOT_SEPARATOR, cells, parse_booleans, parse_integers
from graphbox.graph.schema import FeatureKind, Int64Array
from graphbox.words import counted_bytes

_CATEGORY_BYTES = 150
"""Memory of a category besides its text: its entry in the dictionary of codes and Python's object."""
_MOST_CATEGORIES = 2**31 - 1


class FeatureReader(ABC):
    """Reads one feature, batch by batch.

    Args:
        is_text: whether the table's columns are all text.
        place: the column, for messages.
        memory_bytes: what it may hold between batches.
        list_separator: separator of the values in a cell of text.
    """

    kind: ClassVar[FeatureKind]
    dtype: ClassVar[type[np.generic]]

    def __init__(
        self, *, is_text: bool, place: str, memory_bytes: int, list_separator: str = SLOT_SEPARATOR
    ) -> None:
        self._list_separator = list_separator
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

    def column(self, parts: Sequence[Any]) -> Column:
        """Return the values of batches, all that were read, as one column."""
        values = np.concatenate([np.zeros((0, *(self.row_shape or ())), self.dtype), *parts])
        return Column(self.kind, values)

    def _is_readable_text(self, values: pa.Array) -> bool:
        return self._is_text and bool(pa.types.is_large_string(values.type))


class _Numbers(FeatureReader):
    kind = "number"
    dtype = np.float32

    def read(self, values: pa.Array) -> Converted[FeatureValues]:
        return read_numbers(values, is_text=self._is_text, place=self._place)


class _Integers(FeatureReader):
    kind = "integer"
    dtype = np.int64

    def read(self, values: pa.Array) -> Converted[FeatureValues]:
        return read_integers(values, is_text=self._is_text, place=self._place, missing="missing integer")


class _Booleans(FeatureReader):
    kind = "boolean"
    dtype = np.bool_

    def read(self, values: pa.Array) -> Converted[FeatureValues]:
        wrong = None
        if self._is_readable_text(values):
            truth, wrong = parse_booleans(values)
        elif pa.types.is_boolean(values.type):
            truth = booleans(pc.fill_null(values, False))
        else:
            raise wrong_type(self._place, "booleans", values)
        missing = ("missing boolean", "true or false in every row", nulls(values))
        return Converted(truth, found(missing, ("not a boolean", "true or false", wrong)))


class CategoricalReader(FeatureReader):
    """Reads categories as codes by first appearance, which are final once :meth:`final` has recoded them."""

    kind = "categorical"
    dtype = np.int32

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
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
            raise wrong_type(self._place, "strings, integers or booleans", values)
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
                f"expected categories that fit {counted_bytes(self._memory_bytes)}, received "
                f"{len(self._codes):,} different ones and more to come",
                where=self._place,
                hint="give the import more memory, or the column the kind `slots`, which keeps 64-bit hashes",
            )

    def final(self) -> tuple[pa.Array, npt.NDArray[np.int32]]:
        """Return the categories, ascending, as large_string, and the final code of each provisional one."""
        texts = pa.array(list(self._codes), pa.large_string())
        order = pc.sort_indices(texts)
        recode = np.empty(len(texts), np.int32)
        recode[order.to_numpy()] = np.arange(len(texts), dtype=np.int32)
        return texts.take(order), recode

    def column(self, parts: Sequence[Any]) -> Column:
        """Return the values of batches as one column, of final codes."""
        categories, recode = self.final()
        codes = np.concatenate([np.zeros(0, np.int32), *parts])
        return Column(self.kind, np.append(recode, np.int32(-1))[codes], categories)


class _Vectors(FeatureReader):
    kind = "vector"
    dtype = np.float32

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self._dim: int | None = None

    @property
    def row_shape(self) -> tuple[int, ...] | None:
        return None if self._dim is None else (self._dim,)

    def read(self, values: pa.Array) -> Converted[FeatureValues]:
        missing, is_text = nulls(values), pa.types.is_large_string(values.type)
        if is_text:
            lists = pc.split_pattern(values, self._list_separator)
        elif _is_list(values.type) and is_number(values.type.value_type):
            lists = values
        else:
            raise wrong_type(self._place, "lists of numbers", values)
        lengths = pc.fill_null(pc.list_value_length(lists), 0).to_numpy().astype(np.int64)
        present = np.ones(len(values), bool) if missing is None else ~missing
        if self._dim is None and pa.types.is_fixed_size_list(values.type):
            self._dim = values.type.list_size
        if self._dim is None and present.any():
            self._dim = int(lengths[present.argmax()])
        fitting = present & (lengths == self._dim)
        flat = pc.list_flatten(lists if fitting.all() else lists.filter(pa.array(fitting)))
        numbers = read_numbers(flat, is_text=is_text, place=self._place)
        dim = self._dim or 0
        matrix = np.zeros((len(values), dim), np.float32)
        matrix[fitting] = numbers.values.reshape(-1, dim) if dim else 0
        reasons = [
            ("missing vector", "a vector in every row", missing),
            ("vector of another length", f"{dim} numbers in every row, as in the first", present & ~fitting),
        ]
        for each in numbers.wrong:
            rows = np.zeros(len(values), bool)
            rows[fitting] = each.rows.reshape(-1, dim).any(axis=1)
            reasons.append((each.kind, each.expected, rows))
        return Converted(matrix, found(*reasons))


class _Slots(FeatureReader):
    kind = "slots"
    dtype = np.int64

    def read(self, values: pa.Array) -> Converted[FeatureValues]:
        values = _without_null_type(values)
        if pa.types.is_large_string(values.type):
            # An empty cell has no value; split, it would have one empty one.
            values = pc.if_else(pc.equal(values, ""), pa.scalar(None, values.type), values)
            lists = pc.split_pattern(values, self._list_separator)
        elif _is_list(values.type) and _is_slot_value(values.type.value_type):
            lists = values
        elif _is_slot_value(values.type):
            lists = _lists_of_one(values)
        else:
            raise wrong_type(self._place, "integers, strings or lists of them", values)
        lengths = pc.fill_null(pc.list_value_length(lists), 0).to_numpy().astype(np.int64)
        flat = pc.list_flatten(lists)
        empty = _empty_values(flat)
        left_out = None
        if empty.any():
            row_of = np.repeat(np.arange(len(values)), lengths)
            left_out = np.bincount(row_of[empty], minlength=len(values))
            lengths -= left_out
            flat = flat.filter(pa.array(~empty))
        offsets = np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths)])
        return Converted(Lists(offsets, self._values(flat)), left_out=left_out)

    def column(self, parts: Sequence[Any]) -> Column:
        """Return the lists of batches as one column."""
        none = np.zeros(1, np.int64)
        columns = [Column(self.kind, each.values, None, each.offsets) for each in parts]
        return stacked([Column(self.kind, none[:0], None, none), *columns])

    def _values(self, flat: pa.Array) -> Int64Array:
        if pa.types.is_integer(flat.type):
            return to_int64(flat)[0]
        texts = flat.cast(pa.large_string())
        offsets, text = cells(texts)
        hashed = np.empty(len(texts), np.int64)
        _core.hash_strings(offsets, text, hashed)
        if self._is_text:
            numbers, other = parse_integers(texts, plain=True)
            hashed = numbers if other is None else np.where(other, hashed, numbers)
        return hashed


def feature_reader(
    kind: FeatureKind, *, is_text: bool, place: str, memory_bytes: int, list_separator: str | None = None
) -> FeatureReader:
    """Return a reader of a feature of the given kind.

    Args:
        kind: how the feature is read.
        is_text: whether the table's columns are all text.
        place: the column, for messages.
        memory_bytes: what the reader may hold between batches.
        list_separator: separator of the values in a cell of text; None: :data:`SLOT_SEPARATOR`.

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
    return readers[kind](
        is_text=is_text,
        place=place,
        memory_bytes=memory_bytes,
        list_separator=list_separator or SLOT_SEPARATOR,
    )


def _empty_values(values: pa.Array) -> npt.NDArray[np.bool_]:
    """Return a mask of the values that are null or the empty string."""
    if pa.types.is_integer(values.type):
        return booleans(values.is_null())
    return booleans(pc.fill_null(pc.equal(pc.binary_length(values), 0), True))


def _lists_of_one(values: pa.Array) -> pa.Array:
    """Return each value as a list; of a missing one an empty list."""
    present = values.is_valid().to_numpy(zero_copy_only=False)
    offsets = np.concatenate([np.zeros(1, np.int64), np.cumsum(present)])
    return pa.LargeListArray.from_arrays(pa.array(offsets), values.drop_null())


def _without_null_type(values: pa.Array) -> pa.Array:
    """Return rows that have no value or empty lists alone as what they are rows of: lists of integers."""
    kind = values.type
    is_list = pa.types.is_list(kind) or pa.types.is_large_list(kind)
    if pa.types.is_null(kind) or (is_list and pa.types.is_null(kind.value_type)):
        return values.cast(pa.large_list(pa.int64()))
    return values


def _is_list(kind: pa.DataType) -> bool:
    return bool(pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind))


def _is_slot_value(kind: pa.DataType) -> bool:
    return bool(pa.types.is_integer(kind) or pa.types.is_string(kind) or pa.types.is_large_string(kind))

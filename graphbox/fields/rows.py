"""Fields of rows: what a model reads of them, and how values become keys, weights and numbers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from graphbox.errors import UsageError, did_you_mean
from graphbox.fields.keys import digest_number, salt, slot_number
from graphbox.fields.lists import Lists

if TYPE_CHECKING:
    import pyarrow as pa

Int64: TypeAlias = NDArray[np.int64]
Rows: TypeAlias = Mapping[str, "NDArray[np.int64] | NDArray[np.float64] | Lists"]
"""Rows as :meth:`Fields.prepare` gives them: keys, numbers, or lists of keys, by feature."""
FieldKind: TypeAlias = Literal["number", "integer", "categorical", "boolean", "vector", "slots"]
"""Kinds of features, as graphs have them."""

_MISSING_TEXT = b"\xff"  # which no text is in UTF-8
_MISSING_KNOT = -1
_FARTHEST = 5.0
_NUMBER_KINDS = ("number", "integer")


class FieldColumn(Protocol):
    """The values of one feature, as a column of a graph has them.

    Attributes:
        values: [n], or [n, dim] of vectors; of categories int32 codes, -1 where missing; of slots the lists
            of all rows one after the other.
        categories: large_string array of the categories by code, or None.
        offsets: of slots int64 [n + 1], where the list of each row begins and ends; else None.
    """

    @property
    def values(self) -> NDArray[Any]:
        """See the class."""
        ...

    @property
    def categories(self) -> pa.Array | None:
        """See the class."""
        ...

    @property
    def offsets(self) -> Int64 | None:
        """See the class."""
        ...


@dataclass(frozen=True)
class Field:
    """A feature that a model reads.

    Attributes:
        name: of the feature.
        kind: of the feature.
        dim: length of a vector, else None.
        window: of slots that are a history, how many events of it are read, the last ones; each has a bag of
            its own. Else None.
        items: what the values name, where fields have vectors of the same things: a history, and what it is
            compared with. None: values have vectors for this field alone.
    """

    name: str
    kind: FieldKind
    dim: int | None = None
    window: int | None = None
    items: str | None = None

    @property
    def is_number(self) -> bool:
        """Whether values lie between knots."""
        return self.kind in _NUMBER_KINDS and self.items is None

    @property
    def num_bags(self) -> int:
        """Number of bags of keys of this field in a row."""
        return (self.window or 1) if self.dim is None else 0

    @property
    def num_dense(self) -> int:
        """Number of inputs of the network from this field: for a number itself and whether it is missing."""
        return (2 if self.is_number else 0) if self.dim is None else self.dim


@dataclass(frozen=True, eq=False)
class NumberScale:
    """Statistics of numbers, from the training rows alone.

    Attributes:
        mean: float64 [numbers], mean of each, after sign(x) log(1 + abs(x)); of vectors as they are.
        deviation: float64 [numbers], standard deviation of the same; 1 where it is 0.
        knots: float64 [fields of numbers, knots], ascending, infinite beyond the last.
        positive_rate: share of positives.
    """

    mean: NDArray[np.float64]
    deviation: NDArray[np.float64]
    knots: NDArray[np.float64]
    positive_rate: float


@dataclass(frozen=True, eq=False)
class FieldRows:
    """The fields of some rows. Bags of the same place are together: bag ``b * rows + r`` is bag b of row r.

    Attributes:
        keys: int64 [keys], of table rows.
        offsets: int64 [bags * rows + 1], where the keys of each bag begin and end.
        weights: float32 [keys], factors of the table rows.
        crosses: int64 [crosses, rows], keys of combinations of values.
        numbers: float32 [rows, numbers].
    """

    keys: Int64
    offsets: Int64
    weights: NDArray[np.float32]
    crosses: Int64
    numbers: NDArray[np.float32]

    def __len__(self) -> int:
        return len(self.numbers)


class Fields:
    """Makes the fields of rows.

    The key of a value is a hash of the field and the value: of a category's text, of a slot's value, of the
    number of a knot; so it is the same in every graph and process. A number belongs to the two knots that it
    lies between, the nearer the more; one beyond the last knot to the last. A missing category or number has
    a key of its own. In fields of ``items`` the hash is of their name, and a value's number is that of slots,
    of categories and integers too: so a thing has the same key in all of them.

    A row has a bag of keys of each field, in their order, and of a history one for each event of its window:
    the events in order, then empty ones.

    Args:
        fields: the fields.
        crosses: features each combination of whose values has a key.
        knots: most knots of a number.
        where: what the crosses are of, for the error.

    Raises:
        UsageError: a cross of features that are not fields, or have no single value.
    """

    def __init__(
        self,
        fields: Sequence[Field],
        crosses: Sequence[Sequence[str]] = (),
        *,
        knots: int = 32,
        where: str = "crosses",
    ) -> None:
        self.fields = tuple(fields)
        self.crosses = tuple(tuple(cross) for cross in crosses)
        self.num_knots = knots
        self.numbers = [field for field in self.fields if field.is_number]
        self._keyed = [field for field in self.fields if field.dim is None]
        self._category_keys: dict[str, _CategoryKeys] = {}
        single = [field.name for field in self._keyed if field.kind != "slots"]
        for name in (name for cross in self.crosses for name in cross):
            if name not in single:
                raise UsageError(
                    f"expected crosses of features with single values, received `{name}`",
                    where=where,
                    hint=did_you_mean(name, single) or f"there are: {', '.join(single) or 'none'}",
                )

    @property
    def bags(self) -> dict[str, range]:
        """Bags of a row, by field; features that are vectors themselves have none."""
        ends = np.cumsum([field.num_bags for field in self._keyed]).tolist()
        return {
            field.name: range(end - field.num_bags, end) for field, end in zip(self._keyed, ends, strict=True)
        }

    @property
    def num_dense(self) -> int:
        """Number of dense inputs of a row: numbers themselves, whether they are missing, and vectors."""
        return sum(field.num_dense for field in self.fields)

    # ---------------------------------------------------------------------------------- rows

    def prepare(self, columns: Mapping[str, FieldColumn]) -> Rows:
        """Return the rows of columns: keys of categories, of booleans and of slots, and numbers."""
        return {field.name: self._prepared(field, columns[field.name]) for field in self.fields}

    def _prepared(self, field: Field, column: FieldColumn) -> Int64 | NDArray[np.float64] | Lists:
        if field.dim is not None or field.is_number:
            return column.values.astype(np.float64)
        if column.offsets is not None:
            lists = Lists(column.offsets, column.values)
            lists = lists if field.window is None else lists.last(field.window)
            return Lists(lists.offsets, _salted(lists.values, field.items or field.name))
        if column.categories is None:
            keys: Int64 = _salted(column.values.astype(np.int64), field.items or field.name)
            return keys
        known = self._category_keys.get(field.name)
        if known is None or known.categories is not column.categories:
            known = self._category_keys[field.name] = _CategoryKeys(field, column.categories)
        return known.take(column.values)

    def dense_values(self, rows: Rows) -> NDArray[np.float64]:
        """Return all numbers: float64 [rows, numbers and lengths of vectors], NaN where missing."""
        parts = []
        for field in self.fields:
            values = rows[field.name]
            if field.dim is not None:
                parts.append(np.asarray(values))
            elif field.is_number:
                number = np.asarray(values)
                parts.append((np.sign(number) * np.log1p(np.abs(number)))[:, None])
        return np.concatenate([np.zeros((row_count(rows), 0)), *parts], axis=1)

    # -------------------------------------------------------------------------------- arrays

    def arrays(self, rows: Rows, scale: NumberScale) -> FieldRows:
        """Return the fields of rows."""
        count = row_count(rows)
        keys: list[Int64] = []
        lengths: list[Int64] = []
        weights: list[NDArray[np.float32]] = []
        single: dict[str, Int64] = {}
        knots = iter(scale.knots)
        for field in self._keyed:
            values = rows[field.name]
            if isinstance(values, Lists) and field.window is not None:
                events, is_there = _events(values, field.window)
                keys.append(events)
                lengths.append(is_there)
                weights.append(np.ones(len(events), np.float32))
            elif isinstance(values, Lists):
                length = np.diff(values.offsets)
                keys.append(values.values)
                lengths.append(length)
                weights.append((1.0 / np.maximum(length, 1)).repeat(length).astype(np.float32))
            elif field.is_number:
                pair, share, single[field.name] = _between_knots(np.asarray(values), next(knots))
                keys.append(_salted(pair.ravel(), field.name))
                lengths.append(np.full(count, 2, np.int64))
                weights.append(share.ravel())
            else:
                single[field.name] = np.asarray(values)
                keys.append(single[field.name])
                lengths.append(np.ones(count, np.int64))
                weights.append(np.ones(count, np.float32))
        ends = np.cumsum(np.concatenate([np.zeros(1, np.int64), *lengths]))
        return FieldRows(
            keys=np.concatenate([np.zeros(0, np.int64), *keys]),
            offsets=ends,
            weights=np.concatenate([np.zeros(0, np.float32), *weights]),
            crosses=self._cross_keys(single, count),
            numbers=self._numbers_of(rows, scale),
        )

    def _cross_keys(self, single: Mapping[str, Int64], count: int) -> Int64:
        crosses = np.zeros((len(self.crosses), count), np.int64)
        for place, names in zip(crosses, self.crosses, strict=True):
            for name in names:
                place[:] = _salted(place ^ single[name], name)
            place[:] = _salted(place, " x ".join(names))
        return crosses

    def _numbers_of(self, rows: Rows, scale: NumberScale) -> NDArray[np.float32]:
        """Return numbers standardized and within some deviations, 0 where missing, and where that is."""
        values = self.dense_values(rows)
        missing = np.isnan(values)
        standardized = np.clip((values - scale.mean) / scale.deviation, -_FARTHEST, _FARTHEST)
        is_single = np.repeat(
            [field.is_number for field in self.fields],
            [field.dim or int(field.is_number) for field in self.fields],
        ).astype(bool)
        return np.concatenate(
            [np.where(missing, 0.0, standardized), missing[:, is_single]], axis=1, dtype=np.float32
        )


class _CategoryKeys:
    """Keys of categories, hashed when they are first met."""

    def __init__(self, field: Field, categories: pa.Array) -> None:
        self.categories = categories
        self._field = field.items or field.name
        self._numbers = _text_keys if field.items is None else _slot_keys
        self._keys = np.zeros(len(categories) + 1, np.int64)  # the last one is that of a missing value
        self._keys[-1] = _salted(_text_keys([_MISSING_TEXT]), self._field)[0]
        self._is_known = np.zeros(len(categories) + 1, bool)
        self._is_known[-1] = True

    def take(self, codes: NDArray[np.integer]) -> Int64:
        new = np.unique(codes[~self._is_known[codes]])
        if len(new):
            texts = self.categories.take(new).to_pylist()
            self._keys[new] = _salted(self._numbers(texts), self._field)
            self._is_known[new] = True
        keys: Int64 = self._keys[codes]
        return keys


def _between_knots(
    values: NDArray[np.float64], knots: NDArray[np.float64]
) -> tuple[Int64, NDArray[np.float32], Int64]:
    """Return the numbers of the two knots of each value [n, 2], their shares [n, 2], and the lower one."""
    last = int(np.count_nonzero(np.isfinite(knots))) - 1
    missing = np.isnan(values)
    held = np.clip(np.where(missing, knots[0], values), knots[0], knots[last])
    low = np.searchsorted(knots[: last + 1], held, side="right") - 1
    high = np.minimum(low + 1, last)
    width = knots[high] - knots[low]
    share = np.where(width > 0, (held - knots[low]) / np.where(width > 0, width, 1.0), 0.0)
    low, high = np.where(missing, _MISSING_KNOT, low), np.where(missing, _MISSING_KNOT, high)
    shares = np.stack([1.0 - share, share], axis=1).astype(np.float32)
    return np.stack([low, high], axis=1), shares, low


def _events(lists: Lists, window: int) -> tuple[Int64, Int64]:
    """Return the keys of events, by place and then by row, and how many, 0 or 1, are in each such bag."""
    is_there = np.arange(window)[:, None] < np.diff(lists.offsets)
    place, row = np.nonzero(is_there)
    return lists.values[lists.offsets[row] + place], is_there.ravel().astype(np.int64)


def take_rows(rows: Rows, index: Int64) -> Rows:
    """Return some of the rows, in the order of ``index``."""
    return {
        name: values.take(index) if isinstance(values, Lists) else values[index]
        for name, values in rows.items()
    }


def row_count(rows: Rows) -> int:
    """Return the number of rows."""
    values = next(iter(rows.values()))
    return len(values.offsets) - 1 if isinstance(values, Lists) else len(values)


def _text_keys(texts: Sequence[str | bytes]) -> Int64:
    """Return the keys of texts, as :func:`graphbox.table.hashed_keys` does."""
    encoded = (text.encode() if isinstance(text, str) else text for text in texts)
    return np.array([digest_number(text) for text in encoded], np.uint64).view(np.int64)


def _slot_keys(texts: Sequence[str]) -> Int64:
    """Return the numbers that texts have as values of slots."""
    return np.array([slot_number(text) for text in texts], np.int64)


def _salted(keys: Int64, name: str) -> Int64:
    """Return the keys of values of a field in a table, as :func:`graphbox.table.salted_keys` does."""
    return salt(keys, digest_number(name.encode()))

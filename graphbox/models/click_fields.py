"""The features of rows as fields: keys of table rows with weights, and standardized numbers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import pyarrow as pa
import torch
from numpy.typing import NDArray
from torch import Tensor

from graphbox.errors import UsageError, did_you_mean
from graphbox.graph.columns import Column, Lists
from graphbox.graph.schema import FeatureKind, FeatureSpec
from graphbox.table.salt import hashed_keys, salted_keys

__all__ = ["ClickFields", "Field", "FieldBatch", "NumberScale", "Rows", "choose_fields", "take_rows"]

Int64 = NDArray[np.int64]
Rows: TypeAlias = Mapping[str, "NDArray[np.int64] | NDArray[np.float64] | Lists"]
"""Rows as :meth:`ClickFields.prepare` gives them: keys, numbers, or lists of keys, by feature."""

_MISSING_TEXT = b"\xff"  # which no text is in UTF-8
_MISSING_KNOT = -1
_FARTHEST = 5.0
_NUMBER_KINDS = ("number", "integer")
_SAMPLED_ROWS = 1 << 18


@dataclass(frozen=True)
class Field:
    """A feature that a model reads.

    Attributes:
        name: of the feature.
        kind: of the feature.
        dim: length of a vector, else None.
    """

    name: str
    kind: FeatureKind
    dim: int | None = None

    @property
    def is_number(self) -> bool:
        """Whether values lie between knots."""
        return self.kind in _NUMBER_KINDS

    @property
    def num_dense(self) -> int:
        """How many numbers of it enter the network: a number, and whether it is missing."""
        return (2 if self.is_number else 0) if self.dim is None else self.dim


@dataclass(frozen=True, eq=False)
class NumberScale:
    """What is known of numbers, from the rows that were learnt from alone.

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

    def tensors(self) -> dict[str, Tensor]:
        """Return the arrays by name."""
        return {
            "mean": torch.from_numpy(self.mean),
            "deviation": torch.from_numpy(self.deviation),
            "knots": torch.from_numpy(self.knots),
            "positive_rate": torch.tensor(self.positive_rate, dtype=torch.float64),
        }

    @classmethod
    def of(cls, tensors: Mapping[str, Tensor]) -> NumberScale:
        """Return the scale whose :meth:`tensors` are given."""
        arrays = [tensors[name].numpy() for name in ("mean", "deviation", "knots")]
        return cls(arrays[0], arrays[1], arrays[2], float(tensors["positive_rate"]))


@dataclass(frozen=True, eq=False)
class FieldBatch:
    """The fields of some rows. The bags of a field are together: bag ``f * rows + r`` is field f of row r.

    Attributes:
        keys: int64 [keys], of table rows.
        offsets: int64 [fields * rows + 1], where the keys of each bag begin and end.
        weights: float32 [keys], factors of the table rows.
        crosses: int64 [crosses, rows], keys of combinations of values.
        numbers: float32 [rows, numbers].
    """

    keys: Tensor
    offsets: Tensor
    weights: Tensor
    crosses: Tensor
    numbers: Tensor

    def __len__(self) -> int:
        return len(self.numbers)


def choose_fields(
    known: Mapping[str, FeatureSpec], names: Sequence[str] | None, hidden: Iterable[str], where: str
) -> tuple[Field, ...]:
    """Return the fields of a model.

    Args:
        known: the features of the node type.
        names: those to read; None: all that are not hidden.
        hidden: features that are not to be read unless they are named.
        where: what the features are for, for the error.

    Raises:
        UsageError: there is no such feature, or none at all.
    """
    left_out = set(hidden)
    chosen = [name for name in known if name not in left_out] if names is None else list(names)
    for name in chosen:
        if name not in known:
            raise UsageError(
                f"there is no feature `{name}` to read",
                where=where,
                hint=did_you_mean(name, known) or f"there are: {', '.join(known) or 'none'}",
            )
    if not chosen:
        raise UsageError(
            "expected features to read, received none",
            where=where,
            hint="name columns under the `features` of the node type",
        )
    return tuple(Field(name, known[name].kind, known[name].dim) for name in chosen)


class ClickFields:
    """Makes the fields of rows.

    The key of a value is a hash of the field and the value: of a category's text, of a slot's value, of the
    number of a knot; so it is the same in every graph and process. A number belongs to the two knots that it
    lies between, the nearer the more; one beyond the last knot to the last. A missing category or number has
    a key of its own.

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
        self._numbers = [field for field in self.fields if field.is_number]
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
    def num_fields(self) -> int:
        """How many fields have vectors: all but the features that are vectors themselves."""
        return len(self._keyed)

    @property
    def num_dense(self) -> int:
        """How many numbers a row has: of numbers themselves, whether they are missing, and of vectors."""
        return sum(field.num_dense for field in self.fields)

    # ---------------------------------------------------------------------------------- rows

    def prepare(self, columns: Mapping[str, Column]) -> Rows:
        """Return the rows of columns: keys of categories, of booleans and of slots, and numbers."""
        return {field.name: self._prepared(field, columns[field.name]) for field in self.fields}

    def _prepared(self, field: Field, column: Column) -> Int64 | NDArray[np.float64] | Lists:
        if field.dim is not None or field.is_number:
            return column.values.astype(np.float64)
        if column.offsets is not None:
            return Lists(column.offsets, salted_keys(column.values, field.name))
        if column.categories is None:
            keys: Int64 = salted_keys(column.values.astype(np.int64), field.name)
            return keys
        known = self._category_keys.get(field.name)
        if known is None or known.categories is not column.categories:
            known = self._category_keys[field.name] = _CategoryKeys(field.name, column.categories)
        return known.take(column.values)

    # --------------------------------------------------------------------------------- scale

    def scale_of(self, blocks: Iterable[tuple[Rows, NDArray[np.bool_]]], count: int) -> NumberScale:
        """Return the scale of numbers.

        Knots are chosen from at most 262,144 of the rows, evenly spaced; mean and deviation are those of all.

        Args:
            blocks: rows and whether they are positive, all that is learnt from.
            count: number of rows in all of them.
        """
        step = -(-count // _SAMPLED_ROWS)
        sums, positives, done = _Sums(), 0, 0
        sampled: list[list[NDArray[np.float64]]] = [[] for _ in self._numbers]
        for rows, labels in blocks:
            sums.add(self._dense_values(rows))
            positives += int(np.count_nonzero(labels))
            for found, field in zip(sampled, self._numbers, strict=True):
                found.append(np.asarray(rows[field.name])[-done % step :: step])
            done += len(labels)
        knots = np.full((len(self._numbers), self.num_knots), np.inf)
        for place, found in zip(knots, sampled, strict=True):
            chosen = choose_knots(np.concatenate(found), self.num_knots)
            place[: len(chosen)] = chosen
        mean, deviation = sums.mean_and_deviation()
        return NumberScale(mean, deviation, knots, positives / max(done, 1))

    def _dense_values(self, rows: Rows) -> NDArray[np.float64]:
        """Return all numbers: float64 [rows, numbers and lengths of vectors], NaN where missing."""
        parts = []
        for field in self.fields:
            values = rows[field.name]
            if field.dim is not None:
                parts.append(np.asarray(values))
            elif field.is_number:
                number = np.asarray(values)
                parts.append((np.sign(number) * np.log1p(np.abs(number)))[:, None])
        return np.concatenate([np.zeros((_count(rows), 0)), *parts], axis=1)

    # --------------------------------------------------------------------------------- batch

    def batch(self, rows: Rows, scale: NumberScale) -> FieldBatch:
        """Return the fields of rows."""
        count = _count(rows)
        keys: list[Int64] = []
        lengths: list[Int64] = []
        weights: list[NDArray[np.float32]] = []
        single: dict[str, Int64] = {}
        knots = iter(scale.knots)
        for field in self._keyed:
            values = rows[field.name]
            if isinstance(values, Lists):
                length = np.diff(values.offsets)
                keys.append(values.values)
                lengths.append(length)
                weights.append((1.0 / np.maximum(length, 1)).repeat(length).astype(np.float32))
            elif field.is_number:
                pair, share, single[field.name] = _between_knots(np.asarray(values), next(knots))
                keys.append(salted_keys(pair.ravel(), field.name))
                lengths.append(np.full(count, 2, np.int64))
                weights.append(share.ravel())
            else:
                single[field.name] = np.asarray(values)
                keys.append(single[field.name])
                lengths.append(np.ones(count, np.int64))
                weights.append(np.ones(count, np.float32))
        ends = np.cumsum(np.concatenate([np.zeros(1, np.int64), *lengths]))
        return FieldBatch(
            keys=torch.from_numpy(np.concatenate([np.zeros(0, np.int64), *keys])),
            offsets=torch.from_numpy(ends),
            weights=torch.from_numpy(np.concatenate([np.zeros(0, np.float32), *weights])),
            crosses=torch.from_numpy(self._cross_keys(single, count)),
            numbers=torch.from_numpy(self._numbers_of(rows, scale)),
        )

    def _cross_keys(self, single: Mapping[str, Int64], count: int) -> Int64:
        crosses = np.zeros((len(self.crosses), count), np.int64)
        for place, names in zip(crosses, self.crosses, strict=True):
            for name in names:
                place[:] = salted_keys(place ^ single[name], name)
            place[:] = salted_keys(place, " x ".join(names))
        return crosses

    def _numbers_of(self, rows: Rows, scale: NumberScale) -> NDArray[np.float32]:
        """Return numbers standardized and within some deviations, 0 where missing, and where that is."""
        values = self._dense_values(rows)
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

    def __init__(self, field: str, categories: pa.Array) -> None:
        self.categories = categories
        self._field = field
        self._keys = np.zeros(len(categories) + 1, np.int64)  # the last one is that of a missing value
        self._keys[-1] = salted_keys(hashed_keys([_MISSING_TEXT]), field)[0]
        self._is_known = np.zeros(len(categories) + 1, bool)
        self._is_known[-1] = True

    def take(self, codes: NDArray[np.integer]) -> Int64:
        new = np.unique(codes[~self._is_known[codes]])
        if len(new):
            texts = self.categories.take(pa.array(new)).to_pylist()
            self._keys[new] = salted_keys(hashed_keys(texts), self._field)
            self._is_known[new] = True
        keys: Int64 = self._keys[codes]
        return keys


class _Sums:
    """Mean and deviation of columns that come in blocks (Chan et al., 1979)."""

    def __init__(self) -> None:
        self._count: NDArray[np.float64] = np.zeros(0)
        self._mean = self._squares = self._count

    def add(self, values: NDArray[np.float64]) -> None:
        known = np.isfinite(values)
        count = known.sum(axis=0).astype(np.float64)
        held = np.where(known, values, 0.0)
        mean = held.sum(axis=0) / np.maximum(count, 1)
        squares = (np.where(known, values - mean, 0.0) ** 2).sum(axis=0)
        if not len(self._count):
            self._count, self._mean, self._squares = count, mean, squares
            return
        total = np.maximum(self._count + count, 1)
        apart = mean - self._mean
        self._squares = self._squares + squares + apart**2 * self._count * count / total
        self._mean = self._mean + apart * count / total
        self._count = self._count + count

    def mean_and_deviation(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        deviation = np.sqrt(self._squares / np.maximum(self._count, 1))
        return self._mean, np.where(deviation > 0, deviation, 1.0)


def choose_knots(values: NDArray[np.float64], most: int) -> NDArray[np.float64]:
    """Return the knots of a number, ascending: at least one, and at most ``most``.

    All values where they are few. Else those that more rows have than a knot's share are knots, and the
    others are quantiles of the rest, the smallest and the largest among them.
    """
    values = values[np.isfinite(values)]
    if not len(values):
        return np.zeros(1)
    different, counts = np.unique(values, return_counts=True)
    if len(different) <= most:
        return different
    # The most frequent ones first: what they take away makes the share of the others smaller.
    order = np.argsort(-counts, kind="stable")[: most - 2]
    left = len(values) - np.concatenate([[0], np.cumsum(counts[order])[:-1]])
    is_heavy = counts[order] * (most - np.arange(len(order))) > left
    num_heavy = len(order) if is_heavy.all() else int(np.argmin(is_heavy))
    heavy = order[:num_heavy]
    rest = np.delete(different, heavy)
    of_rest = np.cumsum(np.delete(counts, heavy))
    wanted = np.linspace(0, of_rest[-1] - 1, most - num_heavy)
    quantiles = rest[np.searchsorted(of_rest, wanted, side="right")]
    return np.unique(np.concatenate([different[heavy], quantiles]))


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


def take_rows(rows: Rows, index: Int64) -> Rows:
    """Return some of the rows, in the order of ``index``."""
    return {
        name: values.take(index) if isinstance(values, Lists) else values[index]
        for name, values in rows.items()
    }


def _count(rows: Rows) -> int:
    values = next(iter(rows.values()))
    return len(values.offsets) - 1 if isinstance(values, Lists) else len(values)

"""The fields of clicks: which features are read, what is known of their numbers, and batches of tensors."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from graphbox.errors import UsageError, did_you_mean
from graphbox.fields import Field, FieldRows, Fields, NumberScale, Rows
from graphbox.graph.schema import FeatureSpec

_SAMPLED_ROWS = 1 << 18


@dataclass(frozen=True, eq=False)
class FieldBatch:
    """The fields of some rows. Bags of the same place are together: bag ``b * rows + r`` is bag b of row r.

    Attributes:
        keys: int64 [keys], of table rows.
        offsets: int64 [bags * rows + 1], where the keys of each bag begin and end.
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

    @classmethod
    def of(cls, rows: FieldRows) -> FieldBatch:
        """Return the fields of rows as tensors of the same memory."""
        return cls(**{name: torch.from_numpy(array) for name, array in vars(rows).items()})


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


def scale_tensors(scale: NumberScale) -> dict[str, Tensor]:
    """Return the arrays of a scale by name."""
    return {
        "mean": torch.from_numpy(scale.mean),
        "deviation": torch.from_numpy(scale.deviation),
        "knots": torch.from_numpy(scale.knots),
        "positive_rate": torch.tensor(scale.positive_rate, dtype=torch.float64),
    }


def scale_from_tensors(tensors: Mapping[str, Tensor]) -> NumberScale:
    """Return the scale whose :func:`scale_tensors` are given."""
    arrays = [tensors[name].numpy() for name in ("mean", "deviation", "knots")]
    return NumberScale(arrays[0], arrays[1], arrays[2], float(tensors["positive_rate"]))


class ClickFields(Fields):
    """Fields that are learnt from."""

    def scale_of(self, blocks: Iterable[tuple[Rows, NDArray[np.int8]]], count: int) -> NumberScale:
        """Return the scale of numbers.

        Knots are chosen from at most 262,144 of the rows, evenly spaced; mean and deviation are those of all.

        Args:
            blocks: rows and their labels, int8 [rows, labels], all that is learnt from; a row is positive
                where its first label is 1.
            count: number of rows in all of them.
        """
        step = -(-count // _SAMPLED_ROWS)
        sums, positives, done = _Sums(), 0, 0
        sampled: list[list[NDArray[np.float64]]] = [[] for _ in self.numbers]
        for rows, labels in blocks:
            sums.add(self.dense_values(rows))
            positives += int(np.count_nonzero(labels[:, 0] == 1))
            for found, field in zip(sampled, self.numbers, strict=True):
                found.append(np.asarray(rows[field.name])[-done % step :: step])
            done += len(labels)
        knots = np.full((len(self.numbers), self.num_knots), np.inf)
        for place, found in zip(knots, sampled, strict=True):
            chosen = choose_knots(np.concatenate(found), self.num_knots)
            place[: len(chosen)] = chosen
        mean, deviation = sums.mean_and_deviation()
        return NumberScale(mean, deviation, knots, positives / max(done, 1))

    def batch(self, rows: Rows, scale: NumberScale) -> FieldBatch:
        """Return the fields of rows."""
        return FieldBatch.of(self.arrays(rows, scale))


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

"""What a feature's values look like, found in bounded memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from graphbox.graph.columns import Column
from graphbox.graph.describe.description import FeatureDescription
from graphbox.graph.schema import Int64Array

__all__ = ["describe_feature"]

_BLOCK_VALUES = 1 << 20
_DIGIT_BITS = 16

Array = npt.NDArray[Any]


@dataclass(frozen=True)
class _Rows:
    """The rows of an array of a feature, block by block and without those of removed nodes."""

    values: Array
    removed: Int64Array

    def __len__(self) -> int:
        return len(self.values) - len(self.removed)

    def blocks(self) -> Iterator[Array]:
        width = max(1, int(np.prod(self.values.shape[1:])))
        rows = max(1, _BLOCK_VALUES // width)
        for low in range(0, len(self.values), rows):
            block = np.asarray(self.values[low : low + rows])
            gone = self.removed[slice(*np.searchsorted(self.removed, [low, low + len(block)]))] - low
            kept = np.delete(block, gone, axis=0) if len(gone) else block
            if len(kept):
                yield kept


def describe_feature(name: str, column: Column, removed: Int64Array | None = None) -> FeatureDescription:
    """Return what there is to know about a feature.

    Args:
        name: its name.
        column: its values.
        removed: rows to leave out, ascending.
    """
    gone = np.empty(0, np.int64) if removed is None else removed
    describers: dict[str, Callable[[str, Column, _Rows], FeatureDescription]] = {
        "number": _number,
        "integer": _integer,
        "categorical": _categorical,
        "boolean": _boolean,
        "vector": _vector,
        "slots": _slots,
    }
    rows = column.values if column.offsets is None else column.offsets[:-1]
    return describers[column.kind](name, column, _Rows(rows, gone))


def _number(name: str, column: Column, rows: _Rows) -> FeatureDescription:
    missing, low, high = 0, np.inf, -np.inf
    for block in rows.blocks():
        present = block[~np.isnan(block)]
        missing += len(block) - len(present)
        low, high = min(low, present.min(initial=np.inf)), max(high, present.max(initial=-np.inf))
    described = FeatureDescription(name, column.kind, len(rows), missing)
    if missing == len(rows):
        return described
    middle = _median(lambda: (block[~np.isnan(block)] for block in rows.blocks()), len(rows) - missing)
    return FeatureDescription(
        name,
        column.kind,
        len(rows),
        missing,
        min=float(low),
        p50=float(middle),
        max=float(high),
        constant=bool(low == high),
    )


def _integer(name: str, column: Column, rows: _Rows) -> FeatureDescription:
    if not len(rows):
        return FeatureDescription(name, column.kind, 0)
    low = min(int(block.min()) for block in rows.blocks())
    high = max(int(block.max()) for block in rows.blocks())
    middle = int(_median(rows.blocks, len(rows)))
    return FeatureDescription(
        name, column.kind, len(rows), min=low, p50=middle, max=high, constant=low == high
    )


def _categorical(name: str, column: Column, rows: _Rows) -> FeatureDescription:
    missing, low, high = 0, np.iinfo(np.int32).max, -1
    for block in rows.blocks():
        present = block[block >= 0]
        missing += len(block) - len(present)
        low, high = min(low, int(present.min(initial=low))), max(high, int(present.max(initial=high)))
    return FeatureDescription(
        name,
        column.kind,
        len(rows),
        missing,
        categories=0 if column.categories is None else len(column.categories),
        constant=low == high,
    )


def _boolean(name: str, column: Column, rows: _Rows) -> FeatureDescription:
    true = sum(int(block.sum()) for block in rows.blocks())
    return FeatureDescription(
        name, column.kind, len(rows), true=true, constant=bool(len(rows)) and true in (0, len(rows))
    )


def _vector(name: str, column: Column, rows: _Rows) -> FeatureDescription:
    dim = column.values.shape[1]
    low, high = np.full(dim, np.inf, np.float32), np.full(dim, -np.inf, np.float32)
    missing = 0
    for block in rows.blocks():
        missing += int(np.isnan(block).any(axis=1).sum())
        low, high = np.fmin(low, np.fmin.reduce(block)), np.fmax(high, np.fmax.reduce(block))
    constant_dims = int((low == high).sum())
    return FeatureDescription(
        name,
        column.kind,
        len(rows),
        missing,
        dim=dim,
        constant_dims=constant_dims,
        constant=0 < dim == constant_dims,
    )


def _slots(name: str, column: Column, rows: _Rows) -> FeatureDescription:
    empty, longest = 0, 0
    offsets = np.empty(0, np.int64) if column.offsets is None else column.offsets
    for low in range(0, len(offsets) - 1, _BLOCK_VALUES):
        lengths = np.diff(offsets[low : low + _BLOCK_VALUES + 1])
        empty += int((lengths == 0).sum())
        longest = max(longest, int(lengths.max()))
    # The lists of removed rows are empty.
    return FeatureDescription(
        name,
        column.kind,
        len(rows),
        empty - len(rows.removed),
        values=len(column.values),
        longest=longest,
    )


# The median


def _median(blocks: Callable[[], Iterator[Array]], count: int) -> Any:
    """Return the smallest of ``count`` float32 or int64 values that half of them do not exceed.

    Values are mapped to unsigned integers of the same order, and the median's digits found from the most
    significant down: one pass and one histogram of 2^16 counters for each.
    """
    bits = 8 * next(blocks()).dtype.itemsize
    rank = (count + 1) // 2
    prefix = 0
    for shift in range(bits - _DIGIT_BITS, -1, -_DIGIT_BITS):
        histogram = np.zeros(1 << _DIGIT_BITS, np.int64)
        for block in blocks():
            keys = _ordered_keys(block)
            chosen = keys if shift + _DIGIT_BITS == bits else keys[keys >> (shift + _DIGIT_BITS) == prefix]
            digits = (chosen >> shift) & ((1 << _DIGIT_BITS) - 1)
            histogram += np.bincount(digits.astype(np.int64), minlength=len(histogram))
        below = np.cumsum(histogram)
        digit = int(np.searchsorted(below, rank))
        rank -= int(below[digit - 1]) if digit else 0
        prefix = (prefix << _DIGIT_BITS) | digit
    return _value_of_key(prefix, bits)


def _ordered_keys(block: Array) -> Array:
    if block.dtype == np.int64:
        return block.view(np.uint64) ^ np.uint64(1 << 63)
    # Of negative floats the one with the larger bits is the smaller one; -0 is made 0, they are equal.
    bits = (block + np.float32(0)).view(np.uint32)
    return np.where(bits >> 31 == 1, ~bits, bits | np.uint32(1 << 31))


def _value_of_key(key: int, bits: int) -> Any:
    if bits == 64:
        return np.array(key ^ (1 << 63), np.uint64).view(np.int64)[()]
    raw = key ^ (1 << 31) if key >> 31 else key ^ (2**32 - 1)
    return np.array(raw, np.uint32).view(np.float32)[()]

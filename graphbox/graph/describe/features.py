"""Statistics of a feature, in bounded memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from graphbox.graph.columns import Column, SegmentedColumn
from graphbox.graph.describe.description import FeatureDescription
from graphbox.graph.schema import Int64Array

_BLOCK_VALUES = 1 << 20
_DIGIT_BITS = 16

Array = npt.NDArray[Any]


@dataclass(frozen=True)
class _Present:
    """The rows of a feature, block by block and without those of removed nodes or edges."""

    rows: SegmentedColumn
    removed: Int64Array

    def __len__(self) -> int:
        return len(self.rows) - len(self.removed)

    def columns(self) -> Iterator[Column]:
        """Go through the rows."""
        first = self.rows.read(0, 1).values
        height = max(1, _BLOCK_VALUES // max(1, first.size if self.rows.kind == "vector" else 1))
        for low in range(0, len(self.rows), height):
            self.rows.release()
            block = self.rows.read(low, min(low + height, len(self.rows)))
            gone = self.removed[slice(*np.searchsorted(self.removed, [low, low + len(block)]))] - low
            if len(gone):
                kept = np.ones(len(block), np.bool_)
                kept[gone] = False
                block = block.take(kept)
            if len(block):
                yield block

    def blocks(self) -> Iterator[Array]:
        """Go through the values."""
        return (column.values for column in self.columns())


def describe_feature(
    name: str, rows: SegmentedColumn, removed: Int64Array | None = None
) -> FeatureDescription:
    """Return statistics of a feature.

    Args:
        name: its name.
        rows: its rows.
        removed: rows to leave out, ascending.
    """
    present = _Present(rows, np.zeros(0, np.int64) if removed is None else removed)
    return FeatureDescription(name, rows.kind, len(present), **_STATISTICS[rows.kind](present))


def _number(rows: _Present) -> dict[str, Any]:
    missing, low, high = 0, np.inf, -np.inf
    for block in rows.blocks():
        present = block[~np.isnan(block)]
        missing += len(block) - len(present)
        low, high = min(low, present.min(initial=np.inf)), max(high, present.max(initial=-np.inf))
    if missing == len(rows):
        return {"missing": missing}
    middle = _median(lambda: (block[~np.isnan(block)] for block in rows.blocks()), len(rows) - missing)
    return {
        "missing": missing,
        "min": float(low),
        "p50": float(middle),
        "max": float(high),
        "constant": bool(low == high),
    }


def _integer(rows: _Present) -> dict[str, Any]:
    if not len(rows):
        return {}
    low = min(int(block.min()) for block in rows.blocks())
    high = max(int(block.max()) for block in rows.blocks())
    return {"min": low, "p50": int(_median(rows.blocks, len(rows))), "max": high, "constant": low == high}


def _categorical(rows: _Present) -> dict[str, Any]:
    missing, low, high = 0, np.iinfo(np.int32).max, -1
    for block in rows.blocks():
        present = block[block >= 0]
        missing += len(block) - len(present)
        low, high = min(low, int(present.min(initial=low))), max(high, int(present.max(initial=high)))
    categories = 0 if rows.rows.categories is None else len(rows.rows.categories)
    return {"missing": missing, "categories": categories, "constant": low == high}


def _boolean(rows: _Present) -> dict[str, Any]:
    true = sum(int(block.sum()) for block in rows.blocks())
    return {"true": true, "constant": bool(len(rows)) and true in (0, len(rows))}


def _vector(rows: _Present) -> dict[str, Any]:
    dim = rows.rows.read(0, 1).values.shape[1]
    low, high = np.full(dim, np.inf, np.float32), np.full(dim, -np.inf, np.float32)
    missing = 0
    for block in rows.blocks():
        missing += int(np.isnan(block).any(axis=1).sum())
        low, high = np.fmin(low, np.fmin.reduce(block)), np.fmax(high, np.fmax.reduce(block))
    constant = int((low == high).sum())
    return {"missing": missing, "dim": dim, "constant_dims": constant, "constant": 0 < dim == constant}


def _slots(rows: _Present) -> dict[str, Any]:
    missing, longest, values = 0, 0, 0
    for column in rows.columns():
        lengths = np.diff(column.offsets if column.offsets is not None else np.zeros(1, np.int64))
        missing += int((lengths == 0).sum())
        longest = max(longest, int(lengths.max(initial=0)))
        values += int(lengths.sum())
    return {"missing": missing, "values": values, "longest": longest}


_STATISTICS: Mapping[str, Callable[[_Present], dict[str, Any]]] = {
    "number": _number,
    "integer": _integer,
    "categorical": _categorical,
    "boolean": _boolean,
    "vector": _vector,
    "slots": _slots,
}


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

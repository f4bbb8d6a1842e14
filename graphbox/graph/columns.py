"""Features of nodes and edges as arrays: one value, one vector or a list of values for each row."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from graphbox.fields import Lists
from graphbox.graph.schema import FeatureKind, FeatureSpec, Int64Array

__all__ = ["FEATURE_KINDS", "Column", "FeatureValues", "Lists"]

FEATURE_KINDS: tuple[FeatureKind, ...] = ("number", "integer", "categorical", "boolean", "vector", "slots")

_BoolArray: TypeAlias = npt.NDArray[np.bool_]


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

    def take(self, index: Int64Array | _BoolArray) -> Column:
        """Return the column of the rows ``index``."""
        if self.offsets is None:
            return Column(self.kind, self.values[index], self.categories)
        lists = Lists(self.offsets, self.values).take(index)
        return Column(self.kind, lists.values, self.categories, lists.offsets)


FeatureValues: TypeAlias = npt.NDArray[Any] | Lists
"""What a feature is read as: one entry per row, or lists."""

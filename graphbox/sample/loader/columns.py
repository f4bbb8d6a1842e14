"""Columns of features as loaders read them, and the rows of a sample gathered from them."""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from graphbox.native import Int64Array
from graphbox.sample.gather import gather_rows


class FeatureColumn(Protocol):
    """See :class:`graphbox.graph.columns.Column`."""

    @property
    def kind(self) -> str:
        """Kind of the feature."""
        ...

    @property
    def values(self) -> npt.NDArray[Any]:
        """Values of all rows; of slots those of all lists, one after the other."""
        ...

    @property
    def offsets(self) -> Int64Array | None:
        """Where the list of each row begins, int64 [rows + 1]; None unless the values are lists."""
        ...

    def take(self, index: Int64Array) -> FeatureColumn:
        """Return some rows as a column."""
        ...


def add_rows(rows: dict[str, Any], name: str, column: FeatureColumn, index: Int64Array) -> None:
    """Add the rows of a feature to those of a batch.

    Categories are codes (int64). Slots are the values of all rows under their name, and int64 [n + 1] offsets
    under ``name_ptr``.

    Args:
        rows: of a batch, by name; changed.
        name: of the feature.
        column: of the feature.
        index: int64 [n], the rows wanted.
    """
    if column.offsets is not None:
        lists = column.take(index)
        rows[name], rows[f"{name}_ptr"] = lists.values, lists.offsets
        return
    values = gather_rows(column.values, index, num_threads=1)
    rows[name] = values.astype(np.int64) if column.kind == "categorical" else values

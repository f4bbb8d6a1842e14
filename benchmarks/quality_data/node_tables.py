"""Tables of nodes with classes, parts and words, of published arrays (``.npz``)."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from graphbox.durable import write_atomically

__all__ = ["parts", "read_arrays", "words", "write_table"]

_PARTS = (("train", "train_idx"), ("validation", "val_idx"), ("test", "test_idx"))


def read_arrays(path: Path) -> dict[str, NDArray[Any]]:
    """Return the arrays of an ``.npz`` file by name."""
    with np.load(path, allow_pickle=False) as file:
        return dict(file)


def parts(data: Mapping[str, NDArray[Any]]) -> NDArray[np.str_]:
    """Return the part of each node, `train`, `validation` or `test`; of those in none `unused`."""
    part = np.full(len(data["y"]), "unused", dtype="<U10")
    for name, key in _PARTS:
        part[data[key]] = name
    return part


def words(data: Mapping[str, NDArray[Any]]) -> pa.Array:
    """Return the columns that each row of the sparse matrix of features has entries in, as lists."""
    offsets = pa.array(data["x_indptr"], pa.int32())
    return pa.ListArray.from_arrays(offsets, pa.array(data["x_indices"], pa.int64()))


def write_table(path: Path, **columns: Any) -> None:
    """Write a Parquet file of these columns, unless it is there."""
    if not path.exists():
        with write_atomically(path) as stream:
            pq.write_table(pa.table(columns), stream)

"""Neighbour lists of a model version as Parquet files, a quarter of the size of arrays.

They are decoded when the version is opened, into the arrays that requests read.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from graphbox.artifact.parquet_files import ROWS_OF_ANY_FILE
from graphbox.artifact.preprocess import PaddedBlockForm, RelationGroup
from graphbox.errors import FormatError

__all__ = ["SUFFIX", "array_of_columns", "array_paths", "list_paths", "packed_paths", "renamed"]

SUFFIX: Final = ".parquet"
_ARRAY_SUFFIX: Final = ".npy"


def packed_paths(form: PaddedBlockForm, rows_of: dict[str, int]) -> dict[str, str]:
    """Return paths of Parquet files for the neighbour lists that lie in arrays, by their present paths.

    Args:
        form: of a model version.
        rows_of: number of rows of each array; those of more than a Parquet file may have stay as they are.
    """
    return {
        path: path.removesuffix(_ARRAY_SUFFIX) + SUFFIX
        for path in list_paths(form)
        if path.endswith(_ARRAY_SUFFIX) and rows_of[path] <= ROWS_OF_ANY_FILE
    }


def array_paths(form: PaddedBlockForm) -> dict[str, str]:
    """Return paths of arrays for the neighbour lists that lie in Parquet files, by their present paths."""
    packed = [path for path in list_paths(form) if path.endswith(SUFFIX)]
    return {path: path.removesuffix(SUFFIX) + _ARRAY_SUFFIX for path in packed}


def list_paths(form: PaddedBlockForm) -> list[str]:
    """Return the paths of all counts and neighbours, each once."""
    groups = [group for layer in form.layers for group in layer.groups]
    return list(dict.fromkeys(path for group in groups for path in (group.counts, group.neighbors)))


def renamed(form: PaddedBlockForm, paths: Mapping[str, str]) -> PaddedBlockForm:
    """Return a form with other paths of its neighbour lists."""

    def group_of(group: RelationGroup) -> RelationGroup:
        counts, neighbors = (paths.get(path, path) for path in (group.counts, group.neighbors))
        return group.model_copy(update={"counts": counts, "neighbors": neighbors})

    layers = [
        layer.model_copy(update={"groups": tuple(map(group_of, layer.groups))}) for layer in form.layers
    ]
    return form.model_copy(update={"layers": tuple(layers)})


def array_of_columns(table: pa.Table, dtype: str, file: Path) -> npt.NDArray[Any]:
    """Return the columns of a table as an array [n, k] of a type like ``<u2``, row-major.

    Raises:
        FormatError: a column is of another type, or has nulls.
    """
    wanted = pa.from_numpy_dtype(np.dtype(dtype))
    if any(kind != wanted for kind in table.schema.types):
        received = ", ".join(map(str, table.schema.types))
        raise FormatError(f"expected columns of type {wanted}, received {received}", where=str(file))
    if any(column.null_count for column in table.columns):
        raise FormatError("expected a number in every row, received null", where=str(file))
    found = np.empty((table.num_rows, table.num_columns), np.dtype(dtype))
    for number, column in enumerate(table.columns):
        found[:, number] = column.to_numpy()
    return found

"""Rows of Parquet files, in blocks: a column of lists, or a column for each dimension."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from graphbox.errors import DataError, UsageError, did_you_mean
from graphbox.model_import.row_blocks import RowBlock, block_rows

__all__ = ["parquet_blocks"]

_ID_COLUMN = "id"


def parquet_blocks(
    path: Path, id_column: str | None, column: str | None, *, has_ids: bool
) -> Iterator[RowBlock]:
    """Yield the rows of a Parquet file.

    Args:
        path: of the file.
        id_column: strings or integers; None: the column ``id``, or the only one of such a type.
        column: of lists of float16, float32 or float64; None: the only such column, or else every column of
            floating-point numbers, in their order, is a dimension.
        has_ids: whether ids come from elsewhere.

    Raises:
        UsageError: there is no such column, or several may be meant.
        DataError: it is no Parquet file, a cell is empty, or lists differ in length.
    """
    try:
        file = pq.ParquetFile(path)
    except (pa.ArrowException, OSError, ValueError) as error:
        raise DataError(f"expected a Parquet file, could not read one ({error})", where=str(path)) from error
    with file:
        schema = file.schema_arrow
        if len(set(schema.names)) < len(schema.names):
            raise DataError(
                f"expected columns of different names, received {schema.names[:20]}", where=str(path)
            )
        ids = None if has_ids else _id_column(schema, id_column, path)
        columns = _columns(schema, column, path)
        is_list = _is_list(schema.field(columns[0]).type)
        dim: int | None = None if is_list else len(columns)
        first = 0
        try:
            for batch in file.iter_batches(
                _batch_rows(file, dim), columns=[*([ids] if ids else []), *columns]
            ):
                for name in batch.schema.names:
                    _check_full(batch.column(name), name, first, path)
                if is_list:
                    rows = _of_lists(batch.column(columns[0]), dim, first, f"{path}, column `{columns[0]}`")
                    dim = dim or rows.shape[1]
                else:
                    rows = np.stack([batch.column(name).to_numpy() for name in columns], axis=1)
                if len(rows):
                    yield RowBlock(rows, None if ids is None else _texts(batch.column(ids)))
                first += len(rows)
        except (
            pa.ArrowException,
            OSError,
            ValueError,
            KeyError,
        ) as error:  # KeyError: a column without a name
            raise DataError(f"cannot read the Parquet file: {error}", where=str(path)) from error


def _batch_rows(file: pq.ParquetFile, dim: int | None) -> int:
    """Return how many rows to read at once; of lists the length follows from the number of values."""
    rows = max(1, file.metadata.num_rows)
    if dim is None:
        values = max(
            (
                file.metadata.row_group(group).column(index).num_values
                for group in range(file.metadata.num_row_groups)
                for index in range(file.metadata.num_columns)
            ),
            default=1,
        )
        dim = max(1, values // max(1, rows // max(1, file.metadata.num_row_groups)))
    return block_rows(dim)


def _id_column(schema: pa.Schema, wanted: str | None, path: Path) -> str:
    fits: list[str] = [field.name for field in schema if _is_id(field.type)]
    if wanted is None and _ID_COLUMN in fits:
        return _ID_COLUMN
    if wanted is None and len(fits) == 1:
        return fits[0]
    if wanted is None:
        raise UsageError(
            f"expected a column `{_ID_COLUMN}` or one column of strings or integers, received "
            f"{schema.names[:20]}",
            where=str(path),
            hint="name the one with the ids: --id-column NAME; or give a file of ids: --ids FILE",
        )
    if wanted not in fits:
        raise UsageError(
            f"expected one of the columns of strings or integers {fits[:20]}, received `{wanted}`",
            where=f"--id-column, of {path}",
            hint=did_you_mean(wanted, fits),
        )
    return wanted


def _columns(schema: pa.Schema, wanted: str | None, path: Path) -> list[str]:
    lists = [field.name for field in schema if _is_list(field.type)]
    if wanted is not None:
        if wanted not in lists:
            raise UsageError(
                f"expected one of the columns of lists of floating-point numbers {lists[:20]}, received "
                f"`{wanted}`",
                where=f"--column, of {path}",
                hint=did_you_mean(wanted, lists),
            )
        return [wanted]
    if len(lists) > 1:
        raise UsageError(
            f"expected one column of lists, the file has {lists[:20]}",
            where=str(path),
            hint="name the one with the rows: --column NAME",
        )
    numbers = [field.name for field in schema if pa.types.is_floating(field.type)]
    if not lists and not numbers:
        raise UsageError(
            f"expected a column of lists of floating-point numbers, or a column for each dimension, received "
            f"{schema.names[:20]}",
            where=str(path),
        )
    return lists or numbers


def _is_id(kind: pa.DataType) -> bool:
    return bool(pa.types.is_integer(kind) or pa.types.is_string(kind) or pa.types.is_large_string(kind))


def _is_list(kind: pa.DataType) -> bool:
    of_lists = pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind)
    return bool(of_lists and pa.types.is_floating(kind.value_type))


def _check_full(column: pa.Array, name: str, first: int, path: Path) -> None:
    column.validate(full=True)  # texts of another program need not be UTF-8
    if column.null_count:
        row = int(np.flatnonzero(column.is_null().to_numpy(zero_copy_only=False))[0])
        raise DataError(
            "expected a value in every row, received null",
            where=f"{path}, column `{name}`, row {first + row}",
        )


def _of_lists(column: Any, dim: int | None, first: int, where: str) -> npt.NDArray[Any]:
    """Return lists of one length as rows."""
    if pa.types.is_fixed_size_list(column.type):
        lengths: Sequence[int] | npt.NDArray[np.int64] = np.full(len(column), column.type.list_size, np.int64)
    else:
        lengths = np.diff(column.offsets.to_numpy()).astype(np.int64)
    values = column.flatten()
    if not len(column):
        return np.empty((0, dim or 1), np.float32)
    wanted = int(lengths[0]) if dim is None else dim
    wrong = np.flatnonzero(np.asarray(lengths) != wanted)
    if len(wrong) or not wanted:
        row = int(wrong[0]) if len(wrong) else 0
        raise DataError(
            f"expected lists of {wanted or 'at least 1'} numbers, received one of {lengths[row]}",
            where=f"{where}, row {first + row}",
        )
    if values.null_count:
        row = int(np.flatnonzero(values.is_null().to_numpy(zero_copy_only=False))[0]) // wanted
        raise DataError("expected numbers, received null", where=f"{where}, row {first + row}")
    rows: npt.NDArray[Any] = values.to_numpy().reshape(-1, wanted)
    return rows


def _texts(column: pa.Array) -> pa.Array:
    return column if pa.types.is_integer(column.type) else column.cast(pa.large_string())

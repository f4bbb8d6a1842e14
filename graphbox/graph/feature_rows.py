"""Rows of a table that is no part of a graph, read as columns of features that a graph had."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa

from graphbox.errors import DataError
from graphbox.fields import Field
from graphbox.graph.columns import Column, FeatureValues, Lists
from graphbox.graph.convert import FeatureReader, check_list_separator, feature_reader
from graphbox.graph.source import Batch, TableLike, open_table

_READ_BYTES = 1 << 24
_CATEGORIES_BYTES = 1 << 30


@dataclass(frozen=True, eq=False)
class FeatureRows:
    """Some rows of a table, in order.

    Attributes:
        columns: by feature.
        further: other columns of the same rows that were asked for, as the table has them.
    """

    columns: dict[str, Column]
    further: dict[str, pa.Array]


def read_feature_rows(
    table: TableLike,
    fields: Sequence[Field],
    further: Sequence[str] = (),
    *,
    list_separator: str | None = None,
) -> Iterator[FeatureRows]:
    """Yield the rows of a table, batch by batch.

    Columns are called and read as those of the features; others are passed over.

    Args:
        table: a file, a data frame, or arrays by name; see :func:`graphbox.graph.source.open_table`.
        fields: the features.
        further: names of other columns to return as they are.
        list_separator: character between values in a cell of text, in slots and vectors; None: ``|``.

    Raises:
        NotFoundError: there is no such file.
        UsageError: ``list_separator`` separates the columns of the table.
        DataError: a column is missing, or a value cannot be read.
    """
    source = open_table(table, where="rows")
    if list_separator is not None:
        check_list_separator(list_separator, source.column_separator, source.name)
    wanted = list(dict.fromkeys([*(field.name for field in fields), *further]))
    for batch in source.batches(wanted, batch_bytes=_READ_BYTES):
        if batch.malformed:
            first = batch.malformed[0]
            raise DataError(f"expected rows of the table's columns, received {first.kind}", where=first.place)
        if batch.num_rows:
            columns = {field.name: _column(source, field, batch, list_separator) for field in fields}
            yield FeatureRows(columns, {name: batch.columns[name] for name in further})


def _column(source: Any, field: Field, batch: Batch, list_separator: str | None) -> Column:
    # Of its own for each batch, so that categories are never more than a batch's.
    reader = feature_reader(
        field.kind,
        is_text=source.is_text,
        place=f"{source.name}, column `{field.name}`",
        memory_bytes=_CATEGORIES_BYTES,
        list_separator=list_separator,
    )
    return _read(
        field, reader, batch.columns[field.name], partial(_place, source, field.name, batch.first_row)
    )


def _place(source: Any, column: str, first_row: int, row: int) -> str | None:
    place: str | None = source.where(first_row + row, column)
    return place


def _read(
    field: Field, reader: FeatureReader, values: pa.Array, place: Callable[[int], str | None]
) -> Column:
    """Return a column of a table as that of a graph.

    Raises:
        DataError: a value cannot be read, or vectors have not the length of those that were learnt from.
    """
    read = reader.read(values)
    for wrong in read.wrong:
        row = int(np.flatnonzero(wrong.rows)[0])
        raise DataError(f"expected {wrong.expected}, received {values[row].as_py()!r}", where=place(row))
    converted: FeatureValues = read.values
    if field.dim is not None and not isinstance(converted, Lists) and converted.shape[1] != field.dim:
        raise DataError(
            f"expected {field.dim} numbers in every row, as in what was learnt from, received "
            f"{converted.shape[1]}",
            where=place(0),
        )
    return reader.column([converted])

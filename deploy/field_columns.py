"""Columns of rows that a request gives, as a graph would have read them from a typed table."""

from __future__ import annotations

import math
import reprlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from graphbox.errors import InvalidRequestError, did_you_mean
from graphbox.fields import plain_integer, text_hash

__all__ = ["SLOT_SEPARATOR", "RequestColumn", "column_of_cells", "columns_of_rows", "columns_of_tensors"]

SLOT_SEPARATOR = "|"
"""Separator of the values of a slot where they are one text."""

_INT64 = range(-(2**63), 2**63)
_LARGEST_FLOAT32 = float(np.finfo(np.float32).max)

Place = Callable[[int], str]


class ColumnSpec(Protocol):
    """A column that rows have: a field of a click model, or a feature of a node."""

    @property
    def name(self) -> str:
        """Name of the column."""
        ...

    @property
    def kind(self) -> str:
        """Kind of its values, as in a graph."""
        ...

    @property
    def dim(self) -> int | None:
        """Length of a vector, else None."""
        ...


@dataclass(frozen=True, eq=False)
class RequestColumn:
    """The values of a column; see `graphbox.fields.FieldColumn`."""

    values: npt.NDArray[Any]
    categories: pa.Array | None = None
    offsets: npt.NDArray[np.int64] | None = None


def columns_of_rows(
    fields: Sequence[ColumnSpec],
    rows: Sequence[Mapping[str, Any]],
    *,
    row: str = "row",
    column: str = "column",
) -> dict[str, RequestColumn]:
    """Return the columns of rows given as JSON objects; names of no column of the model are passed over.

    A category is a string, an integer or a boolean; a slot a list of strings and integers; a vector a list of
    numbers. ``null`` is a missing category, number or slot. ``row`` and ``column`` are the words of messages.

    Raises:
        InvalidRequestError: a row lacks a column, or a value cannot be read; row and column are named.
    """
    return {field.name: column_of_cells(field, *_cells(field, rows, row, column)) for field in fields}


def _cells(
    field: ColumnSpec, rows: Sequence[Mapping[str, Any]], row: str, column: str
) -> tuple[list[Any], Place]:
    cells: list[Any] = []
    for number, values in enumerate(rows):
        if field.name not in values:
            raise InvalidRequestError(
                f"expected the {column} `{field.name}` in every {row}, received "
                f"{', '.join(f'`{name[:64]}`' for name in list(values)[:20]) or 'none'}",
                where=f"{row} {number}",
                hint=did_you_mean(field.name, values) or "write null where a category or a number is missing",
            )
        cells.append(values[field.name])
    return cells, lambda number: f"{row} {number}, {column} `{field.name}`"


def columns_of_tensors(
    fields: Sequence[ColumnSpec], tensors: Mapping[str, npt.NDArray[Any]], prefix: str = ""
) -> dict[str, RequestColumn]:
    """Return the columns of rows given as a tensor for each column, named as the column after ``prefix``.

    Texts are UTF-8. An empty one is a missing category, as an empty cell of a text table is. A slot is one
    text, its values separated by ``|``, of which those that are plain decimal integers are integers. NaN is a
    missing number.

    Raises:
        InvalidRequestError: tensors of different lengths, or a value that cannot be read.
    """
    columns: dict[str, RequestColumn] = {}
    for field in fields:
        name, first = prefix + field.name, prefix + fields[0].name
        tensor, count = tensors[name], len(tensors[first])
        if len(tensor) != count:
            raise InvalidRequestError(
                f"expected {count} rows, as in input `{first}`, received {len(tensor)}",
                where=f"input `{name}`",
            )
        if field.kind not in {"categorical", "slots"}:
            if tensor.dtype == np.float32 and np.isinf(tensor).any():
                raise InvalidRequestError(
                    "expected finite numbers, or NaN where one is missing, received an infinity",
                    where=f"input `{name}`",
                )
            columns[field.name] = RequestColumn(tensor)
            continue
        place = _place_in_tensor(name)
        texts = [_decoded(element, place(number)) for number, element in enumerate(tensor)]
        cells = (
            [_split(text) for text in texts] if field.kind == "slots" else [text or None for text in texts]
        )
        columns[field.name] = column_of_cells(field, cells, place)
    return columns


def _place_in_tensor(name: str) -> Place:
    return lambda number: f"input `{name}`, element {number}"


def _decoded(element: bytes, where: str) -> str:
    try:
        return element.decode()
    except UnicodeDecodeError as error:
        raise InvalidRequestError(
            f"expected text in UTF-8, received other bytes: {error}", where=where
        ) from error


def _split(text: str) -> list[str | int]:
    parts = [(part, plain_integer(part)) for part in text.split(SLOT_SEPARATOR)] if text else []
    return [part if number is None else number for part, number in parts]


def column_of_cells(field: ColumnSpec, cells: Sequence[Any], place: Place) -> RequestColumn:
    """Return a column of values as JSON has them; see :func:`columns_of_rows`.

    Args:
        field: the column.
        cells: its values.
        place: returns where a value is, by its number, for errors.

    Raises:
        InvalidRequestError: a value cannot be read.
    """
    match field.kind:
        case "categorical":
            return _categories(cells, place)
        case "slots":
            return _slots(cells, place)
        case "vector":
            return RequestColumn(_vectors(cells, field.dim or 0, place))
        case "number":
            numbers = [_number(cell, place, row) for row, cell in enumerate(cells)]
            return RequestColumn(np.array(numbers, np.float32))
        case "integer":
            return RequestColumn(np.array([_integer(c, place, row) for row, c in enumerate(cells)], np.int64))
        case _:
            for row, cell in enumerate(cells):
                if not isinstance(cell, bool):
                    raise _wrong("true or false", cell, place(row))
            return RequestColumn(np.array(cells, bool))


def _categories(cells: Sequence[Any], place: Place) -> RequestColumn:
    codes: dict[str, int] = {}
    column = np.empty(len(cells), np.int32)
    for row, cell in enumerate(cells):
        if cell is None:
            column[row] = -1
            continue
        if isinstance(cell, bool):
            cell = "true" if cell else "false"  # noqa: PLW2901 - as a typed table's booleans are read
        elif not isinstance(cell, str | int):
            raise _wrong("a category: a string, an integer, true, false or null", cell, place(row))
        column[row] = codes.setdefault(str(cell), len(codes))
    return RequestColumn(column, pa.array(list(codes), pa.large_string()))


def _slots(cells: Sequence[Any], place: Place) -> RequestColumn:
    ends, values = [0], []
    for row, cell in enumerate(cells):
        values += [_slot_value(each, place, row) for each in _as_list(cell)]
        ends.append(len(values))
    return RequestColumn(np.array(values, np.int64), None, np.array(ends, np.int64))


def _as_list(cell: Any) -> list[Any]:
    if isinstance(cell, list):
        return cell
    return [] if cell is None else [cell]


def _slot_value(value: Any, place: Place, row: int) -> int:
    if isinstance(value, str) and value:
        return text_hash(value.encode())
    if isinstance(value, int) and not isinstance(value, bool) and value in _INT64:
        return value
    raise _wrong("a list of strings that are not empty and of integers of 64 bits", value, place(row))


def _vectors(cells: Sequence[Any], dim: int, place: Place) -> npt.NDArray[np.float32]:
    vectors = np.empty((len(cells), dim), np.float32)
    for row, cell in enumerate(cells):
        if not isinstance(cell, list) or len(cell) != dim:
            raise _wrong(f"a list of {dim} numbers", cell, place(row))
        vectors[row] = [_number(each, place, row) for each in cell]
    return vectors


def _number(cell: Any, place: Place, row: int) -> float:
    if cell is None:
        return math.nan
    if isinstance(cell, bool) or not isinstance(cell, int | float):
        raise _wrong("a number or null", cell, place(row))
    if not abs(cell) <= _LARGEST_FLOAT32:
        raise _wrong("a finite number within the range of float32", cell, place(row))
    return float(cell)


def _integer(cell: Any, place: Place, row: int) -> int:
    if isinstance(cell, bool) or not isinstance(cell, int) or cell not in _INT64:
        raise _wrong("an integer of 64 bits", cell, place(row))
    return cell


def _wrong(expected: str, received: Any, where: str) -> InvalidRequestError:
    return InvalidRequestError(f"expected {expected}, received {reprlib.repr(received):.120}", where=where)

"""Numbers, integers and weights of a column."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from graphbox.graph.convert.converted import BoolArray, Converted, found, nulls, wrong_type
from graphbox.graph.convert.text import parse_integers, parse_numbers
from graphbox.graph.schema import Float32Array, Int64Array


def read_weight(values: pa.Array, *, is_text: bool, place: str) -> Converted[Float32Array]:
    """Return edge weights as float32, finite and positive.

    Raises:
        DataError: the column is of another type.
    """
    numbers = read_numbers(values, is_text=is_text, place=place)
    with np.errstate(invalid="ignore"):
        unusable = ~(np.isfinite(numbers.values) & (numbers.values > 0))
    missing = nulls(values)
    wrong = found(
        ("missing weight", "a finite positive number", missing),
        *((each.kind, "a finite positive number", each.rows) for each in numbers.wrong),
        ("weight that is not positive", "a finite positive number", unusable),
    )
    return Converted(numbers.values, wrong)


def read_numbers(values: pa.Array, *, is_text: bool, place: str) -> Converted[Float32Array]:
    """Return numbers as float32, NaN where missing."""
    beyond = None
    if is_text and pa.types.is_large_string(values.type):
        numbers, wrong = parse_numbers(values)
    elif pa.types.is_float32(values.type):
        return Converted(pc.fill_null(values, np.float32(np.nan)).to_numpy())
    elif is_number(values.type) or pa.types.is_null(values.type):
        wide = values.cast(pa.float64(), safe=False)
        numbers, wrong = pc.fill_null(wide, np.nan).to_numpy(), None
    else:
        raise wrong_type(place, "numbers", values)
    missing = nulls(values)
    if missing is not None:
        numbers = np.where(missing, np.nan, numbers)
        wrong = None if wrong is None else wrong & ~missing
    with np.errstate(over="ignore"):
        narrow = numbers.astype(np.float32)
    if np.isinf(narrow).any():
        beyond = np.isinf(narrow) & np.isfinite(numbers)
    return Converted(
        narrow,
        found(
            ("not a number", "a number", wrong),
            ("number beyond float32", "a number within the range of float32", beyond),
        ),
    )


def read_integers(
    values: pa.Array, *, is_text: bool, place: str, missing: str, expected: str = "an integer of 64 bits"
) -> Converted[Int64Array]:
    """Return integers of 64 bits.

    Args:
        values: a column.
        is_text: whether the table's columns are all text.
        place: the column, for messages.
        missing: what rows without one are counted as.
        expected: what a cell should hold.

    Raises:
        DataError: the column is of another type.
    """
    if is_text and pa.types.is_large_string(values.type):
        numbers, wrong = parse_integers(values, plain=False)
    elif pa.types.is_integer(values.type):
        numbers, wrong = to_int64(values)
    else:
        raise wrong_type(place, "integers", values)
    return Converted(
        numbers,
        found(
            (missing, "an integer in every row", nulls(values)),
            ("not an integer", expected, wrong),
        ),
    )


def to_int64(values: pa.Array) -> tuple[Int64Array, BoolArray | None]:
    """Return integers of any width as int64, and where an unsigned one is beyond it."""
    if values.null_count:
        values = values.fill_null(0)
    numbers: Int64Array = values.cast(pa.int64(), safe=False).to_numpy()
    return numbers, numbers < 0 if pa.types.is_uint64(values.type) else None


def is_number(kind: pa.DataType) -> bool:
    """Return whether values of a type are numbers."""
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind))

"""Timestamps of a column: integers as they are, dates and times as microseconds since 1970, UTC."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Literal, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from graphbox.graph.convert.converted import BoolArray, Converted, booleans, found, nulls, wrong_type
from graphbox.graph.convert.numbers import to_int64
from graphbox.graph.convert.text import parse_integers
from graphbox.graph.schema import Int64Array

_Kind: TypeAlias = Literal["integers", "dates"]

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

_MISSING = ("missing timestamp", "a timestamp in every row")
_DATE = r"^\d{4}-\d{2}-\d{2}(?:[T ]\d{2}:\d{2}(?::\d{2}(?:\.\d{1,6})?)?(?:Z|[+-]\d{2}(?::?\d{2})?)?)?$"
_ZONE = r"[T ].*(?:Z|[+-]\d{2}(?::?\d{2})?)$"
_EXPECTED_TEXT = "an integer such as seconds since 1970, or a date and time like 2024-05-31T12:00:00Z"
_EXPECTED: dict[_Kind, str] = {
    "integers": "an integer, as in the first row",
    "dates": "a date and time like 2024-05-31T12:00:00Z, as in the first row",
}
_FACTORS = {"s": 1_000_000, "ms": 1_000, "us": 1}


class TimestampReader:
    """Reads timestamps, batch by batch.

    Of text, the first cell that can be read decides for the whole column whether it holds integers, which
    stay as they are, or dates and times in the form of ISO 8601 (``2024-05-31``, ``2024-05-31 12:00``,
    ``2024-05-31T12:00:00.5+02:00``), which become microseconds since 1970, UTC. Without a zone they are taken
    for UTC. Arrow's timestamps and dates become microseconds too.

    Args:
        is_text: whether the table's columns are all text.
        place: the column, for messages.
    """

    def __init__(self, *, is_text: bool, place: str) -> None:
        self._is_text = is_text
        self._place = place
        self._kind: _Kind | None = None

    def read(self, values: pa.Array) -> Converted[Int64Array]:
        """Return the timestamps of a batch.

        Raises:
            DataError: the column is of another type.
        """
        kind = values.type
        if pa.types.is_timestamp(kind) or pa.types.is_date(kind):
            return _of_arrow(values)
        if pa.types.is_integer(kind):
            numbers, beyond = to_int64(values)
            wrong = found(
                (*_MISSING, nulls(values)), ("not a timestamp", "an integer of 64 bits with a sign", beyond)
            )
            return Converted(numbers, wrong)
        if pa.types.is_large_string(kind):
            return self._of_text(values)
        raise wrong_type(self._place, "timestamps (integers, dates or times)", values)

    def _of_text(self, values: pa.Array) -> Converted[Int64Array]:
        missing = nulls(values)
        present = np.ones(len(values), bool) if missing is None else ~missing
        numbers, no_integer = np.zeros(len(values), np.int64), present
        if self._is_text and self._kind != "dates":
            numbers, flags = parse_integers(values, plain=False)
            no_integer = present & flags if flags is not None else np.zeros(len(values), bool)
        if self._kind == "integers" or not no_integer.any():
            self._kind = self._kind or ("integers" if present.any() else None)
            return self._converted(numbers, missing, no_integer)
        microseconds, is_date = _parsed(values, no_integer)
        if self._kind is None:
            readable = present & (is_date | ~no_integer)
            if not readable.any():
                return self._converted(numbers, missing, no_integer)
            self._kind = "dates" if is_date[readable.argmax()] else "integers"
        if self._kind == "integers":
            return self._converted(numbers, missing, no_integer)
        return self._converted(microseconds, missing, present & ~is_date)

    def _converted(
        self, numbers: Int64Array, missing: BoolArray | None, wrong: BoolArray
    ) -> Converted[Int64Array]:
        expected = _EXPECTED_TEXT if self._kind is None else _EXPECTED[self._kind]
        return Converted(numbers, found((*_MISSING, missing), ("not a timestamp", expected, wrong)))


def _of_arrow(values: pa.Array) -> Converted[Int64Array]:
    missing = nulls(values)
    if pa.types.is_date(values.type):
        values = values.cast(pa.timestamp("ms" if pa.types.is_date64(values.type) else "s"))
    numbers: Int64Array = values.view(pa.int64()).fill_null(0).to_numpy()
    unit = values.type.unit
    if unit == "ns":
        microseconds, fraction = np.divmod(numbers, 1000)
        unusable = fraction != 0
    else:
        factor = _FACTORS[unit]
        limit = (2**63 - 1) // factor
        unusable = (numbers > limit) | (numbers < -limit)
        microseconds = np.where(unusable, 0, numbers) * factor
    wrong = found((*_MISSING, missing), ("not a timestamp", "whole microseconds within 64 bits", unusable))
    return Converted(microseconds, wrong)


# Dates and times as text


def _parsed(values: pa.Array, rows: BoolArray) -> tuple[Int64Array, BoolArray]:
    """Return microseconds of the cells of ``rows`` that are dates, and which those are."""
    is_date = rows & _matches(values, _DATE)
    has_zone = is_date & _matches(values, _ZONE)
    microseconds = np.zeros(len(values), np.int64)
    for chosen, kind in ((is_date & ~has_zone, pa.timestamp("us")), (has_zone, pa.timestamp("us", "UTC"))):
        places = np.flatnonzero(chosen)
        if len(places):
            cells = values.take(pa.array(places))
            microseconds[places], usable = _cast(cells, kind)
            is_date[places] = usable
    return microseconds, is_date


def _matches(values: pa.Array, pattern: str) -> BoolArray:
    return booleans(pc.fill_null(pc.match_substring_regex(values, pattern), False))


def _cast(cells: pa.Array, kind: pa.DataType) -> tuple[Int64Array, BoolArray]:
    try:
        return cells.cast(kind).view(pa.int64()).to_numpy(), np.ones(len(cells), bool)
    except pa.ArrowInvalid:  # one at least is no day or time that exists
        pass
    found_values = [_microseconds(cell) for cell in cells.to_pylist()]
    usable = np.array([value is not None for value in found_values], bool)
    return np.array([value or 0 for value in found_values], np.int64), usable


def _microseconds(cell: str) -> int | None:
    try:
        instant = datetime.fromisoformat(cell)
    except ValueError:
        return None
    if instant.tzinfo is None:
        instant = instant.replace(tzinfo=UTC)
    return (instant - _EPOCH) // timedelta(microseconds=1)

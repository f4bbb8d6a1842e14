"""Converted cells of a column, and the rows that cannot be used, by reason."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic, TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from graphbox.errors import DataError

_TYPE_HINT = "ask for another kind, or write the table with another type of column"

BoolArray: TypeAlias = npt.NDArray[np.bool_]
Values_co = TypeVar("Values_co", covariant=True)


@dataclass(frozen=True, eq=False)
class Wrong:
    """Rows of a column that cannot be used, for one reason.

    Attributes:
        kind: the reason in a few words; such rows are counted by kind.
        expected: what the cell should hold.
        rows: bool [n].
    """

    kind: str
    expected: str
    rows: BoolArray


@dataclass(frozen=True, eq=False)
class Converted(Generic[Values_co]):
    """The cells of a column as what they stand for.

    Attributes:
        values: one entry per row; unspecified where ``wrong`` has the row.
        wrong: the rows that cannot be used; a row in several of them has the first one's reason.
        left_out: int64 [n], number of empty values left out of each row's list; None when there are none.
    """

    values: Values_co
    wrong: tuple[Wrong, ...] = ()
    left_out: npt.NDArray[np.int64] | None = None


def found(*candidates: tuple[str, str, BoolArray | None]) -> tuple[Wrong, ...]:
    """Return (kind, expected, rows) as what is wrong, without those that no row has."""
    return tuple(
        Wrong(kind, expected, rows) for kind, expected, rows in candidates if rows is not None and rows.any()
    )


def nulls(values: pa.Array) -> BoolArray | None:
    """Return where cells are missing; None when none is."""
    return booleans(values.is_null()) if values.null_count else None


def booleans(values: pa.Array) -> BoolArray:
    """Return an Arrow array of booleans without nulls as bool [n]."""
    mask: BoolArray = values.to_numpy(zero_copy_only=False)
    return mask


def any_wrong(wrong: tuple[Wrong, ...], rows: int) -> BoolArray:
    """Return the rows that something is wrong with."""
    mask = np.zeros(rows, bool)
    for each in wrong:
        mask |= each.rows
    return mask


def wrong_type(place: str, expected: str, values: pa.Array) -> DataError:
    """Return the error about a column of a type that cannot be read."""
    return DataError(
        f"expected {expected}, received values of type {values.type}", where=place, hint=_TYPE_HINT
    )

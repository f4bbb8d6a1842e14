"""Cells of text as numbers: the native parsers over Arrow strings."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from graphbox import _core
from graphbox.errors import UsageError
from graphbox.graph.convert.converted import BoolArray, booleans
from graphbox.graph.schema import Int64Array

SLOT_SEPARATOR = "|"
"""Default separator of the values in one cell of text, in slots and vectors."""


def check_list_separator(separator: str, column_separator: str | None, place: str) -> None:
    """Check the separator of the values in a cell.

    Args:
        separator: the separator.
        column_separator: what separates the columns of the table; None: columns are typed.
        place: the table, for messages.

    Raises:
        UsageError: it is not one character, is a quote, a line break or the separator of the columns.
    """
    hint = "name the character between the values in a cell, or leave `list_separator` out if it is `|`"
    if len(separator) != 1 or separator in '"\r\n':
        expected = "one character, neither a double quote nor a line break,"
    elif separator == column_separator:
        expected = "another character than the one between columns,"
    else:
        return
    raise UsageError(
        f"expected {expected} received {separator!r}", where=f"{place}, `list_separator`", hint=hint
    )


def cells(values: pa.Array) -> tuple[Int64Array, npt.NDArray[np.uint8]]:
    """Return offsets int64 [n + 1] and the text of a large_string array; nulls are empty."""
    if values.null_count:
        values = values.fill_null("")
    if not len(values):
        return np.zeros(1, np.int64), np.zeros(0, np.uint8)
    _, offsets, text = values.buffers()
    bounds = np.frombuffer(offsets, np.int64, values.offset + len(values) + 1)[values.offset :]
    return bounds, np.zeros(0, np.uint8) if text is None else np.frombuffer(text, np.uint8)


def parse_integers(values: pa.Array, *, plain: bool) -> tuple[Int64Array, BoolArray | None]:
    """Return each cell as an integer, and which cells are not one; None when all are.

    Args:
        values: large_string.
        plain: accept only the spelling that is printed, see :func:`plain_integers`.
    """
    numbers, wrong = np.empty(len(values), np.int64), np.empty(len(values), np.uint8)
    failed = _core.parse_integers(*cells(values), plain, numbers, wrong)
    return numbers, wrong.view(bool) if failed else None


def parse_numbers(values: pa.Array) -> tuple[npt.NDArray[np.float64], BoolArray | None]:
    """Return each cell as a number, and which cells are not one; None when all are."""
    numbers, wrong = np.empty(len(values), np.float64), np.empty(len(values), np.uint8)
    failed = _core.parse_numbers(*cells(values), numbers, wrong)
    return numbers, wrong.view(bool) if failed else None


def plain_integers(values: pa.Array) -> bool:
    """Return whether every cell of a large_string array that is not missing is a plain decimal integer.

    That is: of 64 bits with a sign, spelled as it is printed, without leading zeros or a plus sign.
    """
    _, wrong = parse_integers(values, plain=True)
    return wrong is None or bool((wrong == booleans(values.is_null())).all())


def parse_booleans(values: pa.Array) -> tuple[BoolArray, BoolArray | None]:
    """Return each cell as a truth value, and which cells are not one; None when all are."""
    truth, wrong = np.empty(len(values), np.uint8), np.empty(len(values), np.uint8)
    failed = _core.parse_booleans(*cells(values), truth, wrong)
    return truth.view(bool), wrong.view(bool) if failed else None

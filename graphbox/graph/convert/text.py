"""Cells of text as numbers: the native parsers over Arrow strings."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from graphbox import _core
from graphbox.graph.convert.converted import BoolArray, booleans
from graphbox.graph.schema import Int64Array

__all__ = ["SLOT_SEPARATOR", "cells", "parse_booleans", "parse_integers", "parse_numbers", "plain_integers"]

SLOT_SEPARATOR = "|"
"""What stands between the values of one cell of text, in slots and vectors."""


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
    """Return each cell as an integer, and where it is none; None when all are.

    Args:
        values: large_string.
        plain: accept only the spelling that is printed, see :func:`plain_integers`.
    """
    numbers, wrong = np.empty(len(values), np.int64), np.empty(len(values), np.uint8)
    failed = _core.parse_integers(*cells(values), plain, numbers, wrong)
    return numbers, wrong.view(bool) if failed else None


def parse_numbers(values: pa.Array) -> tuple[npt.NDArray[np.float64], BoolArray | None]:
    """Return each cell as a number, and where it is none; None when all are."""
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
    """Return the truth of each cell, and where it is none; None when all are."""
    truth, wrong = np.empty(len(values), np.uint8), np.empty(len(values), np.uint8)
    failed = _core.parse_booleans(*cells(values), truth, wrong)
    return truth.view(bool), wrong.view(bool) if failed else None

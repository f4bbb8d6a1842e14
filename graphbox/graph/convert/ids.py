"""Original ids of a column: strings, or integers of 64 bits."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from graphbox.graph.convert.converted import Converted, any_wrong, booleans, found, nulls, wrong_type
from graphbox.graph.convert.numbers import to_int64
from graphbox.graph.convert.text import cells, parse_integers
from graphbox.graph.schema import IdType


def read_ids(values: pa.Array, id_type: IdType, *, is_text: bool, place: str) -> Converted[pa.Array]:
    """Return original ids as large_string or int64; rows without a usable one are null.

    Args:
        values: a column.
        id_type: what the ids are.
        is_text: whether the table's columns are all text, so that integers are parsed.
        place: the column, for messages.

    Raises:
        DataError: the column is of another type.
    """
    if not (pa.types.is_integer(values.type) or pa.types.is_large_string(values.type)):
        raise wrong_type(place, "ids (strings or integers)", values)
    if id_type == "string":
        if not pa.types.is_large_string(values.type):
            raise wrong_type(place, "strings", values)
        return _string_ids(values)
    if pa.types.is_integer(values.type):
        numbers, beyond = to_int64(values)
        missing = nulls(values)
    elif is_text and pa.types.is_large_string(values.type):
        numbers, beyond = parse_integers(values, plain=True)
        missing = nulls(values)
    else:
        raise wrong_type(place, "64-bit integers", values)
    wrong = found(
        ("missing id", "an id in every row", missing),
        ("not an integer id", "a plain decimal integer of 64 bits", beyond),
    )
    return Converted(pa.array(numbers, mask=any_wrong(wrong, len(values)) if wrong else None), wrong)


def _string_ids(values: pa.Array) -> Converted[pa.Array]:
    bounds, text = cells(values)
    used = text[bounds[0] : bounds[-1]]
    breaks = None
    if (used == ord("\n")).any() or (used == ord("\r")).any():
        # Ids are listed one on a line.
        breaks = booleans(pc.fill_null(pc.match_substring_regex(values, r"[\r\n]"), False))
    wrong = found(
        ("missing id", "an id in every row", np.diff(bounds) == 0),
        ("id with a line break", "an id without line breaks", breaks),
    )
    if wrong:
        values = pc.if_else(
            pa.array(any_wrong(wrong, len(values))), pa.scalar(None, pa.large_string()), values
        )
    return Converted(values, wrong)

"""Rows of a user's columns as fields: keys of their values with weights, and standardized numbers.

What models of clicks learn from, and what is served of them: neither torch nor the native core is needed.
"""

from __future__ import annotations

from graphbox.fields.keys import plain_integer, text_hash
from graphbox.fields.lists import Lists
from graphbox.fields.rows import (
    Field,
    FieldColumn,
    FieldRows,
    Fields,
    NumberScale,
    Rows,
    row_count,
    take_rows,
)

__all__ = [
    "Field",
    "FieldColumn",
    "FieldRows",
    "Fields",
    "Lists",
    "NumberScale",
    "Rows",
    "plain_integer",
    "row_count",
    "take_rows",
    "text_hash",
]

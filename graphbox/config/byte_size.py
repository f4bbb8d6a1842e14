"""Sizes in bytes as people write them: ``2GiB``, ``512 MiB``, ``1.5GB``, ``4096``."""

from __future__ import annotations

import re
from fractions import Fraction
from typing import Annotated, Any

from pydantic import BeforeValidator, Field
from pydantic_core import PydanticCustomError

from graphbox.errors import UsageError

_UNITS = {
    "": 1,
    "b": 1,
    "kb": 10**3,
    "mb": 10**6,
    "gb": 10**9,
    "tb": 10**12,
    "kib": 2**10,
    "mib": 2**20,
    "gib": 2**30,
    "tib": 2**40,
}
_SHOWN_UNITS = "B, kB, MB, GB, TB, KiB, MiB, GiB, TiB"
_TEXT = re.compile(r"\s*(?P<number>[0-9]+(?:\.[0-9]+)?)\s*(?P<unit>[A-Za-z]*)\s*")
_LARGEST_BYTES = 2**63 - 1


def parse_byte_size(text: str | int) -> int:
    """Return a size in bytes.

    Args:
        text: a number of bytes, or text with a decimal (``GB`` = 10^9 bytes) or binary unit (``GiB`` = 2^30);
            upper and lower case mean the same.

    Raises:
        UsageError: it is none.
    """
    if isinstance(text, bool) or not isinstance(text, int | str):
        raise _refused(text, None)
    match = _TEXT.fullmatch(str(text))
    if match is None:
        raise _refused(text, None)
    unit = match["unit"].lower()
    if unit not in _UNITS:
        number = match["number"]
        hint = (
            f"write `{number}{unit.upper()}iB` (powers of 1024) or `{number}{unit.upper()}B` (powers of 1000)"
            if unit in {"k", "m", "g", "t"}
            else f"units: {_SHOWN_UNITS}"
        )
        raise _refused(text, hint)
    size = Fraction(match["number"]) * _UNITS[unit]
    if size.denominator != 1 and not unit:
        raise _refused(text, "a number without a unit counts whole bytes")
    if not 0 < size <= _LARGEST_BYTES:
        raise _refused(text, None)
    return int(size)


def _refused(text: Any, hint: str | None) -> UsageError:
    return UsageError(
        f"expected a size like `2GiB`, `512MiB` or a number of bytes, received {text!r}",
        hint=hint or f"units: {_SHOWN_UNITS}",
    )


def _validate(value: Any) -> int:
    try:
        return parse_byte_size(value)
    except UsageError as error:
        raise PydanticCustomError(
            "byte_size",
            "expected a size like `2GiB`, `512MiB` or a number of bytes",
            {"hint": error.hint or ""},
        ) from None


ByteSize = Annotated[
    int,
    BeforeValidator(_validate, json_schema_input_type=int | str),
    Field(examples=["2GiB", "512MiB", 4_000_000_000]),
]
"""A number of bytes; in the run file also text with a unit."""

ByteSizeOrZero = Annotated[
    int,
    BeforeValidator(
        lambda value: 0 if value in (0, "0") and value is not False else _validate(value),
        json_schema_input_type=int | str,
    ),
    Field(examples=["2GiB", "512MiB", 0]),
]
"""The same, or none at all."""

"""The device of a training as people write it: ``auto``, ``cpu``, ``cuda`` or ``cuda:1``."""

from __future__ import annotations

import re
from typing import Annotated, Any

from pydantic import AfterValidator, Field, WithJsonSchema
from pydantic_core import PydanticCustomError

_PATTERN = r"auto|cpu|cuda(?::[0-9]{1,4})?"


def _validate(name: str) -> str:
    if re.fullmatch(_PATTERN, name):
        return name
    raise PydanticCustomError(
        "device_name",
        "expected `auto`, `cpu`, `cuda` or `cuda:` and a number",
        {"hint": "a GPU is `cuda`, or `cuda:1` and so on where there are several"},
    )


_SCHEMA: dict[str, Any] = {"type": "string", "pattern": f"^(?:{_PATTERN})$"}

DeviceName = Annotated[
    str, AfterValidator(_validate), WithJsonSchema(_SCHEMA), Field(examples=["auto", "cpu", "cuda:1"])
]
"""A device; whether it is there is seen when it is used."""

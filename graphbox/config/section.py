"""Base class of all sections of the run file, and the types of names."""

from __future__ import annotations

import re
from typing import Annotated

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, StringConstraints
from pydantic_core import PydanticCustomError

NAME_PATTERN = r"^[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}$"
"""Names of graphs, tasks, models and runs: they become names of folders."""

Name = Annotated[str, StringConstraints(pattern=NAME_PATTERN)]

_START = re.compile(rf"(?:{NAME_PATTERN[1:-1]})(?:/{NAME_PATTERN[1:-1]})?|(?:/|\./|\.\./).+")


def _check_start(text: str) -> str:
    if _START.fullmatch(text):
        return text
    raise PydanticCustomError(
        "start_from",
        "expected RUN, RUN/MODEL, or a folder that begins with `/`, `./` or `../`",
    )


StartFrom = Annotated[str, AfterValidator(_check_start)]
"""An earlier run, see :attr:`graphbox.config.ModelSection.start_from`."""


def is_start_folder(text: str) -> bool:
    """Return whether `start_from` names a folder, not a run."""
    return text.startswith(("/", "./", "../"))


_TYPE_NAME = re.compile(r"[^\W_](?:[\w-]*[^\W_])?")


def _check_type_name(name: str) -> str:
    # The same rule as `graphbox.graph.schema.check_type_name`, which this layer may not import.
    if _TYPE_NAME.fullmatch(name) and "__" not in name and len(name.encode()) <= 64:
        return name
    raise PydanticCustomError(
        "type_name",
        "expected letters, digits, `-` and single `_` (at most 64 bytes, a letter or digit at both ends)",
    )


TypeName = Annotated[str, AfterValidator(_check_type_name)]


def _check_list_separator(separator: str) -> str:
    # The same rule as `graphbox.graph.convert.check_list_separator`, which this layer may not import.
    if len(separator) == 1 and separator not in '"\r\n':
        return separator
    raise PydanticCustomError(
        "list_separator", "expected one character, neither a double quote nor a line break, as in `;`"
    )


ListSeparator = Annotated[str, AfterValidator(_check_list_separator)]
EdgeTypeList = tuple[TypeName, TypeName, TypeName]


def is_edge_type_text(text: object) -> bool:
    """Return whether a key has the form of an edge type, ``source__relation__target``."""
    parts = text.split("__") if isinstance(text, str) else []
    return len(parts) == 3 and all(_TYPE_NAME.fullmatch(part) for part in parts)


def _check_edge_type_text(text: str) -> str:
    if is_edge_type_text(text):
        return text
    raise PydanticCustomError("edge_type", "expected an edge type as `source__relation__target`")


EdgeTypeText = Annotated[str, AfterValidator(_check_edge_type_text)]
"""An edge type where a key names it."""

PositiveInt = Annotated[int, Field(ge=1)]
Fraction = Annotated[float, Field(gt=0.0, lt=1.0)]
PositiveFloat = Annotated[float, Field(gt=0.0)]


class Section(BaseModel):
    """Base of every section: unknown keys are errors, values are not coerced, objects are frozen."""

    model_config = ConfigDict(
        extra="forbid",
        frozen=True,
        strict=True,
        allow_inf_nan=False,
        use_attribute_docstrings=True,
        protected_namespaces=(),
    )

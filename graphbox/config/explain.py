"""The schema's errors in the user's words, with the place in the file."""

from __future__ import annotations

from types import UnionType
from typing import Annotated, Any, Union, get_args, get_origin

from pydantic import BaseModel
from pydantic_core import ErrorDetails

from graphbox.config.kinds import section_of
from graphbox.config.models.section import ModelSection
from graphbox.config.problem import Problem
from graphbox.config.schema import RunConfig
from graphbox.config.source import KeyPath, Source, describe_value
from graphbox.errors import did_you_mean

_EXPECTED = {
    "int_type": "an integer",
    "int_parsing": "an integer",
    "int_from_float": "an integer",
    "float_type": "a number",
    "float_parsing": "a number",
    "finite_number": "a finite number",
    "bool_type": "true or false",
    "bool_parsing": "true or false",
    "string_type": "text",
    "tuple_type": "a list",
    "list_type": "a list",
    "dict_type": "a mapping",
    "model_type": "a mapping",
    "model_attributes_type": "a mapping",
}
_SECTION_TYPES = {"tuple_type", "list_type", "dict_type", "model_type", "model_attributes_type"}
_BOUNDS = {
    "greater_than": ("greater than", "gt"),
    "greater_than_equal": ("of at least", "ge"),
    "less_than": ("less than", "lt"),
    "less_than_equal": ("of at most", "le"),
}


def explain(error: ErrorDetails, source: Source) -> Problem:
    """Return one of pydantic's errors as a problem at a line of ``source``."""
    kind = error["type"]
    key = _key_in_file(error["loc"], source.data)
    if kind == "missing" and isinstance(key[-1], str):
        return _missing(key, source)
    if kind == "extra_forbidden":
        return _unknown(key, source)
    if kind.startswith("union_tag") or kind == "model_kind":
        key = (*key, "kind")
    message, hint = _message(error)
    if error["input"] is None and kind in _SECTION_TYPES and _may_be_left_out(key, source.data):
        message = "the section is empty"
        hint = f"delete `{key[-1]}:`, or write keys below it"
    if kind == "missing" or (
        kind == "too_long" and "tuple" in str(error["ctx"].get("field_type", "")).lower()
    ):
        key = key[:-1] if kind == "missing" else key
    return Problem(
        key=key, message=message, hint=hint, line=source.line(key), override=_override(source, key)
    )


def fields_at(data: Any, key: KeyPath) -> tuple[str, ...] | None:
    """Return the names of the keys the schema knows at ``key``; None where names are free or it ends."""
    section = _section_at(data, key)
    return tuple(section.model_fields) if section is not None else None


def _may_be_left_out(key: KeyPath, data: Any) -> bool:
    section = _section_at(data, key[:-1])
    field = section.model_fields.get(str(key[-1])) if section is not None and key else None
    return field is not None and not field.is_required()


def _missing(key: KeyPath, source: Source) -> Problem:
    section = _section_at(source.data, key[:-1])
    field = section.model_fields.get(str(key[-1])) if section is not None else None
    hint = (
        f"`{key[-1]}`: {_lower_first(field.description)}" if field is not None and field.description else None
    )
    return Problem(
        key=key[:-1],
        message=f"the key `{key[-1]}` is missing",
        hint=hint,
        line=source.line(key[:-1]),
        override=_override(source, key[:-1]),
    )


def _unknown(key: KeyPath, source: Source) -> Problem:
    known = fields_at(source.data, key[:-1]) or ()
    name = str(key[-1])
    hint = did_you_mean(name, known) or f"known keys: {', '.join(known)}"
    return Problem(
        key=key, message="unknown key", hint=hint, line=source.line(key), override=_override(source, key)
    )


def _message(error: ErrorDetails) -> tuple[str, str | None]:  # noqa: PLR0911 (a table of kinds)
    kind, value, context = error["type"], error["input"], error.get("ctx", {})
    received = describe_value(value)
    if kind in _EXPECTED:
        hint = None
        if kind == "string_type" and isinstance(value, int | float):
            hint = f"write it in quotes: '{value}'"
        if kind.startswith("bool") and isinstance(value, str):
            hint = "YAML 1.2 has only `true` and `false`"
        return f"expected {_EXPECTED[kind]}, received {received}", hint
    if kind in _BOUNDS:
        words, bound = _BOUNDS[kind]
        return f"expected a number {words} {context[bound]}, received {received}", None
    if kind == "literal_error" and error["loc"] == ("version",):
        return f"expected version {context['expected']} of the run file, received {value}", (
            "a newer graphbox wrote it: pip install --upgrade graphbox" if isinstance(value, int) else None
        )
    if kind == "literal_error":
        choices = [
            str(part).strip("' ") for part in str(context["expected"]).replace(" or ", ", ").split(",")
        ]
        hint = did_you_mean(value, choices) if isinstance(value, str) else None
        return f"expected {context['expected']}, received {received}", hint
    if kind == "union_tag_invalid":
        choices = [part.strip("' ") for part in str(context["expected_tags"]).split(",")]
        message = f"expected `kind` to be one of {', '.join(choices)}, received {context['tag']!r}"
        return message, did_you_mean(str(context["tag"]), choices)
    if kind == "union_tag_not_found":
        return "the key `kind` is missing", "it decides which other keys there are"
    if kind == "string_pattern_mismatch":
        rule = "letters, digits, `_`, `.` and `-` (at most 128, not starting with `.` or `-`)"
        return f"expected a name of {rule}, received {received}", None
    if kind == "too_short":
        return f"expected at least {context['min_length']} item, received {context['actual_length']}", None
    if kind == "too_long":
        return f"expected {context['max_length']} items, received {context['actual_length']}", None
    if kind == "missing":
        return "the list is too short", "an edge type is `[source type, relation, target type]`"
    # Of errors that checks raise pydantic begins the message with words of its own.
    cause = context.get("error")
    text = str(cause) if isinstance(cause, Exception) else error["msg"]
    whole = {"no_table", "not_together", "model_kind"}
    says_all = kind in whole or ", received " in text
    message = text if says_all else f"{_lower_first(text)}, received {received}"
    return message, context.get("hint") or None


def _key_in_file(loc: tuple[int | str, ...], data: Any) -> KeyPath:
    """Drop what pydantic adds to a location: the tag of a union, the mark of a mapping's key."""
    key: list[str | int] = []
    value = data
    for position, part in enumerate(loc):
        if part == "[key]":
            continue
        is_last = position == len(loc) - 1
        if isinstance(value, dict) and part not in value and (not is_last or value.get("kind") == part):
            continue  # the tag of a union: only the last part may be a key that is missing
        is_inside = isinstance(value, dict) or (isinstance(value, list) and isinstance(part, int))
        if value is not None and not is_inside:
            break  # the tag of a union of plain values
        key.append(part)
        try:
            value = value[part]
        except (KeyError, IndexError, TypeError):
            value = None
    return tuple(key)


def _override(source: Source, key: KeyPath) -> str | None:
    while key:
        if key in source.overridden:
            return source.overridden[key]
        key = key[:-1]
    return None


def _section_at(data: Any, key: KeyPath) -> type[BaseModel] | None:
    annotation: Any = RunConfig
    for part in key:
        section = _choose(annotation, data)
        if section is not None:
            field = section.model_fields.get(str(part))
            annotation = field.annotation if field is not None else None
        else:
            annotation = _item(annotation)
        try:
            data = data[part]
        except (KeyError, IndexError, TypeError):
            data = None
    return _choose(annotation, data)


def _choose(annotation: Any, data: Any) -> type[BaseModel] | None:
    """Return the section an annotation stands for; of a union, the one that ``kind`` names."""
    if get_origin(annotation) is Annotated:
        annotation = get_args(annotation)[0]
    if annotation is ModelSection:
        return section_of(data.get("kind")) if isinstance(data, dict) else None
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    if get_origin(annotation) in {Union, UnionType}:
        kind = data.get("kind") if isinstance(data, dict) else None
        for member in get_args(annotation):
            section = _choose(member, data)
            if section is None:
                continue
            # A section that may be left out is the only one of its union, and needs no kind.
            named = section.model_fields.get("kind")
            if named is None or kind in get_args(named.annotation):
                return section
    return None


def _item(annotation: Any) -> Any:
    if get_origin(annotation) is Annotated:
        annotation = get_args(annotation)[0]
    if get_origin(annotation) is dict:
        return get_args(annotation)[1]
    if get_origin(annotation) is tuple:
        return get_args(annotation)[0]
    return None


def _lower_first(text: str) -> str:
    return text[:1].lower() + text[1:].rstrip(".") if text else text

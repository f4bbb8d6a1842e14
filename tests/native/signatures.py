"""The functions and methods of the native core and the types of their arguments, as the core tells them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

_BRACKETS = {"[": "]", "(": ")"}
_PACKAGE = "graphbox._core."


@dataclass(frozen=True)
class ArrayType:
    """An array; None: any dtype, any number of dimensions."""

    dtype: str | None
    dimensions: int | None
    writable: bool


@dataclass(frozen=True)
class PlainType:
    """A number, a text or an object of a class of the core, by its name."""

    name: str


@dataclass(frozen=True)
class SequenceType:
    """A sequence of any length."""

    entry: Type


@dataclass(frozen=True)
class TupleType:
    """A tuple with these entries."""

    entries: tuple[Type, ...]


@dataclass(frozen=True)
class OptionalType:
    """Something or None."""

    value: Type


Type = ArrayType | PlainType | SequenceType | TupleType | OptionalType


@dataclass(frozen=True)
class Parameter:
    """A parameter; ``keyword`` if it must be given by name."""

    name: str
    type: Type
    keyword: bool
    required: bool


@dataclass(frozen=True)
class Function:
    """A function, a constructor or a method.

    Attributes:
        name: ``sample_neighbors``, ``Table.pull`` or, of a constructor, ``Table``.
        of_class: the class of the object it is called on, None for functions and constructors.
        makes: the class of the object it returns, or of those in the list, if it is one of the core's.
        call: what to call; of a method with the object first.
        parameters: its parameters, the object apart.
    """

    name: str
    of_class: str | None
    makes: str | None
    call: Any
    parameters: tuple[Parameter, ...]


def functions_of(module: Any) -> list[Function]:
    """Return all functions, constructors and methods of the module, each overload one."""
    return sorted(_functions(module), key=lambda function: function.name)


def _functions(module: Any) -> Iterator[Function]:
    for name, value in vars(module).items():
        if hasattr(value, "__nb_signature__"):
            yield from _overloads(name, None, value)
        elif isinstance(value, type):
            for method, attribute in vars(value).items():
                if method == "__init__" and hasattr(attribute, "__nb_signature__"):
                    yield from _overloads(name, None, attribute, constructor=value)
                elif isinstance(attribute, property):
                    yield Function(f"{name}.{method}", name, None, attribute.fget, ())
                elif hasattr(attribute, "__nb_signature__") and (method == "__len__" or method[0] != "_"):
                    is_static = "(self" not in attribute.__nb_signature__[0][0]
                    yield from _overloads(f"{name}.{method}", None if is_static else name, attribute)


def _overloads(
    name: str, of_class: str | None, value: Any, constructor: type | None = None
) -> Iterator[Function]:
    for signature, *_ in value.__nb_signature__:
        match = re.fullmatch(r"def \w+\((.*)\) -> (.*)", signature)
        assert match is not None, signature
        made = re.fullmatch(rf"(list\[)?{re.escape(_PACKAGE)}(\w+)\]?", match[2])
        yield Function(
            name,
            of_class,
            constructor.__name__ if constructor else made and made[2],
            constructor or value,
            tuple(_parameters(match[1])),
        )


def _parameters(text: str) -> Iterator[Parameter]:
    keyword = False
    for part in _split(text, ","):
        if part in ("self", "", "/"):
            continue
        if part == "*":
            keyword = True
            continue
        name, _, rest = part.partition(": ")
        of_type, *default = _split(rest, "=")
        yield Parameter(name, parse_type(of_type), keyword, not default)


def parse_type(text: str) -> Type:
    """Return the type that a signature names."""
    choices = _split(text, "|")
    if len(choices) > 1:
        value = next(choice for choice in choices if choice != "None")
        return OptionalType(parse_type(value))
    name, _, inside = text.partition("[")
    inside = inside.removesuffix("]")
    if name in ("ndarray", "numpy.ndarray"):
        return _array(inside)
    if name == "collections.abc.Sequence":
        return SequenceType(parse_type(inside))
    if name == "tuple" and inside:
        return TupleType(tuple(parse_type(entry) for entry in _split(inside, ",")))
    return PlainType(text.removeprefix(_PACKAGE))


def _array(text: str) -> ArrayType:
    options = dict(option.split("=", 1) for option in _split(text, ","))
    shape = options.get("shape")
    return ArrayType(
        options.get("dtype"), shape.count("*") if shape else None, options.get("writable") != "False"
    )


def _split(text: str, separator: str) -> list[str]:
    """Split where no bracket is open."""
    parts, depth, begin = [], 0, 0
    for place, letter in enumerate(text):
        depth += (letter in _BRACKETS) - (letter in _BRACKETS.values())
        if letter == separator and depth == 0:
            parts.append(text[begin:place].strip())
            begin = place + 1
    return [*parts, text[begin:].strip()]

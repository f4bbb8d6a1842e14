"""Checks of a request that all encodings of the protocol share: names, shapes, datatypes, parameters."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from graphbox.artifact import TensorSpec
from graphbox.errors import InvalidRequestError, did_you_mean
from graphbox.server.body import shorten

__all__ = [
    "INPUT_PARAMETERS",
    "OUTPUT_PARAMETERS",
    "REQUEST_PARAMETERS",
    "check_all_given",
    "check_parameters",
    "check_routing_key",
    "check_rows",
    "check_shape",
    "priority_of",
    "refuse_sequences",
    "repeated",
    "spec_of",
    "timeout_s_of",
]

_REGION = ("shared_memory_byte_size", "shared_memory_offset", "shared_memory_region")
INPUT_PARAMETERS = frozenset({"binary_data_size", *_REGION})
OUTPUT_PARAMETERS = frozenset({"binary_data", "classification", *_REGION})
REQUEST_PARAMETERS = frozenset(
    {
        "binary_data_output",
        "priority",
        "routing_key",
        "sequence_end",
        "sequence_id",
        "sequence_start",
        "timeout",
    }
)
_SCALARS = (str, int, float, bool)
_MAX_RANK = 8
_MOST_ELEMENTS = 1 << 40
_LOWEST_PRIORITY = (1 << 16) - 1
_MAX_TIMEOUT_US = 24 * 3600 * 1_000_000


def spec_of(name: str, specs: Mapping[str, TensorSpec], where: str, kind: str) -> TensorSpec:
    """Return the tensor of the model by its name.

    Args:
        name: received.
        specs: the inputs or the outputs of the model.
        where: the field, for messages.
        kind: ``input`` or ``output``.

    Raises:
        InvalidRequestError: the model has none of that name.
    """
    spec = specs.get(name)
    if spec is None:
        raise InvalidRequestError(
            f"expected an {kind} of the model ({', '.join(specs)}), received `{shorten(name)}`",
            where=f"{where}.name",
            hint=did_you_mean(name, specs),
        )
    return spec


def repeated(name: str, where: str, kind: str) -> InvalidRequestError:
    """Return the error for an input or output that a request names twice."""
    return InvalidRequestError(f"expected each {kind} once, received `{name}` twice", where=where)


def check_shape(
    datatype: object, shape: object, spec: TensorSpec, max_rows: int | None, where: str
) -> list[int]:
    """Return the shape of an input after checking it and the datatype.

    Args:
        datatype: received.
        shape: received; a list of integers where it is right.
        spec: of the input.
        max_rows: largest first size where that is free; None: no limit.
        where: the input, for messages.

    Raises:
        InvalidRequestError: another datatype or shape than the model reads, or too many rows.
    """
    if datatype != spec.datatype:
        raise InvalidRequestError(
            f"expected datatype {spec.datatype}, received {shorten(str(datatype))}", where=f"{where}.datatype"
        )
    if (
        not isinstance(shape, list)
        or len(shape) > _MAX_RANK
        or any(type(size) is not int or size < 0 for size in shape)
    ):
        raise InvalidRequestError(
            f"expected a list of at most {_MAX_RANK} sizes, integers from 0", where=f"{where}.shape"
        )
    fits = len(shape) == len(spec.shape) and all(
        wanted in (-1, size) for size, wanted in zip(shape, spec.shape, strict=True)
    )
    if not fits:
        raise InvalidRequestError(
            f"expected shape {list(spec.shape)} (-1: any size), received {shape}", where=f"{where}.shape"
        )
    if max_rows is not None:
        check_rows(shape, spec, max_rows, f"{where}.shape")
    # Zero rows hold no elements, but NumPy refuses shapes that no memory has, whatever they hold.
    if math.prod(max(size, 1) for size in shape) > _MOST_ELEMENTS:
        raise InvalidRequestError(
            f"expected sizes whose product is at most {_MOST_ELEMENTS}, received {shape}",
            where=f"{where}.shape",
        )
    return shape


def check_rows(shape: Sequence[int], spec: TensorSpec, max_rows: int, where: str) -> None:
    """Reject a shape with more rows than a request may have.

    Raises:
        InvalidRequestError: it has more.
    """
    if shape and spec.shape[0] == -1 and shape[0] > max_rows:
        raise InvalidRequestError(
            f"expected at most {max_rows} rows in one request, received {shape[0]}", where=where
        )


def check_all_given(given: Mapping[str, object], specs: Iterable[str]) -> None:
    """Reject a request without all inputs of the model.

    Raises:
        InvalidRequestError: an input is missing.
    """
    missing = [name for name in specs if name not in given]
    if missing:
        raise InvalidRequestError(
            f"expected the inputs {', '.join(specs)}; missing: {', '.join(missing)}", where="inputs"
        )


def check_parameters(parameters: Mapping[str, Any], where: str, known: frozenset[str]) -> None:
    """Reject parameters that are unknown, or not scalars.

    Raises:
        InvalidRequestError: one is.
    """
    if not parameters.keys() <= known:
        unknown = min(parameters.keys() - known)
        raise InvalidRequestError(
            f"expected the parameters {', '.join(sorted(known))}, received `{shorten(unknown)}`",
            where=where,
            hint=did_you_mean(unknown, known),
        )
    for name, value in parameters.items():
        if not isinstance(value, _SCALARS):
            raise InvalidRequestError("expected a string, a number, true or false", where=f"{where}.{name}")


def refuse_sequences(parameters: Mapping[str, Any]) -> None:
    """Reject parameters of the sequence extension, which is not offered, unless they ask for nothing.

    Raises:
        InvalidRequestError: one does.
    """
    for name in ("sequence_id", "sequence_start", "sequence_end"):
        if parameters.get(name):
            raise InvalidRequestError(
                "sequences are not offered: no model of this server keeps state between requests",
                where=f"parameters.{name}",
            )


def priority_of(parameters: Mapping[str, Any]) -> int:
    """Return the priority of a request: 1 goes first, 0 has no wish.

    Raises:
        InvalidRequestError: it is out of range.
    """
    priority = parameters.get("priority", 0)
    if type(priority) is not int or not 0 <= priority <= _LOWEST_PRIORITY:
        raise InvalidRequestError(
            f"expected an integer from 1 (first) to {_LOWEST_PRIORITY} (last), or 0 (no wish), "
            f"received {priority!r:.64}",
            where="parameters.priority",
        )
    return priority


def check_routing_key(parameters: Mapping[str, Any]) -> None:
    """Reject a routing key that is no text.

    Raises:
        InvalidRequestError: it is another value.
    """
    if not isinstance(parameters.get("routing_key", ""), str):
        raise InvalidRequestError(
            f"expected a string, received {parameters['routing_key']!r:.64}", where="parameters.routing_key"
        )


def timeout_s_of(parameters: Mapping[str, Any]) -> float | None:
    """Return the time limit of a request, None without one.

    Raises:
        InvalidRequestError: it is out of range.
    """
    timeout = parameters.get("timeout", 0)
    if type(timeout) is not int or not 0 <= timeout <= _MAX_TIMEOUT_US:
        raise InvalidRequestError(
            f"expected microseconds, an integer from 0 (no limit) to {_MAX_TIMEOUT_US}, "
            f"received {timeout!r:.64}",
            where="parameters.timeout",
        )
    return timeout / 1e6 if timeout else None

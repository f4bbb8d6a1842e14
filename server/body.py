"""Request bodies, the JSON objects in them, and the encodings that clients accept."""

from __future__ import annotations

import json
from collections.abc import Collection
from http import HTTPStatus
from typing import Any

import numpy as np
import orjson

from graphbox.errors import InvalidRequestError
from graphbox.server.problem import RefusedError

__all__ = ["Body", "accepts", "json_too_large", "parse_object", "shorten"]

Body = bytes | bytearray

BYTES_PER_CONTAINER = 50
_CONTAINERS = frozenset({dict, list})
# Larger texts are not searched for the key that appears twice.
_SEARCHED_BYTES = 64 * 1024


def parse_object(body: Body | memoryview, limit_bytes: int) -> dict[str, Any]:
    """Parse a JSON object.

    Args:
        body: JSON text in UTF-8.
        limit_bytes: largest body to parse. Nothing else runs while JSON is parsed, so this bounds the time
            that other requests wait.

    Raises:
        RefusedError: 413, the body is larger.
        InvalidRequestError: the body is no JSON object, has too many lists and objects, or has an object with
            a key twice.
    """
    if len(body) > limit_bytes:
        raise json_too_large(limit_bytes)
    text = bytes(body)
    if not text:
        raise InvalidRequestError("expected a JSON object, received an empty body")
    _refuse_many_containers(text, limit_bytes // BYTES_PER_CONTAINER)
    try:
        message = orjson.loads(text)
    except orjson.JSONDecodeError as error:
        raise InvalidRequestError(
            f"expected a JSON object, received text that is not JSON: {error}"
        ) from error
    if not isinstance(message, dict):
        raise InvalidRequestError(f"expected a JSON object, received {type(message).__name__}")
    _refuse_repeated_keys(text, message)
    return message


def json_too_large(limit_bytes: int) -> RefusedError:
    """Return the refusal of a JSON text that is too large."""
    return RefusedError(
        HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
        "json_too_large",
        f"expected at most {limit_bytes} bytes of JSON in one request, received more",
        hint="send fewer rows in one request, or tensors as binary data (parameter binary_data_size)",
    )


def accepts(encoding: str, accept_encoding: str) -> bool:
    """Return whether an ``Accept-Encoding`` header names an encoding, and does not rule it out."""
    for part in accept_encoding.lower().split(","):
        name, _, parameters = part.strip().partition(";")
        if name.strip() == encoding:
            return parameters.replace(" ", "") not in {"q=0", "q=0.0", "q=0.00", "q=0.000"}
    return False


def shorten(text: str, longest: int = 64) -> str:
    """Return ``text`` cut for a message."""
    return text if len(text) <= longest else text[:longest] + "…"


def _refuse_many_containers(text: bytes, most: int) -> None:
    """Raise if there are more than ``most`` lists and objects: each costs as much as many numbers."""
    # The smallest take three bytes, `[],`.
    if len(text) <= 3 * most or text.count(b"[") + text.count(b"{") <= most:
        return
    count = _count_outside_strings(text, b"[{")
    if count > most:
        raise InvalidRequestError(
            f"expected at most {most} lists and objects in one request, received {count}",
            hint="send the elements of a tensor as one flat list, or fewer rows in one request",
        )


def _refuse_repeated_keys(text: bytes, message: dict[str, Any]) -> None:
    """Raise if an object has a key twice, of which the parser keeps the last silently.

    Outside of strings, a colon follows each key and stands nowhere else. So there is no such key where there
    are as many colons as members. Long lists of numbers and strings are left out of the first, cheap count.
    """
    if text.count(b":") == _count_members(message, skip_scalars=True):
        return
    if _count_outside_strings(text, b":") == _count_members(message, skip_scalars=False):
        return
    if len(text) <= _SEARCHED_BYTES:
        json.loads(text, object_pairs_hook=_unique)
    raise InvalidRequestError("expected each key of an object once, received one twice")


def _count_outside_strings(text: bytes, characters: bytes) -> int:
    """Return how often the ``characters`` stand outside of the strings of a JSON text."""
    if b"\\" in text:
        text = text.replace(rb"\\", b"").replace(rb"\"", b"")
    codes = np.frombuffer(text, np.uint8)
    outside = ~np.logical_xor.accumulate(codes == ord('"'))
    return sum(int(np.count_nonzero((codes == character) & outside)) for character in characters)


def _count_members(message: dict[str, Any], *, skip_scalars: bool) -> int:
    """Return the members of all objects; with ``skip_scalars``, lists that begin with a scalar count none."""
    members = 0
    containers: list[Any] = [message]
    while containers:
        container = containers.pop()
        if type(container) is dict:
            members += len(container)
            values: Collection[Any] = container.values()
        elif skip_scalars and container and type(container[0]) not in _CONTAINERS:
            continue
        else:
            values = container
        for value in values:
            kind = type(value)
            if kind is dict or kind is list:
                containers.append(value)
    return members


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members: dict[str, Any] = {}
    for key, value in pairs:
        if key in members:
            raise InvalidRequestError(f"expected each key of an object once, received `{shorten(key)}` twice")
        members[key] = value
    return members

"""Random damage to bytes, JSON trees, headers and messages of protocol buffers."""

from __future__ import annotations

import copy
import json
import random
import struct
from collections.abc import Callable
from typing import Any, cast

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message

__all__ = ["HOSTILE_TEXTS", "mutated_bytes", "mutated_headers", "mutated_json", "mutated_message"]

HOSTILE_TEXTS = (
    "",
    "\x00",
    "\ufeff",
    "..",
    "../../etc/passwd",
    "%00",
    "a/b",
    "\u202e",
    "e\u0301",
    "9" * 400,
    "x" * 3000,
    "-0",
    "NaN",
    "true",
    "{}",
    "'; DROP TABLE models; --",
    "${jndi:ldap://x}",
    "id",
    "rows",
    "INT8",
    "UINT64",
    "FP16",
    "BF16",
    "BYTES",
    "BOOL",
)
_HOSTILE_NUMBERS = (0, -1, 1, 255, 256, 300, 2**31, -(2**31), 2**53 + 1, 2**63 - 1, 2**63, 2**64, 10**40)
_HOSTILE_FRACTIONS = (0.5, -0.0, 1e-320, 1e39, -1e308)
# Of JSON text, HTTP and protocol buffers alike.
_PIECES = (b"\x00", b"\r\n", b"\r\n\r\n", b"\xff\xff\xff\xff", b"{", b"]", b'"', b"\\u0000", b"\\ud800", b",")
_MOST_INSERTED = 300
_FULL_RANGE = {
    FieldDescriptor.TYPE_INT64: (-(2**63), 2**63 - 1),
    FieldDescriptor.TYPE_UINT64: (0, 2**64 - 1),
    FieldDescriptor.TYPE_INT32: (-(2**31), 2**31 - 1),
    FieldDescriptor.TYPE_UINT32: (0, 2**32 - 1),
}


def mutated_bytes(data: bytes, source: random.Random, most_changes: int = 4) -> bytes:
    """Return ``data`` with some bits flipped and pieces removed, repeated, inserted or cut off."""
    damaged = bytearray(data)
    for _ in range(source.randint(1, most_changes)):
        position = source.randint(0, len(damaged))
        length = source.choice((1, 1, 2, 4, 16, 64))
        match source.randrange(6):
            case 0 if damaged:
                damaged[position % len(damaged)] ^= 1 << source.randrange(8)
            case 1:
                del damaged[position : position + length]
            case 2:
                damaged[position:position] = damaged[position : position + length]
            case 3:
                damaged[position:position] = source.choice(_PIECES)
            case 4:
                damaged[position : position + 4] = struct.pack("<I", source.getrandbits(32))
            case _ if source.random() < 0.3:
                del damaged[position:]
            case _:
                damaged[position:position] = source.randbytes(length)
    return bytes(damaged)


def mutated_json(value: Any, source: random.Random) -> bytes:
    """Return the text of a JSON value with one to three changes to its tree, or to its text."""
    tree = copy.deepcopy(value)
    for _ in range(source.randint(1, 3)):
        tree = _changed_tree(tree, source)
    text = json.dumps(tree, ensure_ascii=source.random() < 0.5).encode("utf-8", "surrogatepass")
    if source.random() < 0.2:
        text = mutated_bytes(text, source, 2)
    if source.random() < 0.03:
        text = text.replace(b"{", b'{"id": "1", "id": "2", ', 1)
    return text


def mutated_headers(headers: dict[str, str], source: random.Random) -> list[tuple[str, str]]:
    """Return headers with one removed, repeated, or with another value."""
    changed = [*headers.items()]
    position = source.randrange(len(changed))
    name, value = changed[position]
    match source.randrange(4):
        case 0:
            del changed[position]
        case 1:
            changed.insert(position, (name, source.choice((value, "1"))))
        case 2:
            changed[position] = (name, source.choice(_HEADER_VALUES))
        case _:
            changed.append((source.choice(_HEADER_NAMES), source.choice(_HEADER_VALUES)))
    return changed


_HEADER_VALUES = (
    *("", "-1", "0", "1", "7", "1e3", "18446744073709551616", "9" * 300, "gzip", "deflate", "br", "identity"),
    *(
        "gzip, gzip",
        "application/json",
        "text/plain",
        "*/*",
        "localhost",
        "127.0.0.1",
        "chunked",
        "a b",
    ),
    *("bytes=0-10", "Bearer", "Bearer x", "100-continue", "close", "keep-alive", "Upgrade, HTTP2-Settings"),
)
_HEADER_NAMES = (
    *(
        "Accept-Encoding",
        "Accept",
        "Authorization",
        "Content-Type",
        "Cookie",
        "Origin",
        "Referer",
        "X-Request-Id",
    ),
    *(
        "Range",
        "If-None-Match",
        "Connection",
        "Expect",
        "Inference-Header-Content-Length",
        "Content-Encoding",
    ),
)


def mutated_message(message: Message, source: random.Random) -> Message:
    """Return a message with one to three of its fields set, cleared, repeated or exchanged for others."""
    changed = copy.deepcopy(message)
    for _ in range(source.randint(1, 3)):
        _change_message(changed, source)
    return changed


def _changed_tree(tree: Any, source: random.Random) -> Any:
    """Change a tree in place where it can be; return it, or what takes its place."""
    places: list[tuple[Any, Any]] = []
    _collect(tree, places)
    if not places or source.random() < 0.02:
        return _hostile_value(source)
    holder, key = source.choice(places)
    match source.randrange(7):
        case 0:
            del holder[key]
        case 1 if isinstance(holder, list):
            holder.insert(source.randint(0, len(holder)), copy.deepcopy(holder[key]))
        case 1:
            holder[source.choice(HOSTILE_TEXTS)] = holder.pop(key)
        case 2:
            holder[key] = [holder[key]] * source.choice((0, 1, 2, 50))
        case 3:
            other, other_key = source.choice(places)
            holder[key] = copy.deepcopy(other[other_key])
        case 4:
            holder[key] = _near(holder[key], source)
        case 5:
            holder[key] = _nested(source.choice((3, 30, 90)), source)
        case _:
            holder[key] = _hostile_value(source)
    return tree


def _collect(tree: Any, places: list[tuple[Any, Any]]) -> None:
    if isinstance(tree, dict | list) and len(places) < 500:
        pairs = tree.items() if isinstance(tree, dict) else enumerate(tree)
        for key, value in pairs:
            places.append((tree, key))
            _collect(value, places)


def _hostile_value(source: random.Random) -> Any:
    makers: tuple[Callable[[], Any], ...] = (
        lambda: source.choice(HOSTILE_TEXTS),
        lambda: source.choice(_HOSTILE_NUMBERS),
        lambda: source.choice(_HOSTILE_FRACTIONS),
        lambda: source.choice((None, True, False, [], {}, [[]], float("nan"), float("inf"))),
        lambda: [source.choice(_HOSTILE_NUMBERS) for _ in range(source.choice((1, 3, _MOST_INSERTED)))],
        lambda: "".join(map(chr, source.choices((0, 9, 34, 92, 0xD800, 0xFFFF, 0x1F600), k=5))),
    )
    return source.choice(makers)()


def _near(value: Any, source: random.Random) -> Any:
    """Return what is almost the same."""
    if isinstance(value, bool) or value is None:
        return not value
    if isinstance(value, int | float):
        return value + source.choice((-1, 1, 0.5, 2**31))
    if isinstance(value, str):
        return source.choice((value + "x", value[:-1], value.upper(), value + "\x00", value * 2))
    return value[:-1] if isinstance(value, list) else {**value, "": 0}


def _nested(depth: int, source: random.Random) -> Any:
    value: Any = source.choice(HOSTILE_TEXTS)
    for _ in range(depth):
        value = [value] if source.random() < 0.7 else {"a": value}
    return value


def _change_message(message: Message, source: random.Random) -> None:
    """Change one field of a message, or of one inside it."""
    field = cast("FieldDescriptor", source.choice(message.DESCRIPTOR.fields))
    if field.message_type is not None and field.message_type.GetOptions().map_entry:
        _change_map(getattr(message, field.name), field, source)
    elif field.is_repeated:
        _change_list(getattr(message, field.name), field, source)
    elif field.message_type is not None:
        _change_message(getattr(message, field.name), source)
    elif source.random() < 0.2:
        message.ClearField(field.name)
    else:
        setattr(message, field.name, _hostile_element(field, source))


def _change_list(values: Any, field: Any, source: random.Random) -> None:
    if len(values) and source.random() < 0.2:
        del values[source.randrange(len(values))]
    elif field.message_type is None:
        values.extend(_hostile_element(field, source) for _ in range(source.choice((1, 1, 2, 200))))
    elif not len(values) or source.random() < 0.1:
        _change_message(values.add(), source)
    elif source.random() < 0.2:
        values.add().CopyFrom(source.choice(values))
    else:
        _change_message(source.choice(values), source)


def _change_map(values: Any, field: Any, source: random.Random) -> None:
    known = ("timeout", "priority", "sequence_id", "k", "node_type", "binary_data_size", "classification")
    key = source.choice((*HOSTILE_TEXTS, *known, *known))
    value = field.message_type.fields_by_name["value"]
    if value.message_type is not None:
        _change_message(values[key], source)
    else:
        values[key] = _hostile_element(value, source)


def _hostile_element(field: Any, source: random.Random) -> Any:
    match field.type:
        case FieldDescriptor.TYPE_STRING:
            return source.choice((*HOSTILE_TEXTS, "companion", "numbers", "FP32", "INT64"))
        case FieldDescriptor.TYPE_BYTES:
            return source.randbytes(source.choice((0, 1, 4, 7, 80, 2000)))
        case FieldDescriptor.TYPE_BOOL:
            return source.random() < 0.5
        case FieldDescriptor.TYPE_FLOAT | FieldDescriptor.TYPE_DOUBLE:
            return source.choice((*_HOSTILE_FRACTIONS, float("nan"), float("inf")))
        case FieldDescriptor.TYPE_ENUM:
            return source.choice(field.enum_type.values).number
        case kind:
            lowest, highest = _FULL_RANGE[kind]
            return max(lowest, min(highest, source.choice(_HOSTILE_NUMBERS)))

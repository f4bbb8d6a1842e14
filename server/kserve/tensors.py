"""Tensors of the KServe protocol: datatypes, and their two encodings in JSON and in bytes.

Every check is strict: a value that does not fit its datatype is refused and never cast, since a
model answers a silently changed input with a plausible wrong result.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from itertools import chain
from typing import Any

import numpy as np
import numpy.typing as npt

from graphbox.errors import InvalidRequestError

__all__ = [
    "DATATYPES",
    "MAX_ELEMENT_BYTES",
    "Tensor",
    "datatype_of",
    "decode_binary",
    "decode_json",
    "encode_binary",
    "encode_json",
]

Tensor = npt.NDArray[Any]

DATATYPES: dict[str, np.dtype[Any]] = {
    "BOOL": np.dtype(np.bool_),
    "UINT8": np.dtype(np.uint8),
    "UINT16": np.dtype(np.uint16),
    "UINT32": np.dtype(np.uint32),
    "UINT64": np.dtype(np.uint64),
    "INT8": np.dtype(np.int8),
    "INT16": np.dtype(np.int16),
    "INT32": np.dtype(np.int32),
    "INT64": np.dtype(np.int64),
    "FP16": np.dtype("<f2"),
    "FP32": np.dtype("<f4"),
    "FP64": np.dtype("<f8"),
    "BYTES": np.dtype(np.object_),
}
"""NumPy dtype of each datatype. An element of BYTES is a ``bytes`` object."""

_NAMES = {dtype: name for name, dtype in DATATYPES.items()}

MAX_ELEMENT_BYTES = 1 << 20
"""Longest element of a BYTES tensor."""

_LENGTH_BYTES = 4
_COPIED_BELOW_BYTES = 16 * 1024


def datatype_of(dtype: np.dtype[Any]) -> str:
    """Return the KServe name of a NumPy dtype.

    Raises:
        InvalidRequestError: the protocol has no such datatype.
    """
    name = _NAMES.get(dtype)
    if name is not None:
        return name
    raise InvalidRequestError(f"expected a dtype the KServe protocol has, received {dtype}")


def decode_json(data: Any, datatype: str, shape: Sequence[int], where: str) -> Tensor:
    """Return the tensor of a JSON ``data`` field, flat in row-major order or nested as ``shape``.

    Args:
        data: parsed JSON.
        datatype: KServe name.
        shape: int[rank], sizes of the tensor.
        where: the field, for messages.

    Raises:
        InvalidRequestError: wrong count, nesting, type or range of the elements.
    """
    elements = _flatten(data, shape, where)
    count = math.prod(shape)
    if len(elements) != count:
        raise InvalidRequestError(
            f"expected {count} elements for shape {list(shape)}, received {len(elements)}", where=where
        )
    tensor = _packed(elements, datatype)
    if tensor is None:
        tensor = _from_elements(elements, datatype, where)
    return tensor.reshape(shape)


def _flatten(data: Any, shape: Sequence[int], where: str) -> list[Any]:
    if not isinstance(data, list):
        raise InvalidRequestError(f"expected a list of elements, received {_kind(data)}", where=where)
    elements: list[Any] = data
    if not elements or type(elements[0]) is not list:
        return elements
    for depth, size in enumerate(shape):
        if depth and not all(type(item) is list and len(item) == size for item in elements):
            raise InvalidRequestError(
                f"expected lists nested as shape {list(shape)}, or one flat list;"
                f" they differ at depth {depth + 1}",
                where=where,
            )
        if depth == 0:
            if len(elements) != size:
                raise InvalidRequestError(
                    f"expected {size} lists for shape {list(shape)}, received {len(elements)}", where=where
                )
            continue
        elements = list(chain.from_iterable(elements))
    return elements


def _packed(elements: list[Any], datatype: str) -> Tensor | None:
    """Return the tensor of numbers; None: `_from_elements` has to look at each element.

    `struct.pack` refuses what is no number, no integer or out of range, and takes a third of the time of
    NumPy's conversion. It takes booleans for 0 and 1.
    """
    code = _CODES.get(datatype)
    if code is None:
        return None
    try:
        packed = struct.pack(f"<{len(elements)}{code}", *elements)
    except (struct.error, OverflowError):
        return None
    tensor = np.frombuffer(packed, np.float64 if code == "d" else DATATYPES[datatype])
    may_be_booleans = len(elements) < _FEW_ELEMENTS or ((tensor == 0) | (tensor == 1)).any()
    if may_be_booleans and bool in set(map(type, elements)):
        return None
    return _narrowed(tensor, datatype) if code == "d" else tensor


def _narrowed(wide: Tensor, datatype: str) -> Tensor | None:
    """Return float64 numbers in a datatype; None where one may be out of its range."""
    with np.errstate(over="ignore", invalid="ignore"):
        # One product instead of a look at each element: where it is small, each of them is.
        if not wide.dot(wide) < _SAFE_SQUARES[datatype]:
            return None
    return wide.astype(DATATYPES[datatype], copy=False)


def _from_elements(elements: list[Any], datatype: str, where: str) -> Tensor:
    dtype = DATATYPES[datatype]
    kinds = set(map(type, elements))
    if datatype == "BYTES":
        _expect_kinds(kinds, {str}, "strings", datatype, where)
        tensor = np.empty(len(elements), dtype=np.object_)
        tensor[:] = [element.encode() for element in elements]
        return tensor
    if dtype.kind == "b":
        _expect_kinds(kinds, {bool}, "true and false", datatype, where)
        return np.array(elements, dtype=dtype)
    if dtype.kind in "iu":
        _expect_kinds(kinds, {int}, "integers", datatype, where)
        limits = np.iinfo(dtype)
        if elements and not (limits.min <= min(elements) and max(elements) <= limits.max):
            raise InvalidRequestError(
                f"expected {datatype} elements between {limits.min} and {limits.max},"
                f" received {min(elements)} to {max(elements)}",
                where=where,
            )
        return np.array(elements, dtype=dtype)
    _expect_kinds(kinds, _NUMBERS, "numbers", datatype, where)
    with np.errstate(over="ignore", invalid="ignore"):
        tensor = np.array(elements, dtype=np.float64).astype(dtype)
    if not np.isfinite(tensor).all():
        raise InvalidRequestError(
            f"expected finite {datatype} elements, received one out of range", where=where
        )
    return tensor


# Of fewer, a look at the type of each costs less than two comparisons of arrays.
_FEW_ELEMENTS = 256
_CODES = {
    "INT8": "b",
    "INT16": "h",
    "INT32": "i",
    "INT64": "q",
    "UINT8": "B",
    "UINT16": "H",
    "UINT32": "I",
    "UINT64": "Q",
    "FP16": "d",
    "FP32": "d",
    "FP64": "d",
}
_NUMBERS: frozenset[type] = frozenset({int, float})
_SAFE_SQUARES = {
    name: (float(np.finfo(DATATYPES[name]).max) / 2) ** 2 if name != "FP64" else 1e300
    for name in ("FP16", "FP32", "FP64")
}


def _expect_kinds(kinds: set[type], allowed: AbstractSet[type], what: str, datatype: str, where: str) -> None:
    if not kinds <= allowed:
        wrong = kinds - allowed
        names = sorted(_KIND_NAMES.get(kind, kind.__name__) for kind in wrong)
        raise InvalidRequestError(
            f"expected {what} for datatype {datatype}, received {' and '.join(names)}", where=where
        )


_KIND_NAMES: dict[type, str] = {
    bool: "true or false",
    dict: "an object",
    float: "a number with a fraction or beyond 64 bits",
    int: "an integer",
    list: "a list",
    str: "a string",
    type(None): "null",
}


def _kind(value: Any) -> str:
    return _KIND_NAMES.get(type(value), type(value).__name__)


def decode_binary(raw: memoryview, datatype: str, shape: Sequence[int], where: str) -> Tensor:
    """Return the tensor of a piece of the binary body; fixed-size datatypes are not copied.

    Args:
        raw: the bytes, little-endian, row-major; each element of BYTES follows its length (uint32).
        datatype: KServe name.
        shape: int[rank], sizes of the tensor.
        where: the field, for messages.

    Raises:
        InvalidRequestError: the bytes do not hold that tensor.
    """
    count = math.prod(shape)
    if datatype == "BYTES":
        return _decode_strings(raw, count, where).reshape(shape)
    dtype = DATATYPES[datatype]
    if len(raw) != count * dtype.itemsize:
        raise InvalidRequestError(
            f"expected {count * dtype.itemsize} bytes for {datatype} of shape {list(shape)},"
            f" received {len(raw)}",
            where=where,
        )
    if datatype == "BOOL" and count and max(raw) > 1:
        raise InvalidRequestError("expected bytes 0 and 1 for datatype BOOL, received another", where=where)
    tensor = np.frombuffer(raw, dtype=dtype).reshape(shape)
    # The JSON header before it has any length, so the numbers may lie at odd addresses.
    return tensor if tensor.flags.aligned else tensor.copy()


def _decode_strings(raw: memoryview, count: int, where: str) -> Tensor:
    elements: list[bytes] = []
    offset = 0
    while offset < len(raw):
        if len(elements) == count:
            raise InvalidRequestError(
                f"expected {count} BYTES elements, received {len(raw) - offset} bytes after them", where=where
            )
        if offset + _LENGTH_BYTES > len(raw):
            raise InvalidRequestError(
                f"expected a {_LENGTH_BYTES}-byte length at byte {offset},"
                f" received {len(raw) - offset} bytes",
                where=where,
            )
        (length,) = struct.unpack_from("<I", raw, offset)
        offset += _LENGTH_BYTES
        if length > MAX_ELEMENT_BYTES:
            raise InvalidRequestError(
                f"expected elements of at most {MAX_ELEMENT_BYTES} bytes, "
                f"element {len(elements)} has {length}",
                where=where,
            )
        if offset + length > len(raw):
            raise InvalidRequestError(
                f"expected {length} bytes for element {len(elements)}, received {len(raw) - offset}",
                where=where,
            )
        elements.append(bytes(raw[offset : offset + length]))
        offset += length
    if len(elements) != count:
        raise InvalidRequestError(f"expected {count} BYTES elements, received {len(elements)}", where=where)
    tensor = np.empty(count, dtype=np.object_)
    tensor[:] = elements
    return tensor


def encode_json(tensor: Tensor) -> Any:
    """Return the JSON ``data`` field of a tensor: its elements, flat in row-major order.

    Raises:
        InvalidRequestError: an element has no form in JSON: NaN, an infinity, bytes that are not UTF-8.
    """
    if tensor.dtype == np.object_:
        try:
            return [element.decode() for element in tensor.ravel()]
        except UnicodeDecodeError as error:
            raise InvalidRequestError(
                "expected UTF-8 text in a BYTES output asked for as JSON, received other bytes",
                hint="ask for it with the parameter binary_data",
            ) from error
    flat = np.ascontiguousarray(tensor).reshape(-1)
    if flat.dtype.kind == "f" and not np.isfinite(flat).all():
        place = int(np.flatnonzero(~np.isfinite(flat))[0])
        raise InvalidRequestError(
            "expected finite outputs, the only ones that JSON can hold, "
            f"the model returned {flat[place]} as element {place}",
            hint="ask for the output with the parameter binary_data",
        )
    return flat


def _is_copied(tensor: Tensor) -> bool:
    """Return whether a copy is better than the tensor's own memory.

    A small copy takes no longer than a view. A view of a much larger array, as joined calls share it, would
    keep all of that while its client does not read.
    """
    if tensor.nbytes < _COPIED_BELOW_BYTES:
        return True
    owner = tensor.base
    return isinstance(owner, np.ndarray) and owner.nbytes > 2 * tensor.nbytes


def encode_binary(tensor: Tensor) -> bytes | memoryview:
    """Return the bytes of a tensor: little-endian, row-major, elements of BYTES after their length.

    Returns:
        Of a large tensor its own memory, which must not be written to until it is sent.
    """
    if tensor.dtype != np.object_:
        if _is_copied(tensor):
            return tensor.tobytes()
        return np.ascontiguousarray(tensor).reshape(-1).view(np.uint8).data
    pieces: list[bytes] = []
    for element in tensor.ravel():
        pieces += (struct.pack("<I", len(element)), element)
    return b"".join(pieces)

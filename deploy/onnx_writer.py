"""Writes small ONNX models without the onnx package, which a serving installation does not have."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import numpy.typing as npt

__all__ = ["Node", "write_onnx"]

OPSET: Final = 20
_IR_VERSION: Final = 10

# Field numbers and element types of onnx.proto3.
_ELEMENT_TYPES: Final[Mapping[str, int]] = {
    "float32": 1,
    "uint8": 2,
    "int8": 3,
    "int32": 6,
    "int64": 7,
    "bool": 9,
    "float16": 10,
    "float64": 11,
}
_ATTRIBUTE_FLOAT, _ATTRIBUTE_INT, _ATTRIBUTE_INTS = 1, 2, 7

Tensors = Mapping[str, tuple[npt.DTypeLike, Sequence[int | str]]]


@dataclass(frozen=True)
class Node:
    """One node; attributes are integers, floats or lists of integers."""

    operator: str
    inputs: Sequence[str]
    outputs: Sequence[str]
    attributes: Mapping[str, int | float | Sequence[int]] = field(default_factory=dict)


def write_onnx(
    nodes: Iterable[Node],
    inputs: Tensors,
    outputs: Tensors,
    constants: Mapping[str, npt.NDArray[Any]] | None = None,
) -> bytes:
    """Return the content of an ``.onnx`` file, opset 20.

    Args:
        nodes: in the order of computation.
        inputs: dtype and shape by name; a dimension given by a name is of any size.
        outputs: the same for outputs.
        constants: arrays that nodes may name as inputs.
    """
    graph = b"".join(_message(1, _node(node)) for node in nodes)
    graph += _text(2, "graph")
    graph += b"".join(_message(5, _tensor(name, value)) for name, value in (constants or {}).items())
    graph += b"".join(_message(11, _value(name, *spec)) for name, spec in inputs.items())
    graph += b"".join(_message(12, _value(name, *spec)) for name, spec in outputs.items())
    return (
        _integer(1, _IR_VERSION) + _text(2, "graphbox") + _message(7, graph) + _message(8, _integer(2, OPSET))
    )


def _node(node: Node) -> bytes:
    attributes = b"".join(_message(5, _attribute(name, value)) for name, value in node.attributes.items())
    names = b"".join(_text(1, name) for name in node.inputs) + b"".join(
        _text(2, name) for name in node.outputs
    )
    return names + _text(4, node.operator) + attributes


def _attribute(name: str, value: float | Sequence[int]) -> bytes:
    if isinstance(value, int):
        return _text(1, name) + _integer(3, value) + _integer(20, _ATTRIBUTE_INT)
    if isinstance(value, float):
        number = _varint(2 << 3 | 5) + np.float32(value).tobytes()
        return _text(1, name) + number + _integer(20, _ATTRIBUTE_FLOAT)
    return _text(1, name) + b"".join(_integer(8, item) for item in value) + _integer(20, _ATTRIBUTE_INTS)


def _tensor(name: str, value: npt.NDArray[Any]) -> bytes:
    dimensions = b"".join(_integer(1, size) for size in value.shape)
    data = value.astype(value.dtype.newbyteorder("<"), copy=False).tobytes()
    return dimensions + _integer(2, _ELEMENT_TYPES[value.dtype.name]) + _text(8, name) + _message(9, data)


def _value(name: str, dtype: npt.DTypeLike, shape: Sequence[int | str]) -> bytes:
    sizes = (_text(2, size) if isinstance(size, str) else _integer(1, size) for size in shape)
    dimensions = b"".join(_message(1, size) for size in sizes)
    tensor = _integer(1, _ELEMENT_TYPES[np.dtype(dtype).name]) + _message(2, dimensions)
    return _text(1, name) + _message(2, _message(1, tensor))


def _text(number: int, value: str) -> bytes:
    return _message(number, value.encode())


def _message(number: int, content: bytes) -> bytes:
    return _varint(number << 3 | 2) + _varint(len(content)) + content


def _integer(number: int, value: int) -> bytes:
    return _varint(number << 3) + _varint(value & 0xFFFF_FFFF_FFFF_FFFF)


def _varint(value: int) -> bytes:
    encoded = bytearray()
    while value > 0x7F:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)

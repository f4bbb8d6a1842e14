"""Writes small ONNX models without the onnx package, which a serving installation does not have."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from graphbox.artifact.protobuf import integer_field, message_field, text_field, varint

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
    graph = b"".join(message_field(1, _node(node)) for node in nodes)
    graph += text_field(2, "graph")
    graph += b"".join(message_field(5, _tensor(name, value)) for name, value in (constants or {}).items())
    graph += b"".join(message_field(11, _value(name, *spec)) for name, spec in inputs.items())
    graph += b"".join(message_field(12, _value(name, *spec)) for name, spec in outputs.items())
    return (
        integer_field(1, _IR_VERSION)
        + text_field(2, "graphbox")
        + message_field(7, graph)
        + message_field(8, integer_field(2, OPSET))
    )


def _node(node: Node) -> bytes:
    attributes = b"".join(
        message_field(5, _attribute(name, value)) for name, value in node.attributes.items()
    )
    names = b"".join(text_field(1, name) for name in node.inputs) + b"".join(
        text_field(2, name) for name in node.outputs
    )
    return names + text_field(4, node.operator) + attributes


def _attribute(name: str, value: float | Sequence[int]) -> bytes:
    if isinstance(value, int):
        return text_field(1, name) + integer_field(3, value) + integer_field(20, _ATTRIBUTE_INT)
    if isinstance(value, float):
        number = varint(2 << 3 | 5) + np.float32(value).tobytes()
        return text_field(1, name) + number + integer_field(20, _ATTRIBUTE_FLOAT)
    return (
        text_field(1, name)
        + b"".join(integer_field(8, item) for item in value)
        + integer_field(20, _ATTRIBUTE_INTS)
    )


def _tensor(name: str, value: npt.NDArray[Any]) -> bytes:
    dimensions = b"".join(integer_field(1, size) for size in value.shape)
    data = value.astype(value.dtype.newbyteorder("<"), copy=False).tobytes()
    return (
        dimensions
        + integer_field(2, _ELEMENT_TYPES[value.dtype.name])
        + text_field(8, name)
        + message_field(9, data)
    )


def _value(name: str, dtype: npt.DTypeLike, shape: Sequence[int | str]) -> bytes:
    sizes = (text_field(2, size) if isinstance(size, str) else integer_field(1, size) for size in shape)
    dimensions = b"".join(message_field(1, size) for size in sizes)
    tensor = integer_field(1, _ELEMENT_TYPES[np.dtype(dtype).name]) + message_field(2, dimensions)
    return text_field(1, name) + message_field(2, message_field(1, tensor))

"""Refuses ONNX files of a few bytes that make a runtime allocate a huge tensor.

``ConstantOfShape`` of a constant shape, among others, is computed when a runtime loads the model: 16 bytes
become terabytes, and the system kills the process. ONNX Runtime also takes time and memory in proportion to
the sizes that a model declares. Sizes that a model computes are not known before it runs.
"""

from __future__ import annotations

import math
import struct
from typing import Final

from graphbox.artifact.protobuf import WireReader
from graphbox.errors import FormatError

__all__ = ["MAX_GENERATED_NUMBERS", "refuse_huge_tensors"]

MAX_GENERATED_NUMBERS: Final = 1 << 27
"""The largest number of elements that a node may make of constant sizes, and the largest declared size."""

_MAX_SIZES: Final = 64
_BYTES_OF_INT64: Final = 8

# Messages and fields of onnx.proto3 in which nodes and constants are: field number -> message.
_CHILDREN: Final[dict[str, dict[int, str]]] = {
    "Model": {7: "Graph", 25: "Function"},
    "Graph": {1: "Node", 5: "Tensor", 11: "Value", 12: "Value", 13: "Value", 15: "Sparse"},
    "Function": {7: "Node"},
    "Node": {5: "Attribute"},
    "Attribute": {6: "Graph", 11: "Graph", 22: "Sparse", 23: "Sparse"},
    "Value": {2: "Type"},
    "Type": {1: "TensorType"},
    "TensorType": {2: "Shape"},
    "Shape": {1: "Dimension"},
    "Dimension": {},
}
_NODE_INPUT, _NODE_OUTPUT, _NODE_OPERATOR, _NODE_ATTRIBUTE = 1, 2, 4, 5
_TENSOR_INT64, _TENSOR_NAME, _TENSOR_RAW = 7, 8, 9
_ATTRIBUTE_INT, _ATTRIBUTE_TENSOR, _ATTRIBUTE_INTS = 3, 5, 8
_SPARSE_SIZES: Final = 3
_DIMENSION_SIZE: Final = 1

_SIZES_INPUT: Final = {
    "ConstantOfShape": 0,
    "Expand": 1,
    "Tile": 1,
    "OneHot": 1,
    "Pad": 1,
    "Range": 1,
    "Resize": 3,
}
"""Operators, and which of their inputs has the sizes, or the length, of the result."""
_SIZES_ATTRIBUTE: Final = frozenset({"RandomNormal", "RandomUniform"})


def refuse_huge_tensors(model: bytes, where: str) -> None:
    """Check what nodes make of constant sizes, the sizes of sparse constants and those that are declared.

    Args:
        model: the content of an ``.onnx`` file, whose nesting is bounded.
        where: the file, named in messages.

    Raises:
        FormatError: a result would have more than `MAX_GENERATED_NUMBERS` elements, or the bytes are damaged.
    """
    reader = _SizesReader(model, where)
    reader.walk(0, len(model), "Model")
    reader.check()


class _SizesReader(WireReader):
    def __init__(self, model: bytes, where: str) -> None:
        super().__init__(model, where)
        self._constants: dict[str, tuple[int, ...]] = {}
        self._used: list[tuple[str, str]] = []

    def walk(self, start: int, stop: int, message: str) -> None:
        """Visit the messages in ``data[start:stop]``."""
        if message == "Tensor":
            self._constants[self._last_text(start, stop, _TENSOR_NAME)] = self._tensor(start, stop)
            return
        if message == "Sparse":
            self._refuse_huge("a sparse constant", self._integers(start, stop, _SPARSE_SIZES))
            return
        if message == "Node":
            self._add_node(start, stop)
        if message == "Dimension":
            self._refuse_huge("a dimension", self._integers(start, stop, _DIMENSION_SIZE))
        children = _CHILDREN[message]
        for field, wire_type, _, body, end in self._fields(start, stop):
            if wire_type == 2 and field in children:
                self.walk(body, end, children[field])

    def check(self) -> None:
        """Check what the nodes make of the constants, which may come after them."""
        for operator, name in self._used:
            self._refuse_huge(f"the operator {operator}", self._constants.get(name, ()))

    def _add_node(self, start: int, stop: int) -> None:
        operator = self._last_text(start, stop, _NODE_OPERATOR)
        if operator in _SIZES_INPUT:
            inputs = self._texts(start, stop, _NODE_INPUT)
            self._used += [(operator, name) for name in inputs[_SIZES_INPUT[operator] :][:1]]
        elif operator == "Constant" or operator in _SIZES_ATTRIBUTE:
            sizes = self._attribute_sizes(start, stop)
            if operator in _SIZES_ATTRIBUTE:
                self._refuse_huge(f"the operator {operator}", sizes)
            self._constants.update(dict.fromkeys(self._texts(start, stop, _NODE_OUTPUT), sizes))

    def _attribute_sizes(self, start: int, stop: int) -> tuple[int, ...]:
        """Return the integers of a node's attributes, in a tensor or by themselves."""
        sizes: tuple[int, ...] = ()
        for field, wire_type, _, body, end in self._fields(start, stop):
            if (field, wire_type) != (_NODE_ATTRIBUTE, 2):
                continue
            sizes += self._integers(body, end, _ATTRIBUTE_INTS) + self._integers(body, end, _ATTRIBUTE_INT)
            for number, kind, _, tensor, tensor_end in self._fields(body, end):
                if (number, kind) == (_ATTRIBUTE_TENSOR, 2):
                    sizes += self._tensor(tensor, tensor_end)
        return sizes

    def _tensor(self, start: int, stop: int) -> tuple[int, ...]:
        """Return the numbers of a small tensor, read as int64 whatever its type is."""
        numbers = self._integers(start, stop, _TENSOR_INT64)
        for field, wire_type, _, body, end in self._fields(start, stop):
            length = end - body
            if (field, wire_type) == (_TENSOR_RAW, 2) and length <= _MAX_SIZES * _BYTES_OF_INT64:
                count = length // _BYTES_OF_INT64
                numbers += struct.unpack(f"<{count}q", self._data[body : body + count * _BYTES_OF_INT64])
        return numbers[:_MAX_SIZES]

    def _integers(self, start: int, stop: int, wanted: int) -> tuple[int, ...]:
        """Return the integers of a repeated field, packed or not, at most `_MAX_SIZES`."""
        found: list[int] = []
        for field, wire_type, value, body, end in self._fields(start, stop):
            if field != wanted:
                continue
            if wire_type == 0:
                found.append(value)
            position = body if wire_type == 2 else end
            while position < end and len(found) < _MAX_SIZES:
                number, position = self._varint(position, end)
                found.append(number)
        return tuple(number - (1 << 64) if number >> 63 else number for number in found)

    def _texts(self, start: int, stop: int, wanted: int) -> list[str]:
        return [
            self._text(body, end)
            for field, wire_type, _, body, end in self._fields(start, stop)
            if (field, wire_type) == (wanted, 2)
        ]

    def _last_text(self, start: int, stop: int, wanted: int) -> str:
        return "".join(self._texts(start, stop, wanted)[-1:])

    def _refuse_huge(self, what: str, sizes: tuple[int, ...]) -> None:
        # The sizes of a padding are added to those of its input.
        positive = [size for size in sizes if size > 1]
        count = max(positive, default=0) if what.endswith(" Pad") else math.prod(positive)
        if count > MAX_GENERATED_NUMBERS:
            raise FormatError(
                f"expected at most {MAX_GENERATED_NUMBERS} elements that a model declares or makes at once, "
                f"received {what} with the sizes {', '.join(map(str, sizes[:8]))}",
                where=self._where,
            )

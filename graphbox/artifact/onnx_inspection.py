"""Reads just enough of an ONNX file, without the onnx package, to judge it before a runtime loads it.

A tensor of an ONNX model may say that its data lies in another file. Runtimes follow that, and checks of
it were circumvented again and again (CVE-2022-25882, CVE-2024-27318, CVE-2026-27489; sparse tensors,
attributes, subgraphs, functions). graphbox writes self-contained models and loads nothing else.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from graphbox.errors import FormatError

_MAX_DEPTH: Final = 64

# The fields of onnx.proto3 through which a TensorProto can be reached, by message: field number -> message.
_CHILDREN: Final[dict[str, dict[int, str]]] = {
    "Model": {7: "Graph", 20: "TrainingInfo", 25: "Function"},
    "TrainingInfo": {1: "Graph", 2: "Graph"},
    "Graph": {1: "Node", 5: "Tensor", 11: "ValueInfo", 15: "SparseTensor"},
    "Function": {7: "FunctionNode", 11: "Attribute"},
    "Node": {5: "Attribute"},
    "FunctionNode": {5: "Attribute"},
    "Attribute": {5: "Tensor", 6: "Graph", 10: "Tensor", 11: "Graph", 22: "SparseTensor", 23: "SparseTensor"},
    "SparseTensor": {1: "Tensor", 2: "Tensor"},
    "Tensor": {},
    "ValueInfo": {},
}
_MODEL_GRAPH: Final = 7
_NODE_INPUT, _NODE_OUTPUT, _NODE_OPERATOR = 1, 2, 4
_TENSOR_EXTERNAL_DATA, _TENSOR_DATA_LOCATION = 13, 14
_VALUE_INFO_NAME: Final = 1

_GATHERS: Final = frozenset({"Gather", "GatherElements", "GatherND"})
_KEEPS_VALUES: Final = frozenset(
    {
        "Cast",
        "Flatten",
        "Identity",
        "Reshape",
        "Squeeze",
        "Transpose",
        "Unsqueeze",
        "Slice",
        "Concat",
        "Expand",
    }
)
_DYNAMIC_INT8: Final = frozenset({"DynamicQuantizeLinear", "MatMulInteger", "DynamicQuantizeMatMul"})
_STATIC_INT8: Final = frozenset({"QuantizeLinear", "QLinearMatMul", "QGemm", "QLinearConv"})


@dataclass(frozen=True, slots=True)
class OnnxNode:
    """One node of the main graph."""

    operator: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class OnnxSummary:
    """What was found in a model.

    Attributes:
        operators: every operator used, in subgraphs and functions too.
        nodes: of the main graph, in order.
        inputs: names of the main graph's inputs.
    """

    operators: frozenset[str]
    nodes: tuple[OnnxNode, ...]
    inputs: tuple[str, ...]

    @property
    def precision(self) -> str:
        """``int8_dynamic``, ``int8_static`` or ``float32``: what its matrix products are computed in."""
        if self.operators & _DYNAMIC_INT8:
            return "int8_dynamic"
        return "int8_static" if self.operators & _STATIC_INT8 else "float32"

    @property
    def index_inputs(self) -> frozenset[str]:
        """The inputs whose values a Gather uses as positions: -1 there means the last row, silently."""
        comes_from: dict[str, set[str]] = {name: {name} for name in self.inputs}
        found: set[str] = set()
        for node in self.nodes:
            if node.operator in _KEEPS_VALUES:
                origins = set().union(*(comes_from.get(name, set()) for name in node.inputs))
                comes_from.update((name, origins) for name in node.outputs)
            if node.operator in _GATHERS and len(node.inputs) > 1:
                found |= comes_from.get(node.inputs[1], set())
        return frozenset(found)


def inspect_onnx(model: bytes, where: str) -> OnnxSummary:
    """Read a model's operators and inputs, and check that its every tensor carries its own data.

    Args:
        model: the content of an ``.onnx`` file.
        where: the file, named in messages.

    Raises:
        FormatError: when a tensor's data lies in another file, or the bytes are no ONNX model.
    """
    inspection = _Inspection(model, where)
    if _MODEL_GRAPH not in inspection.walk(0, len(model), "Model", 0):
        raise FormatError("expected an ONNX model, received bytes without a graph", where=where)
    return OnnxSummary(frozenset(inspection.operators), tuple(inspection.nodes), tuple(inspection.inputs))


class _Inspection:
    """One pass over the protobuf wire format of a model."""

    def __init__(self, model: bytes, where: str) -> None:
        self._data = memoryview(model)
        self._where = where
        self.operators: set[str] = set()
        self.nodes: list[OnnxNode] = []
        self.inputs: list[str] = []

    def walk(self, start: int, stop: int, message: str, depth: int) -> dict[int, list[str]]:
        """Visit one message in ``data[start:stop]``; return its fields, with the text of a node's."""
        if depth > _MAX_DEPTH:
            raise FormatError(
                f"expected at most {_MAX_DEPTH} nested messages, received more", where=self._where
            )
        children = _CHILDREN[message]
        fields: dict[int, list[str]] = {}
        position = start
        while position < stop:
            field, wire_type, value, body, position = self._field(position, stop)
            texts = fields.setdefault(field, [])
            if message == "Tensor":
                self._refuse_external(field, value)
            elif wire_type == 2 and field in children:
                self.walk(body, position, children[field], depth + 1)
            elif wire_type == 2 and message in {"Node", "FunctionNode", "ValueInfo"}:
                texts.append(bytes(self._data[body:position]).decode("utf-8", "replace"))
        # Model -> Graph -> Node is depth 2: the main graph.
        if message in {"Node", "FunctionNode"}:
            self._add_node(fields, main=message == "Node" and depth == 2)
        elif message == "ValueInfo" and depth == 2:
            self.inputs += fields.get(_VALUE_INFO_NAME, [])
        return fields

    def _add_node(self, fields: dict[int, list[str]], main: bool) -> None:
        operator = "".join(fields.get(_NODE_OPERATOR, [])[-1:])
        self.operators.add(operator)
        if main:
            inputs, outputs = (tuple(fields.get(field, [])) for field in (_NODE_INPUT, _NODE_OUTPUT))
            self.nodes.append(OnnxNode(operator, inputs, outputs))

    def _refuse_external(self, field: int, value: int) -> None:
        if field == _TENSOR_EXTERNAL_DATA or (field == _TENSOR_DATA_LOCATION and value):
            raise FormatError(
                "expected a model that holds its own data, received a tensor whose data lies in another file",
                where=self._where,
                hint="save the model with its data inside (onnx.save without save_as_external_data)",
            )

    def _field(self, position: int, stop: int) -> tuple[int, int, int, int, int]:
        """Read one field: its number, wire type, value when it is a varint, start of its body, end."""
        key, body = self._varint(position, stop)
        field, wire_type, value = key >> 3, key & 7, 0
        if wire_type == 0:
            value, end = self._varint(body, stop)
        elif wire_type == 2:
            length, body = self._varint(body, stop)
            end = body + length
        elif wire_type in {1, 5}:
            end = body + (8 if wire_type == 1 else 4)
        else:
            raise FormatError(
                f"expected an ONNX model, received the protobuf wire type {wire_type}", where=self._where
            )
        if end > stop or key >> 32:
            raise FormatError(
                "expected a whole ONNX model, received a truncated or damaged one", where=self._where
            )
        return field, wire_type, value, body, end

    def _varint(self, position: int, stop: int) -> tuple[int, int]:
        value = 0
        for shift in range(0, 70, 7):
            if position >= stop:
                break
            byte = self._data[position]
            position += 1
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value, position
        raise FormatError(
            "expected a whole ONNX model, received a truncated or damaged one", where=self._where
        )

"""Inspects an ONNX file before a runtime loads it, without the onnx package.

A tensor of an ONNX model may say that its data lies in another file. Runtimes follow that, and checks of
it were circumvented again and again (CVE-2022-25882, CVE-2024-27318, CVE-2026-27489; sparse tensors,
attributes, subgraphs, functions). graphbox writes self-contained models and loads nothing else.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from graphbox.artifact.manifest import Datatype, TensorSpec
from graphbox.errors import FormatError, UnsupportedError

_MAX_DEPTH: Final = 64

# The fields of onnx.proto3 through which a TensorProto can be reached, by message: field number -> message.
_CHILDREN: Final[dict[str, dict[int, str]]] = {
    "Model": {7: "Graph", 20: "TrainingInfo", 25: "Function"},
    "TrainingInfo": {1: "Graph", 2: "Graph"},
    "Graph": {1: "Node", 5: "Tensor", 11: "ValueInfo", 12: "ValueInfo", 15: "SparseTensor"},
    "Function": {7: "FunctionNode", 11: "Attribute"},
    "Node": {5: "Attribute"},
    "FunctionNode": {5: "Attribute"},
    "Attribute": {5: "Tensor", 6: "Graph", 10: "Tensor", 11: "Graph", 22: "SparseTensor", 23: "SparseTensor"},
    "SparseTensor": {1: "Tensor", 2: "Tensor"},
    "Tensor": {},
    "ValueInfo": {},
}
_MODEL_GRAPH: Final = 7
_NODE_INPUT, _NODE_OUTPUT, _NODE_OPERATOR, _NODE_ATTRIBUTE = 1, 2, 4, 5
_TENSOR_EXTERNAL_DATA, _TENSOR_DATA_LOCATION = 13, 14
_GRAPH_CONSTANT, _GRAPH_INPUT, _GRAPH_OUTPUT = 5, 11, 12
_VALUE_INFO_NAME, _TENSOR_NAME, _TENSOR_SIZES = 1, 8, 1
# ValueInfo.type -> Type.tensor_type -> Tensor.shape -> Shape.dim
_PATH_TO_DIMENSION: Final = (2, 1, 2, 1)
_PATH_TO_ELEMENT_TYPE: Final = (2, 1, 1)
_DIMENSION_SIZE, _DIMENSION_NAME = 1, 2
# TensorProto.DataType
_DATATYPE_OF: Final[Mapping[int, Datatype]] = {
    1: "FP32",
    2: "UINT8",
    3: "INT8",
    6: "INT32",
    7: "INT64",
    9: "BOOL",
    10: "FP16",
    11: "FP64",
}
_ATTRIBUTE_NAME, _ATTRIBUTE_INTEGER = 1, 3

_GATHERS: Final = frozenset({"Gather", "GatherElements", "GatherND"})
# Operators whose integer results are no longer the positions that went in. Every other operator is taken to
# move or select values, so that an input is checked rather than trusted.
_COMPUTES_VALUES: Final = frozenset(
    {
        *("Abs", "Add", "And", "ArgMax", "ArgMin", "BitShift", "BitwiseAnd", "BitwiseNot", "BitwiseOr"),
        *("BitwiseXor", "Ceil", "Clip", "CumSum", "Div", "Equal", "Floor", "Gemm", "Greater"),
        *("GreaterOrEqual", "Less", "LessOrEqual", "MatMul", "MatMulInteger", "Max", "Min", "Mod", "Mul"),
        *("Neg", "NonZero", "Not", "OneHot", "Or", "Pow", "Relu", "Round", "Shape", "Sign", "Size", "Sub"),
        *("Sum", "TopK", "Xor"),
    }
)
_DYNAMIC_INT8: Final = frozenset({"DynamicQuantizeLinear", "MatMulInteger", "DynamicQuantizeMatMul"})
_STATIC_INT8: Final = frozenset({"QuantizeLinear", "QLinearMatMul", "QGemm", "QLinearConv"})

Dimension = str | int
"""A size, or the name of a size that is free; an empty name where it has none."""


@dataclass(frozen=True, slots=True)
class OnnxNode:
    """One node of the main graph.

    Attributes:
        operator: its type.
        inputs: names of tensors.
        outputs: names of tensors.
        axis: the attribute ``axis``, 0 by default.
    """

    operator: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    axis: int = 0


@dataclass(frozen=True, slots=True)
class IndexBound:
    """The number of rows that positions select from.

    Attributes:
        size: of a constant; None where the rows are an input.
        tensor: name of that input.
        axis: of that input.
    """

    size: int | None
    tensor: str = ""
    axis: int = 0


@dataclass(frozen=True, slots=True)
class OnnxSummary:
    """Operators, inputs and constants of a model.

    Attributes:
        operators: every operator used, in subgraphs and functions too.
        nodes: of the main graph, in order.
        dimensions: of each input of the main graph, by name.
        output_dimensions: of each output of the main graph, by name.
        constants: sizes of each initializer of the main graph, by name.
        element_types: of each input and output of the main graph, by name: a number of the format.
    """

    operators: frozenset[str]
    nodes: tuple[OnnxNode, ...]
    dimensions: Mapping[str, tuple[Dimension, ...]]
    output_dimensions: Mapping[str, tuple[Dimension, ...]]
    constants: Mapping[str, tuple[int, ...]]
    element_types: Mapping[str, int]

    @property
    def input_tensors(self) -> tuple[TensorSpec, ...]:
        """The inputs as tensors.

        Raises:
            UnsupportedError: one is no tensor of numbers.
        """
        return tuple(self._tensor(name, sizes) for name, sizes in self.dimensions.items())

    @property
    def output_tensors(self) -> tuple[TensorSpec, ...]:
        """The outputs as tensors; see :attr:`input_tensors`."""
        return tuple(self._tensor(name, sizes) for name, sizes in self.output_dimensions.items())

    def _tensor(self, name: str, sizes: tuple[Dimension, ...]) -> TensorSpec:
        number = self.element_types.get(name, 0)
        if number not in _DATATYPE_OF:
            raise UnsupportedError(
                f"expected a tensor of type {', '.join(_DATATYPE_OF.values())}, received the type {number} "
                "of ONNX",
                where=f"tensor `{name}`",
            )
        shape = tuple(size if isinstance(size, int) else -1 for size in sizes)
        return TensorSpec(name=name, datatype=_DATATYPE_OF[number], shape=shape)

    @property
    def inputs(self) -> tuple[str, ...]:
        """Names of the main graph's inputs."""
        return tuple(self.dimensions)

    @property
    def precision(self) -> str:
        """``int8_dynamic``, ``int8_static`` or ``float32``: the precision of its matrix products."""
        if self.operators & _DYNAMIC_INT8:
            return "int8_dynamic"
        return "int8_static" if self.operators & _STATIC_INT8 else "float32"

    @property
    def index_inputs(self) -> Mapping[str, tuple[IndexBound, ...]]:
        """The inputs whose values a Gather uses as positions, with the bounds that are known.

        A Gather reads -1 as the last row, and not every runtime checks the upper bound.
        """
        origins: dict[str, set[str]] = {name: {name} for name in self.dimensions}
        found: dict[str, list[IndexBound]] = {}
        for node in self.nodes:
            if node.operator in _GATHERS and len(node.inputs) > 1:
                bound = self._bound(node)
                for name in origins.get(node.inputs[1], ()):
                    found.setdefault(name, []).extend([bound] if bound else [])
            if node.operator in _COMPUTES_VALUES:
                continue
            passed = node.inputs[:1] if node.operator in _GATHERS else node.inputs
            origin = set().union(*(origins.get(name, set()) for name in passed))
            origins.update((name, origin) for name in node.outputs)
        return {name: tuple(dict.fromkeys(bounds)) for name, bounds in found.items()}

    def _bound(self, node: OnnxNode) -> IndexBound | None:
        rows = node.inputs[0]
        if node.operator == "GatherND":
            return None
        sizes = self.dimensions.get(rows) or self.constants.get(rows)
        if sizes is None or not -len(sizes) <= node.axis < len(sizes):
            return None
        axis = node.axis % len(sizes)
        return IndexBound(None, rows, axis) if rows in self.dimensions else IndexBound(int(sizes[axis]))


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
    return OnnxSummary(
        frozenset(inspection.operators),
        tuple(inspection.nodes),
        inspection.inputs,
        inspection.outputs,
        inspection.constants,
        inspection.element_types,
    )


class _Inspection:
    """One pass over the protobuf wire format of a model."""

    def __init__(self, model: bytes, where: str) -> None:
        self._data = memoryview(model)
        self._where = where
        self.operators: set[str] = set()
        self.nodes: list[OnnxNode] = []
        self.inputs: dict[str, tuple[Dimension, ...]] = {}
        self.outputs: dict[str, tuple[Dimension, ...]] = {}
        self.constants: dict[str, tuple[int, ...]] = {}
        self.element_types: dict[str, int] = {}

    def walk(self, start: int, stop: int, message: str, depth: int) -> dict[int, list[str]]:
        """Visit one message in ``data[start:stop]``; return its fields, with the text of a node's."""
        if depth > _MAX_DEPTH:
            raise FormatError(
                f"expected at most {_MAX_DEPTH} nested messages, received more", where=self._where
            )
        children = _CHILDREN[message]
        fields: dict[int, list[str]] = {}
        for field, wire_type, value, body, end in self._fields(start, stop):
            texts = fields.setdefault(field, [])
            if message == "Tensor":
                self._refuse_external(field, value)
            elif wire_type == 2 and field in children:
                self.walk(body, end, children[field], depth + 1)
            elif wire_type == 2 and message in {"Node", "FunctionNode"}:
                texts.append(self._text(body, end))
            # Model -> Graph is depth 1: the main graph.
            if wire_type == 2 and message == "Graph" and depth == 1:
                self._add_tensor(field, body, end)
        if message in {"Node", "FunctionNode"}:
            self._add_node(fields, start, stop, main=message == "Node" and depth == 2)
        return fields

    def _add_node(self, fields: dict[int, list[str]], start: int, stop: int, *, main: bool) -> None:
        operator = "".join(fields.get(_NODE_OPERATOR, [])[-1:])
        self.operators.add(operator)
        if main:
            inputs, outputs = (tuple(fields.get(field, [])) for field in (_NODE_INPUT, _NODE_OUTPUT))
            self.nodes.append(OnnxNode(operator, inputs, outputs, self._axis(start, stop)))

    def _axis(self, start: int, stop: int) -> int:
        for field, wire_type, _, body, end in self._fields(start, stop):
            if field == _NODE_ATTRIBUTE and wire_type == 2:
                name, integer = "", 0
                for number, kind, value, text, text_end in self._fields(body, end):
                    if number == _ATTRIBUTE_NAME and kind == 2:
                        name = self._text(text, text_end)
                    elif number == _ATTRIBUTE_INTEGER and kind == 0:
                        integer = value - (1 << 64) if value >> 63 else value
                if name == "axis":
                    return integer
        return 0

    def _add_tensor(self, field: int, start: int, stop: int) -> None:
        """Note the sizes of an input, an output or a constant of the main graph."""
        if field in {_GRAPH_INPUT, _GRAPH_OUTPUT}:
            sizes = self.inputs if field == _GRAPH_INPUT else self.outputs
            name = self._name(start, stop, _VALUE_INFO_NAME)
            sizes[name] = tuple(self._dimensions(start, stop))
            self.element_types[name] = self._element_type(start, stop)
        elif field == _GRAPH_CONSTANT:
            self.constants[self._name(start, stop, _TENSOR_NAME)] = tuple(self._sizes(start, stop))

    def _name(self, start: int, stop: int, number: int) -> str:
        names = [
            self._text(body, end)
            for field, wire_type, _, body, end in self._fields(start, stop)
            if field == number and wire_type == 2
        ]
        return "".join(names[-1:])

    def _dimensions(self, start: int, stop: int, level: int = 0) -> Iterator[Dimension]:
        for field, wire_type, _, body, end in self._fields(start, stop):
            if field != _PATH_TO_DIMENSION[level] or wire_type != 2:
                continue
            if level + 1 < len(_PATH_TO_DIMENSION):
                yield from self._dimensions(body, end, level + 1)
                continue
            size: Dimension = ""
            for number, kind, value, text, text_end in self._fields(body, end):
                if number == _DIMENSION_SIZE and kind == 0:
                    size = value
                elif number == _DIMENSION_NAME and kind == 2:
                    size = self._text(text, text_end)
            yield size

    def _element_type(self, start: int, stop: int, level: int = 0) -> int:
        found = 0
        for field, wire_type, value, body, end in self._fields(start, stop):
            if field == _PATH_TO_ELEMENT_TYPE[level]:
                if level + 1 < len(_PATH_TO_ELEMENT_TYPE) and wire_type == 2:
                    found = self._element_type(body, end, level + 1)
                elif wire_type == 0:
                    found = value
        return found

    def _sizes(self, start: int, stop: int) -> Iterator[int]:
        for field, wire_type, value, body, end in self._fields(start, stop):
            if field == _TENSOR_SIZES and wire_type == 0:
                yield value
            elif field == _TENSOR_SIZES and wire_type == 2:
                position = body
                while position < end:
                    size, position = self._varint(position, end)
                    yield size

    def _text(self, start: int, stop: int) -> str:
        return bytes(self._data[start:stop]).decode("utf-8", "replace")

    def _fields(self, start: int, stop: int) -> Iterator[tuple[int, int, int, int, int]]:
        while start < stop:
            field, wire_type, value, body, start = self._field(start, stop)
            yield field, wire_type, value, body, start

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

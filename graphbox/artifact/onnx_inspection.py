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
from graphbox.artifact.onnx_order import check_order
from graphbox.artifact.onnx_sizes import refuse_huge_tensors
from graphbox.artifact.protobuf import WireReader
from graphbox.errors import FormatError, UnsupportedError

MAX_DEPTH: Final = 64

# The fields of onnx.proto3 through which a TensorProto can be reached, by message: field number -> message.
CHILDREN: Final[dict[str, dict[int, str]]] = {
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
MODEL_GRAPH, _MODEL_OPSET = 7, 8
_OPSET_DOMAIN, _OPSET_VERSION = 1, 2
_NODE_INPUT, _NODE_OUTPUT, _NODE_OPERATOR, _NODE_ATTRIBUTE, _NODE_DOMAIN = 1, 2, 4, 5, 7
_NODE_NAME: Final = 3
_NODE_TEXTS: Final = frozenset({_NODE_INPUT, _NODE_OUTPUT, _NODE_NAME, _NODE_OPERATOR, _NODE_DOMAIN})
_FUNCTION_DOMAIN = 10
_TENSOR_EXTERNAL_DATA, _TENSOR_DATA_LOCATION = 13, 14
_GRAPH_CONSTANT, _GRAPH_INPUT, _GRAPH_OUTPUT, _GRAPH_SPARSE = 5, 11, 12, 15
_SPARSE_VALUES, _SPARSE_SIZES = 1, 3
_VALUE_INFO_NAME, _TENSOR_NAME, _TENSOR_SIZES, _TENSOR_TYPE = 1, 8, 1, 2
# ValueInfo.type -> Type.tensor_type -> Tensor.shape -> Shape.dim
_PATH_TO_DIMENSION: Final = (2, 1, 2, 1)
_PATH_TO_ELEMENT_TYPE: Final = (2, 1, 1)
_PATH_TO_SHAPE: Final = (2, 1, 2)
_DIMENSION_SIZE, _DIMENSION_NAME = 1, 2
# TensorProto.DataType
_DATATYPE_OF: Final[Mapping[int, Datatype]] = {
    1: "FP32",
    2: "UINT8",
    3: "INT8",
    4: "UINT16",
    5: "INT16",
    6: "INT32",
    7: "INT64",
    9: "BOOL",
    10: "FP16",
    11: "FP64",
    12: "UINT32",
    13: "UINT64",
}
_UNSUPPORTED_TYPES: Final[Mapping[int, str]] = {
    0: "a sequence, a map or another type that is no tensor",
    8: "STRING",
    14: "COMPLEX64",
    15: "COMPLEX128",
    16: "BFLOAT16",
}
_LONGEST_NAME: Final = 256  # of `TensorSpec`
_FLOATS: Final[Mapping[int, str]] = {10: "float16", 16: "bfloat16", 1: "float32", 11: "float64"}
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
_DYNAMIC_RANGE: Final = "DynamicQuantize"
_STATIC_INT8: Final = frozenset({"QuantizeLinear", "QLinearMatMul", "QGemm", "QLinearConv"})
_BLOCK_PRODUCTS: Final = frozenset({"MatMulNBits"})
_DEFAULT_BLOCK_BITS: Final = 4

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
        weight_types: of the initializers of two dimensions and more: numbers of the format.
        unranked: names of the inputs and outputs of the main graph that say nothing of their shape.
        opsets: version of each set of operators, by its domain; ``""`` is ONNX's own.
        domains: of all operators in use, by name of the operator.
        function_domains: of the functions that the model brings.
        block_weight_bits: bits of the weights of products that expand them themselves (MatMulNBits).
    """

    operators: frozenset[str]
    nodes: tuple[OnnxNode, ...]
    dimensions: Mapping[str, tuple[Dimension, ...]]
    output_dimensions: Mapping[str, tuple[Dimension, ...]]
    constants: Mapping[str, tuple[int, ...]]
    element_types: Mapping[str, int]
    weight_types: frozenset[int]
    unranked: frozenset[str]
    opsets: Mapping[str, int]
    domains: Mapping[str, frozenset[str]]
    function_domains: frozenset[str]
    block_weight_bits: frozenset[int] = frozenset()

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
                f"expected a tensor of type {', '.join(_DATATYPE_OF.values())}, received "
                f"{_UNSUPPORTED_TYPES.get(number, f'the type {number} of ONNX')}",
                where=f"tensor `{name}`",
            )
        if not 1 <= len(name) <= _LONGEST_NAME:
            raise UnsupportedError(
                f"expected a name of 1 to {_LONGEST_NAME} characters for each input and output, received "
                f"{len(name)}",
                where=f"tensor {name[:40]!r}",
            )
        shape = tuple(size if isinstance(size, int) else -1 for size in sizes)
        return TensorSpec(name=name, datatype=_DATATYPE_OF[number], shape=shape)

    @property
    def inputs(self) -> tuple[str, ...]:
        """Names of the main graph's inputs."""
        return tuple(self.dimensions)

    @property
    def precision(self) -> str:
        """The precision of its matrix products, from its operators and the types of its weights.

        ``int4_weights``, ``int8_dynamic``, ``int8_static``, ``int8_weights``, ``float16``, ``bfloat16``,
        ``float32`` or ``float64``; the least precise where there are several.
        """
        bits = min(self.block_weight_bits, default=None)
        if bits is not None and bits < 8:
            return f"int{bits}_weights"
        if self.operators & _DYNAMIC_INT8:
            return "int8_dynamic"
        if self.operators & _STATIC_INT8:
            return "int8_static"
        if bits is not None:
            return f"int{bits}_weights"
        found = [name for number, name in _FLOATS.items() if number in self.weight_types]
        return found[0] if found else "float32"

    @property
    def quantizes_whole_tensors(self) -> bool:
        """Whether it quantizes a whole tensor over one range at run time, so that rows change each other."""
        return any(name.startswith(_DYNAMIC_RANGE) for name in self.operators)

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
        FormatError: when a tensor's data lies in another file, a node makes a huge tensor of constant sizes
            or reads what is computed later, or the bytes are no ONNX model.
    """
    inspection = _Inspection(model, where)
    if MODEL_GRAPH not in inspection.walk(0, len(model), "Model", 0):
        raise FormatError("expected an ONNX model, received bytes without a graph", where=where)
    check_order(model, where)
    refuse_huge_tensors(model, where)
    return OnnxSummary(
        frozenset(inspection.operators),
        tuple(inspection.nodes),
        # Before version 4 of the format, each constant was an input as well.
        {name: sizes for name, sizes in inspection.inputs.items() if name not in inspection.constants},
        inspection.outputs,
        inspection.constants,
        inspection.element_types,
        frozenset(inspection.weight_types),
        frozenset(inspection.unranked),
        inspection.opsets,
        {operator: frozenset(domains) for operator, domains in inspection.domains.items()},
        frozenset(inspection.function_domains),
        frozenset(inspection.block_weight_bits),
    )


class _Inspection(WireReader):
    """One pass over the protobuf wire format of a model."""

    def __init__(self, model: bytes, where: str) -> None:
        super().__init__(model, where)
        self.operators: set[str] = set()
        self.nodes: list[OnnxNode] = []
        self.inputs: dict[str, tuple[Dimension, ...]] = {}
        self.outputs: dict[str, tuple[Dimension, ...]] = {}
        self.constants: dict[str, tuple[int, ...]] = {}
        self.element_types: dict[str, int] = {}
        self.weight_types: set[int] = set()
        self.unranked: set[str] = set()
        self.opsets: dict[str, int] = {}
        self.domains: dict[str, set[str]] = {}
        self.function_domains: set[str] = set()
        self.block_weight_bits: set[int] = set()

    def walk(self, start: int, stop: int, message: str, depth: int) -> dict[int, list[str]]:
        """Visit one message in ``data[start:stop]``; return its fields, with the text of a node's."""
        if depth > MAX_DEPTH:
            raise FormatError(
                f"expected at most {MAX_DEPTH} nested messages, received more", where=self._where
            )
        children = CHILDREN[message]
        fields: dict[int, list[str]] = {}
        for field, wire_type, value, body, end in self._fields(start, stop):
            texts = fields.setdefault(field, [])
            if message == "Tensor":
                self._refuse_external(field, value)
            elif wire_type == 2 and field in children:
                self.walk(body, end, children[field], depth + 1)
            elif wire_type == 2 and message in {"Node", "FunctionNode"} and field in _NODE_TEXTS:
                texts.append(self._text(body, end))
            elif wire_type == 2 and (message, field) == ("Function", _FUNCTION_DOMAIN):
                self.function_domains.add(self._text(body, end))
            elif wire_type == 2 and (message, field) == ("Model", _MODEL_OPSET):
                self._add_opset(body, end)
            # Model -> Graph is depth 1: the main graph.
            if wire_type == 2 and message == "Graph" and depth == 1:
                self._add_tensor(field, body, end)
        if message in {"Node", "FunctionNode"}:
            self._add_node(fields, start, stop, main=message == "Node" and depth == 2)
        return fields

    def _add_node(self, fields: dict[int, list[str]], start: int, stop: int, *, main: bool) -> None:
        operator, domain = ("".join(fields.get(field, [])[-1:]) for field in (_NODE_OPERATOR, _NODE_DOMAIN))
        self.operators.add(operator)
        self.domains.setdefault(operator, set()).add(domain)
        if operator in _BLOCK_PRODUCTS:
            bits = self._integer_attribute(start, stop, "bits", _DEFAULT_BLOCK_BITS)
            self.block_weight_bits.add(bits if 0 < bits <= 8 else _DEFAULT_BLOCK_BITS)
        if main:
            inputs, outputs = (tuple(fields.get(field, [])) for field in (_NODE_INPUT, _NODE_OUTPUT))
            axis = self._integer_attribute(start, stop, "axis", 0)
            self.nodes.append(OnnxNode(operator, inputs, outputs, axis))

    def _integer_attribute(self, start: int, stop: int, wanted: str, default: int) -> int:
        for field, wire_type, _, body, end in self._fields(start, stop):
            if field == _NODE_ATTRIBUTE and wire_type == 2:
                name, integer = "", 0
                for number, kind, value, text, text_end in self._fields(body, end):
                    if number == _ATTRIBUTE_NAME and kind == 2:
                        name = self._text(text, text_end)
                    elif number == _ATTRIBUTE_INTEGER and kind == 0:
                        integer = value - (1 << 64) if value >> 63 else value
                if name == wanted:
                    return integer
        return default

    def _add_tensor(self, field: int, start: int, stop: int) -> None:
        """Note the sizes of an input, an output or a constant of the main graph."""
        if field in {_GRAPH_INPUT, _GRAPH_OUTPUT}:
            sizes = self.inputs if field == _GRAPH_INPUT else self.outputs
            name = self._name(start, stop, _VALUE_INFO_NAME)
            if name in sizes:
                raise FormatError(
                    f"expected inputs and outputs of different names, received `{name:.100}` twice",
                    where=self._where,
                )
            sizes[name] = tuple(self._dimensions(start, stop))
            self.element_types[name] = self._element_type(start, stop)
            if not self._has_shape(start, stop):
                self.unranked.add(name)
        elif field == _GRAPH_CONSTANT:
            shape = tuple(self._sizes(start, stop))
            self.constants[self._name(start, stop, _TENSOR_NAME)] = shape
            if len(shape) >= 2:
                self.weight_types |= {
                    value
                    for number, wire_type, value, _, _ in self._fields(start, stop)
                    if (number, wire_type) == (_TENSOR_TYPE, 0)
                }
        elif field == _GRAPH_SPARSE:
            for number, wire_type, _, body, end in self._fields(start, stop):
                if (number, wire_type) == (_SPARSE_VALUES, 2):
                    name = self._name(body, end, _TENSOR_NAME)
                    self.constants[name] = tuple(self._sizes(start, stop, _SPARSE_SIZES))

    def _add_opset(self, start: int, stop: int) -> None:
        domain, version = "", 0
        for field, wire_type, value, body, end in self._fields(start, stop):
            if (field, wire_type) == (_OPSET_DOMAIN, 2):
                domain = self._text(body, end)
            elif (field, wire_type) == (_OPSET_VERSION, 0):
                version = value
        self.opsets["" if domain == "ai.onnx" else domain] = version

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

    def _has_shape(self, start: int, stop: int, level: int = 0) -> bool:
        return any(
            level == len(_PATH_TO_SHAPE) - 1 or self._has_shape(body, end, level + 1)
            for field, wire_type, _, body, end in self._fields(start, stop)
            if field == _PATH_TO_SHAPE[level] and wire_type == 2
        )

    def _element_type(self, start: int, stop: int, level: int = 0) -> int:
        found = 0
        for field, wire_type, value, body, end in self._fields(start, stop):
            if field == _PATH_TO_ELEMENT_TYPE[level]:
                if level + 1 < len(_PATH_TO_ELEMENT_TYPE) and wire_type == 2:
                    found = self._element_type(body, end, level + 1)
                elif wire_type == 0:
                    found = value
        return found

    def _sizes(self, start: int, stop: int, number: int = _TENSOR_SIZES) -> Iterator[int]:
        for field, wire_type, value, body, end in self._fields(start, stop):
            if field == number and wire_type == 0:
                yield value
            elif field == number and wire_type == 2:
                position = body
                while position < end:
                    size, position = self._varint(position, end)
                    yield size

    def _refuse_external(self, field: int, value: int) -> None:
        if field == _TENSOR_EXTERNAL_DATA or (field == _TENSOR_DATA_LOCATION and value):
            raise FormatError(
                "expected a model that holds its own data, received a tensor whose data lies in another file",
                where=self._where,
                hint="save the model with its data inside (onnx.save without save_as_external_data)",
            )

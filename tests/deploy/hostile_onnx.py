"""Hostile ONNX files: random damage to the protobuf, and models built to break what reads them."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, TypeAlias

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

__all__ = ["MUTATIONS", "Mutation", "damaged"]

Mutation: TypeAlias = Callable[[bytes, random.Random, Path], bytes]
"""Returns a hostile model from a sound one; the path is a file outside of the model's folder."""

_SIZES: Final = (0, -1, -2, 1, 2**31 - 1, 2**31, 2**32, 2**40, 2**62, -(2**63), 2**63 - 1)
_TEXTS: Final = ("", "\0", "a" * 100_000, "../../etc/passwd", "\u202e", "%s%n", "embedding", "weight")
_DEPTHS: Final = (2, 12, 40, 300, 5000)
_Field: TypeAlias = tuple[int, int, bytes]


# ------------------------------------------------------------------------------------------- bytes


def damaged(content: bytes, rng: random.Random) -> bytes:
    """Return bytes with a random part cut off, flipped, inserted, removed or repeated."""
    data = bytearray(content)
    place = rng.randrange(len(data) + 1)
    match rng.randrange(6):
        case 0:
            del data[place:]
        case 1:
            for _ in range(rng.choice((1, 1, 2, 8))):
                data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
        case 2:
            data[place:place] = rng.randbytes(rng.choice((1, 2, 8, 64)))
        case 3:
            del data[place : place + rng.choice((1, 2, 8, 64))]
        case 4:
            data[place:place] = data[place : place + rng.choice((4, 64, 1000))]
        case _:
            data[place : place + 8] = rng.choice((b"\xff" * 8, bytes(8), b"\x80" * 8))
    return bytes(data)


def _damaged(content: bytes, rng: random.Random, outside: Path) -> bytes:
    return damaged(content, rng)


def _spliced(content: bytes, rng: random.Random, outside: Path) -> bytes:
    for _ in range(rng.choice((1, 1, 2, 5))):
        content = _with_changed_field(content, content, rng)
    return content


def _with_changed_field(message: bytes, whole: bytes, rng: random.Random) -> bytes:
    fields = _fields(message)
    if not fields:
        return message
    place = rng.randrange(len(fields))
    number, wire_type, body = fields[place]
    if wire_type == 2 and rng.random() < 0.7 and _fields(body):
        fields[place] = (number, 2, _with_changed_field(body, whole, rng))
        return _written(fields)
    match rng.randrange(6):
        case 0:
            del fields[place]
        case 1:
            fields += [fields[place]] * rng.choice((1, 2, 50))
        case 2:
            rng.shuffle(fields)
        case 3:
            fields[place] = (rng.randrange(1, 30), wire_type, body)
        case 4:
            start = rng.randrange(len(whole))
            fields[place] = (number, 2, whole[start : start + rng.choice((1, 8, 100))])
        case _:
            fields[place] = (number, 0, _varint(rng.choice(_SIZES)))
    return _written(fields)


def _fields(message: bytes) -> list[_Field]:
    """Return the fields of a protobuf message; [] where the bytes are none."""
    found: list[_Field] = []
    position = 0
    while position < len(message):
        key, position = _read_varint(message, position)
        number, wire_type = key >> 3, key & 7
        start = position
        if wire_type == 0:
            _, position = _read_varint(message, position)
        elif wire_type == 2:
            length, start = _read_varint(message, position)
            position = start + length
        elif wire_type in {1, 5}:
            position += 8 if wire_type == 1 else 4
        else:
            return []
        if position > len(message) or not number:
            return []
        found.append((number, wire_type, message[start:position]))
    return found


def _read_varint(message: bytes, position: int) -> tuple[int, int]:
    value = shift = 0
    while position < len(message) and shift < 70:
        byte = message[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, position
        shift += 7
    return 7, len(message) + 1  # wire type 7: no protobuf


def _written(fields: list[_Field]) -> bytes:
    parts = []
    for number, wire_type, body in fields:
        length = _varint(len(body)) if wire_type == 2 else b""
        parts.append(_varint(number << 3 | wire_type) + length + body)
    return b"".join(parts)


def _varint(value: int) -> bytes:
    value &= 0xFFFF_FFFF_FFFF_FFFF
    encoded = bytearray()
    while value > 0x7F:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*encoded, value])


# ------------------------------------------------------------------------------------------- models


def _changed(change: Callable[[Any, random.Random, Path], None]) -> Mutation:
    """Return the mutation that changes a model's protobuf."""

    def mutate(content: bytes, rng: random.Random, outside: Path) -> bytes:
        model = onnx.load_model_from_string(content)
        change(model, rng, outside)
        serialized: bytes = model.SerializeToString()
        return serialized

    return mutate


def _external_data(model: Any, rng: random.Random, outside: Path) -> None:
    """Let a tensor's data lie in another file."""
    tensor = numpy_helper.from_array(np.ones((2, 2), np.float32), "stolen")
    tensor.ClearField("raw_data")
    if rng.random() < 0.8:
        tensor.data_location = TensorProto.EXTERNAL
    places = [
        str(outside),
        f"../{outside.name}",
        f"./../{outside.name}",
        "model.onnx",
        "tables/../../outside.bin",
    ]
    tensor.external_data.add(key="location", value=rng.choice(places))
    if rng.random() < 0.5:
        tensor.external_data.add(key="offset", value=str(rng.choice((0, -1, 2**62))))
        tensor.external_data.add(key="length", value=str(rng.choice((16, -1, 2**62))))
    _place_tensor(model, tensor, rng)


def _place_tensor(model: Any, tensor: Any, rng: random.Random) -> None:
    """Put a tensor where a model may have one, and add it to the first output."""
    constant = helper.make_node("Constant", [], ["stolen"], value=tensor)
    match rng.randrange(5):
        case 0:
            model.graph.initializer.append(tensor)
        case 1:
            model.graph.node.insert(0, constant)
        case 2:
            positions = numpy_helper.from_array(np.arange(2), "stolen_positions")
            model.graph.sparse_initializer.append(helper.make_sparse_tensor(tensor, positions, [4]))
        case 3:
            info = helper.make_tensor_value_info("stolen", TensorProto.FLOAT, None)
            branch = helper.make_graph([constant], "branch", [], [info])
            yes = numpy_helper.from_array(np.array(True), "yes")
            model.graph.initializer.append(yes)
            node = helper.make_node("If", ["yes"], ["chosen"], then_branch=branch, else_branch=branch)
            model.graph.node.insert(0, node)
        case _:
            opsets = list(model.opset_import)
            model.functions.append(helper.make_function("own", "F", [], ["stolen"], [constant], opsets))
            model.graph.node.insert(0, helper.make_node("F", [], ["stolen"], domain="own"))
            model.opset_import.append(helper.make_opsetid("own", 1))


def _lying_initializer(model: Any, rng: random.Random, outside: Path) -> None:
    """Declare other sizes, or another type, than a constant's bytes have."""
    if not model.graph.initializer:
        model.graph.initializer.append(numpy_helper.from_array(np.ones(4, np.float32), "extra"))
    tensor = rng.choice(list(model.graph.initializer))
    if rng.random() < 0.3:
        tensor.data_type = rng.choice((0, 2, 7, 8, 10, 14, 16, 17, 22, 23, 99))
        return
    del tensor.dims[:]
    tensor.dims.extend(rng.choice(_SIZES) for _ in range(rng.choice((1, 2, 3, 64))))


def _lying_shape(model: Any, rng: random.Random, outside: Path) -> None:
    """Declare huge, negative or missing sizes of an input or output, or another type."""
    value = rng.choice([*model.graph.input, *model.graph.output])
    kind = value.type.tensor_type
    match rng.randrange(4):
        case 0:
            for size in kind.shape.dim:
                size.dim_value = rng.choice(_SIZES)
        case 1:
            kind.elem_type = rng.choice((0, 8, 9, 14, 16, 99))
        case 2:
            kind.ClearField("shape")
        case _:
            value.type.Clear()
            value.type.sequence_type.elem_type.tensor_type.elem_type = 1


def _cycle(model: Any, rng: random.Random, outside: Path) -> None:
    """Let nodes depend on each other, or on themselves."""
    nodes = list(model.graph.node)
    node, other = rng.choice(nodes), rng.choice(nodes)
    if rng.random() < 0.5 and len(node.input) and len(other.output):
        node.input[0] = other.output[0]
    else:
        model.graph.node.append(helper.make_node("Relu", ["loop_b"], ["loop_a"]))
        model.graph.node.append(helper.make_node("Relu", ["loop_a"], ["loop_b"]))


def _repeated_names(model: Any, rng: random.Random, outside: Path) -> None:
    """Give two things of a graph one name."""
    graph = model.graph
    lists = [part for part in (graph.node, graph.initializer, graph.input, graph.output) if len(part)]
    chosen = rng.choice(lists)
    chosen.append(rng.choice(list(chosen)))
    if rng.random() < 0.5 and len(graph.initializer):
        graph.initializer[0].name = rng.choice([*graph.input, *graph.output]).name


def _names(model: Any, rng: random.Random, outside: Path) -> None:
    """Give strange names."""
    node = rng.choice(list(model.graph.node))
    value = rng.choice([*model.graph.input, *model.graph.output])
    match rng.randrange(4):
        case 0:
            node.name = rng.choice(_TEXTS)
        case 1:
            node.op_type = rng.choice((*_TEXTS, "NoSuchOperator"))
        case 2:
            node.domain = rng.choice((*_TEXTS, "com.microsoft", "ai.onnx.ml", "ai.onnx.training"))
        case _:
            value.name = rng.choice(_TEXTS)


def _versions(model: Any, rng: random.Random, outside: Path) -> None:
    """Declare other versions of the format and of the operators."""
    model.ir_version = rng.choice((0, 1, 3, 10, 14, 99, 2**31, 2**62))
    if rng.random() < 0.5:
        del model.opset_import[:]
    model.opset_import.append(helper.make_opsetid(rng.choice(("", "x")), rng.choice((0, 1, 7, 99, 2**62))))


def _operator(model: Any, rng: random.Random, outside: Path) -> None:
    """Replace an operator by any other, or change its attributes."""
    node = rng.choice(list(model.graph.node))
    match rng.randrange(3):
        case 0:
            node.op_type = rng.choice(_OPERATORS)
        case 1:
            node.attribute.append(helper.make_attribute(rng.choice(_ATTRIBUTES), rng.choice(_SIZES)))
        case _:
            numbers = [rng.choice(_SIZES) for _ in range(rng.choice((1, 2, 9)))]
            del node.attribute[:]
            node.attribute.append(helper.make_attribute(rng.choice(_ATTRIBUTES), numbers))


def _constants(model: Any, rng: random.Random, outside: Path) -> None:
    """Change the numbers of constants that are sizes, axes or splits."""
    for tensor in model.graph.initializer:
        if tensor.data_type == TensorProto.INT64:
            values = np.array(numpy_helper.to_array(tensor))
            values[...] = rng.choice(_SIZES)
            tensor.CopyFrom(numpy_helper.from_array(values, tensor.name))
    for node in model.graph.node:
        if node.op_type == "Constant" and rng.random() < 0.5:
            numbers = np.array([rng.choice(_SIZES)], np.int64)
            node.attribute[0].t.CopyFrom(numpy_helper.from_array(numbers))


def _huge_constant(model: Any, rng: random.Random, outside: Path) -> None:
    """Let a node make a tensor of a huge constant size, which a runtime computes while it loads the model."""
    sizes = [rng.choice((2**31, 2**33, 2**40, 2**62))]
    graph = model.graph
    graph.initializer.append(numpy_helper.from_array(np.array(sizes, np.int64), "huge_sizes"))
    graph.initializer.append(numpy_helper.from_array(np.ones(1, np.float32), "huge_one"))
    nodes: dict[str, tuple[list[str], dict[str, Any]]] = {
        "ConstantOfShape": (["huge_sizes"], {}),
        "Expand": (["huge_one", "huge_sizes"], {}),
        "Tile": (["huge_one", "huge_sizes"], {}),
        "RandomNormal": ([], {"shape": sizes}),
        "RandomUniform": ([], {"shape": sizes}),
        "EyeLike": (["huge_one"], {"k": sizes[0]}),
    }
    operator = rng.choice(list(nodes))
    inputs, attributes = nodes[operator]
    graph.node.insert(0, helper.make_node(operator, inputs, ["huge"], **attributes))
    if rng.random() < 0.7:  # a part of the answer
        output = graph.output[0].name
        for node in graph.node:
            for place, name in enumerate(node.output):
                if name == output:
                    node.output[place] = "before_huge"
        graph.node.append(helper.make_node("ReduceSum", ["huge"], ["huge_sum"], keepdims=0))
        graph.node.append(helper.make_node("Add", ["before_huge", "huge_sum"], [output]))


def _recursion(model: Any, rng: random.Random, outside: Path) -> None:
    """Let functions call each other, or themselves."""
    opsets = [*model.opset_import, helper.make_opsetid("own", 1)]
    called = rng.choice((("F", "F"), ("F", "G")))
    for name, other in zip(called, reversed(called), strict=True):
        node = helper.make_node(other, ["x"], ["y"], domain="own")
        model.functions.append(helper.make_function("own", name, ["x"], ["y"], [node], opsets))
    name = model.graph.input[0].name
    model.graph.node.insert(0, helper.make_node("F", [name], ["recursive"], domain="own"))
    model.opset_import.append(helper.make_opsetid("own", 1))


def _deep_subgraphs(content: bytes, rng: random.Random, outside: Path) -> bytes:
    """Nest graphs in attributes of nodes; built as bytes, since libraries have limits of their own."""
    graph = b""
    for _ in range(rng.choice(_DEPTHS)):
        attribute = _written([(1, 2, b"then_branch"), (6, 2, graph), (20, 0, _varint(5))])
        node = _written([(1, 2, b"c"), (2, 2, b"y"), (4, 2, b"If"), (5, 2, attribute)])
        graph = _written([(1, 2, node), (2, 2, b"g")])
    whole = _fields(content)
    for place, (number, wire_type, body) in enumerate(whole):
        if number == 7 and wire_type == 2:
            whole[place] = (7, 2, body + _written([field for field in _fields(graph) if field[0] == 1]))
    return _written(whole)


_OPERATORS: Final = (
    *("Abs", "Cast", "Concat", "Conv", "CumSum", "DepthToSpace", "Dropout", "Einsum", "Expand", "Flatten"),
    *("Gather", "GatherElements", "GatherND", "Gemm", "GridSample", "GRU", "Hardmax", "If", "LSTM", "Loop"),
    *("LayerNormalization", "MatMul", "MaxPool", "MaxUnpool", "NonMaxSuppression", "NonZero", "OneHot"),
    *("Optional", "Pad", "Range", "ReduceSum", "Reshape", "Resize", "ReverseSequence", "RNN", "RoiAlign"),
    *("Scan", "ScatterElements", "ScatterND", "SequenceAt", "SequenceConstruct", "Shape", "Slice", "Split"),
    *("Squeeze", "STFT", "StringNormalizer", "TfIdfVectorizer", "Tile", "TopK", "Transpose", "Unique"),
    *("Unsqueeze", "Where", "QLinearMatMul", "MatMulInteger", "DequantizeLinear", "Trilu", "EyeLike"),
)
_ATTRIBUTES: Final = (
    *("axis", "axes", "perm", "to", "keepdims", "num_outputs", "transA", "transB", "alpha", "allowzero"),
    *("batch_dims", "kernel_shape", "group", "pads", "k", "largest", "hidden_size", "shape", "body"),
)

MUTATIONS: Final[dict[str, Mutation]] = {
    "damaged bytes": _damaged,
    "spliced fields": _spliced,
    "external data": _changed(_external_data),
    "lying initializer": _changed(_lying_initializer),
    "lying shape": _changed(_lying_shape),
    "cycle": _changed(_cycle),
    "repeated names": _changed(_repeated_names),
    "strange names": _changed(_names),
    "other versions": _changed(_versions),
    "other operator": _changed(_operator),
    "other constants": _changed(_constants),
    "huge constant": _changed(_huge_constant),
    "recursive functions": _changed(_recursion),
    "deep subgraphs": _deep_subgraphs,
}

"""Reads just enough of an ONNX file, without the onnx package, to refuse one that points at other files.

A tensor of an ONNX model may say that its data lies in another file. Runtimes follow that, and checks of
it were circumvented again and again (CVE-2022-25882, CVE-2024-27318, CVE-2026-27489; sparse tensors,
attributes, subgraphs, functions). graphbox writes self-contained models and loads nothing else.
"""

from __future__ import annotations

from typing import Final

from graphbox.errors import FormatError

_MAX_DEPTH: Final = 64

# The fields of onnx.proto3 through which a TensorProto can be reached, by message: field number -> message.
_CHILDREN: Final[dict[str, dict[int, str]]] = {
    "Model": {7: "Graph", 20: "TrainingInfo", 25: "Function"},
    "TrainingInfo": {1: "Graph", 2: "Graph"},
    "Graph": {1: "Node", 5: "Tensor", 15: "SparseTensor"},
    "Function": {7: "Node", 11: "Attribute"},
    "Node": {5: "Attribute"},
    "Attribute": {5: "Tensor", 6: "Graph", 10: "Tensor", 11: "Graph", 22: "SparseTensor", 23: "SparseTensor"},
    "SparseTensor": {1: "Tensor", 2: "Tensor"},
    "Tensor": {},
}
_TENSOR_NAME: Final = 8
_TENSOR_EXTERNAL_DATA: Final = 13
_TENSOR_DATA_LOCATION: Final = 14
_MODEL_GRAPH: Final = 7


def refuse_external_data(model: bytes, where: str) -> None:
    """Check that ``model`` is a protobuf message whose every tensor carries its own data.

    Args:
        model: the content of an ``.onnx`` file.
        where: the file, named in messages.

    Raises:
        FormatError: when a tensor's data lies in another file, or the bytes are no ONNX model.
    """
    fields = _walk(memoryview(model), 0, len(model), "Model", 0, where)
    if _MODEL_GRAPH not in fields:
        raise FormatError("expected an ONNX model, received bytes without a graph", where=where)


def _walk(data: memoryview, start: int, stop: int, message: str, depth: int, where: str) -> set[int]:
    """Visit one message in ``data[start:stop]``; return the numbers of the fields it has."""
    if depth > _MAX_DEPTH:
        raise FormatError(f"expected at most {_MAX_DEPTH} nested messages, received more", where=where)
    children = _CHILDREN[message]
    seen: set[int] = set()
    position = start
    while position < stop:
        key, position = _varint(data, position, stop, where)
        if key >> 32:
            raise FormatError("expected an ONNX model, received a protobuf field beyond 2**29", where=where)
        field, wire_type = key >> 3, key & 7
        seen.add(field)
        value = 0
        body = position
        if wire_type == 0:
            value, position = _varint(data, position, stop, where)
        elif wire_type == 1:
            position += 8
        elif wire_type == 2:
            length, body = _varint(data, position, stop, where)
            position = body + length
        elif wire_type == 5:
            position += 4
        else:
            raise FormatError(
                f"expected an ONNX model, received the protobuf wire type {wire_type}", where=where
            )
        if position > stop:
            raise FormatError("expected a whole ONNX model, received a truncated one", where=where)
        if message == "Tensor" and (
            field == _TENSOR_EXTERNAL_DATA or (field == _TENSOR_DATA_LOCATION and value)
        ):
            raise FormatError(
                "expected a model that holds its own data, received a tensor whose data lies in another file",
                where=where,
                hint="save the model with its data inside (onnx.save without save_as_external_data)",
            )
        if wire_type == 2 and field in children:
            _walk(data, body, position, children[field], depth + 1, where)
    return seen


def _varint(data: memoryview, position: int, stop: int, where: str) -> tuple[int, int]:
    value = 0
    for shift in range(0, 70, 7):
        if position >= stop:
            break
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, position
    raise FormatError("expected a whole ONNX model, received a truncated or damaged one", where=where)

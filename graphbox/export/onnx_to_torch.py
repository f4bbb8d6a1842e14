"""Translates an ONNX model into a torch module, to be exported and compiled by PyTorch.

Each node calls one small function of `graphbox.export.onnx_operators`. The module is made to be traced by
``torch.export``: sizes stay symbolic, constants are buffers, and nothing depends on values of the inputs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import onnx
import torch
from onnx import numpy_helper
from torch import Tensor, nn

from graphbox.errors import FormatError, UnsupportedError
from graphbox.export.onnx_operators import TORCH_OPERATORS, OnnxCall, Value, as_tensor

__all__ = ["FIRST_OPSET", "LAST_OPSET", "OnnxModule"]

FIRST_OPSET: Final = 13
"""Before, axes of reductions were attributes alone and Softmax flattened its input."""
LAST_OPSET: Final = 23


class OnnxModule(nn.Module):
    """An ONNX model as a torch module.

    ``forward`` takes one tensor for each input, in order, and returns one for each output. No output shares
    memory with an input or a constant.

    Args:
        model: content of an ONNX file whose every tensor carries its own data
            (`graphbox.artifact.inspect_onnx`).

    Attributes:
        input_names: of the graph's inputs.
        output_names: of the graph's outputs.

    Raises:
        FormatError: `model` is no ONNX model.
        UnsupportedError: its opset, an operator or a constant's type is not supported.
    """

    def __init__(self, model: bytes) -> None:
        super().__init__()
        graph = _checked_graph(model)
        self._nodes = [_Node(each) for each in graph.node if each.op_type != "Constant"]
        self._buffers_of: dict[str, str] = {}
        constants = {each.name: numpy_helper.to_array(each) for each in graph.initializer}
        constants |= {each.output[0]: _value_of(each) for each in graph.node if each.op_type == "Constant"}
        self._constants = constants
        for number, (name, array) in enumerate(constants.items()):
            self._buffers_of[name] = f"constant_{number}"
            self.register_buffer(f"constant_{number}", _tensor_of(name, array))
        self.input_names = tuple(each.name for each in graph.input if each.name not in constants)
        self.output_names = tuple(each.name for each in graph.output)

    def forward(self, *inputs: Tensor) -> tuple[Tensor, ...]:
        """Return the outputs, in order.

        Raises:
            UnsupportedError: an operand has to be a constant, or an attribute is not supported.
        """
        values: dict[str, Value] = {name: getattr(self, key) for name, key in self._buffers_of.items()}
        values.update(zip(self.input_names, inputs, strict=True))
        for node in self._nodes:
            values.update(node.results(self.operands(node.outputs[0], values), self._constants))
        # Clones: a caller may write into an output, which must not change an input or a constant.
        return tuple(as_tensor(values[name]).clone() for name in self.output_names)

    def operands(self, output: str, values: Mapping[str, Value]) -> Mapping[str, Value]:  # noqa: ARG002
        """Return the values by name that a node reads; a subclass may replace some of them.

        Args:
            output: name of the node's first output.
            values: constants, inputs, and results of the nodes before.
        """
        return values

    def buffer_of(self, constant: str) -> str:
        """Return the name of the buffer that holds a constant."""
        return self._buffers_of[constant]


class _Node:
    """A node, ready to be called."""

    def __init__(self, node: onnx.NodeProto) -> None:
        self.where = f"node of `{next(iter(node.output), '')}`"
        self.operator = node.op_type
        self._inputs, self.outputs = tuple(node.input), tuple(node.output)
        self._attributes = {each.name: onnx.helper.get_attribute_value(each) for each in node.attribute}
        self._function = TORCH_OPERATORS[node.op_type]

    def results(self, values: Mapping[str, Value], constants: Mapping[str, Any]) -> dict[str, Value]:
        call = OnnxCall(
            operator=self.operator,
            where=self.where,
            operands=[values[name] if name else None for name in self._inputs],
            constants=[constants.get(name) for name in self._inputs],
            attributes=self._attributes,
            output_count=len(self.outputs),
        )
        found = self._function(call)
        call.refuse_unread_attributes()
        several: Sequence[Value] = found if isinstance(found, list) else [found]
        if len(several) < len(self.outputs):
            raise UnsupportedError(
                f"expected {len(self.outputs)} outputs of a node, the operator has {len(several)} here",
                where=f"outputs {', '.join(self.outputs)}",
            )
        return {name: value for name, value in zip(self.outputs, several, strict=False) if name}


def _checked_graph(model: bytes) -> onnx.GraphProto:
    """Return the graph, after checking its opset and its operators."""
    try:
        parsed = onnx.load_model_from_string(model)
    except Exception as error:
        raise FormatError(
            f"expected an ONNX model, received bytes that are none: {type(error).__name__}"
        ) from error
    opset = next((each.version for each in parsed.opset_import if each.domain in {"", "ai.onnx"}), 0)
    if not FIRST_OPSET <= opset <= LAST_OPSET:
        raise UnsupportedError(
            f"expected an opset of {FIRST_OPSET} to {LAST_OPSET}, received {opset}",
            hint="convert the model with `onnx.version_converter`",
        )
    foreign = {each.op_type for each in parsed.graph.node if each.domain not in {"", "ai.onnx"}}
    functions = {each.name for each in parsed.functions}
    unknown = {each.op_type for each in parsed.graph.node if each.op_type not in TORCH_OPERATORS}
    if missing := sorted(foreign | functions | unknown):
        raise UnsupportedError(f"no torch function is known for the operators {', '.join(missing)}")
    if parsed.graph.sparse_initializer:
        raise UnsupportedError("expected dense constants, received a sparse one")
    return parsed.graph


def _value_of(node: onnx.NodeProto) -> Any:
    """Return the array of a node ``Constant``."""
    attribute = node.attribute[0] if len(node.attribute) == 1 else None
    if attribute is None or attribute.name not in {"value", "value_float", "value_int", "value_ints"}:
        raise UnsupportedError("expected one tensor or number", where=f"constant `{node.output[0]}`")
    value = onnx.helper.get_attribute_value(attribute)
    if attribute.name == "value":
        return numpy_helper.to_array(value)
    kind = torch.float32 if attribute.name == "value_float" else torch.int64
    return torch.tensor(value, dtype=kind).numpy()


def _tensor_of(name: str, array: Any) -> Tensor:
    try:
        return torch.from_numpy(array.copy())
    except TypeError as error:
        raise UnsupportedError(
            f"expected a constant of numbers, received {array.dtype}", where=f"constant `{name}`"
        ) from error

"""Exports a torch module to one self-contained ONNX file, and refuses forms that serve badly.

The exporter is ``torch.onnx.export(dynamo=True)``. Its known traps are closed here: operators that make the
shape depend on the data, that scatter, or that loop are refused; a Linear that did not become a Gemm is
refused (it would not be quantized); traces of the exporting machine are taken out.
"""

from __future__ import annotations

import logging
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from graphbox.artifact import ArtifactWriter, TensorSpec
from graphbox.errors import GateError, missing_extra

OPSET = 20

_REFUSED = {
    "GatherND": "it is slower than Gather; index with embedding() or index_select()",
    "If": "control flow serves badly",
    "Loop": "control flow serves badly; pad ids and mask them",
    "NonZero": "its shape depends on the data",
    "Scan": "control flow serves badly",
    "ScatterElements": "it is slow; use a padded block",
    "ScatterND": "it is slow; use a padded block",
    "SequenceAt": "sequences serve badly; pad ids and mask them",
    "Unique": "its shape depends on the data",
}


@dataclass(frozen=True, eq=False)
class TensorInput:
    """One input of the exported graph.

    Attributes:
        name: in the graph.
        example: a tensor whose dynamic dimensions are at least 2.
        dynamic: names of the dimensions of any size, by axis; the same name is the same size everywhere.
    """

    name: str
    example: Tensor
    dynamic: Mapping[int, str]


@dataclass(frozen=True)
class ExportedOnnx:
    """An ONNX file and what it takes and gives."""

    model: bytes
    opset: int
    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]

    def write(self, writer: ArtifactWriter) -> None:
        """Write it as the dense part of a model version, in float32."""
        writer.set_onnx(
            self.model, opset=self.opset, precision="float32", inputs=self.inputs, outputs=self.outputs
        )


def export_onnx(
    module: nn.Module,
    arguments: Sequence[TensorInput | list[TensorInput]],
    *,
    outputs: Sequence[str] = ("embedding",),
) -> ExportedOnnx:
    """Export a module.

    Args:
        module: in evaluation mode.
        arguments: of its ``forward``, in order; a list where it takes a list of tensors.
        outputs: names of its outputs in the graph, in order.

    Raises:
        GateError: when the exported graph has an operator or a form that is refused.
        BackendMissingError: when the packages of the extra ``train`` are missing.
    """
    try:
        import onnx
        import onnxscript  # noqa: F401 - torch's exporter needs it and would fail later and less clearly
    except ImportError as error:
        raise missing_extra(error.name or "onnx", "train") from error
    inputs = [tensor for argument in arguments for tensor in _listed(argument)]
    names = {name for tensor in inputs for name in tensor.dynamic.values()}
    dimensions = {name: torch.export.Dim(name) for name in sorted(names)}
    with _quiet(), torch.no_grad():
        program = torch.onnx.export(
            module,
            tuple(_examples(argument) for argument in arguments),
            dynamo=True,
            opset_version=OPSET,
            input_names=[tensor.name for tensor in inputs],
            dynamic_shapes=tuple(_dynamic(argument, dimensions) for argument in arguments),
            verbose=False,
        )
    proto: Any = program.model_proto if program else None
    _check_form(proto, _linear_calls(module, arguments))
    for place, output in enumerate(outputs):
        _rename_output(proto, place, output)
    _strip_traces(proto)
    onnx.checker.check_model(proto, full_check=True)
    given, returned = (tuple(map(_tensor, each)) for each in (proto.graph.input, proto.graph.output))
    return ExportedOnnx(proto.SerializeToString(), OPSET, given, returned)


def _listed(argument: TensorInput | list[TensorInput]) -> list[TensorInput]:
    return argument if isinstance(argument, list) else [argument]


def _examples(argument: TensorInput | list[TensorInput]) -> Any:
    examples = [tensor.example for tensor in _listed(argument)]
    return examples if isinstance(argument, list) else examples[0]


def _dynamic(argument: TensorInput | list[TensorInput], dimensions: Mapping[str, Any]) -> Any:
    dynamic = [
        {axis: dimensions[name] for axis, name in tensor.dynamic.items()} for tensor in _listed(argument)
    ]
    return dynamic if isinstance(argument, list) else dynamic[0]


def _linear_calls(module: nn.Module, arguments: Sequence[TensorInput | list[TensorInput]]) -> int:
    """Return how often the module calls a Linear layer, of torch or of PyTorch Geometric."""
    calls = 0

    def count(*_: object) -> None:
        nonlocal calls
        calls += 1

    hooks = [
        part.register_forward_hook(count) for part in module.modules() if type(part).__name__ == "Linear"
    ]
    try:
        with torch.no_grad():
            module(*(_examples(argument) for argument in arguments))
    finally:
        for hook in hooks:
            hook.remove()
    return calls


@contextmanager
def _quiet() -> Iterator[None]:
    """Silence the exporter's remarks on its own deprecations and on packages we do not use."""
    logger = logging.getLogger("torch.onnx")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logger.setLevel(level)


def _check_form(proto: Any, linear_calls: int) -> None:
    operators = [node.op_type for node in proto.graph.node]
    if proto.functions:
        raise GateError(f"expected a graph of plain operators, received {len(proto.functions)} functions")
    for operator, reason in _REFUSED.items():
        if operator in operators:
            raise GateError(
                f"expected an export without {operator}, received {operators.count(operator)}: {reason}"
            )
    if operators.count("Gemm") != linear_calls:
        raise GateError(
            f"expected {linear_calls} Gemm, one for each call of a Linear layer, received "
            f"{operators.count('Gemm')}",
            hint="call each Linear on a 2-D tensor",
        )


def _rename_output(proto: Any, place: int, output: str) -> None:
    """Name an output; asked for by name, the exporter may make two values of that name."""
    graph = proto.graph
    produced = graph.output[place].name
    if produced == output:
        return
    for node in graph.node:
        for names in (node.input, node.output):
            for position, name in enumerate(names):
                if name == output:
                    names[position] = f"{output}_values"
                elif name == produced:
                    names[position] = output
    for value in graph.value_info:
        if value.name == output:
            value.name = f"{output}_values"
    graph.output[place].name = output


def _strip_traces(proto: Any) -> None:
    """Take out the exporter's notes: source files, stack traces, names of modules."""
    graph = proto.graph
    for part in (
        proto,
        graph,
        *graph.node,
        *graph.input,
        *graph.output,
        *graph.value_info,
        *graph.initializer,
    ):
        part.ClearField("doc_string")
        part.ClearField("metadata_props")
    graph.name = "encoder"
    proto.producer_name = "graphbox"
    proto.ClearField("producer_version")


def _tensor(value: Any) -> TensorSpec:
    import onnx

    kind = value.type.tensor_type
    datatypes: dict[int, Any] = {onnx.TensorProto.FLOAT: "FP32", onnx.TensorProto.INT64: "INT64"}
    shape = tuple(size.dim_value if size.HasField("dim_value") else -1 for size in kind.shape.dim)
    return TensorSpec(name=value.name, datatype=datatypes[kind.elem_type], shape=shape)

"""ONNX models as torch modules: every operator against NumPy or ONNX Runtime, and refusals with reasons."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
import pytest
import torch
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

from graphbox.artifact import inspect_onnx
from graphbox.deploy.conformance_models import OPERATORS, OperatorCase
from graphbox.deploy.onnx_runtime import load_onnxruntime
from graphbox.errors import FormatError, UnsupportedError
from graphbox.export.aotinductor import export_program, input_sizes
from graphbox.export.onnx_operators import TORCH_OPERATORS
from graphbox.export.onnx_to_torch import OnnxModule
from graphbox.models.layer_kinds import LAYER_KINDS
from tests.export.test_layer_export import OPTIONS, exported, feeds_of
from tests.models.padded_cases import PaddedCase, relations_of

Array = NDArray[Any]
BATCHES = (0, 1, 2, 31)
FLOAT, INT64, BOOL = TensorProto.FLOAT, TensorProto.INT64, TensorProto.BOOL
VALUES = np.random.default_rng(0).standard_normal((4, 5)).astype(np.float32)
POSITIVE = np.abs(VALUES) + np.float32(0.1)
OTHERS = VALUES[::-1].copy()
TRUTHS = VALUES > 0
NUMBERS = np.array([[7, -7, 3], [-3, 4, 9]], np.int64)
WIDE = VALUES.reshape(2, 2, 5)


def model_of_node(
    operator: str,
    feeds: Mapping[str, Array],
    constants: Sequence[Any] = (),
    *,
    outputs: int = 1,
    opset: int = 20,
    **attributes: Any,
) -> bytes:
    """Return a model of one node; its inputs are the feeds, whose first dimension has any size."""
    names = [f"constant_{number}" for number in range(len(constants))]
    node = helper.make_node(
        operator, [*feeds, *names], [f"out_{number}" for number in range(outputs)], **attributes
    )
    inputs = [
        helper.make_tensor_value_info(
            name, helper.np_dtype_to_tensor_dtype(value.dtype), ["n", *value.shape[1:]] if value.ndim else []
        )
        for name, value in feeds.items()
    ]
    graph = helper.make_graph(
        [node],
        "graph",
        inputs,
        [helper.make_empty_tensor_value_info(name) for name in node.output],
        [
            numpy_helper.from_array(np.asarray(each), name)
            for name, each in zip(names, constants, strict=True)
        ],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=10)
    return bytes(onnx.shape_inference.infer_shapes(model).SerializeToString())


def _run(model: bytes, feeds: Mapping[str, Array]) -> list[Array]:
    module = OnnxModule(model)
    return [each.numpy() for each in module(*[torch.from_numpy(feeds[name]) for name in module.input_names])]


@pytest.mark.parametrize("case", OPERATORS, ids=lambda case: case.name)
def test_operators_of_the_kit(case: OperatorCase) -> None:
    random, model = np.random.default_rng(0), case.model()
    for batch in BATCHES:
        feeds = case.feeds(random, batch)
        found, expected = _run(model, feeds)[0], case.answer(feeds)
        assert (found.dtype, found.shape) == (expected.dtype, expected.shape)
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)


X, XY = {"x": VALUES}, {"x": VALUES, "y": OTHERS}
FURTHER: tuple[tuple[str, Mapping[str, Array], Sequence[Any], Mapping[str, Any]], ...] = (
    ("And", {"x": TRUTHS, "y": TRUTHS[::-1].copy()}, (), {}),
    ("Or", {"x": TRUTHS, "y": TRUTHS[::-1].copy()}, (), {}),
    ("Xor", {"x": TRUTHS, "y": TRUTHS[::-1].copy()}, (), {}),
    ("Not", {"x": TRUTHS}, (), {}),
    ("Equal", {"x": NUMBERS, "y": np.abs(NUMBERS)}, (), {}),
    ("Less", XY, (), {}),
    ("LessOrEqual", XY, (), {}),
    ("GreaterOrEqual", XY, (), {}),
    ("Cos", X, (), {}),
    ("Sin", X, (), {}),
    ("Erf", X, (), {}),
    ("Log", {"x": POSITIVE}, (), {}),
    ("Pow", {"x": POSITIVE}, (np.float32(1.5),), {}),
    ("Reciprocal", {"x": POSITIVE}, (), {}),
    ("Sum", {**XY, "z": POSITIVE}, (), {}),
    ("Max", {**XY, "z": POSITIVE}, (), {}),
    ("Div", {"x": NUMBERS}, (np.int64(2),), {}),  # toward zero
    ("Flatten", {"x": WIDE}, (), {"axis": 1}),
    ("Flatten", {"x": WIDE}, (), {"axis": -1}),
    ("Flatten", {"x": WIDE}, (), {"axis": 0}),
    ("LogSoftmax", X, (), {}),
    ("Softmax", {"x": WIDE}, (), {"axis": -2}),
    ("Gelu", X, (), {"approximate": "tanh"}),
    ("LeakyRelu", X, (), {}),
    ("GatherElements", X, (np.array([[0, -1], [2, 1], [3, 3], [-5, 4]]),), {"axis": 1}),
    ("Gather", X, (np.array([[0, -1], [2, 1]]),), {"axis": -1}),
    ("Gather", X, (np.int64(2),), {"axis": 1}),
    ("Clip", X, (np.float32(0),), {}),
    ("Cast", X, (), {"to": BOOL}),
    ("Cast", X, (), {"to": INT64}),
    ("Slice", X, (np.array([-3]), np.array([2**63 - 1]), np.array([1]), np.array([2])), {}),
    ("Slice", X, (np.array([1]), np.array([100]), np.array([1])), {}),
    ("Split", X, (), {"axis": 1, "num_outputs": 2, "outputs": 2}),
    ("Split", X, (np.array([2, 3]),), {"axis": -1, "outputs": 2}),
    ("Reshape", {"x": WIDE}, (np.array([0, -1]),), {}),
    ("Transpose", {"x": WIDE}, (), {}),
    ("Squeeze", {"x": VALUES[:, None]}, (np.array([-2]),), {}),
    ("Unsqueeze", X, (np.array([-1, 0]),), {}),
    ("Expand", {"x": VALUES[:, None]}, (np.array([3, 1]),), {}),
    ("Expand", X, (np.array([2, 1, 5]),), {}),
    ("ReduceSum", {"x": WIDE}, (), {}),
    ("ReduceSum", {"x": WIDE}, (np.array([-1, 1]),), {"keepdims": 0}),
    ("ReduceSum", {"x": WIDE}, (), {"noop_with_empty_axes": 1}),
    ("ReduceMax", {"x": WIDE}, (), {"axes": [2], "opset": 13}),
    ("Shape", {"x": WIDE}, (), {"start": -2}),
    ("Gemm", {"x": VALUES}, (WIDE[0].copy(), np.float32(3)), {"transB": 1, "alpha": 0.5, "beta": 2.0}),
    ("TopK", {"x": np.array([[1, 2, 2, 1, 2]], np.float32)}, (np.array([4]),), {"outputs": 2}),
    ("TopK", X, (np.array([2]),), {"outputs": 2, "largest": 0, "axis": 1}),
    ("DynamicQuantizeLinear", X, (), {"outputs": 3}),
    ("DynamicQuantizeLinear", {"x": np.zeros((2, 3), np.float32)}, (), {"outputs": 3}),
    ("QuantizeLinear", X, (np.full(5, 0.1, np.float32), np.arange(5, dtype=np.int8)), {"axis": 1}),
    ("QuantizeLinear", X, (np.float32(0.1),), {}),
    (
        "DequantizeLinear",
        {"x": np.arange(10, dtype=np.int8).reshape(2, 5)},
        (np.full(5, 0.1, np.float32), np.arange(5, dtype=np.int8)),
        {"axis": -1},
    ),
    (
        "MatMulInteger",
        {"x": np.arange(10, dtype=np.uint8).reshape(2, 5)},
        (np.arange(10, dtype=np.int8).reshape(5, 2), np.uint8(3), np.int8(-1)),
        {},
    ),
    ("Concat", {}, (NUMBERS, NUMBERS), {"axis": 1}),
    ("ConstantOfShape", {"x": VALUES}, (), {}),
    ("Constant", {"x": VALUES}, (), {}),
)


@pytest.mark.parametrize("case", FURTHER, ids=lambda case: f"{case[0]} {case[3]}")
def test_further_operators(case: tuple[str, Mapping[str, Array], Sequence[Any], Mapping[str, Any]]) -> None:
    operator, feeds, constants, attributes = case
    if operator in {"ConstantOfShape", "Constant"}:
        model = _filled_like_input(by_constant=operator == "Constant")
    else:
        model = model_of_node(operator, feeds, constants, **attributes)
    session = load_onnxruntime().InferenceSession(model, providers=["CPUExecutionProvider"])
    expected = session.run(None, dict(feeds))
    for found, wanted in zip(_run(model, feeds), expected, strict=True):
        assert (found.dtype, found.shape) == (wanted.dtype, wanted.shape)
        np.testing.assert_allclose(found, wanted, rtol=1e-6, atol=1e-6)


def _filled_like_input(*, by_constant: bool) -> bytes:
    """Return a model that adds 2.5 to its input, by a constant of one value or of the input's shape."""
    value = numpy_helper.from_array(np.array([2.5], np.float32))
    nodes = [
        helper.make_node("Shape", ["x"], ["shape"]),
        helper.make_node("Constant", [], ["filled"], value=value)
        if by_constant
        else helper.make_node("ConstantOfShape", ["shape"], ["filled"], value=value),
        helper.make_node("Add", ["x", "filled"], ["sum"]),
    ]
    inputs = [helper.make_tensor_value_info("x", FLOAT, ["n", 5])]
    outputs = [helper.make_tensor_value_info("sum", FLOAT, ["n", 5])]
    graph = helper.make_graph(nodes, "graph", inputs, outputs)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)
    return bytes(model.SerializeToString())


def test_every_operator_is_tested() -> None:
    tested = {node for case in OPERATORS for node in inspect_onnx(case.model(), case.name).operators}
    assert set(TORCH_OPERATORS) == tested | {case[0] for case in FURTHER}


QUICK_LAYERS = ("gcn2", "gin", "sage")


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=() if name in QUICK_LAYERS else pytest.mark.stress)
        for name in sorted(LAYER_KINDS)
    ],
)
def test_layers_as_exported_programs(name: str) -> None:
    """Every kind of layer, traced once for all sizes, against ONNX Runtime."""
    model = exported(name).model
    session = load_onnxruntime().InferenceSession(model, providers=["CPUExecutionProvider"])
    names = [each.name for each in session.get_inputs()]
    program = export_program(model)
    assert all(isinstance(shape[0], str) for shape in input_sizes(program))
    module = program.module(check_guards=False)
    for nodes, batch in ((9, 0), (9, 1), (300, 31)):
        weighted = LAYER_KINDS[name].takes_weights
        case = PaddedCase(
            name, relations_of(name), OPTIONS[name], nodes=nodes, batch=batch, weighted=weighted
        )
        feeds = feeds_of(case, set(names))
        (expected,) = session.run(None, feeds)
        (found,) = module(*[torch.from_numpy(feeds[each]) for each in names])
        np.testing.assert_allclose(found.numpy(), expected, rtol=1e-5, atol=1e-5)


def test_sizes_that_have_to_be_equal_have_one_name() -> None:
    case = next(each for each in OPERATORS if each.name == "Add")
    (first, five), (second, _) = input_sizes(export_program(case.model()))
    assert (first, five) == (second, 5)
    gather = next(each for each in OPERATORS if each.name == "Gather")
    (rows, _), (positions, _) = input_sizes(export_program(gather.model()))
    assert rows != positions


def test_results_share_no_memory_with_feeds() -> None:
    case = next(each for each in OPERATORS if each.name == "Identity")
    values = np.ones((2, 5), np.float32)
    assert not np.shares_memory(_run(case.model(), {"x": values})[0], values)


def test_models_that_need_many_rows_are_refused() -> None:
    feeds = {"x": VALUES}
    model = model_of_node("TopK", feeds, (np.array([3]),), outputs=2, axis=0)
    with pytest.raises(UnsupportedError, match="is at least 3"):
        input_sizes(export_program(model))


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (model_of_node("Det", {"x": WIDE}), "no torch function is known for the operators Det"),
        (model_of_node("Relu", {"x": VALUES}, opset=11), "an opset of 13 to 23, received 11"),
        (
            model_of_node("Softmax", {"x": VALUES}, axis=1).replace(b"axis", b"axes"),
            "attributes axes are not",
        ),
        (
            model_of_node("Reshape", {"x": VALUES, "y": NUMBERS[0]}),
            "a constant as input 1, received a computed",
        ),
        (
            model_of_node("Slice", X, (np.array([3]), np.array([0]), np.array([1]), np.array([-1]))),
            "steps below 1",
        ),
        (model_of_node("Squeeze", {"x": VALUES[:, None]}), "without axes"),
        (model_of_node("Cast", X, to=TensorProto.BFLOAT16), "the type 16 of ONNX is not supported"),
    ],
    ids=["operator", "opset", "attribute", "shape", "step", "axes", "type"],
)
def test_refusals(model: bytes, message: str) -> None:
    with pytest.raises(UnsupportedError, match=message):
        export_program(model)


def test_bytes_that_are_no_model() -> None:
    with pytest.raises(FormatError, match="expected an ONNX model"):
        OnnxModule(b"\xff\xff")

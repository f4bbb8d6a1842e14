"""Inspection of ONNX files without the onnx package, and refusals of bad ones."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper

from graphbox.artifact import inspect_onnx
from graphbox.artifact.onnx_inspection import IndexBound
from graphbox.errors import FormatError
from tests.artifact.sample_model import make_model, onnx_of

INFO = helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n"])


def _constant(name: str = "c", external: bool = False) -> Any:
    tensor = numpy_helper.from_array(np.ones(3, np.float32), name)
    if external:
        tensor.ClearField("raw_data")
        tensor.data_location = TensorProto.EXTERNAL
        tensor.external_data.add(key="location", value="../../etc/passwd")
    return tensor


def _model(nodes: list[Any], **parts: Any) -> Any:
    graph = helper.make_graph(nodes, "g", [], [INFO], **parts)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)])


def _initializer(external: bool) -> Any:
    return _model([helper.make_node("Identity", ["c"], ["y"])], initializer=[_constant("c", external)])


def _attribute(external: bool) -> Any:
    return _model([helper.make_node("Constant", [], ["y"], value=_constant("c", external))])


def _sparse(external: bool) -> Any:
    sparse = helper.make_sparse_tensor(_constant("v", external), numpy_helper.from_array(np.arange(3)), [5])
    return _model([helper.make_node("Constant", [], ["y"], sparse_value=sparse)])


def _sparse_initializer(external: bool) -> Any:
    sparse = helper.make_sparse_tensor(_constant("v", external), numpy_helper.from_array(np.arange(3)), [5])
    return _model([helper.make_node("Identity", ["v"], ["y"])], sparse_initializer=[sparse])


def _subgraph(external: bool) -> Any:
    inner = helper.make_graph(
        [helper.make_node("Identity", ["c"], ["y"])],
        "inner",
        [],
        [INFO],
        initializer=[_constant("c", external)],
    )
    return _model([helper.make_node("If", ["condition"], ["y"], then_branch=inner, else_branch=inner)])


def _function(external: bool) -> Any:
    model = _model([helper.make_node("F", [], ["y"], domain="own")])
    node = helper.make_node("Constant", [], ["y"], value=_constant("c", external))
    opsets = [helper.make_opsetid("", 20)]
    model.functions.append(helper.make_function("own", "F", [], ["y"], [node], opsets))
    return model


def _training(external: bool) -> Any:
    model = _model([])
    information = model.training_info.add()
    information.algorithm.initializer.append(_constant("c", external))
    return model


PLACES = [_initializer, _attribute, _sparse, _sparse_initializer, _subgraph, _function, _training]


@pytest.mark.parametrize("place", PLACES)
def test_data_in_other_files_is_refused_wherever_it_hides(place: Callable[[bool], Any]) -> None:
    inspect_onnx(place(False).SerializeToString(), "model.onnx")
    with pytest.raises(FormatError, match="whose data lies in another file") as caught:
        inspect_onnx(place(True).SerializeToString(), "model.onnx")
    assert caught.value.where == "model.onnx"


def test_a_location_without_the_flag_is_refused_too() -> None:
    model = _initializer(True)
    model.graph.initializer[0].ClearField("data_location")
    with pytest.raises(FormatError, match="another file"):
        inspect_onnx(model.SerializeToString(), "model.onnx")


def test_operators_are_found_everywhere() -> None:
    assert inspect_onnx(_subgraph(False).SerializeToString(), "m").operators == {"If", "Identity"}
    assert inspect_onnx(_function(False).SerializeToString(), "m").operators == {"F", "Constant"}


def test_positions_are_followed_back_to_inputs() -> None:
    content, inputs, _ = onnx_of(make_model())
    summary = inspect_onnx(content, "m")
    assert set(summary.inputs) == {tensor.name for tensor in inputs}
    assert set(summary.index_inputs) == {tensor.name for tensor in inputs if tensor.datatype == "INT64"}
    assert summary.precision == "float32"
    nodes = [
        helper.make_node("Cast", ["p"], ["cast"], to=TensorProto.INT64),
        helper.make_node("Unsqueeze", ["cast", "axes"], ["wide"]),
        helper.make_node("Gather", ["rows", "wide"], ["y"]),
    ]
    infos = [helper.make_tensor_value_info(name, TensorProto.INT64, ["n"]) for name in ("p", "rows")]
    model = helper.make_model(helper.make_graph(nodes, "g", infos, [INFO]))
    assert inspect_onnx(model.SerializeToString(), "m").index_inputs == {"p": (IndexBound(None, "rows", 0),)}


# Every operator of ONNX that moves or selects values, with further inputs that it needs.
MOVING = {
    "Cast": [], "CastLike": ["rows"], "Concat": ["more"], "DepthToSpace": [], "Expand": ["sizes"],
    "Flatten": [], "Identity": [], "Pad": ["sizes"], "Reshape": ["sizes"], "ReverseSequence": ["sizes"],
    "Slice": ["starts", "ends"], "SpaceToDepth": [], "Split": ["sizes"], "Squeeze": [], "Tile": ["sizes"],
    "Transpose": [], "Unsqueeze": ["axes"], "Compress": ["chosen"], "Gather": ["chosen"],
    "GatherElements": ["chosen"],
}  # fmt: skip


@pytest.mark.parametrize("operator", MOVING)
def test_positions_are_followed_through_every_operator_that_moves_them(operator: str) -> None:
    nodes = [
        helper.make_node(operator, ["p", *MOVING[operator]], ["moved"]),
        helper.make_node("Gather", ["table", "moved"], ["y"], axis=1),
    ]
    infos = [helper.make_tensor_value_info("p", TensorProto.INT64, ["n"])]
    table = helper.make_tensor("table", TensorProto.FLOAT, [2, 3], [0.0] * 6)
    graph = helper.make_graph(nodes, "g", infos, [INFO], initializer=[table])
    found = inspect_onnx(helper.make_model(graph).SerializeToString(), "m")
    assert found.index_inputs == {"p": (IndexBound(3),)}
    assert found.dimensions == {"p": ("n",)}


def test_computed_positions_are_left_to_the_runtime() -> None:
    nodes = [
        helper.make_node("Add", ["p", "one"], ["next"]),
        helper.make_node("Gather", ["rows", "next"], ["y"], axis=-1),
    ]
    infos = [helper.make_tensor_value_info(name, TensorProto.INT64, ["n"]) for name in ("p", "rows")]
    model = helper.make_model(helper.make_graph(nodes, "g", infos, [INFO]))
    assert inspect_onnx(model.SerializeToString(), "m").index_inputs == {}


@pytest.mark.parametrize(
    ("operator", "precision"),
    [("MatMulInteger", "int8_dynamic"), ("QLinearMatMul", "int8_static"), ("Gemm", "float32")],
)
def test_precision_is_that_of_the_products(operator: str, precision: str) -> None:
    model = _model([helper.make_node(operator, ["a", "b"], ["y"])])
    assert inspect_onnx(model.SerializeToString(), "m").precision == precision


@pytest.mark.parametrize(
    ("bits", "others", "precision"),
    [
        ([4], (), "int4_weights"),
        ([8], (), "int8_weights"),
        ([8, 4], (), "int4_weights"),
        ([None], (), "int4_weights"),  # the operator's default
        ([8], ("MatMulInteger",), "int8_dynamic"),
        ([4], ("MatMulInteger",), "int4_weights"),
    ],
)
def test_precision_of_weights_in_blocks(
    bits: list[int | None], others: tuple[str, ...], precision: str
) -> None:
    nodes = [
        helper.make_node("MatMulNBits", ["a", "b"], [f"y{number}"], domain="com.microsoft")
        for number in range(len(bits))
    ]
    for node, each in zip(nodes, bits, strict=True):
        if each is not None:
            node.attribute.append(helper.make_attribute("bits", each))
    nodes += [helper.make_node(each, ["a", "b"], [each]) for each in others]
    assert inspect_onnx(_model(nodes).SerializeToString(), "m").precision == precision


def test_truncated_models_are_refused_or_harmless() -> None:
    content, _, _ = onnx_of(make_model())
    for length in range(0, len(content), 97):
        with pytest.raises(FormatError):
            inspect_onnx(content[:length], "model.onnx")


@settings(max_examples=300)
@given(st.binary(max_size=300))
def test_any_bytes_are_read_or_refused(content: bytes) -> None:
    with contextlib.suppress(FormatError):
        inspect_onnx(content, "model.onnx")


@settings(max_examples=300)
@given(st.data())
def test_what_protobuf_reads_as_external_is_never_accepted(data: st.DataObject) -> None:
    """Flip a byte: wherever the protobuf library still finds external data, it is refused."""
    content = bytearray(_initializer(True).SerializeToString())
    content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    try:
        model = onnx.load_model_from_string(bytes(content))
    except Exception:  # noqa: BLE001 - the library has several ways to refuse what is no protobuf
        return
    if any(tensor.data_location or tensor.external_data for tensor in model.graph.initializer):
        with pytest.raises(FormatError):
            inspect_onnx(bytes(content), "model.onnx")


@pytest.mark.parametrize("part", ["input", "output"])
def test_names_are_given_once(part: str) -> None:
    model = _model([])
    getattr(model.graph, part).extend([INFO, INFO])
    with pytest.raises(FormatError, match="different names, received `y` twice"):
        inspect_onnx(model.SerializeToString(), "m")


@pytest.mark.parametrize("name", ["y", "n", "rename", "Relu", "x"])
def test_names_that_are_no_text_are_refused(name: str) -> None:
    """Of a tensor, a dimension, a node, an operator: a runtime fails when it is asked for them."""
    model = _model([helper.make_node("Relu", ["x"], ["y"], name="rename")])
    content = model.SerializeToString()
    text = bytes([len(name)]) + name.encode()
    assert text in content
    with pytest.raises(FormatError, match="names in UTF-8"):
        inspect_onnx(content.replace(text, text[:1] + b"\xff" * len(name)), "m")


def test_deep_nesting_is_refused() -> None:
    inner = helper.make_graph([], "g", [], [])
    for _ in range(25):
        node = helper.make_node("If", ["c"], ["y"], then_branch=inner)
        inner = helper.make_graph([node], "g", [], [])
    with pytest.raises(FormatError, match="nested"):
        inspect_onnx(helper.make_model(inner).SerializeToString(), "m")


@pytest.mark.parametrize(
    ("kinds", "precision"),
    [
        ([np.float32], "float32"),
        ([np.float16], "float16"),
        ([np.float64], "float64"),
        ([np.float32, np.float16], "float16"),
        ([np.int64], "float32"),
    ],
)
def test_the_precision_is_that_of_the_weights(kinds: list[type[np.generic]], precision: str) -> None:
    weights = [numpy_helper.from_array(np.ones((2, 2), kind), kind.__name__) for kind in kinds]
    bias = numpy_helper.from_array(np.ones(2, np.float64), "bias")
    model = _model([helper.make_node("Identity", ["bias"], ["y"])], initializer=[*weights, bias])
    assert inspect_onnx(model.SerializeToString(), "model.onnx").precision == precision


def test_opsets_domains_and_unranked_tensors() -> None:
    graph = helper.make_graph(
        [helper.make_node("F", ["x"], ["y"], domain="own"), helper.make_node("Neg", ["s"], ["z"])],
        "g",
        [
            helper.make_tensor_value_info("x", TensorProto.FLOAT, None),
            helper.make_tensor_value_info("s", 1, []),
        ],
        [INFO],
    )
    node = helper.make_node("Abs", ["a"], ["b"])
    opsets = [helper.make_opsetid("", 20), helper.make_opsetid("own", 3)]
    function = helper.make_function("own", "F", ["a"], ["b"], [node], opsets[:1])
    model = helper.make_model(graph, opset_imports=opsets, functions=[function])
    summary = inspect_onnx(model.SerializeToString(), "model.onnx")
    assert summary.opsets == {"": 20, "own": 3}
    assert summary.domains == {"F": {"own"}, "Neg": {""}, "Abs": {""}}
    assert summary.function_domains == {"own"}
    assert summary.unranked == {"x"}


def test_constants_that_old_files_list_as_inputs_are_no_inputs() -> None:
    inputs = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [3]) for name in ("x", "c")]
    node = helper.make_node("Add", ["x", "c"], ["y"])
    graph = helper.make_graph([node], "g", inputs, [INFO], initializer=[_constant()])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 8)], ir_version=3)
    assert inspect_onnx(model.SerializeToString(), "model.onnx").inputs == ("x",)

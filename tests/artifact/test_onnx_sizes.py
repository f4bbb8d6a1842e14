"""Models of a few bytes that would make a runtime allocate terabytes."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from graphbox.artifact import inspect_onnx
from graphbox.artifact.onnx_sizes import MAX_GENERATED_NUMBERS
from graphbox.errors import FormatError

HUGE = (MAX_GENERATED_NUMBERS + 1,)
OPERATORS = {"ConstantOfShape": 0, "Expand": 1, "OneHot": 1, "Pad": 1, "Range": 1, "Resize": 3, "Tile": 1}
INFO = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)


def _model(nodes: list[Any], initializers: list[Any] | None = None, **parts: Any) -> bytes:
    graph = helper.make_graph(nodes, "g", [], [INFO], initializer=initializers, **parts)
    content: bytes = helper.make_model(graph).SerializeToString()
    return content


def _maker(operator: str) -> Any:
    return helper.make_node(operator, [*["x"] * OPERATORS[operator], "sizes"], ["y"])


def _in_raw_data(sizes: tuple[int, ...]) -> tuple[list[Any], list[Any]]:
    return [], [numpy_helper.from_array(np.array(sizes, np.int64), "sizes")]


def _in_int64_data(sizes: tuple[int, ...]) -> tuple[list[Any], list[Any]]:
    return [], [helper.make_tensor("sizes", TensorProto.INT64, [len(sizes)], sizes)]


def _in_a_constant(sizes: tuple[int, ...]) -> tuple[list[Any], list[Any]]:
    value = numpy_helper.from_array(np.array(sizes, np.int64))
    return [helper.make_node("Constant", [], ["sizes"], value=value)], []


def _in_integers(sizes: tuple[int, ...]) -> tuple[list[Any], list[Any]]:
    return [helper.make_node("Constant", [], ["sizes"], value_ints=sizes)], []


@pytest.mark.parametrize("place", [_in_raw_data, _in_int64_data, _in_a_constant, _in_integers])
@pytest.mark.parametrize("operator", OPERATORS)
def test_huge_results_are_refused(operator: str, place: Any) -> None:
    nodes, initializers = place(HUGE)
    with pytest.raises(FormatError, match=f"the operator {operator} with the sizes {HUGE[0]}") as caught:
        inspect_onnx(_model([*nodes, _maker(operator)], initializers), "model.onnx")
    assert caught.value.where == "model.onnx"
    nodes, initializers = place((16, 1024, 1024))
    inspect_onnx(_model([*nodes, _maker(operator)], initializers), "model.onnx")


def test_sizes_are_multiplied_but_those_of_a_padding() -> None:
    nodes, initializers = _in_raw_data((2000, 2000, 2000))
    with pytest.raises(FormatError, match="sizes 2000, 2000, 2000"):
        inspect_onnx(_model([*nodes, _maker("Expand")], initializers), "m")
    inspect_onnx(_model([*nodes, _maker("Pad")], initializers), "m")


@pytest.mark.parametrize("operator", ["RandomNormal", "RandomUniform"])
def test_huge_random_tensors_are_refused(operator: str) -> None:
    with pytest.raises(FormatError, match=operator):
        inspect_onnx(_model([helper.make_node(operator, [], ["y"], shape=HUGE)]), "m")


def test_huge_sparse_constants_are_refused() -> None:
    values = numpy_helper.from_array(np.ones(1, np.float32), "s")
    sparse = helper.make_sparse_tensor(values, numpy_helper.from_array(np.zeros(1, np.int64)), HUGE)
    with pytest.raises(FormatError, match="a sparse constant"):
        inspect_onnx(_model([], sparse_initializer=[sparse]), "m")
    with pytest.raises(FormatError, match="a sparse constant"):
        inspect_onnx(_model([helper.make_node("Constant", [], ["y"], sparse_value=sparse)]), "m")


@pytest.mark.parametrize("part", ["input", "output", "value_info"])
def test_huge_dimensions_are_refused(part: str) -> None:
    model = onnx.load_model_from_string(_model([]))
    info = helper.make_tensor_value_info("z", TensorProto.FLOAT, ["n", HUGE[0]])
    getattr(model.graph, part).append(info)
    with pytest.raises(FormatError, match="a dimension with the sizes"):
        inspect_onnx(model.SerializeToString(), "m")


def test_subgraphs_and_functions_are_looked_through() -> None:
    nodes, initializers = _in_raw_data(HUGE)
    inner = helper.make_graph([_maker("ConstantOfShape")], "inner", [], [INFO], initializer=initializers)
    branch = helper.make_node("If", ["c"], ["y"], then_branch=inner, else_branch=inner)
    with pytest.raises(FormatError, match="ConstantOfShape"):
        inspect_onnx(_model([*nodes, branch]), "m")
    model = onnx.load_model_from_string(_model([helper.make_node("F", [], ["y"], domain="own")]))
    constants, _ = _in_a_constant(HUGE)
    function = [*constants, _maker("ConstantOfShape")]
    model.functions.append(helper.make_function("own", "F", [], ["y"], function, list(model.opset_import)))
    with pytest.raises(FormatError, match="ConstantOfShape"):
        inspect_onnx(model.SerializeToString(), "m")

"""Cyclic models, which a runtime follows until memory is exhausted, are refused before it sees them."""

from __future__ import annotations

from typing import Any

import onnx
import pytest
from onnx import TensorProto, helper

from graphbox.artifact import inspect_onnx
from graphbox.errors import FormatError
from tests.artifact.sample_model import make_model, onnx_of

INFO = helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n"])


def _model(*nodes: Any) -> Any:
    graph = helper.make_graph(list(nodes), "g", [helper.make_tensor_value_info("x", 1, ["n"])], [INFO])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)])


def _relu(source: str, result: str) -> Any:
    return helper.make_node("Relu", [source], [result])


def _branch(node: Any) -> Any:
    inner = helper.make_graph([node], "inner", [], [helper.make_tensor_value_info("i", 1, None)])
    return helper.make_node("If", ["x"], ["y"], then_branch=inner, else_branch=inner)


def _function() -> Any:
    model = _model(helper.make_node("F", ["x"], ["y"], domain="own"))
    nodes = [_relu("b", "a"), _relu("a", "b")]
    model.functions.append(helper.make_function("own", "F", ["x"], ["b"], nodes, list(model.opset_import)))
    return model


CYCLES = {
    "itself": _model(_relu("y", "y")),
    "each other": _model(_relu("b", "a"), _relu("a", "b"), _relu("x", "y")),
    "another order": _model(_relu("a", "y"), _relu("x", "a")),
    "a subgraph's result": _model(_branch(_relu("y", "i"))),
    "in a subgraph": _model(_branch(_relu("i", "i"))),
    "in a function": _function(),
}


@pytest.mark.parametrize("cycle", CYCLES)
def test_cycles_are_refused(cycle: str) -> None:
    with pytest.raises(FormatError, match="before it is computed") as caught:
        inspect_onnx(CYCLES[cycle].SerializeToString(), "model.onnx")
    assert caught.value.where == "model.onnx"


def test_names_that_a_subgraph_takes_from_outside_are_fine() -> None:
    model = _model(_relu("x", "a"), _branch(_relu("a", "i")))
    onnx.checker.check_model(model)
    inspect_onnx(model.SerializeToString(), "m")
    inspect_onnx(onnx_of(make_model())[0], "m")

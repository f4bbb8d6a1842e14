"""The dense method for a target, and methods that a target cannot run."""

from __future__ import annotations

import pytest
from onnx import helper

from graphbox.compress.dense import convert_for_target, default_dense, dense_method
from graphbox.errors import UnsupportedError
from tests.compress.dense.onnx_models import calibration, info, mlp, model_of


@pytest.mark.parametrize(
    ("target", "with_feeds", "name"),
    [
        ("auto", True, "int8_dynamic"),
        ("onnxruntime", False, "int8_dynamic"),
        ("openvino", True, "int8_static"),
        ("openvino", False, "float16"),
        ("iree/cpu", True, "float16"),
    ],
)
def test_the_method_is_one_that_the_target_runs(target: str, with_feeds: bool, name: str) -> None:
    method = default_dense(mlp(32, 64, 16).onnx(), target, calibration(32) if with_feeds else None)
    assert method is not None
    assert method.name == name


def test_models_without_products_are_left_alone() -> None:
    nodes = [helper.make_node("Add", ["x", "x"], ["y"])]
    assert default_dense(model_of(nodes, [info("x", "n", 3)], [info("y", "n", 3)], [])) is None


def test_what_was_asked_for_is_refused_with_the_reason_of_the_device() -> None:
    with pytest.raises(
        UnsupportedError, match=r"expected a target that runs int8_dynamic models.*QuantizeLinear wrongly"
    ) as caught:
        convert_for_target(dense_method("int8"), mlp(32, 64).onnx(), "openvino")
    assert caught.value.where == "dense: int8"
    converted = convert_for_target(
        dense_method("int8_static"), mlp(32, 64).onnx(), "openvino", calibration(32)
    )
    assert converted.report.converted == ("w0",)

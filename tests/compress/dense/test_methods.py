"""Guarantees of every dense method: size, numerics, traps of ONNX files, refusals."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

from graphbox.artifact import inspect_onnx
from graphbox.compress.dense import Calibration, DenseMethod, convert_dense, dense_method, dense_methods
from graphbox.errors import DataError, GateError, UnsupportedError, UsageError
from tests.compress.dense.onnx_models import (
    calibration,
    info,
    mlp,
    model_of,
    relative_error,
    rows,
    run,
)

METHODS = [pytest.param(method, id=method.name) for method in dense_methods()]
LARGEST_ERROR = {
    "int8_dynamic": 0.03,
    "int8_static": 0.04,
    "float16": 0.001,
    "int8_weights": 0.02,
    "int4_weights": 0.2,
}
SMALLER = {
    "int8_dynamic": 3.4,
    "int8_static": 3.4,
    "float16": 1.9,
    "int8_weights": 3.2,
    "int4_weights": 5.5,
}


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("operator", ["Gemm", "MatMul"])
@pytest.mark.parametrize("widths", [(64, 128, 32), (37, 51, 29, 3), (130, 65)])
def test_outputs_stay_close(method: DenseMethod, operator: str, widths: tuple[int, ...]) -> None:
    network = mlp(*widths, seed=sum(widths))
    model = network.onnx(operator)
    converted = convert_dense(method, model, calibration(widths[0]))
    summary = inspect_onnx(converted.model, "m")
    assert summary.precision == method.name
    assert summary.opsets[""] == 20
    assert converted.report.method == method.name
    for count in (1, 7, 40):
        x = rows(count, widths[0], seed=count)
        assert relative_error(run(converted.model, x), network.answer(x)) < LARGEST_ERROR[method.name]
    assert converted.report.error is not None
    assert 0 < converted.report.error.rms_relative < LARGEST_ERROR[method.name]
    assert converted.report.file_bytes_after == len(converted.model)
    assert run(converted.model, rows(0, widths[0])).shape == (0, widths[-1])


@pytest.mark.parametrize("method", METHODS)
def test_files_are_smaller_and_have_no_unused_constant(method: DenseMethod) -> None:
    model = onnx.load_model_from_string(mlp(256, 512, 256).onnx())
    model.graph.initializer.append(numpy_helper.from_array(rows(300, 300), "unused"))
    model.graph.value_info.append(info("h0", "n", 17))  # stale
    report = convert_dense(method, model.SerializeToString(), calibration(256))
    proto = onnx.load_model_from_string(report.model)
    used = {name for node in proto.graph.node for name in node.input}
    assert {tensor.name for tensor in proto.graph.initializer} <= used
    assert not proto.graph.value_info
    without = len(mlp(256, 512, 256).onnx())
    assert without / len(report.model) > SMALLER[method.name]
    weights = report.report.weight_bytes_before / report.report.weight_bytes_after
    assert weights > SMALLER[method.name]


@pytest.mark.parametrize("method", METHODS)
def test_one_layer_alone(method: DenseMethod) -> None:
    network = mlp(48, 64, 32)
    report = convert_dense(method, network.onnx(), calibration(48), layers=("w1",)).report
    assert (report.converted, report.kept_float) == (("w1",), ("w0",))
    with pytest.raises(UsageError, match=r"expected layers among \['w0', 'w1'\].*received `w2`"):
        method.convert(network.onnx(), calibration(48), ("w2",))
    with pytest.raises(UsageError, match="at least one layer"):
        method.convert(network.onnx(), calibration(48), ())


@pytest.mark.parametrize("method", METHODS)
def test_models_without_a_dense_part_are_refused(method: DenseMethod) -> None:
    nodes = [helper.make_node("Add", ["x", "x"], ["y"])]
    model = model_of(nodes, [info("x", "n", 3)], [info("y", "n", 3)], [])
    with pytest.raises(UnsupportedError, match=f"{method.name} can convert, received none"):
        convert_dense(method, model, calibration(3))


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_weights_that_are_not_finite_are_refused(method: DenseMethod, value: float) -> None:
    network = mlp(8, 16, 4)
    network.weights[1][3, 2] = value
    with pytest.raises(DataError, match="expected finite weights, received 1 ") as caught:
        convert_dense(method, network.onnx(), calibration(8))
    assert caught.value.where == "constant `w1`"


@pytest.mark.parametrize("method", METHODS)
def test_columns_of_zeros_and_constant_inputs(method: DenseMethod) -> None:
    network = mlp(32, 48, 16)
    network.weights[0][:, :5] = 0
    network.biases[0][:5] = 0
    x = np.zeros((6, 32), np.float32)
    converted = convert_dense(method, network.onnx(), Calibration.of_feeds([{"x": x}])).model
    np.testing.assert_allclose(run(converted, x), network.answer(x), atol=0.02)


@pytest.mark.parametrize("method", METHODS)
def test_weights_in_constant_nodes_and_shared_weights(method: DenseMethod) -> None:
    square = mlp(24, 24).weights[0]
    nodes = [
        helper.make_node("Constant", [], ["w"], value=numpy_helper.from_array(square)),
        helper.make_node("MatMul", ["x", "w"], ["h"]),
        helper.make_node("MatMul", ["h", "w"], ["y"]),
    ]
    model = model_of(nodes, [info("x", "n", 24)], [info("y", "n", 24)], [])
    converted = convert_dense(method, model, calibration(24))
    assert converted.report.converted == ("w",)
    x = rows(9, 24)
    assert relative_error(run(converted.model, x), x @ square @ square) < LARGEST_ERROR[method.name]


@pytest.mark.parametrize("target", ["onnxruntime", "openvino"])
@pytest.mark.parametrize("name", ["int8_static", "float16"])
@pytest.mark.parametrize("operator", ["Gemm", "MatMul"])
def test_files_for_several_runtimes_give_the_same_on_each(name: str, target: str, operator: str) -> None:
    network = mlp(50, 96, 33, 5, seed=4)
    converted = convert_dense(dense_method(name), network.onnx(operator), calibration(50)).model
    for count in (1, 16):
        x = rows(count, 50, seed=count)
        assert relative_error(run(converted, x, target), network.answer(x)) < LARGEST_ERROR[name]


def test_float16_refuses_weights_beyond_it() -> None:
    network = mlp(8, 16, 4)
    network.weights[0][0, 0] = 70_000
    with pytest.raises(UnsupportedError, match=r"expected weights within 65504.*received 70000") as caught:
        convert_dense(dense_method("float16"), network.onnx())
    assert caught.value.where == "constant `w0`"


def test_float16_halves_tables_inside_the_file_too() -> None:
    table = rows(100, 8)
    nodes = [helper.make_node("Gather", ["table", "ids"], ["y"])]
    ids = helper.make_tensor_value_info("ids", onnx.TensorProto.INT64, ["n"])
    constants = [numpy_helper.from_array(table, "table")]
    model = model_of(nodes, [ids], [info("y", "n", 8)], constants)
    converted = convert_dense(dense_method("float16"), model)
    assert converted.report.converted == ("table",)
    assert len(converted.model) < len(model) * 0.6


def test_outputs_that_have_nothing_in_common_are_refused() -> None:
    class Zeros:
        name = user_name = "zeros"
        needs_calibration = False
        default_on: frozenset[str] = frozenset()

        def convert(self, model: bytes, calibration: object = None, layers: object = None) -> object:
            network = mlp(8, 4)
            network.weights[0][:] = -50
            report = dense_method("float16").convert(model).report
            return type("Converted", (), {"model": network.onnx(), "report": report})()

    with pytest.raises(GateError, match="zeros gives outputs with a relative error of"):
        convert_dense(Zeros(), mlp(8, 4).onnx())  # type: ignore[arg-type]


def test_names_of_methods() -> None:
    assert [dense_method(each.name) for each in dense_methods()] == list(dense_methods())
    assert dense_method("int8").name == "int8_dynamic"
    assert all(isinstance(each, DenseMethod) for each in dense_methods())
    with pytest.raises(UsageError, match="received `int8_statik`") as caught:
        dense_method("int8_statik")
    assert caught.value.hint == "did you mean `int8_static`?"

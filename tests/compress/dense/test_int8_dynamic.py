"""Dynamic int8 of matrix products: against a plain codec, batch by batch, row by row."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from graphbox.artifact import inspect_onnx
from graphbox.compress.dense import ConvertedOnnx, dense_method
from graphbox.compress.dense.weight_codes import weight_codes
from graphbox.deploy import Options, choose, compile_model
from graphbox.errors import UnsupportedError

RANDOM = np.random.default_rng(0)
FIRST = RANDOM.standard_normal((32, 64)).astype(np.float32)
SECOND = RANDOM.standard_normal((64, 32)).astype(np.float32)
BIAS = RANDOM.standard_normal(64).astype(np.float32)


def _info(name: str, *shape: Any) -> Any:
    return helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)


def _model(with_notes: bool = True, unused: bool = False) -> bytes:
    """Return relu(x W1' + b) W2 with a transposed Gemm, as torch exports it, and the shapes it notes."""
    constants = [
        numpy_helper.from_array(np.ascontiguousarray(FIRST.T), "first"),
        numpy_helper.from_array(BIAS, "bias"),
        numpy_helper.from_array(SECOND, "second"),
    ]
    if unused:
        constants.append(numpy_helper.from_array(FIRST, "unused"))
    nodes = [
        helper.make_node("Gemm", ["x", "first", "bias"], ["h"], transB=1),
        helper.make_node("Relu", ["h"], ["r"]),
        helper.make_node("MatMul", ["r", "second"], ["y"]),
    ]
    graph = helper.make_graph(nodes, "g", [_info("x", "n", 32)], [_info("y", "n", 32)], constants)
    if with_notes:
        graph.value_info.extend([_info("first", 64, 32), _info("bias", 64), _info("h", "n", 64)])
    return bytes(
        helper.make_model(
            graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10
        ).SerializeToString()
    )


def quantize_onnx(model: bytes) -> ConvertedOnnx:
    return dense_method("int8").convert(model)


def _run(model: bytes, x: Any) -> Any:
    adapter, device = choose("onnxruntime")
    with compile_model(adapter, model, device, Options()) as program:
        return program.run({"x": x})["y"]


def _run_output(model: bytes, x: Any, output: str) -> Any:
    adapter, device = choose("onnxruntime")
    with compile_model(adapter, model, device, Options()) as program:
        return program.run({"x": x})[output]


def test_products_become_int8_and_answers_stay_close() -> None:
    quantized = quantize_onnx(_model())
    assert inspect_onnx(quantized.model, "m").precision == "int8_dynamic"
    assert quantized.report.converted == ("first", "second")
    assert quantized.report.kept_float == ()
    x = RANDOM.standard_normal((50, 32)).astype(np.float32)
    expected = np.maximum(x @ FIRST + BIAS, 0) @ SECOND
    received = _run(quantized.model, x)
    relative = np.linalg.norm(received - expected) / np.linalg.norm(expected)
    assert 0 < relative < 0.02


def test_what_became_of_the_bytes_is_counted_in_the_file() -> None:
    quantized = quantize_onnx(_model(unused=True))
    tensors = onnx.load_model_from_string(quantized.model).graph.initializer
    sizes = {tensor.name: numpy_helper.to_array(tensor).nbytes for tensor in tensors}
    assert quantized.report.weight_bytes_before == FIRST.nbytes + SECOND.nbytes
    parts = [sizes[f"{weight}_{part}"] for weight in ("first", "second") for part in ("codes", "scale")]
    assert quantized.report.weight_bytes_after == sum(parts)
    assert quantized.report.weight_bytes_after < quantized.report.weight_bytes_before / 3
    assert sum(sizes.values()) < sum(parts) + sizes["bias"] + 100
    assert "unused" not in sizes


def test_shapes_noted_by_the_exporter_do_no_harm() -> None:
    assert quantize_onnx(_model(with_notes=True)).model == quantize_onnx(_model(with_notes=False)).model


def test_the_file_keeps_no_notes() -> None:
    proto = onnx.load_model_from_string(quantize_onnx(_model()).model)
    assert not proto.metadata_props
    assert not proto.graph.value_info


def _plain(x: Any, matrix: Any) -> Any:
    """Return x @ matrix as the module says, one row and one column at a time, in float64."""
    result = np.empty((len(x), matrix.shape[1]))
    weights = weight_codes(matrix)
    for number, row in enumerate(x):
        step = np.float32(np.abs(row).max() * np.float32(1 / 127))
        row_codes = np.clip(np.rint(row / step), -128, 127)
        for column in range(matrix.shape[1]):
            product = row_codes @ weights.codes[:, column].astype(np.float64)
            result[number, column] = float(step) * float(weights.scale[column]) * product
    return result


def test_answers_are_those_of_the_plain_codec() -> None:
    node = helper.make_node("MatMul", ["x", "w"], ["y"])
    constants = [numpy_helper.from_array(FIRST, "w")]
    graph = helper.make_graph([node], "g", [_info("x", "n", 32)], [_info("y", "n", 64)], constants)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)
    quantized = quantize_onnx(model.SerializeToString()).model
    x = RANDOM.standard_normal((40, 32)).astype(np.float32) * RANDOM.uniform(0.01, 50, (40, 1)).astype(
        np.float32
    )
    x[:5] = np.abs(x[:5])
    x[5:10] = -np.abs(x[5:10])
    expected = _plain(x, FIRST)
    received = _run(quantized, x)
    # A level may fall to either side of a half; one level of one element is the most that can differ.
    level = np.abs(x).max(axis=1, keepdims=True) / 127 * np.abs(FIRST).max() + 1e-6
    assert (np.abs(received - expected) <= level).all()
    assert np.median(np.abs(received - expected)) < 1e-5 * np.abs(expected).max()


def test_a_row_does_not_depend_on_its_batch() -> None:
    quantized = quantize_onnx(_model()).model
    x = RANDOM.standard_normal((20, 32)).astype(np.float32)
    alone = np.concatenate([_run(quantized, row[None]) for row in x])
    x_with_outlier = np.concatenate([x, np.full((1, 32), 1e6, np.float32)])
    np.testing.assert_array_equal(_run(quantized, x_with_outlier)[:-1], alone)


@pytest.mark.parametrize("value", [0.0, 2.5, -2.5, 1e-20])
def test_rows_of_one_value(value: float) -> None:
    x = np.full((2, 32), value, np.float32)
    expected = np.maximum(x @ FIRST + BIAS, 0) @ SECOND
    np.testing.assert_allclose(
        _run(quantize_onnx(_model()).model, x), expected, atol=0.02 * np.abs(expected).max()
    )


def test_products_of_more_than_two_dimensions_stay_float_and_are_named() -> None:
    nodes = [
        helper.make_node("MatMul", ["x", "wide"], ["h"]),
        helper.make_node("ReduceSum", ["h", "axes"], ["s"], keepdims=0),
        helper.make_node("MatMul", ["s", "second"], ["y"]),
    ]
    constants = [
        numpy_helper.from_array(FIRST, "wide"),
        numpy_helper.from_array(SECOND, "second"),
        numpy_helper.from_array(np.array([1]), "axes"),
    ]
    graph = helper.make_graph(nodes, "g", [_info("x", "n", 3, 32)], [_info("y", "n", 32)], constants)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)
    quantized = quantize_onnx(model.SerializeToString())
    assert quantized.report.converted == ("second",)
    assert quantized.report.kept_float == ("wide",)
    x = RANDOM.standard_normal((4, 3, 32)).astype(np.float32)
    expected = (x @ FIRST).sum(axis=1) @ SECOND
    error = np.linalg.norm(_run(quantized.model, x) - expected) / np.linalg.norm(expected)
    assert error < 0.02


def test_nothing_to_quantize_is_said() -> None:
    node = helper.make_node("MatMul", ["x", "x"], ["y"])
    graph = helper.make_graph([node], "g", [_info("x", 3, 3)], [_info("y", 3, 3)])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)
    with pytest.raises(UnsupportedError, match="a constant that int8_dynamic can convert, received none"):
        quantize_onnx(model.SerializeToString())


def test_empty_batches_are_answered() -> None:
    assert _run(quantize_onnx(_model()).model, np.empty((0, 32), np.float32)).shape == (0, 32)


def test_activations_that_are_never_negative_have_all_levels() -> None:
    """The first product sees both signs and needs zero points, the one after Relu does not."""
    proto = onnx.load_model_from_string(quantize_onnx(_model()).model)
    products = [node for node in proto.graph.node if node.op_type == "MatMulInteger"]
    assert [len(node.input) for node in products] == [3, 2]
    x = np.abs(RANDOM.standard_normal((50, 32))).astype(np.float32)
    nodes = [helper.make_node("Relu", ["x"], ["r"]), helper.make_node("MatMul", ["r", "w"], ["y"])]
    graph = helper.make_graph(
        nodes, "g", [_info("x", "n", 32)], [_info("y", "n", 64)], [numpy_helper.from_array(FIRST, "w")]
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)
    codes = weight_codes(FIRST)
    step = x.max(axis=1, keepdims=True) * np.float32(1 / 255)
    expected = np.rint(x / step) * step @ (codes.codes * codes.scale)
    received = _run(quantize_onnx(model.SerializeToString()).model, x)
    np.testing.assert_allclose(received, expected, rtol=1e-3, atol=1e-3)


def test_rows_of_other_steps_keep_theirs() -> None:
    """ONNX Runtime fuses a product of steps and scales into a node with the first row's step for all."""
    x = np.repeat(RANDOM.standard_normal((1, 32)).astype(np.float32), 6, axis=0)
    x *= np.float32(10.0) ** np.arange(-3, 3, dtype=np.float32)[:, None]
    proto = onnx.load_model_from_string(_model())
    del proto.graph.node[2:]
    proto.graph.output[0].CopyFrom(_info("r", "n", 64))
    received = _run_output(quantize_onnx(proto.SerializeToString()).model, x, "r")
    difference = np.abs(received - np.maximum(x @ FIRST + BIAS, 0)).max(axis=1)
    assert (difference <= 0.03 * np.abs(x @ FIRST).max(axis=1)).all()


def test_narrow_products_stay_float_unless_they_are_named() -> None:
    narrow = RANDOM.standard_normal((64, 3)).astype(np.float32)
    nodes = [helper.make_node("MatMul", ["x", "w"], ["h"]), helper.make_node("MatMul", ["h", "n"], ["y"])]
    constants = [numpy_helper.from_array(FIRST, "w"), numpy_helper.from_array(narrow, "n")]
    graph = helper.make_graph(nodes, "g", [_info("x", "n", 32)], [_info("y", "n", 3)], constants)
    model = helper.make_model(
        graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10
    ).SerializeToString()
    method = dense_method("int8")
    assert method.convert(model).report.kept_float == ("n",)
    assert method.convert(model, layers=("n",)).report.converted == ("n",)
    del graph.node[0]
    graph.input[0].CopyFrom(_info("h", "n", 64))
    alone = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)
    assert method.convert(alone.SerializeToString()).report.converted == ("n",)


def test_layers_can_be_converted_one_after_the_other() -> None:
    method, x = dense_method("int8"), RANDOM.standard_normal((9, 32)).astype(np.float32)
    first = method.convert(_model(), layers=("first",)).model
    both = method.convert(first, layers=("second",)).model
    np.testing.assert_allclose(_run(both, x), _run(method.convert(_model()).model, x), rtol=1e-5, atol=1e-4)


def test_old_opsets_are_refused() -> None:
    node = helper.make_node("MatMul", ["x", "w"], ["y"])
    graph = helper.make_graph(
        [node], "g", [_info("x", "n", 32)], [_info("y", "n", 64)], [numpy_helper.from_array(FIRST, "w")]
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
    with pytest.raises(UnsupportedError, match="opset 18 or later, received 13"):
        quantize_onnx(model.SerializeToString())

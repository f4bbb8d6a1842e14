"""Dynamic int8 of matrix products."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from graphbox.artifact import inspect_onnx
from graphbox.compress import quantize_onnx
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


def _run(model: bytes, x: Any) -> Any:
    adapter, device = choose("onnxruntime_cpu")
    with compile_model(adapter, model, device, Options()) as program:
        return program.run({"x": x})["y"]


def test_products_become_int8_and_answers_stay_close() -> None:
    quantized = quantize_onnx(_model())
    assert inspect_onnx(quantized.model, "m").precision == "int8_dynamic"
    assert quantized.report.quantized == ("first", "second")
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
    assert quantized.report.weight_bytes_after == sum(sizes.values()) - sizes["bias"]
    assert quantized.report.weight_bytes_after < quantized.report.weight_bytes_before / 3.3
    assert "unused" not in sizes


def test_shapes_noted_by_the_exporter_do_no_harm() -> None:
    assert quantize_onnx(_model(with_notes=True)).model == quantize_onnx(_model(with_notes=False)).model


def test_the_file_keeps_no_notes() -> None:
    proto = onnx.load_model_from_string(quantize_onnx(_model()).model)
    assert not proto.metadata_props
    assert not proto.graph.value_info
    assert proto.producer_name == "graphbox"


def test_nothing_to_quantize_is_said() -> None:
    node = helper.make_node("MatMul", ["x", "x"], ["y"])
    graph = helper.make_graph([node], "g", [_info("x", 3, 3)], [_info("y", 3, 3)])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)
    with pytest.raises(
        UnsupportedError, match="expected a matrix product with a constant to quantize, received none"
    ):
        quantize_onnx(model.SerializeToString())


def test_empty_batches_are_answered() -> None:
    assert _run(quantize_onnx(_model()).model, np.empty((0, 32), np.float32)).shape == (0, 32)

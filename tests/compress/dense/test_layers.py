"""Layers of a model and their sensitivity."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import helper

from graphbox.compress.dense import dense_method, layers_of, output_error, sensitivity
from graphbox.errors import UnsupportedError, UsageError
from tests.compress.dense.onnx_models import calibration, info, mlp, model_of


def test_layers_are_listed_in_order() -> None:
    layers = layers_of(mlp(10, 20, 5).onnx())
    assert [(each.name, each.rows, each.columns, each.weight_bytes) for each in layers] == [
        ("w0", 10, 20, 800),
        ("w1", 20, 5, 400),
    ]
    assert layers[0].operators == ("Gemm",)


def test_the_layer_that_suffers_comes_first() -> None:
    network = mlp(32, 64, 48, 16)
    network.weights[1][::7, :] *= 40  # outliers: few bits are left for the others
    feeds, method = calibration(32), dense_method("int4_weights")
    errors = sensitivity(network.onnx(), method, feeds)
    assert set(errors) == {"w0", "w1", "w2"}
    found = [each.rms_relative for each in errors.values()]
    assert found == sorted(found, reverse=True)
    for name, error in errors.items():
        converted = method.convert(network.onnx(), feeds, (name,)).model
        expected = output_error(network.onnx(), converted, feeds)
        assert error.rms_relative == pytest.approx(expected.rms_relative, rel=1e-6)
    one = sensitivity(network.onnx(), method, feeds, layers=("w2",))
    assert one["w2"].rms_relative == pytest.approx(errors["w2"].rms_relative)
    with pytest.raises(UsageError, match="received `w9`"):
        sensitivity(network.onnx(), method, feeds, layers=("w9",))


def test_models_without_layers_are_refused() -> None:
    nodes = [helper.make_node("Add", ["x", "x"], ["y"])]
    model = model_of(nodes, [info("x", "n", 3)], [info("y", "n", 3)], [])
    assert layers_of(model) == ()
    with pytest.raises(UnsupportedError, match="expected at least one layer that int8_dynamic can convert"):
        sensitivity(model, dense_method("int8"), calibration(3))


def test_errors_are_those_of_the_outputs() -> None:
    network = mlp(8, 20)
    feeds = calibration(8)
    other = mlp(8, 20)
    other.biases[0][:] = network.biases[0] + 0.5
    expected = network.answer(feeds.feeds[0]["x"])
    error = output_error(network.onnx(), other.onnx(), feeds)
    assert error.max_relative == pytest.approx(0.5 / np.abs(expected).max(), rel=1e-3)
    assert error.rms_relative == pytest.approx(0.5 / np.sqrt(np.square(expected).mean()), rel=1e-3)

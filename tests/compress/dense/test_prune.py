"""Pruning of hidden neurons: against plain NumPy, on graphs with and without chains."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

from graphbox.compress.dense import (
    Calibration,
    convert_dense,
    dense_method,
    layers_of,
    prune_neurons,
)
from graphbox.compress.dense.refit import Moments, keep_neurons
from graphbox.errors import UnsupportedError, UsageError
from tests.compress.dense.onnx_models import (
    Mlp,
    calibration,
    info,
    mlp,
    model_of,
    relative_error,
    rows,
    run,
)


def _hidden(network: Mlp, x: Any) -> Any:
    return np.maximum(x @ network.weights[0] + network.biases[0], 0)


def _redundant(width: int = 40, neurons: int = 64, needed: int = 24) -> Mlp:
    """Return a network whose hidden neurons beyond `needed` are copies of others, scaled."""
    network = mlp(width, neurons, 12, seed=5)
    for copy in range(needed, neurons):
        factor = np.float32(0.5 + copy / neurons)
        network.weights[0][:, copy] = network.weights[0][:, copy % needed] * factor
        network.biases[0][copy] = network.biases[0][copy % needed] * factor
    return network


@pytest.mark.parametrize("operator", ["Gemm", "MatMul"])
def test_redundant_neurons_are_removed_without_loss(operator: str) -> None:
    network = _redundant()
    pruned = prune_neurons(network.onnx(operator), calibration(40, 300), 24 / 64)
    assert pruned.report.neurons == {"w0": (64, 24)}
    assert [(each.rows, each.columns) for each in layers_of(pruned.model)] == [(40, 24), (24, 12)]
    x = rows(50, 40, seed=8)
    assert relative_error(run(pruned.model, x), network.answer(x)) < 0.005
    assert pruned.report.file_bytes_after == len(pruned.model) < pruned.report.file_bytes_before * 0.5
    assert pruned.report.error.rms_relative < 0.005


def _greedy(hidden: Any, weight: Any, count: int) -> list[int]:
    """Remove one neuron after the other, each time the one whose removal raises the fitted error least."""
    centred = hidden - hidden.mean(0)
    target = centred @ weight
    kept = list(range(hidden.shape[1]))
    while len(kept) > count:
        errors = []
        for neuron in kept:
            rest = [each for each in kept if each != neuron]
            fitted = np.linalg.lstsq(centred[:, rest], target, rcond=None)[0]
            errors.append(np.square(centred[:, rest] @ fitted - target).sum())
        kept.pop(int(np.argmin(errors)))
    return kept


def test_neurons_and_weights_are_those_of_plain_least_squares() -> None:
    random = np.random.default_rng(0)
    hidden = np.maximum(random.standard_normal((400, 12)) @ random.standard_normal((12, 12)), 0)
    weight = random.standard_normal((12, 5)).astype(np.float32)
    moments = Moments(12)
    for part in np.array_split(hidden.astype(np.float32), 3):
        moments.add(part)
    found = keep_neurons(moments, weight, 7, has_bias=True)
    assert found.kept.tolist() == _greedy(hidden, weight, 7)
    kept = hidden[:, found.kept]
    design = np.concatenate([kept, np.ones((len(kept), 1))], axis=1)
    expected = np.linalg.lstsq(design, hidden @ weight, rcond=None)[0]
    np.testing.assert_allclose(found.weight, expected[:-1], atol=0.01)
    np.testing.assert_allclose(found.bias, expected[-1], atol=0.02)
    without = keep_neurons(moments, weight, 7, has_bias=False)
    kept = hidden[:, without.kept]
    expected = np.linalg.lstsq(kept, hidden @ weight, rcond=None)[0]
    np.testing.assert_allclose(without.weight, expected, atol=0.01)
    assert not without.bias.any()


def test_fitting_beats_plain_removal() -> None:
    network, feeds = mlp(30, 96, 16, seed=2), calibration(30, 500)
    pruned = prune_neurons(network.onnx(), feeds, 0.5)
    x = rows(300, 30, seed=11)
    strength = np.square(_hidden(network, x)).mean(0) * np.square(network.weights[1]).sum(1)
    kept = np.sort(np.argsort(strength)[48:])
    plain = _hidden(network, x)[:, kept] @ network.weights[1][kept] + network.biases[1]
    error = relative_error(run(pruned.model, x), network.answer(x))
    assert error < 0.6 * relative_error(plain, network.answer(x))


def test_layers_have_shares_of_their_own() -> None:
    network = mlp(20, 64, 48, 8)
    pruned = prune_neurons(network.onnx(), calibration(20, 300), {"w1": 0.3})
    assert pruned.report.neurons == {"w1": (48, 16)}
    whole = prune_neurons(network.onnx(), calibration(20, 300), 1.0)
    assert whole.report.neurons == {"w0": (64, 64), "w1": (48, 48)}
    assert whole.report.error.rms_relative == 0
    every = prune_neurons(network.onnx(), calibration(20, 300), 0.5, multiple=1)
    assert every.report.neurons == {"w0": (64, 32), "w1": (48, 24)}
    converted = convert_dense(dense_method("int8"), every.model, calibration(20))
    assert set(converted.report.converted) == {"w0", "w1"}


def test_several_heads_and_scaled_activations() -> None:
    network = mlp(20, 40, 8)
    second, scale = rows(40, 6), np.abs(rows(1, 40)) + 0.5
    nodes = [
        helper.make_node("Gemm", ["x", "w", "b"], ["h"]),
        helper.make_node("Mul", ["h", "scale"], ["s"]),
        helper.make_node("Sigmoid", ["s"], ["g"]),
        helper.make_node("Mul", ["s", "g"], ["a"]),
        helper.make_node("MatMul", ["a", "v"], ["y"]),
        helper.make_node("MatMul", ["a", "u"], ["z"]),
    ]
    arrays: dict[str, Any] = {
        "w": network.weights[0],
        "b": network.biases[0],
        "scale": scale,
        "v": network.weights[1],
        "u": second,
    }
    constants = [numpy_helper.from_array(array, name) for name, array in arrays.items()]
    outputs = [info("y", "n", 8), info("z", "n", 6)]
    model = model_of(nodes, [info("x", "n", 20)], outputs, constants)
    pruned = prune_neurons(model, calibration(20, 400), 0.8)
    assert pruned.report.neurons == {"w": (40, 32)}
    sizes = {
        each.name: list(each.dims) for each in onnx.load_model_from_string(pruned.model).graph.initializer
    }
    assert sizes["v"] == [32, 8]
    assert sizes["u"] == [32, 6]
    assert pruned.report.error.rms_relative < 0.35


def _softmax_between() -> bytes:
    nodes = [
        helper.make_node("MatMul", ["x", "a"], ["h"]),
        helper.make_node("Softmax", ["h"], ["s"]),
        helper.make_node("MatMul", ["s", "b"], ["y"]),
    ]
    constants = [numpy_helper.from_array(rows(8, 16), "a"), numpy_helper.from_array(rows(16, 4), "b")]
    return model_of(nodes, [info("x", "n", 8)], [info("y", "n", 4)], constants)


def _hidden_output() -> bytes:
    model = onnx.load_model_from_string(mlp(8, 16, 4).onnx())
    model.graph.output.append(info("r0", "n", 16))
    return bytes(model.SerializeToString())


def _shared_weight() -> bytes:
    square = numpy_helper.from_array(rows(8, 8), "a")
    nodes = [
        helper.make_node("MatMul", ["x", "a"], ["h"]),
        helper.make_node("Relu", ["h"], ["r"]),
        helper.make_node("MatMul", ["r", "a"], ["y"]),
    ]
    return model_of(nodes, [info("x", "n", 8)], [info("y", "n", 8)], [square])


@pytest.mark.parametrize(
    "model",
    [
        pytest.param(_softmax_between(), id="an operator that mixes neurons"),
        pytest.param(_hidden_output(), id="hidden values are an output"),
        pytest.param(_shared_weight(), id="a weight is used twice"),
        pytest.param(mlp(8, 16).onnx(), id="one layer"),
    ],
)
def test_models_without_chains_are_refused(model: bytes) -> None:
    with pytest.raises(UnsupportedError, match="expected a model with a hidden layer between two products"):
        prune_neurons(model, calibration(8), 0.5)


def test_shares_and_layers_are_checked() -> None:
    model, feeds = mlp(8, 16, 4).onnx(), calibration(8)
    for share in (0.0, 1.5, float("nan")):
        with pytest.raises(UsageError, match=r"expected a share in \(0, 1\]"):
            prune_neurons(model, feeds, share)
    with pytest.raises(UsageError, match=r"expected hidden layers among \['w0'\], received w1"):
        prune_neurons(model, feeds, {"w1": 0.5})


def test_constant_inputs_and_few_rows_do_no_harm() -> None:
    network = mlp(8, 32, 4)
    feeds = Calibration.of_feeds([{"x": np.ones((3, 8), np.float32)}])
    pruned = prune_neurons(network.onnx(), feeds, 0.5)
    assert np.isfinite(run(pruned.model, rows(9, 8))).all()
    assert pruned.report.error.rms_relative < 0.01

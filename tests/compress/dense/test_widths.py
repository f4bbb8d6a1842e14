"""Widths by layer: errors of layers alone, as many weights as with one share, the best of all choices."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from onnx import helper, numpy_helper

from graphbox.compress.dense import (
    HiddenLayers,
    Queries,
    fine_tune,
    layers_of,
    measure_hidden_layers,
    output_error,
    prune_neurons,
)
from graphbox.compress.dense.chains import kept_count
from graphbox.errors import UnsupportedError
from tests.compress.dense.onnx_models import calibration, info, mlp, model_of, rows


def made_up(seed: int, widths: tuple[int, ...]) -> HiddenLayers:
    """Return layers in a row with random errors, the larger ones of narrower layers."""
    random = np.random.default_rng(seed)
    names = [f"w{number}" for number in range(len(widths))]
    errors = {
        name: dict(zip((0.75, 0.5, 0.25, 0.125, 0.0625), np.sort(random.exponential(0.1, 5)), strict=True))
        for name in names
    }
    sides: list[str | int] = [40, *names, 3]
    return HiddenLayers(
        neurons=dict(zip(names, widths, strict=True)),
        errors=errors,
        depths={name: number for number, name in enumerate(names)},
        products=tuple(itertools.pairwise(sides)),
    )


def counted(layers: HiddenLayers, shares: dict[str, float]) -> dict[str, int]:
    return {name: kept_count(width, shares[name], 8) for name, width in layers.neurons.items()}


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("share", [0.75, 0.4, 0.125])
def test_no_choice_of_as_many_weights_is_much_better(share: float, seed: int) -> None:
    """Steps may end beside the best choice, but never behind one share of all layers."""
    layers = made_up(seed, (128, 64, 96))
    uniform = {name: kept_count(width, share, 8) for name, width in layers.neurons.items()}
    most = layers.weights(uniform)
    found = counted(layers, layers.shares(share))
    choices = itertools.product(*(range(8, width + 1, 8) for width in layers.neurons.values()))
    named = (dict(zip(layers.neurons, choice, strict=True)) for choice in choices)
    best = min(layers.predicted(each) for each in named if layers.weights(each) <= most)
    assert layers.weights(found) <= most
    assert layers.predicted(found) <= layers.predicted(uniform)
    assert np.sqrt(layers.predicted(found)) <= 1.5 * np.sqrt(best)


def test_errors_are_those_of_each_layer_alone() -> None:
    model, feeds = mlp(20, 64, 48, 8).onnx(), calibration(20, 600)
    layers = measure_hidden_layers(model, feeds)
    assert layers.neurons == {"w0": 64, "w1": 48}
    assert layers.depths == {"w0": 0, "w1": 1}
    for name, share in itertools.product(layers.neurons, (0.75, 0.25)):
        alone = prune_neurons(model, feeds, {name: share}, multiple=1)
        assert layers.errors[name][share] == pytest.approx(alone.report.error.rms_relative, rel=1e-4)
    expected = np.hypot(layers.errors["w0"][0.25], 0.5 * layers.errors["w1"][0.75])
    assert np.sqrt(layers.predicted({"w0": 16, "w1": 36})) == pytest.approx(expected, rel=1e-6)
    assert layers.predicted(layers.neurons) == 0


@pytest.mark.parametrize("share", [0.7, 0.3])
def test_as_many_weights_as_with_one_share(share: float) -> None:
    model, feeds = mlp(20, 96, 64, 48, 8).onnx(), calibration(20, 600)
    layers = measure_hidden_layers(model, feeds)
    by_layer = prune_neurons(model, feeds, layers.shares(share)).model
    uniform = prune_neurons(model, feeds, share).model
    weights = [sum(each.rows * each.columns for each in layers_of(one)) for one in (by_layer, uniform, model)]
    assert weights[0] <= weights[1] < weights[2] == layers.weights(layers.neurons)
    assert layers.shares(1.0) == dict.fromkeys(layers.neurons, 1.0)


def test_a_layer_that_is_needed_stays_wide() -> None:
    """The neurons of the second layer are copies of eight."""
    network = mlp(20, 64, 64, 8, seed=3)
    for copy in range(8, 64):
        network.weights[1][:, copy] = network.weights[1][:, copy % 8]
        network.biases[1][copy] = network.biases[1][copy % 8]
    model, feeds = network.onnx(), calibration(20, 800)
    layers = measure_hidden_layers(model, feeds)
    shares = layers.shares(0.5)
    assert shares["w1"] < 0.3
    assert shares["w0"] > 0.8
    errors = [
        output_error(model, prune_neurons(model, feeds, keep).model, calibration(20, 400, seed=9))
        for keep in (shares, 0.5)
    ]
    assert errors[0].rms_relative < 0.5 * errors[1].rms_relative


def test_predictions_are_in_proportion_to_what_training_leaves() -> None:
    network = mlp(16, 96, 64, 48, 4, seed=1)
    model, x = network.onnx(), rows(6000, 16, seed=4)
    queries = Queries(len(x), lambda numbers: {"x": x[numbers]})
    feeds = calibration(16, 2000)
    layers = measure_hidden_layers(model, feeds)
    cases = [{"w0": 0.25}, {"w1": 0.25}, {"w2": 0.25}]
    predicted, left = [], []
    for shares in cases:
        pruned = prune_neurons(model, feeds, shares).model
        left.append(fine_tune(model, pruned, queries).after.rms_relative)
        predicted.append(
            np.sqrt(layers.predicted(counted(layers, {**dict.fromkeys(layers.neurons, 1.0), **shares})))
        )
    assert np.argsort(predicted).tolist() == np.argsort(left).tolist()


def _two_towers() -> bytes:
    """Return a model of two chains beside each other, which are multiplied in the end."""
    arrays: dict[str, Any] = {
        "a": rows(12, 32, 1),
        "b": rows(32, 4, 2),
        "c": rows(12, 40, 3),
        "d": rows(40, 4, 4),
    }
    nodes = [
        helper.make_node("MatMul", ["x", "a"], ["p"]),
        helper.make_node("Relu", ["p"], ["q"]),
        helper.make_node("MatMul", ["q", "b"], ["r"]),
        helper.make_node("MatMul", ["x", "c"], ["s"]),
        helper.make_node("Tanh", ["s"], ["t"]),
        helper.make_node("MatMul", ["t", "d"], ["u"]),
        helper.make_node("Mul", ["r", "u"], ["y"]),
    ]
    constants = [numpy_helper.from_array(array, name) for name, array in arrays.items()]
    return model_of(nodes, [info("x", "n", 12)], [info("y", "n", 4)], constants)


def test_layers_beside_each_other_come_after_none() -> None:
    layers = measure_hidden_layers(_two_towers(), calibration(12, 400))
    assert layers.depths == {"a": 0, "c": 0}
    assert layers.weights({"a": 8, "c": 16}) == 12 * 8 + 8 * 4 + 12 * 16 + 16 * 4


def test_models_without_hidden_layers_are_refused() -> None:
    with pytest.raises(UnsupportedError, match="expected a model with a hidden layer between two products"):
        measure_hidden_layers(mlp(8, 16).onnx(), calibration(8))

"""Fine-tuning: rounded forward passes are those of converted models, gradients, and what training gains."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
import torch
from onnx import helper, numpy_helper

from graphbox.compress.dense import (
    Calibration,
    Queries,
    can_fine_tune,
    dense_method,
    dense_methods,
    fine_tune,
    prune_neurons,
)
from graphbox.compress.dense.block_weights import block_codes
from graphbox.compress.dense.rounded_module import RoundedModule, straight_through
from graphbox.compress.dense.weight_codes import weight_codes
from graphbox.errors import DataError, UnsupportedError
from graphbox.export.onnx_to_torch import OnnxModule
from tests.compress.dense.onnx_models import (
    Floats,
    calibration,
    info,
    mlp,
    model_of,
    relative_error,
    rows,
    run,
)

ROUNDED = [method.name for method in dense_methods() if method.name != "float16"]


def queries_of(x: Floats) -> Queries:
    return Queries(len(x), lambda numbers: {"x": x[numbers]})


def torch_answer(module: OnnxModule, x: Floats) -> Floats:
    answer: Floats = module(torch.tensor(x))[0].detach().numpy()
    return answer


@pytest.mark.parametrize("operator", ["Gemm", "MatMul"])
@pytest.mark.parametrize("name", ROUNDED)
def test_the_forward_pass_is_that_of_the_converted_model(name: str, operator: str) -> None:
    model, feeds, method = (
        mlp(40, 64, 48, 20, seed=3).onnx(operator),
        calibration(40, 200),
        dense_method(name),
    )
    module = RoundedModule(model, method.roundings(model, feeds))
    converted = method.convert(model, feeds).model
    x = rows(64, 40, seed=7)
    received = torch_answer(module, x)
    rounding = relative_error(run(model, x), received)
    assert rounding > 0.005
    # Where a value is halfway between two codes, sums in another order may make the other one of it; and
    # int8_static rounds biases, which training does not.
    allowed = 0.15 if name == "int8_static" else 0.05
    assert relative_error(run(converted, x), received) < allowed * rounding


@pytest.mark.parametrize("name", ROUNDED)
def test_only_the_layers_that_are_converted_round(name: str) -> None:
    model, feeds, method = mlp(40, 64, 48, 20).onnx(), calibration(40), dense_method(name)
    roundings = method.roundings(model, feeds, ["w1"])
    assert set(roundings) == {"h1"}
    converted = method.convert(model, feeds, ["w1"]).model
    x = rows(32, 40)
    assert relative_error(torch_answer(RoundedModule(model, roundings), x), run(converted, x)) < 4e-3


@pytest.mark.parametrize("shape", [(64, 12), (33, 5), (7, 3), (1, 1)])
def test_values_of_codes_are_near_the_matrix(shape: tuple[int, int]) -> None:
    matrix = rows(*shape)
    for bits, largest in ((4, 0.15), (8, 0.01)):
        values = block_codes(matrix, bits, 32).values(shape[0], bits)
        assert values.shape == shape
        assert relative_error(values, matrix) < largest
    assert relative_error(weight_codes(matrix).values(), matrix) < 0.02


def test_gradients_pass_rounding_as_if_it_were_not_there() -> None:
    """They are those of the product of the rounded operands."""
    network, method = mlp(40, 24), dense_method("int4_weights")
    model = network.onnx()
    module = RoundedModule(model, method.roundings(model))
    x = torch.tensor(rows(16, 40), requires_grad=True)
    ahead = torch.tensor(rows(16, 24, seed=4))
    (module(x)[0] * ahead).sum().backward()
    rounding = method.roundings(model)["y"]
    rounded_x = rounding.activations(x.detach())
    rounded_weight = torch.tensor(rounding.weight(network.weights[0]))
    weight = module.weights["w0"]  # stored transposed
    assert weight.grad is not None
    assert x.grad is not None
    torch.testing.assert_close(weight.grad, ahead.T @ rounded_x)
    torch.testing.assert_close(x.grad, ahead @ rounded_weight.T)
    bias = module.weights["b0"].grad
    torch.testing.assert_close(bias, ahead.sum(0))


def test_straight_through_is_exact() -> None:
    exact = torch.tensor([0.3, 1e8, -7.7], requires_grad=True)
    received = straight_through(exact, exact.round())
    assert received.tolist() == exact.round().tolist()
    received.sum().backward()  # type: ignore[no-untyped-call]
    assert exact.grad is not None
    assert exact.grad.tolist() == [1, 1, 1]


@pytest.mark.parametrize(("keep", "name"), [(0.5, None), (0.5, "int8"), (1.0, "int4_weights")])
def test_training_makes_the_error_on_other_queries_smaller(keep: float, name: str | None) -> None:
    network, method = mlp(48, 96, 64, 8, seed=3), None if name is None else dense_method(name)
    model, feeds = network.onnx(), calibration(48, 512)
    pruned = prune_neurons(model, feeds, keep).model
    tuned = fine_tune(model, pruned, queries_of(rows(6000, 48, seed=5)), method=method)
    assert tuned.is_better
    assert len(tuned.model) == len(pruned)
    x = rows(500, 48, seed=99)

    def error(candidate: bytes) -> float:
        converted = candidate if method is None else method.convert(candidate).model
        return relative_error(run(converted, x), network.answer(x))

    assert error(tuned.model) < 0.9 * error(pruned)
    assert error(pruned) == pytest.approx(tuned.before.rms_relative, rel=0.15)
    assert error(tuned.model) == pytest.approx(tuned.after.rms_relative, rel=0.15)


def test_the_same_seed_gives_the_same_bytes_with_any_number_of_threads() -> None:
    model, method = mlp(24, 64, 32, 8).onnx(), dense_method("int4_weights")
    queries, before = queries_of(rows(1000, 24)), torch.get_num_threads()

    def tuned(threads: int, seed: int = 0) -> bytes:
        torch.set_num_threads(threads)
        try:
            return fine_tune(model, model, queries, method=method, seed=seed).model
        finally:
            assert torch.get_num_threads() == threads
            torch.set_num_threads(before)

    assert tuned(1) == tuned(2)
    assert tuned(1) != tuned(1, seed=1)


def _with_output(operator: str, columns: int) -> bytes:
    """Return an MLP with an activation at its end."""
    model = onnx.load_model_from_string(mlp(24, 64, columns, seed=6).onnx())
    model.graph.node[-1].output[0] = "logits"
    model.graph.node.append(helper.make_node(operator, ["logits"], ["y"]))
    return bytes(model.SerializeToString())


@pytest.mark.parametrize(("operator", "columns"), [("Sigmoid", 1), ("Softmax", 5), ("Tanh", 4)])
def test_probabilities_and_other_outputs_are_learned(operator: str, columns: int) -> None:
    model = _with_output(operator, columns)
    pruned = prune_neurons(model, calibration(24, 512), 0.4).model
    tuned = fine_tune(model, pruned, queries_of(rows(4000, 24, seed=5)))
    assert tuned.after.rms_relative < 0.9 * tuned.before.rms_relative


def test_a_model_that_cannot_be_better_is_not_called_so() -> None:
    model = mlp(24, 32, 8).onnx()
    tuned = fine_tune(model, model, queries_of(rows(300, 24)))
    assert tuned.before.rms_relative == 0
    assert not tuned.is_better


def test_constant_features_and_outputs_do_no_harm() -> None:
    model = mlp(8, 32, 4).onnx()
    queries = queries_of(np.ones((200, 8), np.float32))
    pruned = prune_neurons(model, calibration(8, 300), 0.25).model
    tuned = fine_tune(model, pruned, queries, method=dense_method("int4_weights"))
    assert np.isfinite(run(tuned.model, rows(9, 8))).all()
    assert np.isfinite(tuned.after.rms_relative)


def test_constants_that_something_else_reads_are_left_alone() -> None:
    """A bias that is also a factor, an exponent, and a bias that several products add."""
    arrays: dict[str, Any] = {
        "w": rows(8, 16),
        "shared": np.full(16, 2.0, np.float32),
        "v": rows(16, 4),
        "own": np.ones(4, np.float32),
    }
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["h"]),
        helper.make_node("Add", ["h", "shared"], ["a"]),
        helper.make_node("Pow", ["a", "shared"], ["p"]),
        helper.make_node("MatMul", ["p", "v"], ["q"]),
        helper.make_node("Add", ["own", "q"], ["y"]),
    ]
    constants = [numpy_helper.from_array(array, name) for name, array in arrays.items()]
    model = model_of(nodes, [info("x", "n", 8)], [info("y", "n", 4)], constants)
    module = RoundedModule(model, {})
    assert list(module.weights) == ["w", "v", "own"]
    assert module.biases == {"own": "v"}
    tuned = fine_tune(model, model, queries_of(rows(300, 8)), method=dense_method("int4_weights"))
    kept = {
        each.name: numpy_helper.to_array(each)
        for each in onnx.load_model_from_string(tuned.model).graph.initializer
    }
    np.testing.assert_array_equal(kept["shared"], arrays["shared"])
    assert not np.array_equal(kept["w"], arrays["w"])


def _without_translation() -> bytes:
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["h"]),
        helper.make_node("Det", ["square"], ["d"]),
        helper.make_node("Add", ["h", "d"], ["y"]),
    ]
    arrays = {"w": rows(8, 16), "square": rows(2, 2)}
    constants = [numpy_helper.from_array(array, name) for name, array in arrays.items()]
    return model_of(nodes, [info("x", "n", 8)], [info("y", "n", 16)], constants)


def _without_weights() -> bytes:
    return model_of([helper.make_node("Relu", ["x"], ["y"])], [info("x", "n", 8)], [info("y", "n", 8)], [])


@pytest.mark.parametrize(
    ("model", "count", "message"),
    [
        pytest.param(mlp(8, 16, 4).onnx(), 63, "at least 64 queries to be trained on, received 63", id="few"),
        pytest.param(mlp(8, 16, 4).onnx(), 0, "at least 64 queries to be trained on, received 0", id="none"),
        pytest.param(
            _without_translation(), 99, "no torch function is known for the operators Det", id="torch"
        ),
        pytest.param(_without_weights(), 99, "expected a model with matrix products", id="no weights"),
    ],
)
def test_models_that_cannot_be_trained_are_refused(model: bytes, count: int, message: str) -> None:
    queries = queries_of(rows(count, 8)) if count else None
    assert not can_fine_tune(model, queries)
    with pytest.raises(UnsupportedError, match=message):
        fine_tune(model, model, queries)


def test_numbers_that_are_not_finite_are_refused() -> None:
    network = mlp(8, 16, 4)
    x = rows(200, 8)
    x[117, 3] = np.nan
    with pytest.raises(DataError, match="expected finite calibration feeds"):
        fine_tune(network.onnx(), network.onnx(), queries_of(x))
    network.weights[0][2, 2] = np.inf
    assert not can_fine_tune(network.onnx(), queries_of(rows(200, 8)))
    with pytest.raises(DataError, match="expected finite weights"):
        fine_tune(network.onnx(), network.onnx(), queries_of(rows(200, 8)))


def test_large_models_are_trained_for_fewer_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """Never for none: the bound is on operations, so that a search ends in bounded time."""
    from graphbox.compress.dense import fine_tuning

    model = mlp(24, 64, 8).onnx()
    taken: list[int] = []

    def count(numbers: Any) -> dict[str, Floats]:
        return {"x": x[numbers]}

    x = rows(1000, 24)
    original = fine_tuning._Adam.step

    def step(self: Any, factor: float) -> None:
        taken.append(1)
        original(self, factor)

    monkeypatch.setattr(fine_tuning._Adam, "step", step)
    fine_tune(model, model, Queries(1000, count))
    whole = len(taken)
    assert whole == 2 * 13  # 800 queries, 64 at a time, in two epochs
    for operations, expected in ((1e7, range(3, 20)), (1.0, range(2, 3))):
        taken.clear()
        monkeypatch.setattr(fine_tuning, "_MAX_OPERATIONS", operations)
        fine_tune(model, model, Queries(1000, count))
        assert len(taken) in expected


def test_adam_is_that_of_torch() -> None:
    from graphbox.compress.dense.fine_tuning import _Adam

    model = mlp(6, 5, 3).onnx()
    module, twin = RoundedModule(model, {}), RoundedModule(model, {})
    sizes = {name: float(weight.detach().square().mean().sqrt()) for name, weight in twin.weights.items()}
    groups = [
        {"params": [weight], "lr": 0.02 * sizes[twin.biases.get(name, name)]}
        for name, weight in twin.weights.items()
    ]
    mine, reference = _Adam(module, 0.02), torch.optim.Adam(groups)
    for seed in range(5):
        x = torch.tensor(rows(9, 6, seed))
        for each in (module, twin):
            each.zero_grad()
            each(x)[0].square().mean().backward()
        mine.step(1.0)
        reference.step()
    for name, weight in module.weights.items():
        torch.testing.assert_close(weight, twin.weights[name], rtol=1e-5, atol=1e-7)


def test_calibration_of_queries_takes_them_in_order() -> None:
    x = rows(100, 4)
    feeds = Calibration.of_queries(queries_of(x), np.arange(70)[::-1], batch=32)
    assert [len(feed["x"]) for feed in feeds.feeds] == [32, 32, 6]
    np.testing.assert_array_equal(np.concatenate([feed["x"] for feed in feeds.feeds]), x[69::-1])

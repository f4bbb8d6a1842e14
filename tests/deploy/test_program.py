"""Feeds are checked before any adapter sees them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from graphbox.deploy import CheckedProgram, DeployedEncoder, Options, Package, choose, compile_model
from graphbox.deploy.conformance_models import OPERATORS, gather_model, sum_model
from graphbox.deploy.onnx_writer import Node, write_onnx
from graphbox.errors import FormatError, InvalidRequestError, UnsupportedError, UsageError


@pytest.fixture
def program() -> CheckedProgram:
    adapter, device = choose("onnxruntime")
    return compile_model(adapter, sum_model(), device, Options())


X = np.ones((2, 3), np.float32)


@pytest.mark.parametrize(
    ("feeds", "message"),
    [
        ({}, r"expected exactly the inputs \['x'\]; missing: \['x'\]"),
        ({"X": X}, r"unknown: \['X'\], missing: \['x'\]"),
        ({"x": X, "y": X}, r"unknown: \['y'\]"),
        ({"x": X.astype(np.float64)}, r"input `x`: expected float32 \[any, 3\], received float64 \[2, 3\]"),
        ({"x": X[0]}, r"received float32 \[3\]"),
        ({"x": X[:, :2]}, r"received float32 \[2, 2\]"),
        ({"x": X.tolist()}, "received list"),
    ],
)
def test_wrong_feeds_are_refused(program: CheckedProgram, feeds: Any, message: str) -> None:
    with pytest.raises(InvalidRequestError, match=message):
        program.run(feeds)


def test_a_misspelt_input_is_suggested(encoder: DeployedEncoder) -> None:
    feeds = encoder.feeds(np.array([1]))
    feeds["row_tag"] = feeds.pop("rows_tag")
    with pytest.raises(InvalidRequestError) as caught:
        encoder.run(feeds)
    assert caught.value.hint == "did you mean `rows_tag`?"


@pytest.mark.parametrize(
    ("out", "message"),
    [
        ({"results": X.copy()}, r"expected one of the outputs \['result'\]"),
        ({"result": X.astype(np.float64)}, "output `result`: expected float32"),
        ({"result": np.ones((4, 6), np.float32)[::2, ::2]}, "writable row-major"),
        ({"result": np.ones((5, 3), np.float32)}, "refused the feeds"),
        ({"result": np.ones((1, 3), np.float32)}, "refused the feeds"),
    ],
)
def test_wrong_places_for_outputs_are_refused(program: CheckedProgram, out: Any, message: str) -> None:
    with pytest.raises(InvalidRequestError, match=message):
        program.run({"x": X}, out)


def test_minus_one_does_not_read_the_last_row() -> None:
    adapter, device = choose("onnxruntime")
    rows = np.arange(10, dtype=np.float32).reshape(5, 2)
    with compile_model(adapter, gather_model(), device, Options()) as program:
        result = program.run({"rows": rows, "positions": np.array([4, 0])})["result"]
        np.testing.assert_array_equal(result, rows[[4, 0]])
        with pytest.raises(
            InvalidRequestError, match="input `positions`: expected positions of at least 0, received -1"
        ):
            program.run({"rows": rows, "positions": np.array([4, -1])})
        with pytest.raises(
            InvalidRequestError, match="expected positions below 5, the rows of input `rows`, received 5"
        ):
            program.run({"rows": rows, "positions": np.array([5])})


@pytest.mark.parametrize("dtype", [np.int32, np.int64])
def test_minus_one_is_refused_where_the_number_of_rows_is_unknown(dtype: type[np.signedinteger]) -> None:
    """GatherND selects by several axes at once, so that one bound says nothing."""
    adapter, device = choose("onnxruntime")
    nodes = [
        Node("Cast", ["positions"], ["cast"], {"to": 7}),
        Node("GatherND", ["rows", "cast"], ["result"]),
    ]
    inputs: dict[str, Any] = {"rows": (np.float32, ["n", 2]), "positions": (dtype, ["m", 1])}
    model = write_onnx(nodes, inputs, {"result": (np.float32, ["m", 2])})
    rows = np.arange(10, dtype=np.float32).reshape(5, 2)
    with compile_model(adapter, model, device, Options()) as program:
        result = program.run({"rows": rows, "positions": np.array([[4]], dtype)})["result"]
        np.testing.assert_array_equal(result, rows[[4]])
        for position in (-1, np.iinfo(dtype).min):
            with pytest.raises(InvalidRequestError, match=f"at least 0, received {position}"):
                program.run({"rows": rows, "positions": np.array([[0], [position]], dtype)})


def test_inputs_that_do_not_fit_each_other_are_refused(encoder: DeployedEncoder) -> None:
    feeds = encoder.feeds(np.array([1, 2]))
    feeds["self_1_package"] = feeds["self_1_package"][:1]
    with pytest.raises(InvalidRequestError, match="refused the feeds"):
        encoder.run(feeds)


@pytest.mark.parametrize("threads", [0, -2])
def test_threads_are_at_least_one(threads: int) -> None:
    adapter, device = choose("onnxruntime")
    with pytest.raises(UsageError, match=f"at least 1 thread, received {threads}"):
        compile_model(adapter, sum_model(), device, Options(threads=threads))


@pytest.mark.parametrize("threads", [1, 2])
def test_threads_are_those_asked_for(threads: int) -> None:
    adapter, device = choose("onnxruntime")
    with compile_model(adapter, sum_model(), device, Options(threads=threads)) as program:
        assert program.effective["threads"] == threads


@pytest.mark.parametrize("model", [b"", b"not a model", sum_model()[:-9]])
def test_what_is_no_model_is_refused(model: bytes) -> None:
    adapter, device = choose("onnxruntime")
    with pytest.raises(FormatError):
        compile_model(adapter, model, device, Options())


def test_a_model_the_runtime_cannot_run_is_refused_with_its_reason() -> None:
    adapter, device = choose("onnxruntime")
    model = sum_model(operator="NoSuchOperator")
    support = adapter.supports(model, device)
    assert not support.supported
    assert "NoSuchOperator" in (support.reason or "")
    with pytest.raises(UnsupportedError, match="NoSuchOperator"):
        compile_model(adapter, model, device, Options())


def test_lower_precision_has_to_be_allowed() -> None:
    """A backend that quietly computes in fewer bits is refused, unless that was allowed."""
    adapter, device = choose("onnxruntime")

    class Hasty:
        name = "hasty"
        api = 1
        builds_ahead = False
        probe = adapter.probe
        supports = adapter.supports
        build = adapter.build

        def load(self, package: Package) -> Any:
            program: Any = adapter.load(package)
            program.effective = {**program.effective, "precision": "bfloat16"}
            return program

    with pytest.raises(UnsupportedError, match="expected to compute in float32, hasty would in bfloat16"):
        compile_model(Hasty(), sum_model(), device, Options())
    with compile_model(Hasty(), sum_model(), device, Options(allow_lower_precision=True)) as program:
        assert program.effective["precision"] == "bfloat16"


def test_small_models_are_written_as_the_onnx_package_would() -> None:
    import onnx

    for operator in OPERATORS:
        model = onnx.load_model_from_string(operator.model())
        onnx.checker.check_model(model, full_check=True)
        assert model.SerializeToString(deterministic=True) == onnx.load_model_from_string(
            model.SerializeToString()
        ).SerializeToString(deterministic=True)
        assert [value.name for value in model.graph.input] == list(operator.inputs)
        for tensor in model.graph.initializer:
            np.testing.assert_array_equal(onnx.numpy_helper.to_array(tensor), operator.constants[tensor.name])

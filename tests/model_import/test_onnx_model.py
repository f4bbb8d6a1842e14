"""ONNX files of other programs: which are taken and answer as before, and which are refused."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

from graphbox.artifact import Artifact, inspect_onnx
from graphbox.deploy import DeployedTensors, open_model
from graphbox.errors import (
    DataError,
    FormatError,
    GraphboxError,
    InvalidRequestError,
    NotFoundError,
    UnsupportedError,
    UsageError,
)
from graphbox.model_import import add_model, format_of
from tests.model_import.onnx_files import WEIGHTS, linear, linear_with_external_data, model_of, value


def _saved(folder: Path, model: onnx.ModelProto) -> Path:
    path = folder / "model.onnx"
    path.write_bytes(model.SerializeToString())
    return path


def _added(path: Path, **options: Any) -> Artifact:
    return add_model(path, format_of(path), path.parent / "models" / "m" / "1", "m", 1, **options)


def _old() -> onnx.ModelProto:
    inputs = [value("x", ["batch", 8]), value("w", [8, 300])]
    return linear(inputs=inputs, ir_version=3, opsets=[helper.make_opsetid("", 8)])


def _function() -> onnx.ModelProto:
    opsets = [helper.make_opsetid("", 18)]
    node = helper.make_node("Abs", ["a"], ["b"])
    function = helper.make_function("own", "Size", ["a"], ["b"], [node], opsets)
    return model_of(
        [helper.make_node("Size", ["x"], ["y"], domain="own")],
        [value("x", ["n"])],
        [value("y", ["n"])],
        functions=[function],
        opsets=[*opsets, helper.make_opsetid("own", 1)],
    )


def _branches() -> onnx.ModelProto:
    constant = numpy_helper.from_array(np.array([1, 2, 3], np.float32), "three")
    branches: dict[str, Any] = {
        "then_branch": helper.make_graph(
            [helper.make_node("Add", ["x", "three"], ["t"])], "t", [], [value("t", None)], [constant]
        ),
        "else_branch": helper.make_graph(
            [helper.make_node("Neg", ["x"], ["e"])], "e", [], [value("e", None)]
        ),
    }
    return model_of(
        [helper.make_node("If", ["up"], ["y"], **branches)],
        [value("x", ["n", 3]), value("up", [], TensorProto.BOOL)],
        [value("y", None)],
    )


def _sparse() -> onnx.ModelProto:
    values = numpy_helper.from_array(np.array([2, 3], np.float32), "w")
    positions = numpy_helper.from_array(np.array([0, 3], np.int64))
    sparse = helper.make_sparse_tensor(values, positions, [4])
    node = helper.make_node("Gather", ["w", "at"], ["y"])
    return model_of(
        [node], [value("at", ["n"], TensorProto.INT64)], [value("y", ["n"])], sparse_initializer=[sparse]
    )


def _kinds() -> onnx.ModelProto:
    kinds = [TensorProto.UINT16, TensorProto.INT16, TensorProto.FLOAT16, TensorProto.DOUBLE, TensorProto.BOOL]
    names = [f"x{kind}" for kind in kinds]
    return model_of(
        [helper.make_node("Identity", [name], [f"y{name}"]) for name in names],
        [value(name, [None, 2], kind) for name, kind in zip(names, kinds, strict=True)],
        [value(f"y{name}", [None, 2], kind) for name, kind in zip(names, kinds, strict=True)],
    )


def _scalars() -> onnx.ModelProto:
    node = helper.make_node("Mul", ["a", "b"], ["y"])
    return model_of([node], [value("a", []), value("b", [])], [value("y", [])])


def _logarithm() -> onnx.ModelProto:
    node = helper.make_node("Log", ["in put"], ["out/put:0"])
    return model_of([node], [value("in put", ["n"])], [value("out/put:0", ["n"])])


MODELS: dict[str, Callable[[], onnx.ModelProto]] = {
    "linear": linear,
    "unnamed dimensions": lambda: linear(inputs=[value("x", [None, 8])], outputs=[value("y", [None, None])]),
    "-1 as any size": lambda: linear(inputs=[value("x", [-1, 8])], outputs=[value("y", [-1, 300])]),
    "no shape of the output": lambda: linear(outputs=[value("y", None)]),
    "a wider output": lambda: linear(outputs=[value("y", ["batch", "width"])]),
    "fixed size": lambda: linear(inputs=[value("x", [5, 8])], outputs=[value("y", [5, 300])]),
    "constants among the inputs": _old,
    "function of its own": _function,
    "branches": _branches,
    "sparse constant": _sparse,
    "types": _kinds,
    "scalars": _scalars,
    "logarithm": _logarithm,
}


@pytest.mark.parametrize("name", MODELS)
def test_a_model_answers_as_in_its_file(name: str, tmp_path: Path) -> None:
    path = _saved(tmp_path, MODELS[name]())
    artifact = _added(path)
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    with open_model(artifact.path) as model:
        assert isinstance(model, DeployedTensors)
        feeds = model.example_feeds()
        expected = session.run([tensor.name for tensor in model.outputs], feeds)
        for tensor, array in zip(model.outputs, expected, strict=True):
            np.testing.assert_array_equal(model.run(feeds)[tensor.name], array)
            assert np.isfinite(array).all()
        assert [tensor.name for tensor in model.inputs] == [each.name for each in session.get_inputs()]
        assert (model.manifest.inputs, model.manifest.outputs) == (model.inputs, model.outputs)
    summary = inspect_onnx(artifact.onnx_bytes(), "model.onnx")
    sizes = [*summary.dimensions.values(), *summary.output_dimensions.values()]
    assert not summary.unranked
    assert all(
        size != "" and (isinstance(size, str) or 0 <= size < 1 << 31) for each in sizes for size in each
    )


def test_the_shape_of_an_output_is_what_the_runtime_finds(tmp_path: Path) -> None:
    artifact = _added(_saved(tmp_path, linear(outputs=[value("y", ["batch", "width"])])))
    assert artifact.manifest.outputs[0].shape == (-1, 300)


def test_a_model_of_float16_is_one(tmp_path: Path) -> None:
    weights = numpy_helper.from_array(WEIGHTS.astype(np.float16), "w")
    node = helper.make_node("MatMul", ["x", "w"], ["y"])
    inputs = [value("x", ["n", 8], TensorProto.FLOAT16)]
    outputs = [value("y", ["n", 300], TensorProto.FLOAT16)]
    artifact = _added(_saved(tmp_path, model_of([node], inputs, outputs, initializer=[weights])))
    assert artifact.manifest.onnx is not None
    assert artifact.manifest.onnx.precision == "float16"
    with open_model(artifact.path) as model:
        rows = np.eye(8, dtype=np.float16)
        np.testing.assert_array_equal(model.run({"x": rows})["y"], WEIGHTS.astype(np.float16))


def test_data_in_another_file_is_moved_in(tmp_path: Path) -> None:
    artifact = _added(linear_with_external_data(tmp_path))
    (tmp_path / "weights.bin").unlink()
    with open_model(artifact.path) as model:
        rows = np.eye(8, dtype=np.float32)
        np.testing.assert_array_equal(model.run({"x": rows})["y"], WEIGHTS)


def test_data_of_a_branch_is_moved_in(tmp_path: Path) -> None:
    model = _branches()
    branch = next(each for each in model.graph.node[0].attribute if each.name == "then_branch").g
    tensor = branch.initializer[0]
    (tmp_path / "three.bin").write_bytes(b"\0" * 8 + tensor.raw_data)
    tensor.ClearField("raw_data")
    tensor.data_location = TensorProto.EXTERNAL
    for key, text in (("location", "three.bin"), ("offset", "8"), ("length", "12")):
        tensor.external_data.add(key=key, value=text)
    with open_model(_added(_saved(tmp_path, model)).path) as opened:
        rows = np.zeros((1, 3), np.float32)
        assert opened.run({"x": rows, "up": np.array(True)})["y"].tolist() == [[1, 2, 3]]
        assert opened.run({"x": rows + 1, "up": np.array(False)})["y"].tolist() == [[-1, -1, -1]]


def test_data_in_a_folder_below_is_moved_in(tmp_path: Path) -> None:
    path = linear_with_external_data(tmp_path, "data/weights.bin")
    (tmp_path / "data").mkdir()
    (tmp_path / "weights.bin").rename(tmp_path / "data" / "weights.bin")
    assert _added(path).manifest.size_bytes > WEIGHTS.nbytes


def test_data_outside_the_folder_is_refused(tmp_path: Path) -> None:
    for location in ("../weights.bin", str(tmp_path / "weights.bin"), "a/../weights.bin", "", "a\0b"):
        path = linear_with_external_data(tmp_path, location)
        with pytest.raises(DataError, match="in the folder of the model") as caught:
            _added(path)
        assert caught.value.where == f"{path}, tensor `w`"


def test_data_behind_a_link_is_refused(tmp_path: Path) -> None:
    path = linear_with_external_data(tmp_path, "link.bin")
    (tmp_path / "link.bin").symlink_to("/etc/passwd")
    with pytest.raises(DataError, match="is a symbolic link"):
        _added(path)


def test_data_that_is_missing_or_short_is_refused(tmp_path: Path) -> None:
    path = linear_with_external_data(tmp_path)
    content = (tmp_path / "weights.bin").read_bytes()
    (tmp_path / "weights.bin").write_bytes(content[:-1])
    with pytest.raises(DataError, match=f"the file has {len(content) - 1} bytes"):
        _added(path)
    (tmp_path / "weights.bin").unlink()
    with pytest.raises(NotFoundError, match="found no such file"):
        _added(path)


def test_a_model_above_the_limit_of_the_format_is_refused_before_it_is_read(tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    with path.open("wb") as stream:
        stream.truncate(1 << 31)
    with pytest.raises(UnsupportedError, match=r"at most 2,147,483,647 bytes.*received 2,147,483,648"):
        _added(path)
    tensor = TensorProto(name="w", data_type=TensorProto.FLOAT, dims=[1 << 29])
    tensor.data_location = TensorProto.EXTERNAL
    tensor.external_data.add(key="location", value="weights.bin")
    with (tmp_path / "weights.bin").open("wb") as stream:
        stream.truncate(1 << 31)
    node = helper.make_node("Add", ["x", "w"], ["y"])
    _saved(tmp_path, model_of([node], [value("x", [1])], [value("y", [1])], initializer=[tensor]))
    with pytest.raises(UnsupportedError, match="with its data"):
        _added(path)
    assert not (tmp_path / "models" / "m" / "1").exists()


def _custom() -> onnx.ModelProto:
    opsets = [helper.make_opsetid("", 18), helper.make_opsetid("vendor", 1)]
    node = helper.make_node("Magic", ["x"], ["y"], domain="vendor")
    return model_of([node], [value("x", ["n"])], [value("y", ["n"])], opsets=opsets)


def _sequence() -> onnx.ModelProto:
    output = helper.make_tensor_sequence_value_info("y", TensorProto.FLOAT, None)
    node = helper.make_node("SequenceConstruct", ["x"], ["y"])
    return model_of([node], [value("x", ["n"])], [output])


def _texts() -> onnx.ModelProto:
    node = helper.make_node("Identity", ["x"], ["y"])
    texts = [value(name, ["n"], TensorProto.STRING) for name in "xy"]
    return model_of([node], texts[:1], texts[1:])


REFUSED: dict[str, tuple[Callable[[], onnx.ModelProto], type[GraphboxError], str]] = {
    "operator of a vendor": (_custom, UnsupportedError, "received `Magic` of the domain `vendor`"),
    "sequence": (_sequence, UnsupportedError, "received a sequence, a map"),
    "texts": (_texts, UnsupportedError, "received STRING"),
    "input without a shape": (
        lambda: linear(inputs=[value("x", None)]),
        UnsupportedError,
        "`x` has none",
    ),
    "input larger than memory": (
        lambda: linear(inputs=[value("x", ["n", 1 << 20, 1 << 20])]),
        UnsupportedError,
        "`x` has 1,099,511,627,776",
    ),
    "no input": (
        lambda: model_of(
            [helper.make_node("Constant", [], ["y"], value_floats=[1.0])], [], [value("y", [1])]
        ),
        UnsupportedError,
        "at least one input",
    ),
    "operator that ONNX does not have": (
        lambda: model_of([helper.make_node("Nope", ["x"], ["y"])], [value("x", [1])], [value("y", [1])]),
        UnsupportedError,
        "cannot run this model",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_model_that_cannot_be_served_is_refused(name: str, tmp_path: Path) -> None:
    make, error, message = REFUSED[name]
    with pytest.raises(error, match=message):
        _added(_saved(tmp_path, make()))
    assert not list((tmp_path / "models" / "m").iterdir())


def test_a_file_that_is_no_model_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    for content in (b"", b"no model at all", linear().SerializeToString()[:-7]):
        path.write_bytes(content)
        with pytest.raises(FormatError):
            _added(path)


def _sliding() -> onnx.ModelProto:
    """Two inputs of which one is a row longer than the other."""
    ends = numpy_helper.from_array(np.array([-1], np.int64), "end")
    start = numpy_helper.from_array(np.array([0], np.int64), "start")
    nodes = [
        helper.make_node("Slice", ["long", "start", "end"], ["cut"]),
        helper.make_node("Add", ["cut", "short"], ["y"]),
    ]
    inputs = [value("short", ["n", 7]), value("long", ["m", 7])]
    return model_of(nodes, inputs, [value("y", ["n", 7])], initializer=[start, ends])


def test_inputs_of_sizes_that_depend_on_each_other_are_given_by_an_example(tmp_path: Path) -> None:
    path, example = _saved(tmp_path, _sliding()), tmp_path / "request.json"
    request = {
        "inputs": [
            {"name": "short", "datatype": "FP32", "shape": [3, 7], "data": [0.25] * 21},
            {"name": "long", "datatype": "FP32", "shape": [4, 7], "data": [[1.5] * 7] * 4},
        ]
    }
    example.write_text(json.dumps(request))
    artifact = _added(path, example=example)
    assert artifact.example_inputs()[0]["data"] == [0.25] * 21
    with open_model(artifact.path) as opened:
        assert isinstance(opened, DeployedTensors)
        assert opened.run(opened.example_feeds())["y"].tolist() == [[1.75] * 7] * 3


def test_a_model_that_does_not_run_says_what_it_was_given(tmp_path: Path) -> None:
    node = helper.make_node("Reshape", ["x", "shape"], ["y"])
    shape = numpy_helper.from_array(np.array([7, -1], np.int64), "shape")
    model = model_of([node], [value("x", ["n"])], [value("y", [7, None])], initializer=[shape])
    path, example = _saved(tmp_path, model), tmp_path / "request.json"
    with pytest.raises(DataError, match=r"made up by their shapes, `x` \[2\]") as caught:
        _added(path)
    assert caught.value.hint is not None
    assert "--example" in caught.value.hint
    given: list[tuple[Any, str]] = [
        ({"inputs": [{"name": "z", "shape": [7], "data": [1] * 7}]}, "the inputs `x` .FP32."),
        ({"inputs": [{"name": "x", "shape": [7], "data": [1] * 6}]}, "the inputs `x` .FP32."),
        ([], "a KServe v2 request"),
    ]
    for request, message in given:
        example.write_text(json.dumps(request))
        with pytest.raises(UsageError, match=message):
            _added(path, example=example)
    with pytest.raises(UsageError, match="cannot read the example"):
        _added(path, example=tmp_path / "nowhere.json")
    example.write_text(json.dumps({"inputs": [{"name": "x", "shape": [14], "data": [0.5] * 14}]}))
    assert _added(path, example=example).manifest.outputs[0].shape == (7, -1)


def test_positions_out_of_range_are_refused(tmp_path: Path) -> None:
    with open_model(_added(_saved(tmp_path, _sparse())).path) as model:
        assert model.run({"at": np.array([3], np.int64)})["y"].tolist() == [3]
        for wrong in (-1, 4, 1 << 62):
            with pytest.raises(InvalidRequestError, match="input `at`"):
                model.run({"at": np.array([wrong], np.int64)})


def test_feeds_of_a_batch(tmp_path: Path) -> None:
    node = helper.make_node("Add", ["x", "y"], ["z"])
    inputs = [value("x", ["batch", "length", 3]), value("y", ["batch", 1, 3])]
    artifact = _added(_saved(tmp_path, model_of([node], inputs, [value("z", ["batch", "length", 3])])))
    with open_model(artifact.path) as model:
        assert isinstance(model, DeployedTensors)
        feeds = model.batch_feeds(32)
        assert {name: array.shape for name, array in feeds.items()} == {"x": (32, 2, 3), "y": (32, 1, 3)}
        assert model.run(feeds)["z"].shape == (32, 2, 3)


def test_a_batch_of_a_fixed_size_is_the_only_one(tmp_path: Path) -> None:
    model = linear(inputs=[value("x", [5, 8])], outputs=[value("y", [5, 300])])
    with open_model(_added(_saved(tmp_path, model)).path) as opened:
        assert isinstance(opened, DeployedTensors)
        assert opened.batch_feeds(5)["x"].shape == (5, 8)
        with pytest.raises(UsageError, match="expected a batch of 5"):
            opened.batch_feeds(1)

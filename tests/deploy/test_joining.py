"""Calls of every form joined into one: each gets the answer that it gets alone."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from graphbox.artifact import (
    ArtifactWriter,
    FieldsForm,
    LookupForm,
    PaddedBlockForm,
    TensorsForm,
    TensorSpec,
    TriplesForm,
)
from graphbox.artifact.manifest import Datatype
from graphbox.compress.dense.int8_dynamic import METHOD as INT8_DYNAMIC
from graphbox.deploy import DeployedModel, open_model
from graphbox.deploy.cancellation import Cancellation, ExecutionCancelledError, cancellable
from graphbox.deploy.joining import answer_joined, batch_key, join, split
from graphbox.deploy.onnx_writer import Node, write_onnx
from graphbox.deploy.protocol import DTYPE_OF
from graphbox.deploy.signature import (
    NEAREST_SUFFIX,
    ONNX_SUFFIX,
    UNSEEN_SUFFIX,
    WHOLE,
    Outputs,
    Parameters,
    Signature,
)
from graphbox.errors import FormatError, InvalidRequestError, NotFoundError
from tests.artifact.sample_model import make_model, write_encoder
from tests.deploy.form_models import ENTITIES, WRITERS, write_numbers

Arrays = dict[str, npt.NDArray[Any]]
Draw = Callable[[np.random.Generator, int], Arrays]
_PACKAGES, _TAGS = 9, 7


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, DeployedModel]]:
    """Return a model of each form."""
    folder = tmp_path_factory.mktemp("models")
    paths = {
        "rows": WRITERS[LookupForm](folder / "rows").path,
        "rows with a default": write_numbers(folder / "default", "mean").path,
        "encoder": WRITERS[PaddedBlockForm](folder / "encoder").path,
        "unseen": write_encoder(folder / "unseen", make_model(_PACKAGES, _TAGS), unseen=True).path,
        "click": WRITERS[FieldsForm](folder / "click").path,
        "questions": WRITERS[TriplesForm](folder / "questions").path,
        "tensors": write_bare(folder / "tensors", MATRIX).path,
        "select": WRITERS[TensorsForm](folder / "select").path,
    }
    opened = {name: open_model(path, "onnxruntime") for name, path in paths.items()}
    yield opened
    for model in opened.values():
        model.close()


def texts(values: Sequence[str]) -> npt.NDArray[Any]:
    """Return a tensor of BYTES."""
    tensor = np.empty(len(values), object)
    tensor[:] = [value.encode() for value in values]
    return tensor


def chosen(random: np.random.Generator, values: Sequence[str], count: int) -> npt.NDArray[Any]:
    """Return random values as a tensor of BYTES."""
    return texts([values[place] for place in random.integers(0, len(values), count)])


def number_ids(random: np.random.Generator, rows: int) -> Arrays:
    """Return ids of `write_numbers`."""
    return {"id": random.integers(100, 100 + ENTITIES, rows)}


def some_unknown_ids(random: np.random.Generator, rows: int) -> Arrays:
    """Return ids of which some are not those of `write_numbers`."""
    return {"id": random.integers(95, 110, rows)}


def package_ids(random: np.random.Generator, rows: int) -> Arrays:
    """Return ids of `write_padded_block`."""
    return {"id": random.integers(0, _PACKAGES, rows) * 7 - 3}


def unseen_nodes(random: np.random.Generator, rows: int) -> Arrays:
    """Return nodes that the encoder was never given, with random neighbours of all relations."""
    inputs = {
        "feature.size": random.standard_normal(rows).astype(np.float32),
        "feature.section": chosen(random, ["net", "math", "other", ""], rows),
    }
    sources = {
        "package__depends__package": [f"package-{index:03d}" for index in range(_PACKAGES)],
        "package__suggests__package": [f"package-{index:03d}" for index in range(_PACKAGES)],
        "tag__tags__package": [f"tag-{index:03d}" for index in range(_TAGS)],
    }
    for relation, ids in sources.items():
        counts = random.integers(0, 4, rows)
        inputs[f"num_neighbors.{relation}"] = counts
        inputs[f"neighbors.{relation}"] = chosen(random, ids, int(counts.sum()))
    weights = random.random(len(inputs["neighbors.tag__tags__package"]), np.float32)
    return inputs | {"weights.tag__tags__package": weights}


def nearest_queries(random: np.random.Generator, rows: int) -> Arrays:
    """Return ids of the encoder with lists of nodes that may be neighbours, and of nodes that may not."""
    ids = [f"package-{index:03d}" for index in range(_PACKAGES)]
    allowed, denied = random.integers(-1, 4, rows), random.integers(0, 3, rows)
    return {
        "id": chosen(random, ids, rows),
        "allow": chosen(random, ids, int(np.maximum(allowed, 0).sum())),
        "num_allow": allowed,
        "deny": chosen(random, ids, int(denied.sum())),
        "num_deny": denied,
    }


def visits(random: np.random.Generator, rows: int) -> Arrays:
    """Return rows of `write_click`."""
    return {
        "country": chosen(random, ["nl", "de", "fr", "", "xx"], rows),
        "tags": chosen(random, ["1|2", "", "7", "2|7|9"], rows),
        "age": random.integers(0, 30, rows),
        "price": random.choice(np.array([0.5, 1.25, np.nan, 3], np.float32), rows),
    }


def click_feeds(random: np.random.Generator, rows: int) -> Arrays:
    """Return feeds of the ONNX part of `write_click`."""
    return {
        "values": random.standard_normal((rows, 4, 3), np.float32),
        "numbers": random.standard_normal((rows, 4), np.float32),
    }


def questions(random: np.random.Generator, rows: int) -> Arrays:
    """Return questions to `write_knowledge_graph`."""
    return {"id": random.integers(10, 10 + ENTITIES, rows), "relation": texts(["likes"] * rows)}


def vectors(random: np.random.Generator, rows: int) -> Arrays:
    """Return inputs of `MATRIX`."""
    return {"x": random.standard_normal((rows, 3), np.float32)}


CALLS: dict[str, tuple[str, str, Parameters, Draw]] = {
    "rows": ("rows", WHOLE, {}, number_ids),
    "default row": ("rows with a default", WHOLE, {}, some_unknown_ids),
    "encoder": ("encoder", WHOLE, {"node_type": "package"}, package_ids),
    "unseen": ("unseen", UNSEEN_SUFFIX, {}, unseen_nodes),
    "nearest": ("unseen", NEAREST_SUFFIX, {"k": 3}, nearest_queries),
    "click": ("click", WHOLE, {}, visits),
    "click, ONNX part": ("click", ONNX_SUFFIX, {}, click_feeds),
    "questions": ("questions", WHOLE, {"k": 2, "known": True}, questions),
    "tensors": ("tensors", WHOLE, {}, vectors),
    "tensors, ONNX part": ("tensors", ONNX_SUFFIX, {}, vectors),
}
"""Model, signature, parameters and random inputs, by what is called."""
_EXACT = frozenset({"rows", "default row"})


def assert_equal(found: Outputs, expected: Outputs, *, exact: bool) -> None:
    """Check outputs; without ``exact`` floating-point numbers may differ by rounding."""
    assert list(found) == list(expected)
    for name, values in expected.items():
        assert found[name].dtype == values.dtype
        if values.dtype.kind == "f" and not exact:
            np.testing.assert_allclose(found[name], values, rtol=1e-5, atol=1e-6)
        else:
            np.testing.assert_array_equal(found[name], values)


@pytest.mark.parametrize("name", CALLS)
def test_joined_calls_get_their_own_answers(models: dict[str, DeployedModel], name: str) -> None:
    model, suffix, parameters, draw = CALLS[name]
    signature = models[model].signature(suffix)
    random = np.random.default_rng(5)
    # ONNX Runtime cannot multiply a matrix without rows by a vector.
    fewest = 1 if suffix == ONNX_SUFFIX else 0
    for _ in range(20):
        requests = [draw(random, int(rows)) for rows in random.integers(fewest, 5, random.integers(1, 17))]
        assert len({batch_key(signature, request, parameters) for request in requests}) == 1
        answers = answer_joined(signature, requests, parameters)
        assert len(answers) == len(requests)
        for request, answer in zip(requests, answers, strict=True):
            assert isinstance(answer, dict)
            assert_equal(answer, signature.infer(request, parameters), exact=name in _EXACT)


def test_each_of_many_rows_comes_back_to_its_call(models: dict[str, DeployedModel]) -> None:
    """Every row has a tag of its own, and the output of a row tells it."""
    signature = models["rows"].signature(WHOLE)
    rows = signature.infer({"id": np.arange(100, 100 + ENTITIES)})["embedding"]
    random = np.random.default_rng(6)
    for _ in range(50):
        tags = [random.integers(0, ENTITIES, rows) for rows in random.integers(0, 40, 64)]
        for tag, answer in zip(
            tags, answer_joined(signature, [{"id": 100 + tag} for tag in tags], {}), strict=True
        ):
            assert isinstance(answer, dict)
            np.testing.assert_array_equal(answer["embedding"], rows[tag])


def test_outputs_are_views_of_those_of_the_joined_call(models: dict[str, DeployedModel]) -> None:
    signature = models["rows"].signature(WHOLE)
    joined = join(signature, [{"id": np.array([100])}, {"id": np.array([101, 102])}])
    assert joined.rows == [1, 2]
    outputs = signature.answer(joined.inputs, {})
    for part in split(outputs, joined.rows):
        assert np.shares_memory(part["embedding"], outputs["embedding"])
        assert part["embedding"].flags.c_contiguous


def test_outputs_of_another_number_of_rows_are_refused() -> None:
    with pytest.raises(FormatError, match="expected 3 rows in the output `y`, received 2"):
        split({"y": np.zeros((2, 1))}, [1, 2])


def test_calls_of_other_parameters_are_not_joined(models: dict[str, DeployedModel]) -> None:
    signature = models["questions"].signature(WHOLE)
    inputs = questions(np.random.default_rng(0), 1)
    calls: list[Parameters] = [{}, {"k": 1}, {"k": True}, {"k": 1.0}, {"k": 2}, {"k": 1, "known": True}]
    assert len({batch_key(signature, inputs, each) for each in calls}) == len(calls)
    assert batch_key(signature, inputs, {"k": 1, "known": True}) == batch_key(
        signature, inputs, {"known": True, "k": 1}
    )


def test_calls_of_other_sizes_beyond_the_first_axis_are_not_joined(tmp_path: Path) -> None:
    artifact = write_bare(tmp_path / "1", {"y": [Node("Neg", ["x"], ["y"])]}, columns="m")
    with open_model(artifact.path, "onnxruntime") as model:
        signature = model.signature(WHOLE)
        assert signature.joinable
        keys = [
            batch_key(signature, {"x": np.zeros(shape, np.float32)}, {}) for shape in ((1, 3), (2, 3), (2, 4))
        ]
    assert keys[0] == keys[1] != keys[2]


def test_calls_of_inconsistent_rows_are_not_joined(models: dict[str, DeployedModel]) -> None:
    """Joined with a call of the opposite mistake they would pass."""
    random = np.random.default_rng(0)
    signature = models["click"].signature(WHOLE)
    short, long = visits(random, 2), visits(random, 3)
    assert batch_key(signature, {**short, "age": long["age"]}, {}) is None
    signature = models["unseen"].signature(UNSEEN_SUFFIX)
    counts = "num_neighbors.tag__tags__package"
    nodes = unseen_nodes(random, 3)
    assert batch_key(signature, nodes, {}) is not None
    assert batch_key(signature, {**nodes, counts: nodes[counts] + 1}, {}) is None
    signature = models["unseen"].signature(NEAREST_SUFFIX)
    query = nearest_queries(random, 1) | {"num_allow": np.array([-1]), "allow": texts([])}
    assert batch_key(signature, query, {}) is not None
    assert batch_key(signature, {**query, "allow": texts(["package-000"])}, {}) is None


def test_a_parameter_that_is_no_scalar_is_answered_alone(models: dict[str, DeployedModel]) -> None:
    signature = models["questions"].signature(WHOLE)
    assert batch_key(signature, questions(np.random.default_rng(0), 1), {"k": [1]}) is None


@pytest.mark.parametrize("bad", [[3], [0, 9, 15], list(range(16))])
def test_the_error_of_a_call_is_its_own(models: dict[str, DeployedModel], bad: list[int]) -> None:
    signature = models["rows"].signature(WHOLE)
    executions = []

    def counted(inputs: Any, parameters: Parameters) -> Outputs:
        executions.append(len(inputs["id"]))
        return signature.answer(inputs, parameters)

    requests = [{"id": np.array([7 if place in bad else 100 + place % 5])} for place in range(16)]
    answers = answer_joined(replace(signature, answer=counted), requests, {})
    for place, (request, answer) in enumerate(zip(requests, answers, strict=True)):
        if place in bad:
            assert isinstance(answer, NotFoundError)
            assert "received `7`" in str(answer)
            assert "16 ids" not in str(answer)
        else:
            assert isinstance(answer, dict)
            assert_equal(answer, signature.infer(request), exact=True)
    assert executions[0] == 16
    # Each bad call divides the calls it is among log2(16) = 4 times at most.
    assert len(executions) <= 1 + 2 * 4 * len(bad)


def test_messages_name_places_of_their_own_call(models: dict[str, DeployedModel]) -> None:
    signature = models["click"].signature(WHOLE)
    random = np.random.default_rng(0)
    good, bad = visits(random, 3), visits(random, 2)
    bad["country"][1] = b"\xff"
    first, second = answer_joined(signature, [good, bad], {})
    assert isinstance(first, dict)
    assert isinstance(second, InvalidRequestError)
    assert "input `country`, element 1" in str(second)


def test_errors_of_all_kinds_are_of_the_call_that_has_them(models: dict[str, DeployedModel]) -> None:
    signature = models["questions"].signature(WHOLE)
    good = questions(np.random.default_rng(0), 2)
    bad = {**good, "relation": texts(["likes", "hates"])}
    for answer in answer_joined(signature, [good, bad], {"k": 1001}):
        assert isinstance(answer, InvalidRequestError)
    first, second = answer_joined(signature, [good, bad], {"k": 1})
    assert isinstance(first, dict)
    assert isinstance(second, NotFoundError)


def test_a_cancelled_execution_is_not_repeated(models: dict[str, DeployedModel]) -> None:
    cancellation = Cancellation()
    cancellation.cancel()
    requests = [package_ids(np.random.default_rng(0), 1)] * 4
    with cancellable(cancellation), pytest.raises(ExecutionCancelledError):
        answer_joined(models["encoder"].signature(WHOLE), requests, {})


# ---- bare ONNX files: which of them have rows that do not change each other ----

Graph = dict[str, list[Node]]
MATRIX: Graph = {"y": [Node("MatMul", ["x", "weight"], ["product"]), Node("Tanh", ["product"], ["y"])]}
INDEPENDENT: dict[str, Graph] = {
    "matrix": MATRIX,
    "softmax of a row": {"y": [Node("Softmax", ["x"], ["y"], {"axis": 1})]},
    "cumulative sum in a row": {"y": [Node("CumSum", ["x", "one"], ["y"])]},
}
MIXED: dict[str, Graph] = {
    "mean of the batch": {
        "y": [
            Node("ReduceMean", ["x", "zeros"], ["mean"], {"keepdims": 1}),
            Node("Sub", ["x", "mean"], ["y"]),
        ]
    },
    "softmax over rows": {"y": [Node("Softmax", ["x"], ["y"], {"axis": 0})]},
    "cumulative sum over rows": {"y": [Node("CumSum", ["x", "zero"], ["y"])]},
    "a small part of the largest row": {
        "y": [
            Node("ReduceMax", ["x", "zeros"], ["largest"], {"keepdims": 1}),
            Node("Mul", ["largest", "small"], ["part"]),
            Node("Add", ["x", "part"], ["y"]),
        ]
    },
    "rows in reverse order": {
        "y": [
            Node("Shape", ["x"], ["shape"]),
            Node("Slice", ["x", "minus_one", "smallest", "zeros", "minus_one"], ["y"]),
        ]
    },
    "one number for all": {"y": [Node("Mul", ["x", "none"], ["y"])]},
    "no finite number": {"y": [Node("Log", ["x"], ["y"])]},
    "dynamic quantization": {
        "y": [
            Node("DynamicQuantizeLinear", ["x"], ["q", "scale", "zero_point"]),
            Node("MatMulInteger", ["q", "codes", "zero_point"], ["product"]),
            Node("Cast", ["product"], ["float"], {"to": 1}),
            Node("Mul", ["float", "scale"], ["y"]),
        ]
    },
}
CONSTANTS: Arrays = {
    "weight": np.random.default_rng(1).standard_normal((3, 3)).astype(np.float32),
    "zero": np.array(0),
    "one": np.array(1),
    "zeros": np.array([0]),
    "minus_one": np.array([-1]),
    "smallest": np.array([np.iinfo(np.int64).min]),
    "small": np.array([1e-2], np.float32),
    "none": np.array([0], np.float32),
    "codes": np.arange(9, dtype=np.uint8).reshape(3, 3),
}


def write_bare(
    path: Path,
    graph: Graph,
    *,
    columns: int | str = 3,
    rows: tuple[int | str, int | str] = ("n", "n"),
    example_rows: int = 2,
    join_calls: bool = True,
    convert: Callable[[bytes], bytes] = bytes,
) -> Any:
    """Write a bare ONNX model of one input and one output, both FP32 [rows, columns]."""
    ((output, nodes),) = graph.items()
    used = {name for node in nodes for name in node.inputs}
    constants = {name: values for name, values in CONSTANTS.items() if name in used}
    model = write_onnx(
        nodes,
        {"x": (np.float32, [rows[0], columns])},
        {output: (np.float32, [rows[1], columns])},
        constants,
    )
    shapes = [tuple(size if isinstance(size, int) else -1 for size in (each, columns)) for each in rows]
    is_quantized = "codes" in used or convert is not bytes
    model = convert(model)
    example = np.random.default_rng(2).standard_normal((example_rows, 3)).round(3)
    with ArtifactWriter(path) as writer:
        writer.set_onnx(
            model,
            opset=20,
            precision="int8_dynamic" if is_quantized else "float32",
            inputs=[TensorSpec(name="x", datatype="FP32", shape=shapes[0])],
            outputs=[TensorSpec(name=output, datatype="FP32", shape=shapes[1])],
        )
        writer.set_preprocess(TensorsForm(join_calls=join_calls))
        writer.set_example(
            [{"name": "x", "datatype": "FP32", "shape": [example_rows, 3], "data": example.ravel().tolist()}]
        )
        return writer.commit(name="bare", version=1, kind="tensors", task=None, dim=1, targets={})


def signature_of(path: Path) -> Signature:
    """Open a model and return its signature; the model is closed."""
    with open_model(path, "onnxruntime") as model:
        model.warm_up()
        return model.signature(WHOLE)


@pytest.mark.parametrize("name", INDEPENDENT)
def test_models_of_independent_rows_are_joined(tmp_path: Path, name: str) -> None:
    assert signature_of(write_bare(tmp_path / "1", INDEPENDENT[name]).path).joinable


def test_models_of_int8_rows_are_joined(tmp_path: Path) -> None:
    """Each row is quantized over its own range; of all rows together it is an example of `MIXED`."""
    path = write_bare(tmp_path / "1", MATRIX, convert=lambda model: INT8_DYNAMIC.convert(model).model).path
    assert signature_of(path).joinable


@pytest.mark.parametrize("name", MIXED)
def test_models_that_mix_rows_are_not_joined(tmp_path: Path, name: str) -> None:
    signature = signature_of(write_bare(tmp_path / "1", MIXED[name]).path)
    assert not signature.joinable
    assert batch_key(signature, {"x": np.zeros((1, 3), np.float32)}, {}) is None


@pytest.mark.parametrize("rows", [("n", "m"), (2, 2)])
def test_rows_of_no_common_name_are_not_joined(tmp_path: Path, rows: tuple[Any, Any]) -> None:
    assert not signature_of(write_bare(tmp_path / "1", MATRIX, rows=rows).path).joinable


def test_an_example_without_rows_is_not_joined(tmp_path: Path) -> None:
    assert not signature_of(write_bare(tmp_path / "1", MATRIX, example_rows=0).path).joinable


def test_joining_is_switched_off_by_the_form(tmp_path: Path) -> None:
    assert not signature_of(write_bare(tmp_path / "1", MATRIX, join_calls=False).path).joinable


def test_bare_parts_with_positions_are_not_joined(models: dict[str, DeployedModel]) -> None:
    for name, suffix in (("select", WHOLE), ("encoder", ONNX_SUFFIX), ("questions", ONNX_SUFFIX)):
        assert not models[name].signature(suffix).joinable


@pytest.mark.parametrize(("axis", "joinable"), [(1, True), (0, False)])
def test_positions_in_a_constant_table_are_varied(tmp_path: Path, axis: int, joinable: bool) -> None:
    """The example has one row, whose copies would show nothing."""
    model = write_onnx(
        [
            Node("Gather", ["table", "word"], ["row"], {"axis": 0}),
            Node("Softmax", ["row"], ["y"], {"axis": axis}),
        ],
        {"word": (np.int64, ["n"])},
        {"y": (np.float32, ["n", 3])},
        {"table": np.random.default_rng(3).standard_normal((5, 3)).astype(np.float32)},
    )
    with ArtifactWriter(tmp_path / "1") as writer:
        writer.set_onnx(
            model,
            opset=20,
            precision="float32",
            inputs=[TensorSpec(name="word", datatype="INT64", shape=(-1,))],
            outputs=[TensorSpec(name="y", datatype="FP32", shape=(-1, 3))],
        )
        writer.set_preprocess(TensorsForm())
        writer.set_example([{"name": "word", "datatype": "INT64", "shape": [1], "data": [4]}])
        writer.commit(name="words", version=1, kind="tensors", task=None, dim=1, targets={})
    assert signature_of(tmp_path / "1").joinable is joinable


@pytest.mark.parametrize("example", [0, 1, 7, -3])
@pytest.mark.parametrize("dtype", ["INT64", "UINT8", "BOOL"])
@pytest.mark.parametrize("columns", [(), (3,)])
@pytest.mark.parametrize("mixes", [False, True])
def test_integers_that_are_no_positions_are_varied(
    tmp_path: Path, dtype: Datatype, example: int, columns: tuple[int, ...], mixes: bool
) -> None:
    """The example has one row, whose copies would have the same largest integer as each row alone."""
    if example < 0 and dtype in ("UINT8", "BOOL"):
        pytest.skip("no negative values")
    nodes = [Node("Cast", ["code"], ["number"], {"to": 1}), Node("Add", ["x", "number"], ["y"])]
    if mixes:
        nodes[0] = Node("Cast", ["code"], ["alone"], {"to": 1})
        nodes.insert(1, Node("ReduceMax", ["alone", "zeros"], ["number"], {"keepdims": 1}))
    value: int | bool = bool(example) if dtype == "BOOL" else example
    write_integers(tmp_path / "1", nodes, dtype, value, columns)
    assert signature_of(tmp_path / "1").joinable is not mixes


@pytest.mark.parametrize(
    "nodes",
    [
        # Positions in the columns of another input: varied within these.
        [Node("GatherElements", ["x", "code"], ["y"], {"axis": 1})],
        # Positions after a sum, which are not recognized as such: values of the example's range are accepted.
        [
            Node("Sub", ["code", "int_one"], ["place"]),
            Node("Gather", ["weight", "place"], ["rows"], {"axis": 0}),
            Node("ReduceSum", ["rows", "two"], ["number"], {"keepdims": 0}),
            Node("Add", ["x", "number"], ["y"]),
        ],
    ],
)
def test_integers_are_varied_within_what_the_model_accepts(tmp_path: Path, nodes: list[Node]) -> None:
    write_integers(tmp_path / "1", nodes, "INT64", 2)
    assert signature_of(tmp_path / "1").joinable


def test_positions_that_cannot_be_varied_are_not_joined(tmp_path: Path) -> None:
    """The rows are computed: only those of the example are known to be there, and 0 is the first."""
    nodes = [
        Node("Mul", ["weight", "small"], ["table"]),
        Node("Gather", ["table", "code"], ["rows"], {"axis": 0}),
        Node("ReduceSum", ["rows", "two"], ["number"], {"keepdims": 0}),
        Node("Add", ["x", "number"], ["y"]),
    ]
    write_integers(tmp_path / "zero", nodes, "INT64", 0)
    assert not signature_of(tmp_path / "zero").joinable
    write_integers(tmp_path / "two", nodes, "INT64", 2)
    assert signature_of(tmp_path / "two").joinable


def write_integers(
    path: Path, nodes: list[Node], dtype: Datatype, example: int, columns: tuple[int, ...] = (3,)
) -> None:
    """Write a bare ONNX model of `x`, FP32, and `code`; the example has one row. All are [rows, *columns]."""
    size = math.prod(columns)
    used = {name for node in nodes for name in node.inputs}
    constants = {"int_one": np.array(1), "two": np.array([2]), **CONSTANTS}
    model = write_onnx(
        nodes,
        {"x": (np.float32, ["n", *columns]), "code": (DTYPE_OF[dtype], ["n", *columns])},
        {"y": (np.float32, ["n", *columns])},
        {name: values for name, values in constants.items() if name in used},
    )
    with ArtifactWriter(path) as writer:
        writer.set_onnx(
            model,
            opset=20,
            precision="float32",
            inputs=[
                TensorSpec(name="x", datatype="FP32", shape=(-1, *columns)),
                TensorSpec(name="code", datatype=dtype, shape=(-1, *columns)),
            ],
            outputs=[TensorSpec(name="y", datatype="FP32", shape=(-1, *columns))],
        )
        writer.set_preprocess(TensorsForm())
        writer.set_example(
            [
                {"name": "x", "datatype": "FP32", "shape": [1, *columns], "data": [0.5] * size},
                {"name": "code", "datatype": dtype, "shape": [1, *columns], "data": [example] * size},
            ]
        )
        writer.commit(name="integers", version=1, kind="tensors", task=None, dim=1, targets={})

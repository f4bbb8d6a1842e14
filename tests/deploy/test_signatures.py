"""Calls of every form of model by named arrays, beside the methods of the form."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pytest

from graphbox.artifact import FieldsForm, Ids, LookupForm, PaddedBlockForm, TensorsForm, TriplesForm
from graphbox.deploy import (
    DeployedClick,
    DeployedEncoder,
    DeployedKnowledgeGraph,
    DeployedModel,
    DeployedTensors,
    open_model,
)
from graphbox.deploy.protocol import DTYPE_OF
from graphbox.deploy.signature import (
    NEAREST_SUFFIX,
    NEAREST_VECTORS_SUFFIX,
    ONNX_SUFFIX,
    UNSEEN_SUFFIX,
    WHOLE,
    decoded_texts,
    node_indices,
)
from graphbox.errors import InvalidRequestError, NotFoundError
from tests.deploy.form_models import WRITERS

Arrays = dict[str, npt.NDArray[Any]]


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[type[Any], DeployedModel]]:
    """Return a model of each form."""
    folder = tmp_path_factory.mktemp("models")
    opened = {
        form: open_model(write(folder / form.__name__ / "1").path, "onnxruntime")
        for form, write in WRITERS.items()
    }
    yield opened
    for model in opened.values():
        model.close()


def array(datatype: str, data: Any) -> npt.NDArray[Any]:
    """Return a tensor as clients send it."""
    if datatype != "BYTES":
        return np.array(data, DTYPE_OF[datatype])
    tensor = np.empty(len(data), object)
    tensor[:] = [each.encode() for each in data]
    return tensor


def example(model: DeployedModel) -> Arrays:
    """Return the inputs of a model's example request."""
    return {
        given["name"]: array(given["datatype"], given["data"]).reshape(given["shape"])
        for given in model.artifact.example_inputs()
    }


@pytest.mark.parametrize("form", WRITERS)
def test_every_form_answers_its_example(models: dict[type[Any], DeployedModel], form: type[Any]) -> None:
    model = models[form]
    signature = model.signature(WHOLE)
    outputs = model.infer(example(model), {"k": 2} if form is TriplesForm else {})
    assert list(outputs) == list(signature.outputs) == [each.name for each in model.manifest.outputs]
    for name, spec in signature.outputs.items():
        assert outputs[name].dtype == (object if spec.datatype == "BYTES" else DTYPE_OF[spec.datatype])
        assert outputs[name].ndim == len(spec.shape)
    assert signature.work(example(model)) > 0
    expected = {WHOLE} if form is LookupForm else {WHOLE, ONNX_SUFFIX}
    if model.manifest.targets:
        expected |= {NEAREST_SUFFIX, NEAREST_VECTORS_SUFFIX}
    assert set(model.signatures) == expected


@pytest.mark.parametrize("form", [LookupForm, PaddedBlockForm])
def test_ids_give_their_embeddings(models: dict[type[Any], DeployedModel], form: type[Any]) -> None:
    model = models[form]
    assert isinstance(model, DeployedEncoder)
    ids = model.ids(np.arange(3))
    (name,) = model.signature(WHOLE).inputs
    found = model.infer({name: array("INT64", ids)})
    np.testing.assert_array_equal(found["embedding"], model.encode(ids))
    assert model.infer({name: array("INT64", [])})["embedding"].shape == (0, model.manifest.dim)
    with pytest.raises(NotFoundError, match=rf"input `{name}`: .*-1"):
        model.infer({name: array("INT64", [-1])})
    with pytest.raises(
        InvalidRequestError, match=r"parameters.node_type: expected one of .* received 'other'"
    ):
        model.infer({name: array("INT64", ids)}, {"node_type": "other"})


def test_rows_give_their_probabilities(models: dict[type[Any], DeployedModel]) -> None:
    model = models[FieldsForm]
    assert isinstance(model, DeployedClick)
    inputs = example(model)
    (found,) = model.infer(inputs).values()
    np.testing.assert_array_equal(found, model.predict_tensors(inputs).probability)


def test_questions_give_their_answers(models: dict[type[Any], DeployedModel]) -> None:
    model = models[TriplesForm]
    assert isinstance(model, DeployedKnowledgeGraph)
    inputs = example(model)
    backwards = dict(reversed(inputs.items()))
    answers, scores = model.infer(backwards, {"k": 2, "known": True}).values()
    (_, ids), (_, relations) = inputs.items()
    for place, (identifier, relation) in enumerate(zip(ids.tolist(), relations.tolist(), strict=True)):
        (expected,) = model.answer(relation.decode(), [identifier], 2, with_known=True)
        assert answers[place].tolist() == model.artifact.ids(expected.node_type).take(expected.index)
        np.testing.assert_array_equal(scores[place], expected.score)
    with pytest.raises(InvalidRequestError, match=r"parameters.k: expected an integer between 1 and 1000"):
        model.infer(inputs, {"k": 0})


def test_arrays_give_the_outputs_of_the_onnx_file(models: dict[type[Any], DeployedModel]) -> None:
    model = models[TensorsForm]
    assert isinstance(model, DeployedTensors)
    inputs = example(model)
    for suffix in (WHOLE, ONNX_SUFFIX):
        (found,) = model.infer(inputs, signature=suffix).values()
        np.testing.assert_array_equal(found, inputs["rows"][inputs["positions"]])


@pytest.mark.parametrize(
    ("changed", "expected"),
    [
        (
            {"rows": np.zeros((2, 3), np.float32)},
            r"input `rows`: expected FP32 .* \[any, 2\], received float32",
        ),
        ({"rows": np.zeros((2, 2))}, r"input `rows`: expected FP32 \(float32\) \[any, 2\], received float64"),
        ({"rows": [[1.0, 2.0]]}, r"input `rows`: expected FP32 .*, received list"),
        ({"positions": None}, r"input `positions`: expected INT64 .*, received NoneType"),
        ({"row": np.zeros(1)}, r"expected the inputs positions, rows; unknown: \['row'\]"),
    ],
)
def test_arrays_that_do_not_fit_are_refused(
    models: dict[type[Any], DeployedModel], changed: dict[str, Any], expected: str
) -> None:
    model = models[TensorsForm]
    with pytest.raises(InvalidRequestError, match=expected):
        model.infer({**example(model), **changed})


def test_names_that_are_missing_or_unknown_are_refused(models: dict[type[Any], DeployedModel]) -> None:
    model = models[TensorsForm]
    with pytest.raises(InvalidRequestError, match=r"missing: \['positions', 'rows'\]"):
        model.infer({})
    with pytest.raises(InvalidRequestError, match=r"expected the parameters \(none\); unknown: \['k'\]"):
        model.infer(example(model), {"k": 1})


def test_elements_that_are_no_bytes_are_refused(models: dict[type[Any], DeployedModel]) -> None:
    model = models[TriplesForm]
    inputs = example(model)
    relations = np.array(["likes"] * len(inputs["relation"]), object)
    with pytest.raises(InvalidRequestError, match=r"input `relation`: expected elements of type bytes"):
        model.infer({**inputs, "relation": relations})


def test_a_signature_that_is_not_there_is_named(models: dict[type[Any], DeployedModel]) -> None:
    with pytest.raises(NotFoundError, match=r"received `numbers.onnx` \(it has no ONNX part: .*rows\)"):
        models[LookupForm].infer({}, signature=ONNX_SUFFIX)
    with pytest.raises(
        NotFoundError, match=r"expected one of `select`, `select.onnx`, received `select.unseen`"
    ):
        models[TensorsForm].infer({}, signature=UNSEEN_SUFFIX)


def test_integer_ids_may_be_given_as_text(models: dict[type[Any], DeployedModel]) -> None:
    ids = models[LookupForm].artifact.ids("item")
    np.testing.assert_array_equal(node_indices(array("BYTES", ["104", "100"]), ids, "id"), [4, 0])
    with pytest.raises(InvalidRequestError, match="expected an integer id of a node of type `item`"):
        node_indices(array("BYTES", ["x"]), ids, "id")
    with pytest.raises(NotFoundError, match=r"input `id`: .*received `7`"):
        node_indices(array("BYTES", ["7"]), ids, "id")


def test_texts_that_cannot_be_ids_are_refused_before_the_default_row() -> None:
    ids = Ids(pa.array(["a", "y" * 1025]), "item")
    np.testing.assert_array_equal(node_indices(array("BYTES", ["b", "a"]), ids, "id", missing=-1), [-1, 0])
    for text in (b"\xff", b"x" * 1025, b"y" * 1025):
        with pytest.raises(InvalidRequestError, match="input `id`: expected texts"):
            node_indices(np.array([b"a", text], object), ids, "id", missing=-1)


@pytest.mark.parametrize("text", [b"\xff", b"x" * 1025])
def test_texts_that_cannot_be_looked_up_name_their_input(text: bytes) -> None:
    with pytest.raises(InvalidRequestError, match="input `relation`: expected texts"):
        decoded_texts(np.array([text], object), "relation")


def test_infinities_are_refused(models: dict[type[Any], DeployedModel]) -> None:
    model = models[FieldsForm]
    inputs = example(model)
    price = np.full_like(inputs["price"], np.inf)
    with pytest.raises(InvalidRequestError, match="input `price`: expected finite numbers"):
        model.infer({**inputs, "price": price})

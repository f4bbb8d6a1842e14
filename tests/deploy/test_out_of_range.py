"""Ids, indices and positions out of range, for every form: a typed error, never the answer of another row."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, get_args

import numpy as np
import pytest

from graphbox.artifact import FieldsForm, LookupForm, PaddedBlockForm, TensorsForm, TriplesForm
from graphbox.artifact.preprocess import Preprocess
from graphbox.deploy import (
    DeployedClick,
    DeployedEncoder,
    DeployedKnowledgeGraph,
    DeployedModel,
    DeployedTensors,
    open_model,
)
from graphbox.deploy.protocol import DTYPE_OF
from graphbox.errors import InvalidRequestError, NotFoundError
from tests.deploy.form_models import WRITERS

ABSENT = (-1, 2**31, 2**62, -(2**63))
BEYOND_INT64 = (2**63, 2**64, -(2**63) - 1)
ENCODERS = (LookupForm, PaddedBlockForm)

Open = Callable[[type[Any]], Any]


@pytest.fixture(scope="module")
def opened(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Open]:
    """Return a function that opens the model of a form, once."""
    folder: Path = tmp_path_factory.mktemp("forms")
    models: dict[type[Any], DeployedModel] = {}

    def open_form(form: type[Any]) -> DeployedModel:
        if form not in models:
            path = folder / form.__name__
            WRITERS[form](path)
            models[form] = open_model(path, "onnxruntime")
        return models[form]

    yield open_form
    for model in models.values():
        model.close()


def test_every_form_is_tested() -> None:
    assert set(WRITERS) == set(get_args(Preprocess))


@pytest.mark.parametrize("form", ENCODERS)
@pytest.mark.parametrize("offset", [0, *ABSENT])
def test_node_indices(opened: Open, form: type[Any], offset: int) -> None:
    model: DeployedEncoder = opened(form)
    index = np.array([0, model.num_queries if offset == 0 else offset], np.int64)
    for call in (model.encode_indices, lambda bad: model.neighbors_of_indices(bad, 1), model.ids):
        with pytest.raises(InvalidRequestError, match=r"expected .*indices .*in \[0, "):
            call(index)
    if form is PaddedBlockForm:
        with pytest.raises(InvalidRequestError, match="expected node indices in"):
            model.feeds(index)


@pytest.mark.parametrize("form", ENCODERS)
@pytest.mark.parametrize("identifier", [*ABSENT, *BEYOND_INT64])
def test_ids(opened: Open, form: type[Any], identifier: int) -> None:
    model: DeployedEncoder = opened(form)
    known = model.ids([0])
    with pytest.raises(NotFoundError, match=f"received `{identifier}`"):
        model.encode([*known, identifier])
    with pytest.raises(NotFoundError):
        model.neighbors([identifier], 1)
    for wrong in (True, 1.0, "0", None):
        with pytest.raises((InvalidRequestError, NotFoundError)):
            model.encode([wrong])  # type: ignore[list-item]


@pytest.mark.parametrize("form", ENCODERS)
@pytest.mark.parametrize("k", [0, -1, 10_000, 2**62])
def test_numbers_of_neighbors(opened: Open, form: type[Any], k: int) -> None:
    model: DeployedEncoder = opened(form)
    with pytest.raises(InvalidRequestError, match="expected k from 1 to"):
        model.neighbors_of_indices(np.zeros(1, np.int64), k)


@pytest.mark.parametrize("form", [PaddedBlockForm, TensorsForm])
def test_positions_of_the_bare_model(opened: Open, form: type[Any]) -> None:
    """Every input of integers, each with every value that selects no row."""
    model: DeployedEncoder | DeployedTensors = opened(form)
    feeds = model.feeds(np.arange(3)) if isinstance(model, DeployedEncoder) else model.example_feeds()
    model.run(feeds)
    names = [tensor.name for tensor in model.inputs if DTYPE_OF[tensor.datatype].kind in "iu"]
    assert names
    for name in names:
        rows = max(len(array) for array in feeds.values())
        for position in (-1, rows, 2**31, 2**62, -(2**63)):
            changed = feeds[name].copy()
            changed.flat[-1] = position
            with pytest.raises(InvalidRequestError, match="expected positions"):
                model.run({**feeds, name: changed})


@pytest.mark.parametrize("value", [*ABSENT, 5])
def test_values_of_columns(opened: Open, value: int) -> None:
    """A value that was not learnt counts as nothing, and is reported."""
    model: DeployedClick = opened(FieldsForm)
    row = {"country": "nl", "tags": [], "age": 7, "price": 1.0}
    known, unknown = {**row, "tags": [1]}, {**row, "tags": [value]}
    answer = model.predict([row, unknown, known])
    assert answer.unseen_fields(1) == ["tags"]
    assert answer.probability[1] == answer.probability[0] != answer.probability[2]


@pytest.mark.parametrize("value", BEYOND_INT64)
@pytest.mark.parametrize("column", ["tags", "age", "price"])
def test_numbers_of_columns_beyond_64_bits(opened: Open, column: str, value: int) -> None:
    model: DeployedClick = opened(FieldsForm)
    row: dict[str, Any] = {"country": "nl", "tags": [], "age": 7, "price": 1.0}
    row[column] = [value] if column == "tags" else value * 10**40 if column == "price" else value
    with pytest.raises(InvalidRequestError, match=f"column `{column}`"):
        model.predict([row])


@pytest.mark.parametrize("to_heads", [False, True])
@pytest.mark.parametrize("index", [5, *ABSENT])
def test_entities(opened: Open, to_heads: bool, index: int) -> None:
    model: DeployedKnowledgeGraph = opened(TriplesForm)
    nodes = np.array([0, index], np.int64)
    for with_known in (False, True):
        with pytest.raises(InvalidRequestError, match=r"expected indices of a .* in \[0, 5\)"):
            model.answer_indices("likes", nodes, 2, to_heads=to_heads, with_known=with_known)
    with pytest.raises(NotFoundError):
        model.answer("likes", [10, index], 2, to_heads=to_heads)


@pytest.mark.parametrize("identifier", BEYOND_INT64)
def test_ids_of_entities(opened: Open, identifier: int) -> None:
    model: DeployedKnowledgeGraph = opened(TriplesForm)
    with pytest.raises(NotFoundError):
        model.answer("likes", [identifier], 2)
    with pytest.raises(NotFoundError, match="expected one of the 1 relations"):
        model.answer("-1", [10], 2)


@pytest.mark.parametrize("k", [-1, 0])
def test_numbers_of_answers(opened: Open, k: int) -> None:
    model: DeployedKnowledgeGraph = opened(TriplesForm)
    with pytest.raises(InvalidRequestError, match="expected k of at least 1"):
        model.answer("likes", [10], k)
    (all_of_them,) = model.answer("likes", [10], 2**62, with_known=True)
    assert len(all_of_them.index) == 5

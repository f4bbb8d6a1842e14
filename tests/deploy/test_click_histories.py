"""Rows with histories as they are served: events one by one, in the rows of what they name."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from graphbox.artifact import Artifact, FieldSpec
from graphbox.deploy import DeployedClick, open_click
from graphbox.fields.keys import digest_number, salt, slot_number
from tests.deploy.form_models import write_click, write_click_of_histories

ROW: dict[str, Any] = {
    "country": "nl", "tags": [1], "age": 7, "price": 1.0, "seen": ["de", "nl"], "place": 7,
}  # fmt: skip


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DeployedClick]:
    folder = tmp_path_factory.mktemp("visits") / "1"
    write_click_of_histories(folder)
    with open_click(folder, "onnxruntime") as opened:
        yield opened


def values(model: DeployedClick, **changes: Any) -> np.ndarray:
    """Return what the network is fed: [bags, dim], of country, tags, age, price, two events, place."""
    from graphbox.deploy.field_columns import columns_of_rows

    rows = model.fields.prepare(columns_of_rows(model.form.fields, [{**ROW, **changes}]))
    fed: np.ndarray = model.feeds(rows)["values"][0]
    return fed


def row_of(model: DeployedClick, text: str) -> np.ndarray:
    """Return the row of a country in the table, by the key that the format describes."""
    key = salt(np.array([slot_number(text)], np.int64), digest_number(b"country"))[0]
    keys = model.artifact.table("values").ids.to_arrow().to_pylist()
    row: np.ndarray = model.artifact.table("values").rows([keys.index(key)])[0]
    return row


def test_each_event_has_the_row_of_the_country(model: DeployedClick) -> None:
    fed = values(model)
    np.testing.assert_array_equal(fed[0], row_of(model, "nl"))
    np.testing.assert_array_equal(fed[4:6], [row_of(model, "de"), row_of(model, "nl")])
    np.testing.assert_array_equal(fed[6], row_of(model, "7"))


@pytest.mark.parametrize(
    ("seen", "events"),
    [
        ([], []),
        (None, []),
        ("fr", ["fr"]),
        (["nl", "nl"], ["nl", "nl"]),
        (["nl", "fr", "xx", "de", "fr"], ["de", "fr"]),
        ([7, "xx"], ["7", None]),
        (["7"], [None]),  # in JSON a text is a text
    ],
)
def test_the_last_events_are_read(model: DeployedClick, seen: Any, events: list[str | None]) -> None:
    expected = [np.zeros(3) if text is None else row_of(model, text) for text in events]
    expected += [np.zeros(3)] * (2 - len(events))
    np.testing.assert_array_equal(values(model, seen=seen)[4:6], expected)


@pytest.mark.parametrize(
    ("seen", "unseen"),
    [([], []), (["xx", "nl"], []), (["nl", "xx", "yy"], ["seen"]), (["xx"], ["seen"])],
)
def test_a_history_of_which_nothing_is_known_is_told(
    model: DeployedClick, seen: list[str], unseen: list[str]
) -> None:
    assert model.predict([{**ROW, "seen": seen}]).unseen_fields(0) == unseen


def test_a_category_that_spells_an_integer_is_that_integer(model: DeployedClick) -> None:
    np.testing.assert_array_equal(values(model, country="7")[0], row_of(model, "7"))
    assert model.predict([{**ROW, "country": "07"}]).unseen_fields(0) == ["country"]
    assert model.predict([{**ROW, "place": 8}]).unseen_fields(0) == ["place"]


def test_tensors_have_the_probabilities_of_rows(model: DeployedClick) -> None:
    rows = [ROW, {**ROW, "seen": []}, {**ROW, "seen": ["nl", "fr", 7]}]
    tensors = {
        "country": np.array([b"nl"] * 3, object),
        "tags": np.array([b"1"] * 3, object),
        "age": np.array([7] * 3),
        "price": np.ones(3, np.float32),
        "seen": np.array([b"de|nl", b"", b"nl|fr|7"], object),
        "place": np.array([7] * 3),
    }
    expected = model.predict(rows).probability
    np.testing.assert_array_equal(model.predict_tensors(tensors).probability, expected)
    assert len(set(expected.tolist())) == 3


def test_versions_without_histories_are_written_as_before(tmp_path: Path) -> None:
    write_click(tmp_path / "1")
    write_click_of_histories(tmp_path / "2")
    plain, shared = (
        json.loads((tmp_path / folder / "preprocess.json").read_text())["fields"] for folder in "12"
    )
    keys = {"name", "kind", "dim", "mean", "deviation", "knots"}
    assert [set(each) for each in plain] == [keys] * 4
    assert {key for each in shared for key in each} == keys | {"window", "items"}
    fields = Artifact.open(tmp_path / "2").preprocess.fields  # type: ignore[union-attr]
    assert [(each.window, each.items) for each in fields][4:] == [(2, "country"), (None, "country")]


@pytest.mark.parametrize(
    "wrong",
    [
        {"name": "a", "kind": "categorical", "window": 2},
        {"name": "a", "kind": "boolean", "items": "a"},
        {"name": "a", "kind": "integer", "items": "a", "mean": (0.0,), "deviation": (1.0,), "knots": (1.0,)},
        {"name": "a", "kind": "slots", "window": 0},
    ],
)
def test_other_kinds_have_no_histories(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"window|items|mean"):
        FieldSpec(**wrong)

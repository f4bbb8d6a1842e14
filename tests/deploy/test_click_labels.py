"""Rows whose model has several labels: a probability of each, by every signature."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from graphbox.artifact import FieldsForm
from graphbox.deploy import DeployedClick, open_click
from tests.deploy.form_models import write_click, write_click_of_labels

ROW: dict[str, Any] = {"country": "nl", "tags": [1], "age": 7, "price": 1.0}


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DeployedClick]:
    folder = tmp_path_factory.mktemp("visits") / "1"
    write_click_of_labels(folder)
    with open_click(folder, "onnxruntime") as opened:
        yield opened


def test_a_row_has_a_probability_of_each_label(model: DeployedClick, tmp_path: Path) -> None:
    rows = [ROW, {**ROW, "country": "de"}, {**ROW, "price": 9.0}]
    found = model.predict(rows)
    assert found.probabilities.shape == (3, 2)
    logit = np.log(found.probability / (1 - found.probability))
    np.testing.assert_allclose(found.probabilities[:, 1], 1 / (1 + np.exp(logit / 2)), rtol=1e-5)
    write_click(tmp_path / "1")
    with open_click(tmp_path / "1", "onnxruntime") as one:
        np.testing.assert_array_equal(one.predict(rows).probability, found.probability)
        assert one.predict(rows).probabilities.shape == (3, 1)


def test_outputs_are_named_by_label(model: DeployedClick) -> None:
    inputs = {
        "country": np.array([b"nl", b"de"], object),
        "tags": np.array([b"1", b""], object),
        "age": np.array([7, 30]),
        "price": np.array([1.0, np.nan], np.float32),
    }
    found = model.infer(inputs)
    assert list(found) == ["probability", "probability.bought"]
    assert all(each.shape == (2,) and each.flags.c_contiguous for each in found.values())
    expected = model.predict_tensors(inputs).probabilities
    np.testing.assert_array_equal(np.stack(list(found.values()), axis=1), expected)


def test_versions_of_one_label_are_written_as_before(tmp_path: Path) -> None:
    write_click(tmp_path / "1")
    write_click_of_labels(tmp_path / "2")
    plain, several = (json.loads((tmp_path / each / "preprocess.json").read_text()) for each in "12")
    assert several.pop("labels") == ["clicked", "bought"]
    assert plain == several


@pytest.mark.parametrize("labels", [["clicked"], ["clicked", "clicked"], ["clicked", ""]])
def test_labels_are_several_and_named_once(tmp_path: Path, labels: list[str]) -> None:
    form = write_click_of_labels(tmp_path / "1").preprocess
    assert isinstance(form, FieldsForm)
    with pytest.raises(ValueError, match="labels"):
        FieldsForm.model_validate({**form.model_dump(), "labels": tuple(labels)})

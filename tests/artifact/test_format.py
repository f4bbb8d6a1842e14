"""The files that version 1 of the format wrote open and answer as they did then."""

from __future__ import annotations

import json
from pathlib import Path
from typing import get_args

import numpy as np
import pytest

from graphbox.artifact import Artifact
from graphbox.artifact.manifest import Kind
from graphbox.deploy import open_click, open_encoder, open_knowledge_graph, open_model
from tests.artifact.format_files import click_answers, graph_answers, row_answers, tensor_answers
from tests.row_codecs.reference import CODECS

FOLDER = Path(__file__).parents[1] / "formats" / "artifact-1"
EXPECTED = json.loads((FOLDER / "expected.json").read_text())


@pytest.mark.parametrize("version", ["embedding/1", "encoder/1", "encoder/2", "encoder/3"])
def test_version_1_still_answers_the_same(version: str) -> None:
    expected = EXPECTED[version]
    with open_encoder(FOLDER / version) as model:
        assert model.manifest.format_version == 1
        assert model.manifest.digest == expected["digest"]
        assert list(model.id_index()) == expected["ids"]
        np.testing.assert_allclose(model.encode(expected["ids"]), expected["embeddings"], atol=1e-5)
        assert model.neighbors(expected["ids"][:3], 2)[0].tolist() == expected["neighbors"]


def test_clicks_of_version_1_still_have_the_same_probabilities() -> None:
    expected = EXPECTED["click/1"]
    with open_click(FOLDER / "click" / "1") as model:
        assert (model.manifest.format_version, model.manifest.digest) == (1, expected["digest"])
        found = click_answers(model, expected["rows"])
        np.testing.assert_allclose(found, expected["probabilities"], atol=1e-5)
        assert len(set(expected["probabilities"])) == len(expected["rows"])


def test_knowledge_graphs_of_version_1_still_give_the_same_answers() -> None:
    expected = EXPECTED["knowledge_graph/1"]
    with open_knowledge_graph(FOLDER / "knowledge_graph" / "1") as model:
        assert (model.manifest.format_version, model.manifest.digest) == (1, expected["digest"])
        found = graph_answers(model, expected["questions"])
        for (ids, scores), (known_ids, known_scores) in zip(found, expected["answers"], strict=True):
            assert ids == known_ids
            np.testing.assert_allclose(scores, known_scores, atol=1e-5)


def test_bare_tensors_of_version_1_still_give_the_same_outputs() -> None:
    expected = EXPECTED["tensors/1"]
    with open_model(FOLDER / "tensors" / "1") as model:
        assert (model.manifest.format_version, model.manifest.digest) == (1, expected["digest"])
        np.testing.assert_allclose(tensor_answers(model)["score"], expected["outputs"]["score"], atol=1e-5)


@pytest.mark.parametrize("version", ["rows/1", "rows/2", "rows/3"])
def test_rows_of_all_codecs_are_still_the_same(version: str) -> None:
    expected = EXPECTED[version]
    artifact = Artifact.open(FOLDER / version)
    assert artifact.manifest.digest == expected["digest"]
    assert row_answers(artifact) == expected["tables"]


def test_all_codecs_and_kinds_are_covered() -> None:
    manifests = [Artifact.open(FOLDER / version).manifest for version in EXPECTED]
    assert {spec.codec for manifest in manifests for spec in manifest.tables.values()} == set(CODECS)
    assert {manifest.kind for manifest in manifests} == set(get_args(Kind))
    assert {manifest.onnx.precision for manifest in manifests if manifest.onnx} == {"float32", "int8_dynamic"}

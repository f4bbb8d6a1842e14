"""The files that version 1 of the format wrote open and answer as they did then."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from graphbox.artifact import Artifact
from graphbox.deploy import open_encoder

FOLDER = Path(__file__).parents[1] / "formats" / "artifact-1"
EXPECTED = json.loads((FOLDER / "expected.json").read_text())


@pytest.mark.parametrize("version", sorted(EXPECTED))
def test_version_1_still_answers_the_same(version: str) -> None:
    expected = EXPECTED[version]
    with open_encoder(FOLDER / version) as model:
        assert model.manifest.format_version == 1
        assert model.manifest.digest == expected["digest"]
        assert list(model.id_index()) == expected["ids"]
        np.testing.assert_allclose(model.encode(expected["ids"]), expected["embeddings"], atol=1e-5)
        assert model.neighbors(expected["ids"][:3], 2)[0].tolist() == expected["neighbors"]


def test_all_codecs_and_kinds_are_covered() -> None:
    manifests = [Artifact.open(FOLDER / version).manifest for version in EXPECTED]
    assert {spec.codec for manifest in manifests for spec in manifest.tables.values()} == {
        "float32",
        "int8_rowwise",
    }
    assert {manifest.kind for manifest in manifests} == {"encoder", "embedding"}
    assert {manifest.onnx.precision for manifest in manifests if manifest.onnx} == {"float32", "int8_dynamic"}

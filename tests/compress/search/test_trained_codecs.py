"""Codecs whose codebooks are trained: a search tries them where every other one is above the largest size."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from graphbox.artifact import Artifact, ArtifactWriter, LookupForm, TargetSpec
from graphbox.compress import compress, table_error
from graphbox.compress.encoded_tables import EncodedTables
from graphbox.config import BenchConfig, CompressConfig, RowPrecision, SearchConfig
from graphbox.deploy import DeployedEncoder, DeployedModel, open_model
from graphbox.errors import BackendMissingError, GateError, UnsupportedError
from graphbox.pipeline.compression_search import Quality, Watch, search_version
from graphbox.row_codecs import ArrayRows, Arrays, ResidualCodec, RowSource
from graphbox.row_codecs import residual as residual_module
from graphbox.workspace import Workspace
from tests.server.sample_models import add_model

METRIC = "closeness"
ROWS, DIM = 45_000, 64
"""A table that residual8 makes smaller than int2."""


def _items(rows: int) -> npt.NDArray[np.float32]:
    random = np.random.default_rng(0)
    centers = random.standard_normal((200, DIM), np.float32)
    near = 0.3 * random.standard_normal((rows, DIM), np.float32)
    return centers[random.integers(0, 200, rows)] + near


def write_vectors(path: Path, *, name: str, version: int, rows: int = ROWS) -> Artifact:
    """Write items, in clusters, and a table of tags that is too small for codebooks."""
    with ArtifactWriter(path) as writer:
        for node_type, table in (("item", _items(rows)), ("tag", _items(200))):
            writer.add_ids(node_type, range(len(table)))
            writer.add_table(node_type, node_type, table)
        writer.set_preprocess(LookupForm(node_type="item", tables={"item": "item"}))
        targets = {"item": TargetSpec(table="item", score="cosine")}
        return writer.commit(
            name=name, version=version, kind="embedding", task=None, dim=DIM, targets=targets
        )


@pytest.fixture
def workspace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Workspace:
    """A workspace with the model; codebooks are trained on few rows, which takes a second."""
    monkeypatch.setattr(residual_module, "_MOST_TRAINED", 2_048)
    workspace = Workspace(tmp_path / "workspace")
    add_model(workspace, "vectors", write_vectors)
    return workspace


def closeness(model: DeployedModel, _part: str) -> dict[str, float]:
    """Return 1 minus the relative error of some rows, which were made by `write_vectors`."""
    error = table_error(ArrayRows(_items(ROWS)[:500]), ArrayRows(model.artifact.table("item").block(0, 500)))
    return {METRIC: 1 - error.relative}


def searched(workspace: Workspace, max_size: int, trials: int = 12, **fixed: Any) -> dict[str, Any]:
    """Return the document of a search."""
    search = SearchConfig(trials=trials, max_size=max_size)
    settings = CompressConfig(max_drop="90%", search=search, **fixed)
    quality, bench = Quality(closeness, METRIC), BenchConfig(target="onnxruntime")
    found = search_version(workspace, workspace.model("vectors", 1), settings, bench, quality, Watch())
    document: dict[str, Any] = found["search"]
    return document


def compressed(workspace: Workspace, path: Path, precision: RowPrecision) -> Artifact:
    """Write the model with all tables in one precision, where it suits them."""
    original = Artifact.open(workspace.model("vectors", 1).path)
    settings = CompressConfig(tables=precision, max_drop=1.0)
    compress(original, path, settings, version=2, metric=METRIC, evaluate=closeness)
    return Artifact.open(path)


def tables_of(document: dict[str, Any]) -> set[str]:
    return {codec for trial in document["trials"] for codec in trial["recipe"]["tables"].values()}


def test_a_search_reaches_a_size_that_other_codecs_cannot(
    workspace: Workspace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("faiss")
    encoded: list[int] = []
    encode = ResidualCodec.encode

    def counted(codec: ResidualCodec, source: RowSource) -> Arrays:
        encoded.append(codec.books)
        return encode(codec, source)

    monkeypatch.setattr(ResidualCodec, "encode", counted)
    smallest = sum(
        record.bytes for record in compressed(workspace, tmp_path / "2", "int2").manifest.files.values()
    )
    with pytest.raises(GateError, match="exceeds --max-size"):
        searched(workspace, smallest, trials=3)
    assert encoded == []  # int2 reaches that size: there is nothing to train for
    document = searched(workspace, smallest - 1)
    assert encoded == [8]  # once for all trials and versions; 16 codebooks are more than rows save
    (chosen,) = [point for point in document["points"] if point["key"] == document["chosen"]]
    assert chosen["recipe"]["tables"]["item"] == "residual8"
    assert chosen["size_bytes"] < smallest
    assert set(document["table_errors"]["tag"]) == set(document["table_errors"]["item"]) - {"residual8"}
    assert "residual16" not in tables_of(document)
    written = workspace.model("vectors", chosen["version"])
    artifact = Artifact.open(written.path)
    assert artifact.manifest.tables["item"].codec == "residual(8)"
    error = table_error(ArrayRows(_items(ROWS)), artifact.table("item"))
    assert error.relative == pytest.approx(document["table_errors"]["item"]["residual8"])
    with open_model(written.path) as model:
        assert isinstance(model, DeployedEncoder)
        np.testing.assert_array_equal(model.encode(list(range(500))), artifact.table("item").block(0, 500))
        assert closeness(model, "validation")[METRIC] == chosen["metrics"][METRIC] > 0.5


def test_a_named_codec_is_used_where_it_suits(workspace: Workspace, tmp_path: Path) -> None:
    pytest.importorskip("faiss")
    tables = compressed(workspace, tmp_path / "2", "residual8").manifest.tables
    assert {name: spec.codec for name, spec in tables.items()} == {
        "item": "residual(8)",
        "tag": "int2_rotated",
    }
    document = searched(workspace, 10_000_000, trials=3, tables="residual8")
    assert tables_of(document) == {"residual8", "int2"}
    with pytest.raises(GateError, match="exceeds --max-size"):
        searched(workspace, 1_000, trials=2, tables="residual8")


def test_a_codec_that_makes_no_table_smaller_is_refused(workspace: Workspace, tmp_path: Path) -> None:
    pytest.importorskip("faiss")
    with pytest.raises(UnsupportedError, match="smaller in `residual16` than in `int2`") as refused:
        compressed(workspace, tmp_path / "2", "residual16")
    assert refused.value.hint == "choose `int2`"
    with pytest.raises(UnsupportedError, match="smaller in `residual16` than in `int2`"):
        searched(workspace, 10_000_000, tables="residual16")


def test_without_faiss_trained_codecs_are_refused_by_name_and_not_tried(
    workspace: Workspace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "faiss", None)
    with pytest.raises(BackendMissingError, match="faiss") as refused:
        compressed(workspace, tmp_path / "2", "residual8")
    assert refused.value.hint == "pip install 'graphbox[ann]'"
    with pytest.raises(GateError, match="exceeds --max-size"):
        searched(workspace, 1_000, trials=2)
    (log,) = workspace.search_folder("vectors").glob("*/trials.jsonl")
    assert "residual" not in log.read_text()


def test_tables_are_encoded_once_where_they_are_kept(tmp_path: Path) -> None:
    artifact = write_vectors(tmp_path / "vectors" / "1", name="vectors", version=1, rows=500)
    for folder in (None, tmp_path / "kept"):
        tables = EncodedTables(artifact, folder)
        first, again = tables.encoded("item", "int4"), tables.encoded("item", "int4")
        assert (first is again) == (folder is not None)
        assert first.error == again.error
        expected = first.codec.encode(artifact.table("item"))
        assert first.arrays.keys() == expected.keys()
        for name, array in expected.items():
            np.testing.assert_array_equal(first.arrays[name], array)
        assert first.error.relative > 0

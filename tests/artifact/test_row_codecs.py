"""Model versions with a table in each row codec: files, damaged files, and versions without some nodes."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from graphbox.artifact import Artifact, ArtifactWriter
from graphbox.artifact.forgetting import write_without
from graphbox.artifact.manifest import Manifest
from graphbox.errors import DataError, FormatError
from graphbox.row_codecs import ClusteredCodec, RowCodec, TieredCodec, row_codec
from tests.row_codecs.reference import CODECS

ROWS, DIM = 60, 11
TRAINED_ROWS = 400
RANDOM = np.random.default_rng(0)


def _codec(name: str, rows: int) -> RowCodec:
    codec = row_codec(name)
    if isinstance(codec, ClusteredCodec):
        return ClusteredCodec(_codec(codec.rest.name, rows))
    return TieredCodec(codec.hot, codec.cold, np.arange(rows)) if isinstance(codec, TieredCodec) else codec


def _write(path: Path, name: str) -> Artifact:
    count = ROWS
    if "residual" in name:
        pytest.importorskip("faiss")
        count = TRAINED_ROWS
    rows = RANDOM.standard_normal((count, DIM), np.float32)
    with ArtifactWriter(path) as writer:
        writer.add_ids("item", range(count))
        writer.add_table("item", "item", rows, _codec(name, count))
        writer.set_lookup("item", {"item": "item"}, "mean")
        return writer.commit(name="rows", version=1, kind="embedding", task=None, dim=DIM, targets={})


@pytest.mark.parametrize("name", CODECS)
def test_a_version_has_the_files_of_its_codec_and_no_others(tmp_path: Path, name: str) -> None:
    artifact = _write(tmp_path / "1", name)
    spec = artifact.manifest.tables["item"]
    files = {path for path in artifact.manifest.files if path.startswith("tables/")}
    assert files == {f"tables/item/{file}" for file in row_codec(name).files(spec.rows, spec.dim)}
    assert spec.codec == artifact.table("item").codec == name
    mean = artifact.table("item").block(0, spec.rows).mean(axis=0, dtype=np.float64)
    default = artifact.default_row("item")
    assert default is not None
    np.testing.assert_allclose(default, mean, rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("name", CODECS)
def test_forgetting_keeps_the_other_rows_as_they_are(tmp_path: Path, name: str) -> None:
    artifact = _write(tmp_path / "1", name)
    before = artifact.table("item").block(0, TRAINED_ROWS)
    removed = np.array([0, 3, 4, 58, 59])
    reduced = write_without(artifact, {"item": removed}, tmp_path / "2")
    assert reduced.manifest.tables["item"].codec == name
    np.testing.assert_array_equal(
        reduced.table("item").block(0, TRAINED_ROWS), np.delete(before, removed, axis=0)
    )
    copied = write_without(reduced, {"item": np.arange(1, len(before) - 5)}, tmp_path / "3")
    np.testing.assert_array_equal(copied.table("item").block(0, 9), before[1:2])


def _replace(path: Path, file: str, array: Any) -> None:
    """Replace a file of a version as someone would who also writes its manifest."""
    np.save(path / file, array)
    content = json.loads((path / "manifest.json").read_text())
    data = (path / file).read_bytes()
    content["files"][file] = {"bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}
    (path / "manifest.json").write_text(Manifest.model_validate(content).to_json())


@pytest.mark.parametrize("name", CODECS)
def test_hostile_files_are_format_errors_that_name_the_table(tmp_path: Path, name: str) -> None:
    artifact = _write(tmp_path / "1", name)
    files = [path for path in artifact.manifest.files if path.startswith("tables/")]
    for file in files:
        original = np.load(tmp_path / "1" / file)
        others = [original[:-1], np.repeat(original, 2, axis=-1), original.astype(np.int32), original[None]]
        others += [np.zeros_like(original)] if file.endswith(("signs.npy", "is_hot.npy")) else []
        for other in others:
            _replace(tmp_path / "1", file, other)
            with pytest.raises(FormatError) as caught:
                Artifact.open(tmp_path / "1").table("item")
            assert "tables/item" in str(caught.value.where)
        _replace(tmp_path / "1", file, original)
    assert len(Artifact.open(tmp_path / "1").table("item")) == artifact.manifest.tables["item"].rows


def test_unknown_codecs_are_format_errors_that_list_the_known_ones(tmp_path: Path) -> None:
    _write(tmp_path / "1", "float32")
    text = (tmp_path / "1" / "manifest.json").read_text()
    for name in ("int5_rotated", "tiered(float32,int5)", "x" * 5000):
        content = json.loads(text)
        content["tables"]["item"]["codec"] = name
        (tmp_path / "1" / "manifest.json").write_text(json.dumps(content))
        with pytest.raises(FormatError, match="expected one of the row codecs float32, float16"):
            Artifact.open(tmp_path / "1")


def test_rows_that_a_codec_cannot_hold_are_refused_by_table(tmp_path: Path) -> None:
    with ArtifactWriter(tmp_path / "1") as writer:
        writer.add_ids("item", range(2))
        for name in ("float16", "int8_rowwise", "int2_rotated"):
            with pytest.raises(DataError, match="within 65504") as caught:
                writer.add_table(name, "item", np.full((2, 3), 1e6, np.float32), row_codec(name))
            assert caught.value.where == f"table `{name}`"

"""An artifact, its compressed version, and the gate between them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from graphbox.artifact import Artifact
from graphbox.compress import CODEC_OF_PRECISION, CompressReport, compress
from graphbox.compress.apply import recipe_of
from graphbox.compress.parts import Original, dense_choices
from graphbox.config import BenchConfig, CompressConfig, RowPrecision
from graphbox.deploy import DeployedEncoder, DeployedModel, open_encoder, open_model
from graphbox.errors import GateError, UnsupportedError, UsageError
from tests.artifact.sample_model import SampleModel, make_model, write_embedding, write_encoder

BENCH = BenchConfig(batch_sizes=(1, 16), seconds=0.02)


@pytest.fixture(scope="module")
def sample() -> SampleModel:
    return make_model(packages=500, tags=20)


@pytest.fixture
def artifact(sample: SampleModel, tmp_path: Path) -> Artifact:
    return write_encoder(tmp_path / "sample" / "1", sample)


def _agreement(sample: SampleModel) -> Any:
    """Return an evaluation: how much of the exact ten best is found, computed without the model."""
    nodes = np.arange(0, 500, 5)
    scores = sample.encode(nodes.tolist()) @ sample.target.T
    scores[np.arange(len(nodes)), nodes] = -np.inf
    best = np.argsort(-scores, axis=1)[:, :10]

    def evaluate(model: DeployedEncoder, _part: str) -> Mapping[str, float]:
        found, _ = model.neighbors_of_indices(nodes, 10)
        shared = [len(set(a) & set(b)) / 10 for a, b in zip(found.tolist(), best.tolist(), strict=True)]
        return {"recall@10": float(np.mean(shared)), "queries": float(len(nodes))}

    return evaluate


def test_both_parts_become_int8_and_everything_is_reported(
    artifact: Artifact, sample: SampleModel, tmp_path: Path
) -> None:
    destination = tmp_path / "sample" / "2"
    report = compress(
        artifact,
        destination,
        CompressConfig(max_drop=0.2),
        version=2,
        metric="recall@10",
        evaluate=_agreement(sample),
        bench=BENCH,
    )
    assert report.metric.before == 1.0
    assert 0.8 < report.metric.after < 1.0
    assert report.metric.drop == pytest.approx(report.metric.before - report.metric.after)
    assert report.dense is not None
    assert len(report.dense.converted) == 3
    assert set(report.tables) == {"package", "tag", "target"}
    assert json.loads(json.dumps(report.as_dict()))["size_bytes"]["after"] > 0

    compressed = Artifact.open(destination)
    manifest = compressed.manifest
    assert manifest.onnx is not None
    assert manifest.onnx.precision == "int8_dynamic"
    assert {spec.codec for spec in manifest.tables.values()} == {"int8_rowwise"}
    assert manifest.metrics == {"companion": report.metrics_test}
    assert manifest.lineage.parent == "sample/1"
    assert manifest.lineage.steps == ("export", "tables int8_rowwise", "dense int8_dynamic")
    assert manifest.lineage.run == "run-1"
    assert (manifest.name, manifest.version, manifest.task) == ("sample", 2, "companion")
    sizes = {
        name: sum(
            p.stat().st_size for p in (folder.path).rglob("*") if p.is_file() and p.name != "manifest.json"
        )
        for name, folder in (("before", artifact), ("after", compressed))
    }
    assert (report.size_bytes.before, report.size_bytes.after) == (sizes["before"], sizes["after"])
    assert report.parts_bytes["tables"].after < report.parts_bytes["tables"].before
    assert sum(part.after for part in report.parts_bytes.values()) == report.size_bytes.after


def test_the_compressed_model_answers_like_the_original(
    artifact: Artifact, sample: SampleModel, tmp_path: Path
) -> None:
    destination = tmp_path / "sample" / "2"
    config = CompressConfig(max_drop=1.0)
    compress(
        artifact, destination, config, version=2, metric="m", evaluate=lambda *_: {"m": 1.0}, bench=BENCH
    )
    with open_encoder(destination) as model:
        assert model.effective["precision"] == "int8_dynamic"
        received = model.encode(sample.ids["package"])
        expected = sample.encode(list(range(500)))
        assert 0 < np.linalg.norm(received - expected) / np.linalg.norm(expected) < 0.03
        links = [
            source.links.between("package", 3, "package", np.arange(500))
            for source in (model.artifact, artifact)
        ]
        assert links[0] == links[1]
        assert any(links[0])


@pytest.mark.parametrize(
    ("dense", "tables", "steps"),
    [
        ("int8", "float32", ("dense int8_dynamic",)),
        ("float32", "int8", ("tables int8_rowwise",)),
        ("float32", "float16", ("tables float16",)),
        ("float32", "int4", ("tables int4_rotated",)),
        ("float32", "int3", ("tables int3_rotated",)),
        ("float32", "int2", ("tables int2_rotated",)),
    ],
)
def test_each_part_alone(
    artifact: Artifact, tmp_path: Path, dense: Any, tables: Any, steps: tuple[str, ...]
) -> None:
    config = CompressConfig(dense=dense, tables=tables)
    destination = tmp_path / "sample" / "2"
    report = compress(
        artifact, destination, config, version=2, metric="m", evaluate=lambda *_: {"m": 1.0}, bench=BENCH
    )
    manifest = Artifact.open(destination).manifest
    assert manifest.lineage.steps == ("export", *steps)
    assert (report.dense is None) == (dense == "float32")
    assert bool(report.tables) == (tables != "float32")
    if tables == "float32":
        assert manifest.files["tables/target/rows.npy"] == artifact.manifest.files["tables/target/rows.npy"]
        return
    assert {spec.codec for spec in manifest.tables.values()} == {CODEC_OF_PRECISION[tables].name}
    assert all(0 < error.relative < 0.5 for error in report.tables.values())
    if tables == "float16":
        with open_encoder(destination) as halved, open_encoder(artifact.path) as original:
            ids = list(original.id_index())
            np.testing.assert_allclose(halved.encode(ids), original.encode(ids), rtol=0.01, atol=0.01)
            assert halved.neighbors(ids[:1], 3)[0].shape == (1, 3)


def test_tables_alone_are_compressed_too(sample: SampleModel, tmp_path: Path) -> None:
    artifact = write_embedding(tmp_path / "vectors" / "1", sample)
    destination = tmp_path / "vectors" / "2"
    report = compress(
        artifact,
        destination,
        CompressConfig(),
        version=2,
        metric="m",
        evaluate=lambda *_: {"m": 1.0},
        bench=BENCH,
    )
    assert report.dense is None
    with open_encoder(destination) as model:
        rows = sample.rows["tag"][:, :5]
        error = np.abs(model.encode(sample.ids["tag"], node_type="tag") - rows).max()
        assert 0 < error <= report.tables["tag"].max_absolute * 1.0001


@pytest.mark.parametrize("after", [0.48, float("nan")])
def test_too_large_a_drop_is_refused_and_nothing_is_written(
    artifact: Artifact, tmp_path: Path, after: float
) -> None:
    values = iter([0.5, after])
    with pytest.raises(
        GateError, match=r"expected recall@20 of the validation part to drop by at most 0\.01, it dropped by"
    ) as caught:
        compress(
            artifact,
            tmp_path / "sample" / "2",
            CompressConfig(max_drop=0.01),
            version=2,
            metric="recall@20",
            evaluate=lambda *_: {"recall@20": next(values)},
            bench=BENCH,
        )
    assert caught.value.exit_code == 6
    assert "nothing was written" in (caught.value.hint or "")
    assert [path.name for path in (tmp_path / "sample").iterdir()] == ["1"]


def test_a_gain_is_no_drop(artifact: Artifact, tmp_path: Path) -> None:
    values = iter([0.5, 0.6, 0.4])  # the last one of the test part, which decides nothing
    report = compress(
        artifact,
        tmp_path / "sample" / "2",
        CompressConfig(max_drop=0.0),
        version=2,
        metric="m",
        evaluate=lambda *_: {"m": next(values)},
        bench=BENCH,
    )
    assert report.metric.drop == pytest.approx(-0.1)
    assert report.metrics_test == {"m": 0.4}


@pytest.mark.parametrize("after", [0.5, 0.3])
def test_the_test_part_is_looked_at_once_and_after_the_decision(
    artifact: Artifact, tmp_path: Path, after: float
) -> None:
    asked: list[tuple[int, str]] = []

    def evaluate(model: DeployedModel, part: str) -> Mapping[str, float]:
        asked.append((model.manifest.version, part))
        return {"m": after if model.manifest.version == 2 and part == "validation" else 0.5}

    with nullcontext() if after == 0.5 else pytest.raises(GateError):
        options: Any = {"version": 2, "metric": "m", "evaluate": evaluate, "bench": BENCH}
        compress(artifact, tmp_path / "sample" / "2", CompressConfig(), **options)
    decided = [(1, "validation"), (2, "validation")]
    assert asked == ([*decided, (2, "test")] if after == 0.5 else decided)


def test_the_metric_has_to_be_measured(artifact: Artifact, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="received `recall@2`") as caught:
        compress(
            artifact,
            tmp_path / "sample" / "2",
            CompressConfig(),
            version=2,
            metric="recall@2",
            evaluate=lambda *_: {"recall@20": 0.5},
            bench=BENCH,
        )
    assert caught.value.hint == "did you mean `recall@20`?"


@pytest.mark.parametrize("again", [False, True])
def test_nothing_to_compress_is_said(artifact: Artifact, tmp_path: Path, again: bool) -> None:
    config = CompressConfig() if again else CompressConfig(dense="float32", tables="float32")
    if again:
        compress(
            artifact,
            tmp_path / "sample" / "2",
            config,
            version=2,
            metric="m",
            evaluate=lambda *_: {"m": 1.0},
            bench=BENCH,
        )
        artifact = Artifact.open(tmp_path / "sample" / "2")
    with pytest.raises(UsageError, match="expected something to compress"):
        compress(
            artifact,
            tmp_path / "sample" / "3",
            config,
            version=3,
            metric="m",
            evaluate=lambda *_: {"m": 1.0},
            bench=BENCH,
        )


@pytest.mark.parametrize(
    ("tables", "codecs"),
    [
        (
            {"package": "int3", "tag": "int4_clustered"},
            ("int3_rotated", "clustered(int4_rotated)", "float32"),
        ),
        ({"package": "float32", "*": "int8"}, ("float32", "int8_rowwise", "int8_rowwise")),
        ({"*": "float16"}, ("float16", "float16", "float16")),
    ],
)
def test_tables_have_the_codecs_that_are_named(
    artifact: Artifact, tmp_path: Path, tables: dict[str, RowPrecision], codecs: tuple[str, ...]
) -> None:
    report = compressed(artifact, tmp_path / "sample" / "2", tables)
    found = Artifact.open(tmp_path / "sample" / "2").manifest.tables
    assert {name: spec.codec for name, spec in found.items()} == dict(
        zip(("package", "tag", "target"), codecs, strict=True)
    )
    assert set(report.tables) == {name for name, spec in found.items() if spec.codec != "float32"}
    recipe = recipe_of(CompressConfig(tables=tables), artifact)
    assert set(recipe.unchanged) == {name for name, spec in found.items() if spec.codec == "float32"}


def compressed(artifact: Artifact, path: Path, tables: dict[str, RowPrecision]) -> CompressReport:
    return compress(
        artifact,
        path,
        CompressConfig(dense="float32", tables=tables, max_drop=1.0),
        version=2,
        metric="m",
        evaluate=lambda *_: {"m": 1.0},
        bench=BENCH,
    )


def test_tables_that_are_wrongly_named_are_refused(artifact: Artifact, tmp_path: Path) -> None:
    path = tmp_path / "sample" / "2"
    with pytest.raises(
        UsageError,
        match="expected one of the tables package, tag, target of sample version 1, received `packages`",
    ) as unknown:
        compressed(artifact, path, {"packages": "int8"})
    assert unknown.value.hint == "did you mean `package`?"
    with pytest.raises(UnsupportedError, match="expected the table `tag` to be smaller in `residual8` than"):
        compressed(artifact, path, {"tag": "residual8"})
    assert not path.exists()
    compressed(artifact, path, {"package": "int8"})
    again = Artifact.open(path)
    with pytest.raises(
        UsageError,
        match=r"expected a table of float32 rows, `package` of sample version 2 has .* int8_rowwise",
    ):
        compressed(again, tmp_path / "sample" / "3", {"package": "int3"})
    compressed(again, tmp_path / "sample" / "3", {"package": "float32", "tag": "int8"})


def test_auto_is_resolved_for_the_target(artifact: Artifact) -> None:
    for target, expected in (("onnxruntime", "int8"), ("openvino", "int8_static")):
        with open_model(artifact.path, target=target) as model:
            original = Original(artifact, model, target)
            assert dense_choices(original, "auto") == (expected,)
            assert dense_choices(original, "float16") == ("float16",)
            assert {"float32", expected} < set(dense_choices(original))

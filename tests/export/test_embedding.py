"""Embeddings as artifacts, and as files for other programs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from safetensors.numpy import load_file

from graphbox.deploy import open_encoder
from graphbox.errors import DataError, UsageError
from graphbox.export import EmbeddingSource, NewVersion, export_embedding, export_embeddings

RANDOM = np.random.default_rng(0)


def _source(names: tuple[str, ...] = ("package", "tag")) -> EmbeddingSource:
    counts = dict(zip(names, (30, 12), strict=True))
    return EmbeddingSource(
        node_type=names[0],
        ids={
            name: pa.array([f"{name}-{number}" for number in range(count)]) for name, count in counts.items()
        },
        rows={name: RANDOM.standard_normal((count, 8), np.float32) for name, count in counts.items()},
    )


def test_embeddings_are_served_as_they_were_trained(tmp_path: Path) -> None:
    source = _source()
    result = export_embedding(source, NewVersion(tmp_path / "1", "vectors", 1, "section"))
    assert result.parity is None
    assert (result.artifact.manifest.kind, result.artifact.manifest.onnx) == ("embedding", None)
    with open_encoder(tmp_path / "1") as model:
        for name, rows in source.rows.items():
            ids = source.ids[name].to_pylist()
            np.testing.assert_array_equal(model.encode(ids, node_type=name), rows)
            unit = rows / np.linalg.norm(rows, axis=1, keepdims=True)
            scores = unit @ unit[3]
            scores[3] = -np.inf
            index, _ = model.neighbors([ids[3]], 4, node_type=name)
            assert index[0].tolist() == np.argsort(-scores)[:4].tolist()


def test_node_types_of_any_script_have_tables(tmp_path: Path) -> None:
    source = _source(("软件包", "标签"))
    artifact = export_embedding(source, NewVersion(tmp_path / "1", "vectors", 1, "t")).artifact
    assert sorted(artifact.manifest.tables) == ["node_type_0", "node_type_1"]
    with open_encoder(tmp_path / "1") as model:
        np.testing.assert_array_equal(model.encode(["标签-3"], node_type="标签"), source.rows["标签"][3:4])


@pytest.mark.parametrize("ids", [pa.array(["nginx", "ü", "c d"]), pa.array([5, -7, 2**62], pa.int64())])
def test_files_for_other_programs_hold_ids_and_vectors_in_one_order(tmp_path: Path, ids: pa.Array) -> None:
    vectors = RANDOM.standard_normal((3, 5), np.float32)
    files = export_embeddings(ids, vectors, tmp_path / "out", "package", ("npy", "parquet", "safetensors"))
    assert sorted(path.name for path in files) == [
        "package.ids.txt",
        "package.npy",
        "package.parquet",
        "package.safetensors",
    ]
    assert sorted((tmp_path / "out").iterdir()) == sorted(files)
    np.testing.assert_array_equal(np.load(tmp_path / "out" / "package.npy", allow_pickle=False), vectors)
    np.testing.assert_array_equal(load_file(tmp_path / "out" / "package.safetensors")["vectors"], vectors)
    lines = (tmp_path / "out" / "package.ids.txt").read_text().split("\n")
    assert lines == [*map(str, ids.to_pylist()), ""]
    table = pq.read_table(tmp_path / "out" / "package.parquet")
    assert table.column("id").to_pylist() == ids.to_pylist()
    assert table.schema.field("vector").type == pa.list_(pa.float32(), 5)
    flat = table.column("vector").combine_chunks().flatten().to_numpy()
    np.testing.assert_array_equal(flat.reshape(3, 5), vectors)


def test_large_tables_are_written_in_parts(tmp_path: Path) -> None:
    count = 150_000
    vectors = np.arange(count * 2, dtype=np.float32).reshape(count, 2)
    (path,) = export_embeddings(pa.array(range(count), pa.int64()), vectors, tmp_path, "node", ["parquet"])
    assert pq.ParquetFile(path).num_row_groups == 3
    table = pq.read_table(path)
    assert table.column("id").to_pylist() == list(range(count))
    np.testing.assert_array_equal(
        table.column("vector").combine_chunks().flatten().to_numpy(), vectors.ravel()
    )


def test_an_older_file_is_replaced_whole(tmp_path: Path) -> None:
    for value in (1, 2):
        export_embeddings(pa.array(["a"]), np.full((1, 2), value, np.float32), tmp_path, "package", ["npy"])
    assert np.load(tmp_path / "package.npy").tolist() == [[2, 2]]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["package.ids.txt", "package.npy"]


@pytest.mark.parametrize("text", ["", "two\nlines", "form\ffeed", "line\u2028separator"])
def test_ids_that_need_more_than_a_line_are_refused_where_lines_are_written(
    tmp_path: Path, text: str
) -> None:
    ids, vectors = pa.array(["fine", text]), np.ones((2, 2), np.float32)
    with pytest.raises(DataError, match="fit on one line") as caught:
        export_embeddings(ids, vectors, tmp_path, "package")
    assert caught.value.where == "row 1"
    assert list(tmp_path.iterdir()) == []
    export_embeddings(ids, vectors, tmp_path, "package", ["parquet"])
    assert pq.read_table(tmp_path / "package.parquet").column("id").to_pylist() == ["fine", text]


def test_unknown_formats_are_suggested(tmp_path: Path) -> None:
    with pytest.raises(UsageError) as caught:
        export_embeddings(pa.array(["a"]), np.ones((1, 2), np.float32), tmp_path, "package", ["parket"])
    assert caught.value.hint == "did you mean `parquet`?"


@pytest.mark.parametrize("vectors", [np.ones((2, 2), np.float32), np.ones((1, 2)), np.ones(1, np.float32)])
def test_vectors_have_to_fit_the_ids(tmp_path: Path, vectors: Any) -> None:
    with pytest.raises(DataError, match=r"expected vectors float32 \[1, dim\]"):
        export_embeddings(pa.array(["a"]), vectors, tmp_path, "package")


def test_no_path_hides_in_a_node_type(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="node type"):
        export_embeddings(pa.array(["a"]), np.ones((1, 2), np.float32), tmp_path, "../package")

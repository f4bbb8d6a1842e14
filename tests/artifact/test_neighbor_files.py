"""Neighbour lists in Parquet files: the same lists, a smaller file, and errors that name it."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from graphbox.artifact import Artifact, ArtifactWriter, Manifest, PaddedBlockForm, neighbor_files
from graphbox.artifact.forgetting import write_without
from graphbox.artifact.parquet_files import write_columns
from graphbox.compress.parts import commit_version
from graphbox.deploy.adapters.browser_bundle import write_bundle
from graphbox.errors import FormatError
from tests.artifact.sample_model import make_model, write_encoder


def _packed(tmp_path: Path) -> tuple[Artifact, Artifact]:
    original = write_encoder(tmp_path / "sample" / "1", make_model())
    with ArtifactWriter(tmp_path / "sample" / "2") as writer:
        for node_type in original.node_types:
            writer.add_ids(node_type, original.ids(node_type).to_arrow())
        for name in original.manifest.tables:
            writer.copy_table(original, name)
        writer.copy_onnx(original)
        writer.copy_rest(original)
        return original, commit_version(original, writer, 2, [])


def _check_equal(first: Artifact, second: Artifact) -> None:
    forms = [artifact.preprocess for artifact in (first, second)]
    assert isinstance(forms[0], PaddedBlockForm)
    assert isinstance(forms[1], PaddedBlockForm)
    for layer, other in zip(forms[0].layers, forms[1].layers, strict=True):
        for group, same in zip(layer.groups, other.groups, strict=True):
            lists, found = first.neighbor_lists(group), second.neighbor_lists(same)
            for name in ("start", "counts", "neighbors", "weights"):
                expected, received = getattr(lists, name), getattr(found, name)
                if expected is None:
                    assert received is None
                    continue
                assert (received.dtype, received.flags.c_contiguous) == (expected.dtype, True)
                np.testing.assert_array_equal(received, expected)


def test_packed_lists_are_the_same_lists(tmp_path: Path) -> None:
    original, packed = _packed(tmp_path)
    assert not [path for path in packed.manifest.files if path.endswith(".npy") and "neighbors/" in path]
    _check_equal(original, packed)
    assert packed.links.edge_types == original.links.edge_types
    for edge_type in packed.links.edge_types:
        np.testing.assert_array_equal(packed.links.pairs(edge_type), original.links.pairs(edge_type))
    assert neighbor_files.array_paths(packed.preprocess)  # type: ignore[arg-type]


def test_nodes_are_forgotten_in_packed_lists(tmp_path: Path) -> None:
    removed = {"package": np.array([0, 3, 17])}
    original, packed = _packed(tmp_path)
    without = [
        write_without(each, removed, tmp_path / f"less-{number}")
        for number, each in enumerate((original, packed))
    ]
    assert [path for path in without[1].manifest.files if path.endswith(".counts.parquet")]
    _check_equal(*without)


@pytest.mark.parametrize(
    ("table", "message"),
    [
        (pa.table({"0": pa.array([1, 2], pa.int64())}), "expected columns of type int32, received int64"),
        (pa.table({"0": pa.array([1, None], pa.int32())}), "expected a number in every row, received null"),
        (pa.table({"x": pa.array([1, 2], pa.int32())}), r"expected the columns \['0'\], received \['x'\]"),
        (pa.table({"0": pa.array([1], pa.int32())}), "rows of 1 columns, received 1 of 1"),
    ],
)
def test_damaged_lists_are_format_errors_that_name_the_file(
    tmp_path: Path, table: pa.Table, message: str
) -> None:
    _, packed = _packed(tmp_path)
    form = packed.preprocess
    assert isinstance(form, PaddedBlockForm)
    group = form.layers[0].groups[0]
    pq.write_table(table, packed.path / group.neighbors)
    content = json.loads((packed.path / "manifest.json").read_text())
    data = (packed.path / group.neighbors).read_bytes()
    content["files"][group.neighbors] = {"bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}
    (packed.path / "manifest.json").write_text(Manifest.model_validate(content).to_json())
    with pytest.raises(FormatError, match=message) as caught:
        Artifact.open(packed.path).neighbor_lists(group)
    assert caught.value.where == str(packed.path / group.neighbors)


def test_lists_of_a_graph_take_a_quarter(tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    counts = np.where(random.random((20_000, 4)) < 0.8, 0, random.integers(1, 10, (20_000, 4)))
    neighbors = random.zipf(1.3, int(counts.sum())) % 20_000
    for name, array in (("counts", counts.astype(np.uint16)), ("neighbors", neighbors.astype(np.int32))):
        write_columns(tmp_path / name, array.reshape(len(array), -1))
        assert (tmp_path / name).stat().st_size < 0.4 * array.nbytes


def test_browser_bundles_have_packed_lists_as_arrays(tmp_path: Path) -> None:
    original, packed = _packed(tmp_path)
    descriptions = []
    for number, artifact in enumerate((original, packed)):
        folder = tmp_path / f"bundle-{number}"
        folder.mkdir()
        write_bundle(artifact, folder)
        descriptions.append(json.loads((folder / "bundle.json").read_text()))
    assert descriptions[0]["form"] == descriptions[1]["form"]
    assert descriptions[0]["files"].keys() == descriptions[1]["files"].keys()
    for path in descriptions[0]["files"]:
        if path.startswith("neighbors/"):
            expected, found = (np.load(tmp_path / f"bundle-{number}" / path) for number in range(2))
            np.testing.assert_array_equal(expected, found)

"""Default rows for unknown ids in a model version: written, read back, copied, and refused when damaged."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from graphbox.artifact import Artifact, ArtifactWriter, LookupForm
from graphbox.artifact.forgetting import nodes_held, write_without
from graphbox.artifact.lookup_form import UnknownIds
from graphbox.artifact.preprocess import read_preprocess
from graphbox.artifact.rows import mean_row
from graphbox.errors import FormatError
from graphbox.rows import StoredRows
from tests.artifact.lookup_model import CODECS, DIM, ITEMS, POLICIES, USERS, rows_of, write_lookup

FORMATS = Path(__file__).parents[1] / "formats" / "artifact-1"


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("unknown_ids", POLICIES)
def test_the_default_row_is_read_as_it_was_declared(
    unknown_ids: UnknownIds, codec: str, tmp_path: Path
) -> None:
    artifact = write_lookup(tmp_path / "1", unknown_ids, codec)
    form = artifact.preprocess
    assert isinstance(form, LookupForm)
    assert form.unknown_ids == unknown_ids
    assert [output.name for output in artifact.manifest.outputs] == (
        ["embedding"] if unknown_ids == "refuse" else ["embedding", "known"]
    )
    for node_type in ("user", "item"):
        row = artifact.default_row(node_type)
        if unknown_ids == "refuse":
            assert row is None
            continue
        assert row is not None
        assert row.dtype == np.float32
        assert row.shape == (DIM,)
        if unknown_ids == "zero":
            assert not row.any()
            continue
        table = artifact.table(node_type)
        decoded = table.rows(np.arange(len(table))).astype(np.float64)
        np.testing.assert_allclose(row, decoded.mean(axis=0), rtol=1e-6)
    assert artifact.default_row("package") is None


def test_the_mean_is_summed_in_float64() -> None:
    rows = np.full((200_000, 2), 16_777_216, np.float32)
    rows[:, 1] = 0.1
    np.testing.assert_array_equal(mean_row(StoredRows.of_float32(rows)), rows[0])
    np.testing.assert_array_equal(mean_row(StoredRows.of_float32(rows[:0])), [0, 0])
    largest = np.full((3, 1), np.finfo(np.float32).max)
    np.testing.assert_array_equal(mean_row(StoredRows.of_float32(largest)), largest[0])


def test_types_that_share_a_table_share_its_default(tmp_path: Path) -> None:
    with ArtifactWriter(tmp_path / "1") as writer:
        writer.add_ids("item", [])
        writer.add_table("item", "item", np.empty((0, 4), np.float32))
        writer.set_lookup("item", {"item": "item", "gift": "item"}, "mean")
        artifact = writer.commit(name="rows", version=1, kind="embedding", task=None, dim=4, targets={})
    for node_type in ("item", "gift"):
        np.testing.assert_array_equal(artifact.default_row(node_type), np.zeros(4))


def test_versions_of_before_refuse_unknown_ids() -> None:
    artifact = Artifact.open(FORMATS / "embedding" / "1")
    assert isinstance(artifact.preprocess, LookupForm)
    assert (artifact.preprocess.unknown_ids, artifact.preprocess.defaults) == ("refuse", {})
    assert artifact.default_row(artifact.preprocess.node_type) is None


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"unknown_ids": "mean"}, r"expected defaults of the node types \['item'\]"),
        ({"defaults": {"item": "defaults/item.npy"}}, r"expected defaults of the node types \[\]"),
        ({"unknown_ids": "zero", "defaults": {"user": "a.npy"}}, r"received \['user'\]"),
        ({"unknown_ids": "median"}, "unknown_ids"),
        ({"unknown_ids": "zero", "defaults": {"item": "../a.npy"}}, "defaults"),
    ],
)
def test_forms_that_declare_something_else_are_refused(changes: dict[str, Any], message: str) -> None:
    form = {"form": "lookup", "node_type": "item", "tables": {"item": "item"}, **changes}
    with pytest.raises(FormatError, match=message):
        read_preprocess(json.dumps(form).encode(), Path("preprocess.json"))


@pytest.mark.parametrize(
    "row", [np.zeros(DIM - 1, np.float32), np.zeros(DIM), np.zeros((1, DIM), np.float32)]
)
def test_default_rows_of_other_shapes_are_refused(row: Any, tmp_path: Path) -> None:
    artifact = write_lookup(tmp_path / "1")
    np.save(artifact.path / "defaults" / "item.npy", row)
    with pytest.raises(FormatError, match=r"defaults/item.npy.*shape \[9\]"):
        artifact.default_row("item")


@pytest.mark.parametrize("codec", CODECS)
def test_a_forgotten_row_has_no_part_in_the_mean(codec: str, tmp_path: Path) -> None:
    artifact = write_lookup(tmp_path / "1", "mean", codec)
    held = nodes_held(artifact, {"item": pa.array(["7"], pa.large_string())})
    reduced = write_without(artifact, held, tmp_path / "2")
    table = artifact.table("item")
    kept = table.rows([index for index, item in enumerate(ITEMS) if item != 7])
    row = reduced.default_row("item")
    assert row is not None
    np.testing.assert_allclose(row, kept.mean(axis=0), rtol=1e-6)
    np.testing.assert_array_equal(reduced.default_row("user"), artifact.default_row("user"))
    assert [output.name for output in reduced.manifest.outputs] == ["embedding", "known"]


def test_a_copy_with_other_rows_keeps_the_default(tmp_path: Path) -> None:
    artifact = write_lookup(tmp_path / "1")
    with ArtifactWriter(tmp_path / "2") as writer:
        for node_type in ("user", "item"):
            writer.add_ids(node_type, artifact.ids(node_type).to_arrow())
            writer.add_table(node_type, node_type, rows_of(node_type).astype(np.float16))
        writer.copy_rest(artifact)
        copy = writer.commit(
            name="rows", version=2, kind="embedding", task=None, dim=DIM, targets=artifact.manifest.targets
        )
    for node_type in ("user", "item"):
        np.testing.assert_array_equal(copy.default_row(node_type), artifact.default_row(node_type))
    assert copy.manifest.outputs == artifact.manifest.outputs
    assert len(copy.ids("user")) == len(USERS)

"""Writing, opening and verifying model versions."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from graphbox.artifact import Artifact, ArtifactWriter, LookupForm, Manifest, TargetSpec, check_name
from graphbox.artifact.copies import sha256_of
from graphbox.artifact.links import links_table
from graphbox.artifact.manifest import read_manifest
from graphbox.errors import ConflictError, DataError, FormatError, GateError, NotFoundError, UsageError
from tests.artifact.sample_model import OUT, make_model, write_embedding, write_encoder


@pytest.fixture
def encoder(tmp_path: Path) -> Artifact:
    return write_encoder(tmp_path / "sample" / "1", make_model())


def _rewrite_manifest(artifact: Artifact, **changes: object) -> None:
    """Change keys of the manifest and give it the digest that belongs to the changed content."""
    path = artifact.path / "manifest.json"
    content = json.loads(path.read_text()) | changes
    manifest = Manifest.model_validate(content)
    path.write_text(manifest.to_json())


def test_everything_written_is_read_back(encoder: Artifact) -> None:
    model = make_model()
    manifest = encoder.manifest
    assert (manifest.name, manifest.version, manifest.kind, manifest.dim) == ("sample", 1, "encoder", OUT)
    assert [(t.name, t.datatype, t.shape) for t in manifest.inputs] == [("id", "BYTES", (-1,))]
    assert [(t.name, t.datatype, t.shape) for t in manifest.outputs] == [("embedding", "FP32", (-1, OUT))]
    assert manifest.metrics == {"companion": {"recall@20": 0.5}}
    assert manifest.lineage.steps == ("export",)
    assert encoder.node_types == ("package", "tag")
    for node_type, rows in model.rows.items():
        table = encoder.table(node_type)
        np.testing.assert_array_equal(table.rows(np.arange(len(rows))), rows)
        assert list(table.ids) == model.ids[node_type]
    np.testing.assert_array_equal(encoder.table("target").block(0, 40), model.target)
    assert encoder.table("target").ids is encoder.table("package").ids
    size = sum(path.stat().st_size for path in encoder.path.rglob("*") if path.is_file())
    assert manifest.size_bytes == size - (encoder.path / "manifest.json").stat().st_size


def test_example_request_is_a_kserve_request_for_the_most_linked(encoder: Artifact) -> None:
    request = json.loads((encoder.path / "example_request.json").read_text())
    ids = encoder.ids("package")
    linked = ids.take(encoder.links.most_linked("package", len(ids))[:2])
    data = {"name": "id", "datatype": "BYTES", "shape": [2], "data": linked}
    assert request == {"inputs": [data]}


def test_integer_ids_are_served_as_int64(tmp_path: Path) -> None:
    artifact = write_embedding(tmp_path / "1", make_model(id_kind="int64"))
    assert artifact.manifest.inputs[0].datatype == "INT64"
    assert artifact.ids("tag").index([-3, 4]).tolist() == [0, 1]


def test_every_file_is_protected(encoder: Artifact) -> None:
    for name in encoder.manifest.files:
        path = encoder.path / name
        content = path.read_bytes()
        damaged = bytearray(content)
        damaged[len(damaged) // 2] ^= 1
        path.write_bytes(bytes(damaged))
        with pytest.raises(FormatError, match=r"expected the sha256") as caught:
            Artifact.open(encoder.path)
        assert caught.value.where == str(path)
        path.write_bytes(content[:-1])
        with pytest.raises(FormatError, match=rf"expected {len(content)} bytes, received {len(content) - 1}"):
            Artifact.open(encoder.path, verify=False)
        path.unlink()
        with pytest.raises(FormatError, match="found none"):
            Artifact.open(encoder.path, verify=False)
        path.write_bytes(content)
    Artifact.open(encoder.path)


def test_an_edited_manifest_is_refused(encoder: Artifact) -> None:
    path = encoder.path / "manifest.json"
    path.write_text(path.read_text().replace('"recall@20": 0.5', '"recall@20": 0.9'))
    with pytest.raises(FormatError, match="expected the digest"):
        Artifact.open(encoder.path)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "expected JSON"),
        ("[1, 2]", "expected the format `graphbox-model`, received 'list'"),
        ("{}", "expected the format `graphbox-model`, received None"),
        ('{"format": "graphbox-graph"}', "received 'graphbox-graph'"),
        ('{"format": "graphbox-model", "format_version": 2}', "expected format version 1, received 2"),
        ('{"format": "graphbox-model", "format_version": 1}', "key `name`: Field required"),
        ("[" * 100_000, "expected JSON"),
    ],
)
def test_what_is_no_manifest_is_refused(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "manifest.json").write_text(text)
    with pytest.raises(FormatError, match=message) as caught:
        Artifact.open(tmp_path)
    assert str(tmp_path / "manifest.json") in str(caught.value)


def test_a_missing_model_is_not_found(tmp_path: Path) -> None:
    with pytest.raises(NotFoundError, match=r"folder with manifest\.json"):
        Artifact.open(tmp_path)
    with pytest.raises(NotFoundError):
        Artifact.open(tmp_path / "no" / "such")


@pytest.mark.parametrize(
    "path", ["../secret", "/etc/passwd", "a/../b", "", "a//b", ".hidden", "a/" * 9 + "b", "a\\b"]
)
def test_paths_that_escape_are_refused(encoder: Artifact, path: str) -> None:
    text = (encoder.path / "manifest.json").read_text()
    content = json.loads(text)
    content["files"][path] = {"bytes": 0, "sha256": "0" * 64}
    with pytest.raises(FormatError, match="not a relative path of plain names"):
        read_manifest(json.dumps(content).encode(), encoder.path)


@pytest.mark.parametrize("link", ["model.onnx", "tables", "manifest.json"])
def test_links_are_refused(encoder: Artifact, tmp_path: Path, link: str) -> None:
    moved = tmp_path / "moved"
    (encoder.path / link).rename(moved)
    (encoder.path / link).symlink_to(moved)
    with pytest.raises(FormatError, match="found a symbolic link"):
        Artifact.open(encoder.path)


def test_unknown_keys_are_refused(encoder: Artifact) -> None:
    path = encoder.path / "preprocess.json"
    content = json.loads(path.read_text()) | {"script": "import os"}
    path.write_text(json.dumps(content))
    with pytest.raises(FormatError, match=r"key `padded_block\.script`"):
        Artifact(encoder.path, encoder.manifest)


def test_parts_have_to_fit_together(encoder: Artifact) -> None:
    tables = {name: spec.model_dump() for name, spec in encoder.manifest.tables.items()}
    _rewrite_manifest(encoder, tables={name: tables[name] for name in ("package", "tag")})
    with pytest.raises(FormatError, match="received `target`"):
        Artifact.open(encoder.path)
    _rewrite_manifest(encoder, tables={**tables, "target": tables["target"] | {"dim": 5}}, dim=OUT)
    with pytest.raises(FormatError, match="expected target rows of length 4, received 5"):
        Artifact.open(encoder.path)


def test_a_table_that_is_not_what_the_manifest_says_is_refused(encoder: Artifact) -> None:
    tables = {name: spec.model_dump() for name, spec in encoder.manifest.tables.items()}
    _rewrite_manifest(encoder, tables={**tables, "tag": tables["tag"] | {"dim": 9}})
    with pytest.raises(FormatError, match=r"shape \[7, 9\], received <f4 \[7, 5\]"):
        Artifact.open(encoder.path).table("tag")


def test_pickled_arrays_are_refused(encoder: Artifact) -> None:
    np.save(encoder.path / "tables/tag/rows.npy", np.array([{}, {}], object), allow_pickle=True)
    with pytest.raises(FormatError, match="could not read one"):
        encoder.table("tag")


def _sign(artifact: Artifact, name: str) -> None:
    """Let the manifest have the size and the digest of a file as it is."""
    file = artifact.path / name
    record = {
        "bytes": file.stat().st_size,
        "sha256": sha256_of(file) if file.stat().st_size < 1 << 30 else "0" * 64,
    }
    files = {each: known.model_dump() for each, known in artifact.manifest.files.items()}
    _rewrite_manifest(artifact, files=files | {name: record})


@pytest.mark.parametrize("name", ["preprocess.json", "example_request.json", "model.onnx"])
def test_huge_files_that_are_read_as_a_whole_are_refused(encoder: Artifact, name: str) -> None:
    os.truncate(encoder.path / name, 1 << 42)
    _sign(encoder, name)
    with pytest.raises(FormatError, match=r"expected at most \d+ bytes, received 4398046511104"):
        Artifact.open(encoder.path)


@pytest.mark.parametrize(
    "text", ["[" * 100_000 + "]" * 100_000, '{"inputs": [{"name": ["id"], "data": []}]}']
)
def test_examples_that_are_no_requests_are_refused(encoder: Artifact, text: str) -> None:
    (encoder.path / "example_request.json").write_text(text)
    with pytest.raises(FormatError, match="expected a request with inputs"):
        encoder.example_inputs()


@pytest.mark.parametrize(
    ("column", "message"),
    [
        (pa.array(["a", "b"]), "expected 7 ids, received 2"),
        (pa.array([["a"]] * 7), r"expected the columns \['id'\], received \['id.list.element'\]"),
        (
            pa.array([b"\xff"] + [b"%d" % number for number in range(6)]).view(pa.string()),
            "could not read one",
        ),
        (pa.array(range(7), pa.decimal128(38)), "expected ids of type string or int64"),
        (pa.array([None] * 7, pa.string()), "expected an id in every row"),
    ],
)
def test_ids_of_other_types_are_refused(encoder: Artifact, column: pa.Array, message: str) -> None:
    pq.write_table(pa.table({"id": column}), encoder.path / encoder.manifest.tables["tag"].ids)
    with pytest.raises(FormatError, match=message):
        encoder.ids("tag")


def test_links_that_repeat_in_few_bytes_are_refused(encoder: Artifact) -> None:
    zero = np.zeros(1_000_000, np.int64)
    million = links_table(zero, zero, zero.astype(bool), ("package", "depends", "package"))
    pq.write_table(pa.concat_tables([million] * 30), encoder.path / "links.parquet", compression="zstd")
    with pytest.raises(FormatError, match="rows in a file of this size, received 30000000"):
        _ = encoder.links


def test_links_to_nodes_that_are_not_there_are_refused(encoder: Artifact) -> None:
    ends = np.array([0]), np.array([40]), np.array([False])
    pq.write_table(links_table(*ends, ("package", "depends", "package")), encoder.path / "links.parquet")
    with pytest.raises(FormatError, match=r"expected node indices in \[0, 40\) in links `depends`"):
        _ = encoder.links


def test_unknown_tables_and_node_types_are_suggested(encoder: Artifact) -> None:
    with pytest.raises(NotFoundError) as caught:
        encoder.table("targt")
    assert caught.value.hint == "did you mean `target`?"
    with pytest.raises(NotFoundError) as caught:
        encoder.ids("packages")
    assert caught.value.hint == "did you mean `package`?"


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "-x", "a b", "a" * 129, "ä", "a\n", "a\0"])
def test_names_are_plain(name: str) -> None:
    with pytest.raises(UsageError, match="expected a model name of 1 to 128"):
        check_name(name, "model name")


def test_a_version_is_never_overwritten(encoder: Artifact) -> None:
    before = (encoder.path / "manifest.json").read_bytes()
    with pytest.raises(ConflictError, match="it exists already"):
        write_encoder(encoder.path, make_model(seed=1))
    assert (encoder.path / "manifest.json").read_bytes() == before
    assert [path.name for path in encoder.path.parent.iterdir()] == ["1"]


def test_the_slower_of_two_writers_loses(tmp_path: Path) -> None:
    model = make_model()
    with ArtifactWriter(tmp_path / "1") as writer:
        write_embedding(tmp_path / "1", model)
        writer.add_ids("package", model.ids["package"])
        writer.add_table("package", "package", model.rows["package"])
        writer.set_preprocess(LookupForm(node_type="package", tables={"package": "package"}))
        with pytest.raises(ConflictError):
            writer.commit(name="slow", version=1, kind="embedding", task="t", dim=6, targets={})
    assert Artifact.open(tmp_path / "1").manifest.name == "vectors"
    assert [path.name for path in tmp_path.iterdir()] == ["1"]


def test_what_is_not_committed_is_removed(tmp_path: Path) -> None:
    def stop() -> None:
        with ArtifactWriter(tmp_path / "1") as writer:
            writer.add_ids("package", ["a"])
            raise RuntimeError("stopped")

    with pytest.raises(RuntimeError, match="stopped"):
        stop()
    assert list(tmp_path.iterdir()) == []
    with ArtifactWriter(tmp_path / "1") as writer:
        writer.add_ids("package", ["a"])
    assert list(tmp_path.iterdir()) == []


def test_a_check_can_refuse_a_version_and_can_measure_it(tmp_path: Path) -> None:
    def commit(check: object) -> Artifact:
        with ArtifactWriter(tmp_path / "1") as writer:
            writer.add_ids("package", ["a", "b"])
            writer.add_table("package", "package", np.ones((2, 3), np.float32))
            writer.set_preprocess(LookupForm(node_type="package", tables={"package": "package"}))
            targets = {"package": TargetSpec(table="package", score="cosine")}
            return writer.commit(
                name="m",
                version=1,
                kind="embedding",
                task="t",
                dim=3,
                targets=targets,
                check=check,  # type: ignore[arg-type]
            )

    def refuse(artifact: Artifact) -> None:
        raise GateError(f"{artifact.manifest.name} is too bad")

    with pytest.raises(GateError):
        commit(refuse)
    assert list(tmp_path.iterdir()) == []
    assert commit(lambda artifact: {"t": {"accuracy": 0.25}}).manifest.metrics == {"t": {"accuracy": 0.25}}
    assert Artifact.open(tmp_path / "1").manifest.metrics == {"t": {"accuracy": 0.25}}


_KILLED = """
import os, signal, sys, time
import numpy as np
from graphbox.artifact import ArtifactWriter
with ArtifactWriter(sys.argv[1]) as writer:
    writer.add_ids("package", ["a", "b"])
    writer.add_table("package", "package", np.ones((2, 3), np.float32))
    print("written", flush=True)
    signal.pause()
"""


def test_what_a_killed_writer_left_is_removed_by_the_next_one_and_not_before(tmp_path: Path) -> None:
    process = subprocess.Popen([sys.executable, "-c", _KILLED, str(tmp_path / "1")], stdout=subprocess.PIPE)
    assert process.stdout is not None
    assert process.stdout.readline() == b"written\n"
    (left,) = tmp_path.iterdir()
    with ArtifactWriter(tmp_path / "1"):
        assert left.exists(), "a living writer's folder was taken"
    os.kill(process.pid, signal.SIGKILL)
    process.wait(timeout=30)
    process.stdout.close()
    assert left.exists()
    assert not (tmp_path / "1").exists()
    write_embedding(tmp_path / "1", make_model())
    assert [path.name for path in tmp_path.iterdir()] == ["1"]


_NO_ROOM = """
import resource, sys
import numpy as np
from graphbox.artifact import ArtifactWriter
from graphbox.errors import DoesNotFitError
resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))
try:
    with ArtifactWriter(sys.argv[1]) as writer:
        writer.add_ids("package", [str(number) for number in range(1000)])
        writer.add_table("package", "package", np.ones((1000, 64), np.float32))
except DoesNotFitError as error:
    print(error.exit_code, error)
"""


def test_no_room_is_said_and_nothing_is_left_behind(tmp_path: Path) -> None:
    result = subprocess.run(
        [sys.executable, "-c", _NO_ROOM, str(tmp_path / "1")],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert result.stdout.startswith(f"3 {tmp_path / '1'}: there is no room to write the model")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        (np.ones((2, 3), np.float64), "received float64"),
        (np.array([[1, np.nan, 1]] * 2, np.float32), "expected finite rows"),
        (np.ones((3, 3), np.float32), r"expected rows \[2, dim\], received \[3, 3\]"),
        (np.ones(2, np.float32), r"received \[2\]"),
    ],
)
def test_wrong_rows_are_refused(tmp_path: Path, rows: np.ndarray, message: str) -> None:
    with ArtifactWriter(tmp_path / "1") as writer:
        writer.add_ids("package", ["a", "b"])
        with pytest.raises(DataError, match=message):
            writer.add_table("package", "package", rows)


def test_parts_are_written_once_and_in_order(tmp_path: Path) -> None:
    rows = np.ones((1, 3), np.float32)
    with ArtifactWriter(tmp_path / "1") as writer:
        with pytest.raises(UsageError, match="expected the ids of `package` before its table"):
            writer.add_table("package", "package", rows)
        writer.add_ids("package", ["a"])
        with pytest.raises(UsageError, match="expected the ids of `package` once"):
            writer.add_ids("package", ["a"])
        writer.add_table("package", "package", rows)
        with pytest.raises(UsageError, match="received `package` again"):
            writer.add_table("package", "package", rows)
        with pytest.raises(UsageError, match="file name"):
            writer.add_array("../outside.npy", rows)
        with pytest.raises(UsageError, match="before commit"):
            writer.commit(name="m", version=1, kind="embedding", task="t", dim=3, targets={})

"""The on-disk format: files written by earlier versions open, and every damaged file is named."""

from __future__ import annotations

import itertools
import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from graphbox.errors import ConflictError, FormatError, NotFoundError
from graphbox.graph import EdgeSource, Graph, GraphSource, NodeSource
from graphbox.graph import format as graph_format
from graphbox.graph.array_file import map_array
from graphbox.graph.ingest import import_graph
from graphbox.graph.manifest import encode_manifest

FIXTURE = Path(__file__).parent.parent / "formats" / "graph-1"
LIKES = ("user", "likes", "film")
FOLLOWS = ("user", "follows", "user")


def write_reference(tables: Path, destination: Path) -> None:
    """Import the graph that ``tests/formats/graph-1`` holds; it uses everything the format knows."""
    tables.mkdir()
    pq.write_table(
        pa.table(
            {
                "id": ["zoe", "ann", "łucja", "bob"],
                "age": [31.5, None, 18.0, 77.0],
                "born": [-5, 2**40, 0, 7],
                "city": ["Ulm", None, "Köln", "Ulm"],
                "paid": [True, False, False, True],
                "taste": [[1.0, 0.5], [0.0, -1.0], [2.0, 3.0], [0.25, 0.0]],
            }
        ),
        tables / "user.parquet",
    )
    (tables / "film.csv").write_text("id\n0\n-3\n9223372036854775807\n")
    (tables / "likes.csv").write_text(
        "user,film,stars,when,device\nzoe,0,5,30,tv\nann,0,1,10,\nzoe,-3,2.5,20,phone\nzoe,0,4,40,tv\nbob,1,1,1,tv\n"
    )
    (tables / "follows.csv").write_text("source,target\nbob,ann\nbob,bob\nann,zoe\n")
    kinds: dict[str, Any] = {
        "age": "number",
        "born": "integer",
        "city": "categorical",
        "paid": "boolean",
        "taste": "vector",
    }
    source = GraphSource(
        "films",
        {
            "user": NodeSource(tables / "user.parquet", features=kinds),
            "film": NodeSource(tables / "film.csv"),
        },
        (
            EdgeSource(
                LIKES,
                tables / "likes.csv",
                "user",
                "film",
                weight="stars",
                timestamp="when",
                features={"device": "categorical"},
                reverse="liked_by",
            ),
            EdgeSource(FOLLOWS, tables / "follows.csv"),
        ),
    )
    import_graph(source, destination)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A copy of the fixture that may be damaged."""
    return Path(shutil.copytree(FIXTURE, tmp_path / "graph"))


def files_of(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.is_file())


def test_version_1_opens() -> None:
    graph = Graph.open(FIXTURE, verify_digests=True)
    assert graph.name == "films"
    assert graph.edge_types == [LIKES, ("film", "liked_by", "user"), FOLLOWS]
    assert graph.ids("user").tolist() == ["zoe", "ann", "łucja", "bob"]
    assert graph.ids("film").tolist() == [0, -3, 2**63 - 1]
    assert graph.index("user", ["łucja", "bob"]).tolist() == [2, 3]
    np.testing.assert_array_equal(graph.feature("user", "age"), np.array([31.5, np.nan, 18, 77], np.float32))
    assert graph.feature("user", "born").tolist() == [-5, 2**40, 0, 7]
    assert graph.features("user")["city"].categories == ("Köln", "Ulm")
    assert graph.feature("user", "city").tolist() == [1, -1, 0, 1]
    assert graph.feature("user", "paid").tolist() == [True, False, False, True]
    assert graph.feature("user", "taste").tolist() == [[1, 0.5], [0, -1], [2, 3], [0.25, 0]]
    csc = graph.csc(LIKES)
    assert (csc.indptr.tolist(), csc.indices.tolist()) == ([0, 2, 3, 3], [0, 1, 0])
    assert csc.weight is not None
    assert csc.timestamp is not None
    assert (csc.weight.tolist(), csc.timestamp.tolist()) == ([5, 1, 2.5], [30, 10, 20])
    assert graph.edge_feature(LIKES, "device").tolist() == [1, -1, 0]
    assert graph.imported(LIKES) == {
        "rows": 5,
        "edges": 3,
        "duplicate_edges": 1,
        "dangling_edges": 1,
        "self_loops": 0,
        "skipped": {},
        "examples": {
            "dangling_edges": ["likes.csv:6, column `film`: `1`"],
            "duplicate_edges": ["likes.csv:5: `zoe` likes `0`"],
        },
    }
    assert graph.imported(FOLLOWS)["self_loops"] == 1


def test_this_version_writes_version_1_to_the_byte(tmp_path: Path) -> None:
    write_reference(tmp_path / "tables", tmp_path / "graph")
    written = {
        path.relative_to(tmp_path / "graph"): path.read_bytes() for path in files_of(tmp_path / "graph")
    }
    assert written == {path.relative_to(FIXTURE): path.read_bytes() for path in files_of(FIXTURE)}


def test_the_documented_layout_can_be_read_with_numpy_alone() -> None:
    """Read the fixture as docs/formats/graph.md describes it, without any code of the package."""
    manifest = json.loads((FIXTURE / "manifest.json").read_bytes())
    assert (manifest["format"], manifest["format_version"], manifest["byte_order"]) == (
        "graphbox-graph",
        1,
        "little",
    )

    def array(name: str) -> np.ndarray:
        loaded: np.ndarray = np.load(FIXTURE / name, allow_pickle=False)
        assert (FIXTURE / name).stat().st_size == manifest["files"][name]["bytes"]
        assert (loaded.dtype.str, list(loaded.shape)) == (
            manifest["files"][name]["dtype"],
            manifest["files"][name]["shape"],
        )
        return loaded

    def strings(entry: dict[str, str]) -> list[str]:
        offsets, text = array(entry["offsets"]), array(entry["text"]).tobytes()
        return [text[start:end].decode() for start, end in itertools.pairwise(offsets)]

    user, film = manifest["node_types"]
    assert (user["name"], user["num_nodes"], user["ids"]["kind"]) == ("user", 4, "string")
    names = strings(user["ids"])
    assert names == ["zoe", "ann", "łucja", "bob"]
    index = array(user["ids"]["index"])
    assert index.dtype == np.int32
    assert sorted(index.tolist()) == [-1, -1, -1, -1, 0, 1, 2, 3]
    assert (film["ids"]["kind"], array(film["ids"]["values"]).tolist()) == ("int64", [0, -3, 2**63 - 1])
    assert sorted(array(film["ids"]["index"]).tolist()) == [-1, -1, -1, 0, 1, 2]
    features = {feature["name"]: feature for feature in user["features"]}
    assert [feature["kind"] for feature in features.values()] == [
        "number",
        "integer",
        "categorical",
        "boolean",
        "vector",
    ]
    assert strings(features["city"]["categories"]) == ["Köln", "Ulm"]
    assert [array(feature["values"]).dtype.str for feature in features.values()] == [
        "<f4",
        "<i8",
        "<i4",
        "|b1",
        "<f4",
    ]
    likes, follows = manifest["edge_types"]
    assert (likes["type"], likes["reverse"], likes["num_edges"]) == (list(LIKES), "liked_by", 3)
    assert [array(likes[name]).dtype.str for name in ("indptr", "indices", "weight", "timestamp")] == [
        "<i8",
        "<i4",
        "<f4",
        "<i8",
    ]
    assert (follows["reverse"], follows["weight"], follows["timestamp"]) == (None, None, None)
    named = {manifest["base"], *(name.split("/")[0] for name in manifest["files"])}
    assert named == {"base-000001"}


def damaged(folder: Path, expected: Path) -> FormatError:
    """Return the error that verifying gives; opening must raise FormatError too, or nothing."""
    with pytest.raises(FormatError) as caught:
        graph_format.verify(folder)
    assert expected.name in str(caught.value)
    try:
        graph = Graph.open(folder)
        for node_type in graph.node_types:
            graph.ids(node_type)
    except (FormatError, UnicodeDecodeError):
        pass
    return caught.value


def positions(size: int) -> Iterator[int]:
    yield from range(0, size, max(7, size // 400))
    yield size - 1


@pytest.mark.parametrize("name", [str(path.relative_to(FIXTURE)) for path in files_of(FIXTURE)])
def test_a_flipped_bit_anywhere_is_found(name: str, folder: Path) -> None:
    path = folder / name
    content = path.read_bytes()
    for position in positions(len(content)):
        flipped = bytearray(content)
        flipped[position] ^= 1 << position % 8
        path.write_bytes(flipped)
        damaged(folder, path)


@pytest.mark.parametrize("name", [str(path.relative_to(FIXTURE)) for path in files_of(FIXTURE)])
def test_truncated_lengthened_and_foreign_files_are_found(name: str, folder: Path) -> None:
    path = folder / name
    content = path.read_bytes()
    for wrong in (b"", content[:-1], content[: len(content) // 2], content + b"\0", b"PAR1" + content[4:]):
        path.write_bytes(wrong)
        with pytest.raises(FormatError, match=path.name):
            Graph.open(folder)
        damaged(folder, path)


@pytest.mark.parametrize(
    "name", [str(path.relative_to(FIXTURE)) for path in files_of(FIXTURE / "base-000001")]
)
def test_a_missing_file_is_found(name: str, folder: Path) -> None:
    (folder / name).unlink()
    with pytest.raises(FormatError, match=r"expected the file that the manifest names, found none"):
        Graph.open(folder)


def test_arrays_of_objects_are_never_loaded(folder: Path) -> None:
    path = folder / "base-000001" / "edges" / "user__follows__user" / "indices.npy"
    with path.open("wb") as file:
        np.save(file, np.array([{"a": 1}], object), allow_pickle=True)
    manifest = json.loads((folder / "manifest.json").read_bytes())
    entry = manifest["files"][str(path.relative_to(folder))]
    entry["bytes"] = path.stat().st_size
    rewrite(folder, manifest)
    with pytest.raises(
        FormatError, match=r"expected the header of a \.npy array <i4 \[3\], received another one"
    ):
        Graph.open(folder)
    entry |= {"dtype": "|O", "shape": [1]}
    rewrite(folder, manifest)
    with pytest.raises(FormatError, match=r"expected one of <f4, .*, received '\|O'"):
        Graph.open(folder)


def rewrite(folder: Path, manifest: dict[str, Any]) -> None:
    body = {key: value for key, value in manifest.items() if key != "checksum"}
    (folder / "manifest.json").write_bytes(encode_manifest(body))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"format_version": 2},
            r"expected format version 1, received 2\n.*with the version of graphbox that wrote it",
        ),
        ({"format": "graphbox-model"}, r"expected a manifest of format 'graphbox-graph'"),
        ({"byte_order": "big"}, r"expected byte order little, received big"),
        ({"node_types": [{}]}, r"expected a manifest of this version, received one with other content"),
        ({"edge_types": 3}, r"expected a manifest of this version, received one with other content"),
        (
            {"files": {"../../secret.npy": {}}},
            r"expected a path within the folder, received '\.\./\.\./secret\.npy'",
        ),
        ({"files": {"/etc/passwd": {}}}, r"expected a path within the folder, received '/etc/passwd'"),
    ],
)
def test_manifests_that_say_something_else_are_refused(
    changes: dict[str, Any], message: str, folder: Path
) -> None:
    manifest = json.loads((folder / "manifest.json").read_bytes())
    rewrite(folder, {**manifest, **changes})
    with pytest.raises(FormatError, match=message):
        Graph.open(folder)


def test_a_manifest_edited_by_hand_is_refused(folder: Path) -> None:
    path = folder / "manifest.json"
    path.write_bytes(path.read_bytes().replace(b'"films"', b'"movies"'))
    with pytest.raises(FormatError, match=r"expected the content that was written"):
        Graph.open(folder)
    path.write_text("[]")
    with pytest.raises(FormatError, match=r"received another file"):
        Graph.open(folder)


def test_what_is_no_graph_is_not_found(tmp_path: Path) -> None:
    for path, message in (
        (tmp_path / "nothing", "there is no graph, and no such folder"),
        (tmp_path, r"there is no graph \(no manifest.json\)"),
        (FIXTURE / "manifest.json", "expected a graph's folder, received a file"),
    ):
        with pytest.raises(NotFoundError, match=message):
            Graph.open(path)


def test_an_open_graph_stays_as_it_is_when_another_is_imported(tmp_path: Path) -> None:
    destination = tmp_path / "graph"
    Graph.from_coo([0, 1], [1, 2]).save(destination)
    before = Graph.open(destination)
    Graph.from_coo([0], [1]).save(destination)
    assert before.csc().indices.tolist() == [0, 1]
    assert Graph.open(destination).num_nodes() == 2
    assert sorted(entry.name for entry in destination.iterdir()) == ["base-000002", "manifest.json"]


def test_a_damaged_graph_can_be_imported_over(folder: Path) -> None:
    (folder / "manifest.json").write_text("{")
    Graph.from_coo([0], [1]).save(folder)
    assert Graph.open(folder, verify_digests=True).num_edges() == 1
    assert sorted(entry.name for entry in folder.iterdir()) == ["base-000002", "manifest.json"]


def test_a_graph_replaced_again_and_again_while_it_is_opened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    destination = tmp_path / "graph"
    Graph.from_coo([0], [1]).save(destination)
    opened = map_array
    replaced = 0

    def replace_first(*arguments: Any) -> Any:
        nonlocal replaced
        if replaced < limit:
            replaced += 1
            Graph.from_coo([0] * (replaced + 1), [1] * (replaced + 1)).save(destination)
        return opened(*arguments)

    monkeypatch.setattr(graph_format, "map_array", replace_first)
    limit = 3
    assert Graph.open(destination).num_edges() == 4
    limit = 1000
    with pytest.raises(ConflictError, match="found a new one 10 times in a row"):
        Graph.open(destination)

"""The on-disk format of changed and compacted graphs: read as the page says, written to the byte, damaged."""

from __future__ import annotations

import itertools
import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from graphbox.errors import FormatError
from graphbox.graph import EdgeSource, Graph, GraphSource, NodeSource
from graphbox.graph import format as graph_format
from graphbox.graph.compact import compact
from graphbox.graph.delta import append, remove
from graphbox.graph.schema import FeatureKind
from graphbox.graph.tables import EdgeTable
from tests.graph.test_format import FOLLOWS, LIKES, damaged, files_of, positions, write_reference

FORMATS = Path(__file__).parent.parent / "formats"
CHANGED, COMPACTED = FORMATS / "graph-1-changed", FORMATS / "graph-1-compacted"
OVERTAKEN = FORMATS / "graph-1-overtaken"
NUM_CHANGES = {CHANGED: 2, COMPACTED: 0, OVERTAKEN: 1}
TAGGED = ("film", "tagged", "tag")


def write_appended(tables: Path, destination: Path) -> None:
    """Write a graph with a stored CSR and an append."""
    write_reference(tables, tables / "imported")
    imported = Graph.open(tables / "imported")
    follows = imported.own_edges(FOLLOWS)
    assert isinstance(follows, EdgeTable)
    Graph(
        "films",
        {node_type: imported.node_table(node_type) for node_type in imported.node_types},
        {LIKES: imported.own_edges(LIKES), FOLLOWS: EdgeTable(follows.csc, csr=follows.csr)},
    ).save(destination)
    kinds: dict[str, FeatureKind] = {
        "age": "number",
        "born": "integer",
        "city": "categorical",
        "paid": "boolean",
    }
    users = {
        "id": ["eve", "ann"],
        "age": [40.5, 20.0],
        "born": [1, 2],
        "city": ["Łódź", "Köln"],
        "paid": [True, True],
        "taste": [[5.0, 6.0], [7.0, 8.0]],
    }
    studios = pa.table({"id": [7, 8], "rooms": pa.array([[1, 2], []], pa.list_(pa.int64()))})
    likes = {
        "user": ["eve", "zoe", "ann"],
        "film": [-3, 0, -3],
        "stars": [1.0, 2.0, 3.0],
        "when": [5, 6, 7],
        "device": ["radio", "tv", "tv"],
    }
    append(
        destination,
        GraphSource(
            "",
            {
                "user": NodeSource(pa.table(users), features={**kinds, "taste": "vector"}),
                "studio": NodeSource(studios, features={"rooms": "slots"}),
                "tag": NodeSource(),
            },
            (
                EdgeSource(
                    LIKES,
                    pa.table(likes),
                    "user",
                    "film",
                    weight="stars",
                    timestamp="when",
                    features={"device": "categorical"},
                ),
                EdgeSource(FOLLOWS, pa.table({"source": ["eve"], "target": ["ann"]})),
                EdgeSource(TAGGED, pa.table({"source": [0, -3], "target": ["new", "old"]})),
            ),
        ),
        compact="never",
    )


def remove_some(path: Path) -> None:
    remove(path, nodes={"user": ["bob"]}, edges={LIKES: (["zoe"], [0])})


def write_changed(tables: Path, destination: Path) -> None:
    """Write what ``tests/formats/graph-1-changed`` holds: a graph with a stored CSR, an append, a removal."""
    write_appended(tables, destination)
    remove_some(destination)


def write_compacted(tables: Path, destination: Path) -> None:
    """Write what ``tests/formats/graph-1-compacted`` holds: the same after compaction."""
    write_changed(tables, destination)
    compact(destination)


def write_overtaken(tables: Path, destination: Path) -> None:
    """Write what ``tests/formats/graph-1-overtaken`` holds: the removal comes during the compaction."""
    write_appended(tables, destination)
    compact(destination, lambda _, done, __: None if done else remove_some(destination))


WRITERS = {CHANGED: write_changed, COMPACTED: write_compacted, OVERTAKEN: write_overtaken}


@pytest.mark.parametrize(("fixture", "write"), WRITERS.items())
def test_this_version_writes_version_1_to_the_byte(fixture: Path, write: Any, tmp_path: Path) -> None:
    write(tmp_path / "tables", tmp_path / "graph")
    written = {
        path.relative_to(tmp_path / "graph"): path.read_bytes() for path in files_of(tmp_path / "graph")
    }
    assert written == {path.relative_to(fixture): path.read_bytes() for path in files_of(fixture)}


# Reading by docs/formats/graph.md, without any code of the package


class Folder:
    """A graph's folder: its manifest, and its arrays by NumPy."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.manifest = json.loads((path / "manifest.json").read_bytes())

    def array(self, name: str | None) -> np.ndarray:
        """Return an array; None gives an empty one."""
        if name is None:
            return np.zeros(0, np.int64)
        loaded: np.ndarray = np.load(self.path / name, allow_pickle=False)
        entry = self.manifest["files"][name]
        assert (loaded.dtype.str, list(loaded.shape)) == (entry["dtype"], entry["shape"])
        assert (self.path / name).stat().st_size == entry["bytes"] == 128 + loaded.nbytes
        return loaded

    def strings(self, entry: dict[str, str]) -> list[str]:
        """Return strings kept as offsets and text."""
        text = self.array(entry["text"]).tobytes()
        return [text[start:end].decode() for start, end in itertools.pairwise(self.array(entry["offsets"]))]

    def ids(self, entry: dict[str, str] | None) -> list[Any]:
        """Return the ids of some nodes, each of which its hash index holds once."""
        if entry is None:
            return []
        ids = self.strings(entry) if entry["kind"] == "string" else self.array(entry["values"]).tolist()
        index = self.array(entry["index"])
        assert sorted(index[index >= 0].tolist()) == list(range(len(ids)))
        return ids

    def column(self, entry: dict[str, Any]) -> list[Any]:
        """Return the rows of a feature."""
        values = self.array(entry["values"])
        if entry["kind"] == "slots":
            return [
                values[start:end].tolist() for start, end in itertools.pairwise(self.array(entry["offsets"]))
            ]
        listed: list[Any] = [None if value != value else value for value in values.tolist()]  # noqa: PLR0124 - NaN
        return listed


def nodes_of(folder: Folder) -> dict[str, list[dict[str, Any] | None]]:
    """Return, by node type, each node's id and features, None where a node was removed."""
    nodes: dict[str, list[dict[str, Any] | None]] = {}
    categories: dict[tuple[str, str], list[str]] = {}
    for entry in [
        *folder.manifest["node_types"],
        *(entry for delta in folder.manifest["deltas"] for entry in delta["node_types"]),
    ]:
        known = nodes.setdefault(entry["name"], [])
        ids = folder.ids(entry["ids"])
        assert (len(ids), entry.get("first", 0)) == (entry["num_nodes"], len(known))
        new: list[dict[str, Any]] = [{"id": each} for each in ids]
        known += new
        for feature in entry["features"]:
            for node, value in zip(new, folder.column(feature), strict=True):
                node[feature["name"]] = value
            if "categories" in feature:
                categories[entry["name"], feature["name"]] = folder.strings(feature["categories"])
        for added in entry.get("categories", []):
            categories.setdefault((entry["name"], added["name"]), []).extend(folder.strings(added))
        for feature in entry.get("updates", []):
            for row, value in zip(folder.array(entry["updated"]), folder.column(feature), strict=True):
                node = known[row]
                assert node is not None
                node[feature["name"]] = value
        for row in folder.array(entry.get("removed")):
            known[row] = None
    for (node_type, name), texts in categories.items():
        for each in nodes[node_type]:
            if each is not None and name in each:
                each[name] = texts[each[name]] if each[name] >= 0 else None
    return nodes


def edges_of(folder: Folder, edge_type: tuple[str, str, str]) -> list[tuple[Any, ...]]:
    """Return source, target, weight, timestamp, device and stable id of each edge, by stable id."""
    edges: list[tuple[Any, ...] | None] = []
    devices: list[str] = []
    for entry in folder.manifest["edge_types"]:
        if entry["type"] == list(edge_type):
            edges = base_edges(folder, entry, devices)
    for delta in folder.manifest["deltas"]:
        for entry in delta["edge_types"]:
            if entry["type"] == list(edge_type):
                assert entry["first"] == len(edges)
                stable = next(
                    (
                        e.get("num_stable", e["num_edges"])
                        for e in folder.manifest["edge_types"]
                        if e["type"] == list(edge_type)
                    ),
                    0,
                )
                ends = [folder.array(entry[name]).tolist() for name in ("source", "target")]
                edges += payload(folder, entry, ends, devices, range(stable, stable + entry["num_edges"]))
                for edge_id in folder.array(entry.get("removed")):
                    edges[edge_id] = None
    return sorted((edge for edge in edges if edge is not None), key=lambda edge: int(edge[-1]))


def base_edges(folder: Folder, entry: dict[str, Any], devices: list[str]) -> list[tuple[Any, ...] | None]:
    indptr, indices = folder.array(entry["indptr"]), folder.array(entry["indices"])
    target = np.repeat(np.arange(len(indptr) - 1), np.diff(indptr))
    stable = folder.array(entry["edge-ids"]) if "edge-ids" in entry else np.arange(len(indices))
    if "csr-indptr" in entry:
        csr_indptr, csr_indices, ids = (
            folder.array(entry[f"csr-{n}"]) for n in ("indptr", "indices", "edge-ids")
        )
        source = np.repeat(np.arange(len(csr_indptr) - 1), np.diff(csr_indptr))
        assert (indices[ids].tolist(), target[ids].tolist()) == (source.tolist(), csr_indices.tolist())
    return payload(folder, entry, [indices.tolist(), target.tolist()], devices, stable.tolist())


def payload(
    folder: Folder, entry: dict[str, Any], ends: list[list[int]], devices: list[str], stable: Any
) -> list[tuple[Any, ...] | None]:
    count = entry["num_edges"]
    columns = [
        [None] * count if entry[name] is None else folder.array(entry[name]).tolist()
        for name in ("weight", "timestamp")
    ]
    codes: list[Any] = [None] * count
    for added in entry.get("categories", []):
        devices += folder.strings(added)
    for feature in entry["features"]:
        if "categories" in feature:
            devices += folder.strings(feature["categories"])
        codes = [devices[code] if code >= 0 else None for code in folder.column(feature)]
    return list(zip(*ends, *columns, codes, stable, strict=True))


USERS = [
    {"id": "zoe", "age": 31.5, "born": -5, "city": "Ulm", "paid": True, "taste": [1.0, 0.5]},
    {"id": "ann", "age": 20.0, "born": 2, "city": "Köln", "paid": True, "taste": [7.0, 8.0]},
    {"id": "łucja", "age": 18.0, "born": 0, "city": "Köln", "paid": False, "taste": [2.0, 3.0]},
    None,
    {"id": "eve", "age": 40.5, "born": 1, "city": "Łódź", "paid": True, "taste": [5.0, 6.0]},
]


@pytest.mark.parametrize("fixture", WRITERS)
def test_the_documented_layout_can_be_read_with_numpy_alone(fixture: Path) -> None:
    folder = Folder(fixture)
    nodes = nodes_of(folder)
    assert nodes["user"] == USERS
    assert nodes["film"] == [{"id": 0}, {"id": -3}, {"id": 2**63 - 1}]
    assert nodes["studio"] == [{"id": 7, "rooms": [1, 2]}, {"id": 8, "rooms": []}]
    assert nodes["tag"] == [{"id": "new"}, {"id": "old"}]
    assert edges_of(folder, LIKES) == [
        (1, 0, 1.0, 10, None, 1),
        (0, 1, 2.5, 20, "phone", 2),
        (1, 1, 3.0, 7, "tv", 3),
        (4, 1, 1.0, 5, "radio", 4),
    ]
    assert edges_of(folder, FOLLOWS) == [(1, 0, None, None, None, 0), (4, 1, None, None, None, 3)]
    assert edges_of(folder, TAGGED) == [(0, 0, None, None, None, 0), (1, 1, None, None, None, 1)]
    named = {folder.manifest["base"], *(delta["folder"] for delta in folder.manifest["deltas"])}
    assert named == {entry.name for entry in fixture.iterdir() if entry.is_dir()}
    assert len(folder.manifest["deltas"]) == NUM_CHANGES[fixture]


@pytest.mark.parametrize("fixture", WRITERS)
def test_version_1_opens(fixture: Path) -> None:
    graph = Graph.open(fixture, verify_digests=True)
    assert graph.arrow_ids("user").to_pylist() == ["zoe", "ann", "łucja", None, "eve"]
    assert graph.index("user", ["eve", "bob"], missing=-1).tolist() == [4, -1]
    assert graph.feature("user", "age").tolist()[:3] == [31.5, 20, 18]
    assert np.isnan(graph.feature("user", "age")[3])
    csc = graph.csc(LIKES)
    assert (csc.indptr.tolist(), csc.indices.tolist()) == ([0, 1, 4, 4], [1, 0, 1, 4])
    assert graph.stable_edge_ids(LIKES, csc.ids_at(np.arange(4))).tolist() == [1, 2, 3, 4]
    assert graph.csr(FOLLOWS).indices.tolist() == [0, 1]
    assert graph.csc(("film", "liked_by", "user")).indices.tolist() == [1, 0, 1, 1]
    slots = graph.node_columns("studio")["rooms"]
    assert slots.offsets is not None
    assert (slots.values.tolist(), slots.offsets.tolist()) == ([1, 2], [0, 2, 2])


# Damage


EVERY_FILE = [(fixture, str(path.relative_to(fixture))) for fixture in WRITERS for path in files_of(fixture)]


@pytest.mark.parametrize(("fixture", "name"), EVERY_FILE)
def test_a_damaged_file_is_named(fixture: Path, name: str, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(fixture, tmp_path / "graph"))
    path = folder / name
    content = path.read_bytes()
    for position in positions(len(content)):
        flipped = bytearray(content)
        flipped[position] ^= 1 << position % 8
        path.write_bytes(flipped)
        damaged(folder, path)
    for wrong in (b"", content[:-1], content + b"\0", b"PAR1" + content[4:]):
        path.write_bytes(wrong)
        with pytest.raises(FormatError, match=path.name):
            Graph.open(folder)
    path.unlink()
    if name != graph_format.MANIFEST:
        with pytest.raises(FormatError, match="expected the file that the manifest names, found none"):
            Graph.open(folder)

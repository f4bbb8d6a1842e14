"""Graphs whose files say anything: opening names the file, or gives a graph."""

from __future__ import annotations

import contextlib
import random
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from graphbox.errors import FormatError
from graphbox.graph import EdgeSource, Graph, GraphSource
from graphbox.graph.compact import compact
from graphbox.graph.delta import append
from graphbox.graph.format import MANIFEST, check_digests, open_snapshot, read_manifest
from graphbox.graph.manifest import encode_manifest
from tests.graph.test_format import files_of

FORMATS = Path(__file__).parent.parent / "formats"
FIXTURES = ("graph-1", "graph-1-changed", "graph-1-compacted", "graph-1-overtaken")


@pytest.fixture(params=FIXTURES)
def folder(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A copy of one of the fixtures."""
    return Path(shutil.copytree(FORMATS / request.param, tmp_path / "graph"))


def write_manifest(folder: Path, manifest: dict[str, Any]) -> None:
    """Write a manifest with the right checksum, whatever it says."""
    (folder / MANIFEST).write_bytes(encode_manifest(manifest))


def read_columns(graph: Graph) -> None:
    """Read all ids and features of nodes; that they are there is checked in opening."""
    with contextlib.suppress(FormatError):  # of content, such as offsets that do not ascend
        for node_type in graph.node_types:
            assert len(graph.arrow_ids(node_type)) == graph.num_nodes(node_type)
            for name in graph.features(node_type):
                graph.feature(node_type, name)
    assert repr(graph)


class Mutation:
    """Changes a manifest anywhere.

    Args:
        seed: which change.
        paths: paths of arrays, to put in the place of others.
    """

    def __init__(self, seed: int, paths: list[str]) -> None:
        self._random = random.Random(seed)
        self._paths = paths

    def of(self, value: Any) -> Any:
        """Return another value, mostly of the same kind."""
        chance = self._random.random()
        if isinstance(value, dict) and value and chance < 0.9:
            return self._mapping(value)
        if isinstance(value, list) and value and chance < 0.9:
            return self._list(value)
        if isinstance(value, int) and not isinstance(value, bool):
            return self._random.choice([0, -1, value + 1, value - 1, value * 2, 2**63, "1", None, 1.5])
        if isinstance(value, str):
            others: list[Any] = ["", f"{value}x", None, 7, [], "../x", "int64", "string", "number"]
            return self._random.choice([*others, self._random.choice(self._paths)])
        return self._random.choice([None, True, 0, "", [], {}])

    def _mapping(self, value: dict[str, Any]) -> dict[str, Any]:
        changed = dict(value)
        key = self._random.choice(sorted(value))
        chance = self._random.random()
        if chance < 0.12:
            del changed[key]
        elif chance < 0.2:
            changed[self._random.choice(sorted(value))] = value[key]
        else:
            changed[key] = self.of(value[key])
        return changed

    def _list(self, value: list[Any]) -> list[Any]:
        changed = list(value)
        at = self._random.randrange(len(value))
        chance = self._random.random()
        if chance < 0.15:
            del changed[at]
        elif chance < 0.3:
            changed.append(value[at])
        elif chance < 0.4:
            self._random.shuffle(changed)
        else:
            changed[at] = self.of(value[at])
        return changed


@pytest.mark.parametrize("number", [150, pytest.param(4000, marks=pytest.mark.stress)])
def test_a_manifest_that_says_anything_is_refused_or_opened(folder: Path, number: int) -> None:
    manifest = read_manifest(folder)
    refused: list[str] = []
    for seed in range(number):
        key = sorted(manifest)[seed % len(manifest)]
        changed = Mutation(seed, sorted(manifest["files"])).of(manifest[key])
        write_manifest(folder, {**manifest, key: changed})
        try:
            graph = Graph.open(folder)
        except FormatError as error:
            refused.append(error.where or "nowhere")
            continue
        read_columns(graph)
    assert all(where.startswith(str(folder)) for where in refused)
    assert number / 2 < len(refused) < number


def test_a_change_missing_in_the_middle_is_found(tmp_path: Path) -> None:
    path = tmp_path / "graph"
    Graph.from_coo([0, 1], [1, 2]).save(path)
    for source, target in ((0, 2), (2, 1), (1, 0)):
        table = {"source": [source], "target": [target]}
        append(path, GraphSource("", {}, (EdgeSource(("node", "to", "node"), table),)), compact="never")
    manifest = read_manifest(path)
    write_manifest(path, {**manifest, "deltas": [manifest["deltas"][0], manifest["deltas"][2]]})
    with pytest.raises(FormatError, match=r"number of edges of .*manifest\.json|manifest\.json.*number of"):
        Graph.open(path)
    write_manifest(path, manifest)
    shutil.rmtree(path / "delta-000002")
    with pytest.raises(FormatError, match=r"delta-000002/.*expected the file that the manifest names"):
        Graph.open(path)


@pytest.mark.parametrize("version", [0, 2, 10**9, "1", 1.5, None, [1]])
def test_another_version_is_told_as_one(folder: Path, version: Any) -> None:
    write_manifest(folder, {**read_manifest(folder), "format_version": version})
    with pytest.raises(FormatError, match=r"manifest\.json: expected format version 1, received") as caught:
        Graph.open(folder)
    assert "with the version of graphbox that wrote it" in str(caught.value.hint)


def swapped(folder: Path) -> Iterator[tuple[Path, Path]]:
    """Yield each pair of different files of the same size with the same header, put in each other's place."""
    arrays = [path for path in files_of(folder) if path.suffix == ".npy"]
    for number, one in enumerate(arrays):
        for other in arrays[number + 1 :]:
            contents = one.read_bytes(), other.read_bytes()
            if contents[0] == contents[1] or contents[0][:128] != contents[1][:128]:
                continue
            one.write_bytes(contents[1])
            other.write_bytes(contents[0])
            yield one, other
            one.write_bytes(contents[0])
            other.write_bytes(contents[1])


def test_files_in_each_others_place_are_found(folder: Path) -> None:
    count = 0
    for one, other in swapped(folder):
        with pytest.raises(FormatError, match="received other bytes in") as caught:
            check_digests(open_snapshot(folder))
        for path in (one, other):
            assert path.relative_to(folder).as_posix() in caught.value.message
        count += 1
    assert count > 10


def test_files_of_another_graph_are_found(tmp_path: Path) -> None:
    """Of the same name and shape: only their digests differ."""
    paths = tmp_path / "one", tmp_path / "other"
    Graph.from_coo([0, 1, 2], [1, 2, 0]).save(paths[0])
    Graph.from_coo([1, 2, 0], [1, 2, 0]).save(paths[1])
    indices = next(paths[0].rglob("indices.npy")).relative_to(paths[0])
    shutil.copy(paths[1] / indices, paths[0] / indices)
    with pytest.raises(FormatError, match=rf"received other bytes in {indices}"):
        Graph.open(paths[0], verify_digests=True)
    shutil.copy(paths[0] / MANIFEST, paths[1] / MANIFEST)
    with pytest.raises(FormatError, match=rf"received other bytes in {indices}"):
        Graph.open(paths[1], verify_digests=True)


def test_compaction_does_not_bless_damage(tmp_path: Path) -> None:
    folder = Path(shutil.copytree(FORMATS / "graph-1-changed", tmp_path / "graph"))
    weight = next((folder / "base-000001").rglob("weight.npy"))
    content = bytearray(weight.read_bytes())
    content[-1] ^= 1
    weight.write_bytes(content)
    names = sorted(folder.iterdir())
    with pytest.raises(FormatError, match=weight.relative_to(folder).as_posix()):
        compact(folder)
    assert sorted(folder.iterdir()) == names


@pytest.mark.stress
@pytest.mark.timeout(3600)
def test_every_flipped_byte_of_every_file_is_found(folder: Path) -> None:
    """Each byte of each file in turn, one of its bits."""
    for path in files_of(folder):
        content = path.read_bytes()
        for position in range(len(content)):
            flipped = bytearray(content)
            flipped[position] ^= 1 << position % 8
            path.write_bytes(flipped)
            with pytest.raises(FormatError) as caught:
                Graph.open(folder, verify_digests=True)
            assert path.relative_to(folder).as_posix() in str(caught.value)
        path.write_bytes(content)
    Graph.open(folder, verify_digests=True)

"""Kept versions of a graph: readable after changes and compaction, gone after removals, and their cost."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from graphbox.errors import NotFoundError
from graphbox.graph import EdgeSource, Graph, GraphSource, NodeSource
from graphbox.graph.chunks import begin_stream
from graphbox.graph.compact import compact
from graphbox.graph.delta import append, remove
from graphbox.graph.ingest import import_graph
from graphbox.graph.versions import keep_version, kept_versions, release_versions
from tests.graph.test_format import FOLLOWS, files_of
from tests.graph.test_format_changes import write_appended

FIXTURE = Path(__file__).parent.parent / "formats" / "graph-1-kept"
CITES = ("paper", "cites", "paper")
WROTE = ("author", "wrote", "paper")
PAPERS = 2000


def source(cites: list[tuple[str, str]], *, nodes: bool = True) -> GraphSource:
    papers = {"id": [f"p{each}" for each in range(PAPERS)], "year": list(range(PAPERS))}
    authors = {"id": [f"a{each}" for each in range(9)]}
    table = pa.table({"source": [a for a, _ in cites], "target": [b for _, b in cites]})
    wrote = pa.table({"source": [f"a{each % 9}" for each in range(PAPERS)], "target": papers["id"]})
    tables = {
        "paper": NodeSource(pa.table(papers), features={"year": "integer"}),
        "author": NodeSource(pa.table(authors)),
    }
    edges = [EdgeSource(CITES, table), EdgeSource(WROTE, wrote)]
    if nodes:
        return GraphSource("papers", tables, tuple(edges))
    return GraphSource("papers", {}, tuple(edges[:1]))


@pytest.fixture
def graph(tmp_path: Path) -> Path:
    import_graph(
        source([(f"p{each}", f"p{(each + 1) % PAPERS}") for each in range(PAPERS)]), tmp_path / "papers"
    )
    return tmp_path / "papers"


def cite(path: Path, one: str, other: str) -> None:
    append(path, source([(one, other)], nodes=False), compact="never")


def edges_of(graph: Graph) -> list[tuple[int, int]]:
    return list(zip(*(ends.tolist() for ends in graph.csc(CITES).coo()), strict=True))


def folders(path: Path) -> set[str]:
    return {entry.name for entry in path.iterdir() if entry.is_dir()}


def size_of(path: Path) -> int:
    """Return the bytes of all files, each inode once."""
    files = {file.stat().st_ino: file.stat().st_size for file in path.rglob("*") if file.is_file()}
    return sum(files.values())


def test_a_version_is_kept_at_the_cost_of_its_manifest(graph: Path) -> None:
    before = edges_of(Graph.open(graph))
    version = keep_version(graph, "run-1")
    assert version == Graph.open(graph).version
    cite(graph, "p0", "p5")
    kept = Graph.open(graph, version=version)
    assert edges_of(kept) == before
    assert kept.version == version
    assert len(edges_of(Graph.open(graph))) == len(before) + 1
    found = kept_versions(graph)
    assert [(each.version, each.holders, each.is_current) for each in found.versions] == [
        (version, ("run-1",), False)
    ]
    assert found.size_bytes == 0


def test_compaction_keeps_what_it_changed_and_no_more(graph: Path) -> None:
    before, size = edges_of(Graph.open(graph)), size_of(graph)
    version = keep_version(graph, "run-1")
    cite(graph, "p0", "p5")
    compact(graph)
    kept = Graph.open(graph, version=version, verify_digests=True)
    assert edges_of(kept) == before
    assert kept.feature("paper", "year").tolist() == list(range(PAPERS))
    Graph.open(graph, verify_digests=True)
    cites = sum(np.asarray(each).nbytes for each in (kept.csc(CITES).indptr, kept.csc(CITES).indices))
    cost = kept_versions(graph).size_bytes
    assert cites <= cost < cites + 1000, "the arrays of the changed edge type alone"
    # The new base has stable edge ids: 8 bytes for each edge.
    assert size_of(graph) < size + cost + 8 * (PAPERS + 1) + 20_000
    # A second compaction keeps the same files.
    cite(graph, "p0", "p7")
    compact(graph)
    assert edges_of(Graph.open(graph, version=version, verify_digests=True)) == before
    release_versions(graph)
    assert kept_versions(graph).versions == ()
    assert folders(graph) <= {"base-000003", "versions"}
    assert Graph.open(graph, verify_digests=True).num_edges(CITES) == len(before) + 2
    with pytest.raises(NotFoundError, match="no longer has its version"):
        Graph.open(graph, version=version)


def test_versions_in_the_middle_of_changes(graph: Path) -> None:
    first = keep_version(graph, "run-1")
    cite(graph, "p0", "p5")
    second, before = keep_version(graph, "run-2"), edges_of(Graph.open(graph))
    cite(graph, "p0", "p7")
    compact(graph)
    cite(graph, "p1", "p9")
    assert edges_of(Graph.open(graph, version=second, verify_digests=True)) == before
    found = kept_versions(graph)
    sizes = {each.holders: each.size_bytes for each in found.versions}
    assert sizes[("run-1",)] < sizes[("run-2",)] == found.size_bytes
    release_versions(graph, {"run-1"})
    assert not (graph / "delta-000001").exists()
    assert Graph.open(graph, version=first, verify_digests=True).num_edges(CITES) == PAPERS


def test_a_version_is_released_with_its_last_holder(graph: Path) -> None:
    version = keep_version(graph, "run-1")
    assert keep_version(graph, "run-2") == version
    cite(graph, "p0", "p5")
    release_versions(graph, {"run-2"})
    Graph.open(graph, version=version)
    # A holder keeps one version: the last.
    latest = keep_version(graph, "run-2")
    assert [each.version for each in kept_versions(graph).versions] == [latest]


def test_a_version_without_a_holder_is_released(graph: Path) -> None:
    """A process that is killed while it keeps a version leaves the manifest alone."""
    keep_version(graph, "run-1")
    for holder in (graph / "versions").glob("*.by.*"):
        holder.unlink()
    assert len(kept_versions(graph).versions) == 1
    release_versions(graph, ["run-1"])
    assert kept_versions(graph).versions == ()


def test_a_change_during_a_compaction_leaves_kept_arrays(graph: Path) -> None:
    cite(graph, "p0", "p5")
    versions: list[tuple[str, list[tuple[int, int]]]] = []

    def change(_: str, done: int, __: int) -> None:
        if not done:
            cite(graph, "p0", "p7")
            versions.append((keep_version(graph, "run-1"), edges_of(Graph.open(graph))))

    compact(graph, change)
    version, before = versions[0]
    assert edges_of(Graph.open(graph, version=version, verify_digests=True)) == before
    assert sorted(edges_of(Graph.open(graph))) == sorted(before)


@pytest.mark.parametrize("removal", ["node", "edge"])
def test_removing_ends_kept_versions(graph: Path, removal: str) -> None:
    version = keep_version(graph, "run-1")
    opened = Graph.open(graph, version=version)
    nodes = {"author": ["a3"]} if removal == "node" else {}
    remove(graph, nodes, {} if nodes else {CITES: (["p0"], ["p1"])})
    with pytest.raises(NotFoundError, match="no longer has its version"):
        Graph.open(graph, version=version)
    assert kept_versions(graph).versions == ()
    assert opened.num_edges(CITES) == PAPERS, "an open graph stays"
    compact(graph)
    assert folders(graph) == {"base-000002"}
    assert not any(b"a3" in file.read_bytes() for file in graph.rglob("*.npy")) or removal == "edge"


def test_compaction_ends_versions_that_hold_removed_data(graph: Path) -> None:
    remove(graph, {"author": ["a3"]})
    version = keep_version(graph, "run-1")
    cite(graph, "p0", "p5")
    assert Graph.open(graph, version=version).num_removed("author") == 1
    compact(graph)
    with pytest.raises(NotFoundError, match="no longer has its version"):
        Graph.open(graph, version=version)
    assert folders(graph) <= {"base-000002", "versions"}
    assert not any(b"a3" in file.read_bytes() for file in graph.rglob("*.npy"))


def test_importing_anew_ends_kept_versions(graph: Path) -> None:
    version = keep_version(graph, "run-1")
    import_graph(source([("p1", "p2")]), graph)
    with pytest.raises(NotFoundError, match="no longer has its version"):
        Graph.open(graph, version=version)
    assert folders(graph) == {"base-000002"}


def test_a_damaged_version_stands_in_nobodys_way(graph: Path) -> None:
    version = keep_version(graph, "run-1")
    cite(graph, "p0", "p5")
    (file,) = (graph / "versions").glob("*.json")
    file.write_bytes(file.read_bytes()[:-20])
    cite(graph, "p0", "p7")
    assert Graph.open(graph).num_edges(CITES) == PAPERS + 2
    with pytest.raises(Exception, match="expected JSON"):
        Graph.open(graph, version=version)


def test_a_copy_has_its_versions(graph: Path, tmp_path: Path) -> None:
    version = keep_version(graph, "run-1")
    cite(graph, "p0", "p5")
    compact(graph)
    shutil.copytree(graph, tmp_path / "copy")
    copied = Graph.open(tmp_path / "copy", version=version, verify_digests=True)
    assert copied.num_edges(CITES) == PAPERS


def test_a_stream_can_begin_in_a_graph_with_kept_versions(graph: Path) -> None:
    version = keep_version(graph, "run-1")
    begin_stream(graph, "papers", "chunks")
    assert Graph.open(graph, version=version).num_edges(CITES) == PAPERS


def write_kept(tables: Path, destination: Path) -> None:
    """Write what ``tests/formats/graph-1-kept`` holds: a version that a run keeps, an edge, a compaction."""
    write_appended(tables, destination)
    keep_version(destination, "films-1")
    edges = EdgeSource(FOLLOWS, pa.table({"source": ["ann"], "target": ["eve"]}))
    append(destination, GraphSource("", {}, (edges,)), compact="never")
    compact(destination)


def test_this_release_writes_kept_versions_to_the_byte(tmp_path: Path) -> None:
    write_kept(tmp_path / "tables", tmp_path / "graph")
    written, expected = (
        {path.relative_to(folder): path.read_bytes() for path in files_of(folder)}
        for folder in (tmp_path / "graph", FIXTURE)
    )
    assert written.keys() == expected.keys()
    assert [name for name in written if written[name] != expected[name]] == []
    (version,) = kept_versions(FIXTURE).versions
    assert (version.holders, version.is_current) == (("films-1",), False)
    before = Graph.open(FIXTURE, version=version.version, verify_digests=True)
    now = Graph.open(FIXTURE, verify_digests=True)
    assert now.num_edges(FOLLOWS) == before.num_edges(FOLLOWS) + 1

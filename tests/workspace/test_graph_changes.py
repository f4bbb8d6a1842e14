"""The record of a graph follows its files, also when the process that wrote them was killed."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from graphbox.graph import Graph
from graphbox.workspace import EdgeTypeCount, Workspace
from graphbox.workspace.graph_manifest import read_content

DIGEST = "0" * 64
FORMATS = Path(__file__).parents[1] / "formats"


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    return Workspace(tmp_path / "workspace")


def wait_for_line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    line = process.stdout.readline()
    assert line, "the process said nothing"
    return line.strip()


def make_graph(workspace: Workspace, name: str = "papers") -> None:
    folder = workspace.graph_path(name)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "data.npy").write_bytes(b"x" * 1000)
    workspace.add_graph(
        name,
        node_types={"paper": 3},
        edge_types=[EdgeTypeCount("paper", "cites", "paper", 5)],
        fingerprint=DIGEST,
    )


def write_manifest(workspace: Workspace, nodes: int, number: int, removed: int = 0) -> None:
    """Write what a graph of that many nodes has as its manifest, as far as a workspace reads it."""
    folder = workspace.graph_path("papers")
    folder.mkdir(parents=True, exist_ok=True)
    change = {
        "node_types": [{"name": "paper", "num_nodes": 0, "removed": "removed.npy"}],
        "edge_types": [{"type": ["paper", "cites", "paper"], "num_edges": 7}],
    }
    manifest = {
        "checksum": f"sha256:{number}",
        "base": "base-000001",
        "node_types": [{"name": "paper", "num_nodes": nodes}],
        "edge_types": [{"type": ["paper", "cites", "paper"], "num_edges": 5}],
        "deltas": [change] if removed else [],
        "files": {"removed.npy": {"shape": [removed]}},
    }
    (folder / "manifest.json").write_text(json.dumps(manifest))


KILLED = """
import sys
from pathlib import Path
from graphbox.workspace import Workspace

workspace = Workspace(sys.argv[1])
with workspace.writing_graph("papers", sys.argv[2], fingerprint=sys.argv[3] or None):
    manifest = workspace.graph_path("papers") / "manifest.json"
    manifest.parent.mkdir(parents=True, exist_ok=True)
    manifest.write_text(sys.argv[4])
    print("written", flush=True)
    sys.stdin.read()
"""


def killed_while_writing(workspace: Workspace, event: str, fingerprint: str, manifest: str) -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", KILLED, str(workspace.root), event, fingerprint, manifest],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert wait_for_line(process) == "written"
    before = [graph.node_types for graph in workspace.graphs()]
    process.kill()
    process.communicate(timeout=60)
    assert before in ([], [{"paper": 3}]), "as long as the writer lives its graph is shown as it was"


def manifest_of(workspace: Workspace) -> str:
    return (workspace.graph_path("papers") / "manifest.json").read_text()


def test_the_record_of_a_graph_follows_a_change_whose_process_was_killed(workspace: Workspace) -> None:
    write_manifest(workspace, 3, 1)
    before = manifest_of(workspace)
    make_graph(workspace)
    write_manifest(workspace, 3, 2, removed=1)
    after = manifest_of(workspace)
    (workspace.graph_path("papers") / "manifest.json").write_text(before)
    killed_while_writing(workspace, "removed from", "", after)
    graph = workspace.graph("papers")
    assert graph.node_types == {"paper": 2}
    assert [each.edges for each in graph.edge_types] == [12]
    assert graph.fingerprint.startswith(DIGEST[:32] + "+")
    assert len(graph.fingerprint) == len(DIGEST)
    assert [event.event for event in workspace.history("graph", "papers")] == ["imported", "removed from"]
    assert workspace.graph("papers") == graph


def test_a_killed_change_that_changed_nothing_is_none(workspace: Workspace) -> None:
    write_manifest(workspace, 3, 1)
    make_graph(workspace)
    graph = workspace.graph("papers")
    killed_while_writing(workspace, "appended to", "", manifest_of(workspace))
    assert workspace.graph("papers") == graph
    assert [event.event for event in workspace.history("graph", "papers")] == ["imported"]


def test_a_graph_that_was_imported_by_a_killed_process_is_there(workspace: Workspace) -> None:
    write_manifest(workspace, 4, 1)
    manifest = manifest_of(workspace)
    shutil.rmtree(workspace.graph_path("papers"))
    killed_while_writing(workspace, "imported", "f" * 64, manifest)
    graph = workspace.graph("papers")
    assert (graph.node_types, graph.fingerprint) == ({"paper": 4}, "f" * 64)
    assert [event.event for event in workspace.history("graph", "papers")] == ["imported"]


def test_a_compacted_graph_keeps_its_fingerprint(workspace: Workspace) -> None:
    write_manifest(workspace, 3, 1)
    make_graph(workspace)
    write_manifest(workspace, 3, 2)
    workspace.note_graph("papers", "compacted")
    assert workspace.graph("papers").fingerprint == DIGEST


def test_a_change_that_fails_leaves_the_record(workspace: Workspace) -> None:
    write_manifest(workspace, 3, 1)
    make_graph(workspace)
    with pytest.raises(RuntimeError), workspace.writing_graph("papers", "appended to"):
        raise RuntimeError
    assert workspace.graph("papers").fingerprint == DIGEST


@pytest.mark.parametrize("name", ["graph-1", "graph-1-changed", "graph-1-compacted"])
def test_counts_of_the_manifest_are_those_of_the_graph(name: str) -> None:
    content, graph = read_content(FORMATS / name), Graph.open(FORMATS / name)
    assert content is not None
    assert content.node_types == {
        each: graph.num_nodes(each) - graph.num_removed(each) for each in graph.node_types
    }
    assert content.edge_types == tuple(
        EdgeTypeCount(*each, graph.num_edges(each)) for each in graph.edge_types if not graph.is_reverse(each)
    )


@pytest.mark.parametrize("content", [b"", b"[]", b"{}", b'{"files": {}, "deltas": 1}', b"\xff"])
def test_a_damaged_manifest_has_no_counts(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "manifest.json").write_bytes(content)
    assert read_content(tmp_path) is None

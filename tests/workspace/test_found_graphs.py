"""Graphs that a Python program writes into the folder `graphs` itself are known to the workspace."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from graphbox.graph import EdgeSource, Graph, GraphSource, NodeSource
from graphbox.graph.compact import compact
from graphbox.graph.delta import append
from graphbox.graph.ingest import import_graph
from graphbox.workspace import Workspace


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    return Workspace(tmp_path / "workspace")


def ring(num_nodes: int, x: float = 0.0) -> Graph:
    source = np.arange(num_nodes)
    features = {"x": np.full(num_nodes, x)}
    return Graph.from_coo(source, (source + 1) % num_nodes, node_features=features, name="ring")


def events(workspace: Workspace) -> list[str]:
    return [each.event for each in workspace.history("graph", "ring")]


def test_a_saved_graph_is_listed_and_can_be_removed(workspace: Workspace) -> None:
    ring(5).save(workspace.graph_path("ring"))
    record = workspace.graph("ring")
    assert (record.node_types, [each.edges for each in record.edge_types]) == ({"node": 5}, [5])
    assert record.size_bytes > 0
    assert workspace.graphs() == [record]
    assert workspace.remove_graph("ring") > 0
    assert workspace.graphs() == []


def test_a_graph_saved_again_is_another_one(workspace: Workspace) -> None:
    path = workspace.graph_path("ring")
    ring(5).save(path)
    before = workspace.graph("ring")
    ring(5, x=1.0).save(path)
    after = workspace.graph("ring")
    assert after.fingerprint[:32] != before.fingerprint[:32]
    assert workspace.graph("ring") == after
    assert events(workspace) == ["imported", "replaced"]


def test_what_a_program_appends_and_compacts_is_noted(workspace: Workspace) -> None:
    source = GraphSource(
        "ring",
        {"node": NodeSource()},
        (EdgeSource(("node", "to", "node"), pa.table({"source": [0, 1, 2], "target": [1, 2, 0]})),),
    )
    path = workspace.graph_path("ring")
    with workspace.writing_graph("ring", "imported", fingerprint="f" * 64):
        import_graph(source, path)
    more = EdgeSource(("node", "to", "node"), pa.table({"source": [0], "target": [2]}))
    append(path, GraphSource("ring", {}, (more,)), compact="never")
    changed = workspace.graph("ring")
    assert [each.edges for each in changed.edge_types] == [4]
    assert changed.fingerprint.startswith("f" * 32 + "+")
    compact(path)
    assert workspace.graph("ring").fingerprint == changed.fingerprint
    assert events(workspace) == ["imported", "changed"]
    ring(7).save(path)
    assert workspace.graph("ring").fingerprint[:32] != "f" * 32


def test_a_graph_that_is_being_written_is_not_taken_for_a_saved_one(workspace: Workspace) -> None:
    with workspace.writing_graph("ring", "imported", fingerprint="f" * 64):
        ring(5).save(workspace.graph_path("ring"))
        assert workspace.graphs() == []
    assert workspace.graph("ring").fingerprint == "f" * 64


def test_other_folders_are_no_graphs(workspace: Workspace) -> None:
    (workspace.root / "graphs" / "empty").mkdir()
    (workspace.root / "graphs" / ".hidden").mkdir()
    (workspace.root / "graphs" / "file").write_text("text")
    damaged = workspace.root / "graphs" / "damaged"
    damaged.mkdir()
    (damaged / "manifest.json").write_text('{\n "checksum": "sha256:1"')
    assert workspace.graphs() == []


def test_a_record_of_an_earlier_release_is_taken_as_it_is(workspace: Workspace) -> None:
    ring(5).save(workspace.graph_path("ring"))
    before = workspace.graph("ring")
    with sqlite3.connect(workspace.root / "graphbox.db") as database:
        database.execute("UPDATE graphs SET state = NULL")
    assert workspace.graph("ring") == before
    assert events(workspace) == ["imported"]
    ring(6).save(workspace.graph_path("ring"))
    assert workspace.graph("ring").fingerprint != before.fingerprint

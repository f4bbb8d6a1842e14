"""A run file that names a stored graph, on the command line."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from graphbox.graph import Graph
from graphbox.workspace import Workspace

from .conftest import Call

RUN_FILE = """\
version: 1
name: stored
threads: 1
device: cpu
graph: {name: ring}
models:
  walk: {kind: deepwalk, dim: 4, epochs: 1, walks_per_node: 1, walk_length: 4}
"""


@pytest.fixture
def stored(folder: Path) -> Path:
    """A workspace with a graph that Python saved, and a run file that names it."""
    source = np.arange(30)
    with Workspace(folder / "workspace") as workspace:
        Graph.from_coo(source, (source + 1) % 30, name="ring").save(workspace.graph_path("ring"))
    (folder / "stored.yaml").write_text(RUN_FILE)
    return folder


def test_check_plan_run_describe_and_resume(stored: Path, graphbox: Call) -> None:
    assert [each["name"] for each in graphbox("graphs", "list", "--json").json] == ["ring"]
    outcome = graphbox("check", "stored.yaml")
    assert outcome.out == "stored.yaml is right: stored graph `ring` with no tasks, models walk\n"
    plan = graphbox("plan", "stored.yaml", "--json")
    assert plan.code == 0, plan.err
    assert plan.json["stored"] is True
    assert plan.json["training"]["walk"]["peak_bytes"] > 0
    assert "graph `ring` is stored: 30 nodes, 30 edges" in graphbox("plan", "stored.yaml").out
    first = graphbox("train", "stored.yaml", "--json", "-q")
    assert first.code == 0, first.err
    run = first.json["run"]
    assert graphbox("run", "stored.yaml", "--json", "-q").json["run"] == run
    assert graphbox("runs", "resume", run, "-q").code == 0
    assert graphbox("describe", "ring", "--json").json["versions"][0]["runs"] == [run]
    assert graphbox("embed", "export", run).code == 0


def test_mistakes(stored: Path, graphbox: Call) -> None:
    path = stored / "stored.yaml"
    path.write_text(RUN_FILE.replace("name: ring", "name: rung"))
    outcome = graphbox("check", "stored.yaml")
    assert outcome.code == 2
    assert "stored.yaml:5: graph.name: there is no stored graph `rung` in the workspace" in outcome.err
    assert "did you mean `ring`?" in outcome.err
    assert graphbox("run", "stored.yaml").code == graphbox("plan", "stored.yaml").code == 2
    outcome = graphbox("-C", "nowhere", "check", "stored.yaml")
    assert "there is no workspace nowhere" in outcome.err
    path.write_text(RUN_FILE.replace("dim: 4", "dim: 4, edge_types: [[node, too, node]]"))
    outcome = graphbox("check", "stored.yaml")
    assert "there is no edge type [node, too, node] in the stored graph `ring`" in outcome.err
    path.write_text(RUN_FILE)
    outcome = graphbox("import", "stored.yaml")
    assert "expected tables to import, received a run file of the stored graph `ring`" in outcome.err
    outcome = graphbox("check", "stored.yaml", "graph.strict=true")
    assert "`strict` is a setting of an import, but `ring` names a stored graph\n" in outcome.err
    outcome = graphbox("check", "stored.yaml", "stream.base_every=3")
    assert "expected the tables that chunks bring, received a graph that is stored already" in outcome.err

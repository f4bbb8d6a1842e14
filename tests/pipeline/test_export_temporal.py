"""A model that learns on through time, exported: its manifest says what its frozen vectors reach."""

from __future__ import annotations

from pathlib import Path

import pytest

from graphbox.artifact import Artifact
from graphbox.pipeline import run
from graphbox.train import evaluate_link_embeddings, load_split, load_trained
from graphbox.train.tasks import LinkSplit
from graphbox.workspace import Workspace
from tests.train.letters import stream_graph, stream_task

RUN_FILE = """\
version: 1
name: letters
threads: 1
graph:
  name: letters
  nodes: {person: {}}
  edges:
    - {type: [person, wrote, person], path: wrote.parquet, timestamp: time, keep_duplicates: true}
    - {type: [person, not_wrote, person], path: not_wrote.parquet, timestamp: time, keep_duplicates: true}
tasks:
  next: {kind: predict_links, node_type: person, relations: [wrote], negative_relations: [not_wrote],
         split: {kind: time}, baselines: []}
models:
  remembers: {kind: temporal, task: next, dim: 8, recent: 4, epochs: 1, batch_size: 100}
export:
  vectors: {model: remembers}
bench: {batch_sizes: [1], seconds: 0.05}
"""


def test_the_manifest_has_the_figures_of_what_is_served(tmp_path: Path) -> None:
    graph = stream_graph(tmp_path, messages=400)
    (tmp_path / "run.yaml").write_text(RUN_FILE)
    workspace = Workspace(tmp_path / "workspace")
    run(tmp_path / "run.yaml", (), workspace)
    record = workspace.run("last")
    manifest = Artifact.open(workspace.model("vectors", 1).path).manifest
    reported = record.report["metrics"]["next"]["remembers"]
    split = load_split(record.path / "splits" / "next.npz")
    assert isinstance(split, LinkSplit)
    people = load_trained(record.path, "remembers").embeddings["person"]
    expected = evaluate_link_embeddings(graph, split, stream_task(), people, people)
    assert manifest.metrics["next"]["auc"] == pytest.approx(expected["auc"], abs=1e-6)
    assert manifest.metrics["next"]["auc"] != reported["auc"]

"""A run whose model has no task: trained on the whole graph, exported, served, but not evaluated."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from tests.cli.conftest import Call

RUN_FILE = """\
version: 1
name: papers
threads: 1
graph:
  name: papers
  nodes:
    paper: {path: paper.csv}
    author: {path: author.csv}
  edges:
    - {type: [author, writes, paper], path: writes.csv, reverse: written_by}
models:
  walk:
    kind: metapath2vec
    dim: 8
    epochs: 2
    metapaths:
      - [[paper, written_by, author], [author, writes, paper]]
export:
  walker: {model: walk}
bench:
  batch_sizes: [1]
  seconds: 0.1
"""


def test_run(folder: Path, graphbox: Call) -> None:
    (folder / "run.yaml").write_text(RUN_FILE)
    outcome = graphbox("run", "run.yaml", "--json", "-q")
    assert outcome.code == 0, outcome.err
    report = outcome.json
    assert report["state"] == "finished"
    assert report["metrics"] == {}
    assert report["export"]["walker"]["version"] == 1
    assert graphbox("models", "show", "walker", "--json").json["task"] is None
    assert graphbox("embed", "export", "last", "-o", "vectors", "--format", "npy").code == 0
    assert np.load(folder / "vectors" / "paper.npy").shape == (60, 8)
    assert graphbox("eval", "last").code == 0


def test_what_is_not_measured_is_not_compressed(folder: Path, graphbox: Call) -> None:
    (folder / "run.yaml").write_text(RUN_FILE + "compress:\n  walker: {}\n")
    outcome = graphbox("check", "run.yaml")
    assert outcome.code == 2
    assert "compress.walker: the model `walk` has no task" in outcome.err
    assert "models.walk.task" in outcome.err


def test_run_as_text(folder: Path, graphbox: Call) -> None:
    (folder / "run.yaml").write_text(RUN_FILE)
    outcome = graphbox("run", "run.yaml", "-q")
    assert outcome.code == 0, outcome.err
    assert graphbox("runs", "show", "last").code == 0

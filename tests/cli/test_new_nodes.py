"""Nodes that came after training: appended to the graph, embedded and classified by a graph network."""

from __future__ import annotations

import csv
import shutil
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from tests.cli.conftest import Call, call_main

RUN_FILE = """\
version: 1
name: notes
threads: 1
graph:
  name: notes
  nodes:
    note: {path: note.csv, features: {topic: categorical, words: slots}}
    person: {path: person.csv}
  edges:
    - {type: [note, cites, note], path: cites.csv}
    - {type: [person, wrote, note], path: wrote.csv}
tasks:
  topic: {kind: classify, node_type: note, label: topic, baselines: [majority]}
models:
  net: {kind: gnn, task: topic, dim: 8, epochs: 40, learning_rate: 0.03}
  walk: {kind: deepwalk, task: topic, dim: 8, epochs: 1}
export:
  topics: {model: net}
"""
OLD, NEW = 90, 12


def write_notes(folder: Path, numbers: range, *, topics: bool) -> None:
    notes = [(n, f"t{n % 3}" if topics else "", f"{10 + n % 3}|{20 + n % 3}|{n % 7}") for n in numbers]
    cites = [(n, (n + 3 * step) % OLD) for n in numbers for step in (1, 2)]
    cites += [((n + 9) % OLD, n) for n in numbers if n >= OLD]
    wrote = [(f"p{n % 15}", n) for n in numbers]
    for name, columns, rows in (
        ("note", ("id", "topic", "words"), notes),
        ("cites", ("source", "target"), cites),
        ("wrote", ("source", "target"), wrote),
    ):
        with (folder / f"{name}.csv").open("w", newline="") as stream:
            csv.writer(stream).writerows([columns, *rows])
    people = [f"p{n}" for n in range(15)] if topics else ["silent"]
    (folder / "person.csv").write_text("id\n" + "".join(f"{name}\n" for name in people))


@pytest.fixture(scope="module")
def grown(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run whose graph has got more notes since, and a person who wrote nothing."""
    folder = tmp_path_factory.mktemp("notes")
    write_notes(folder, range(OLD), topics=True)
    (folder / "run.yaml").write_text(RUN_FILE)
    workspace = ("-C", folder / "workspace", "-q")
    outcome = call_main([*workspace, "run", folder / "run.yaml"])
    assert outcome.code == 0, outcome.err
    (folder / "new").mkdir()
    write_notes(folder / "new", range(OLD, OLD + NEW), topics=False)
    (folder / "new" / "run.yaml").write_text(RUN_FILE)
    outcome = call_main([*workspace, "import", "--append", folder / "new" / "run.yaml"])
    assert outcome.code == 0, outcome.err
    (folder / "new.txt").write_text("".join(f"{n}\n" for n in range(OLD, OLD + NEW)))
    return folder


@pytest.fixture
def notes(grown: Path, folder: Path) -> Path:
    shutil.copytree(grown, folder, dirs_exist_ok=True)  # with times of change, so that the import stays valid
    return folder


@pytest.mark.parametrize("name", ["last", "topics"])
def test_predict_classifies_nodes_that_came_after_training(notes: Path, graphbox: Call, name: str) -> None:
    outcome = graphbox("predict", name, "--nodes", "new.txt", "-o", "classes.parquet", "--json")
    assert outcome.code == 0, outcome.err
    assert (outcome.json["rows"], outcome.json["graph"]) == (NEW, "notes")
    rows = pq.read_table("classes.parquet").to_pylist()
    assert list(rows[0]) == ["id", "class", "probability"]
    assert [row["id"] for row in rows] == list(range(OLD, OLD + NEW))
    assert np.mean([row["class"] == f"t{row['id'] % 3}" for row in rows]) > 0.9
    assert all(1 / 3 < row["probability"] <= 1 for row in rows)
    every = graphbox("predict", name, "--json").json
    assert every["rows"] == OLD + NEW
    shown = graphbox("predict", name, "--nodes", "new.txt").out
    assert "probability" in shown


def test_embeddings_of_the_graph_as_it_is_now(notes: Path, graphbox: Call) -> None:
    own = graphbox("embed", "export", "last", "-o", "own", "--json")
    assert own.json["node_types"]["note"] == [OLD, 8], "the version that it was trained on"
    outcome = graphbox("embed", "export", "last", "--graph", "notes", "-o", "now", "--json")
    assert outcome.code == 0, outcome.err
    assert outcome.json["node_types"] == {"note": [OLD + NEW, 8], "person": [15, 8]}
    assert outcome.json["left_out"] == {"person": 1}
    assert "left out: 1 node of type person" in outcome.err
    call = (
        "embed",
        "export",
        "last",
        "--graph",
        "notes",
        "--type",
        "note",
        "--nodes",
        "new.txt",
        "-o",
        "new",
    )
    assert graphbox(*call).code == 0
    np.testing.assert_allclose(np.load("new/note.npy"), np.load("now/note.npy")[OLD:], atol=1e-5)
    near = graphbox("embed", "neighbors", "last", str(OLD), "--graph", "notes", "-k", "5", "--json")
    assert near.code == 0, near.err
    assert np.mean([each["id"] % 3 == OLD % 3 for each in near.json["neighbors"]]) > 0.5


def test_mistakes_are_said(notes: Path, graphbox: Call) -> None:
    (notes / "silent.txt").write_text("silent\n")
    (notes / "words.txt").write_text("5\nfive\n")
    cases = [
        ("predict", "last", "--input", "new.txt"), "expected nodes of a graph for `net`",
        ("predict", "last", "--id", "x"), "expected nodes of a graph for `net`",
        ("predict", "topics", "--input", "new.txt"), "expected nodes of a graph for `topics`",
        ("predict", "last", "--model", "walk"), "predicts rows or nodes, received `walk`",
        ("predict", "last", "--graph", "note"), "did you mean `notes`?",
        ("predict", "last", "--nodes", "words.txt"), "words.txt:2: expected an integer id of `note`",
        ("embed", "export", "last", "--graph", "notes", "--model", "walk"), "expected a graph network",
        ("embed", "export", "last", "--graph", "notes", "--type", "person", "--nodes", "silent.txt"),
        "1 node with none of it, first `silent`",
    ]  # fmt: skip
    for call, message in zip(cases[::2], cases[1::2], strict=True):
        outcome = graphbox(*call)
        assert outcome.code != 0, call
        assert str(message) in outcome.err, call


def test_a_removed_node_has_no_prediction_and_no_vector(folder: Path, graphbox: Call) -> None:
    write_notes(folder, range(OLD), topics=True)
    (folder / "run.yaml").write_text(RUN_FILE)
    assert graphbox("import", "run.yaml", "-q").code == 0
    assert graphbox("import", "--remove", "--name", "notes", "--node", "note", "3", "-q").code == 0
    outcome = graphbox("run", "run.yaml", "-q")
    assert outcome.code == 0, outcome.err
    for name in ("last", "topics"):
        assert graphbox("predict", name, "--json").json["rows"] == OLD - 1
    assert graphbox("embed", "export", "last", "--model", "net", "-o", "rest").code == 0
    assert "3" not in (folder / "rest" / "note.ids.txt").read_text().split()

"""Runs read the graph version that they were trained on, while it exists; refused commands change nothing."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from sqlalchemy import create_engine, text

from graphbox.graph import Graph
from graphbox.workspace import Workspace
from tests.cli.conftest import Call

GRAPH = Path("workspace/graphs/papers")
RUN = Path("workspace/runs/papers-1")


def record() -> tuple[bytes, list[Any]]:
    """Return everything that the workspace holds of the run: its file, and its rows in the database."""
    with create_engine("sqlite:///workspace/graphbox.db").connect() as connection:
        rows = [
            list(connection.execute(text(f"select * from {table} order by 1, 2")))  # noqa: S608
            for table in ("runs", "stages")
        ]
    return (RUN / "run.json").read_bytes(), rows


def append_edge(graphbox: Call, *options: str) -> None:
    Path("new.csv").write_text("source,target\np1,p59\n")
    call = (
        "import",
        "--append",
        "new.csv",
        "--name",
        "papers",
        "--type",
        "paper,cites,paper",
        "-q",
        *options,
    )
    outcome = graphbox(*call)
    assert outcome.code == 0, outcome.err


def remove_paper(graphbox: Call) -> None:
    outcome = graphbox("import", "--remove", "--name", "papers", "--node", "paper", "p5", "-q")
    assert outcome.code == 0, outcome.err


def metrics() -> Any:
    return json.loads((RUN / "run.json").read_text())["report"]["metrics"]


@pytest.mark.parametrize("compacted", [False, True])
def test_a_run_reads_its_own_version_after_an_append(
    graphbox: Call, finished_folder: Path, compacted: bool
) -> None:
    measured, edges = metrics(), Graph.open(GRAPH).num_edges(("paper", "cites", "paper"))
    append_edge(graphbox, "--no-compact")
    if compacted:
        assert graphbox("compact", "papers").code == 0
    assert Graph.open(GRAPH).num_edges(("paper", "cites", "paper")) == edges + 1
    for call in (
        ("embed", "export", "last", "-o", "out"),
        ("embed", "neighbors", "last", "p7", "--not-linked"),
        ("eval", "last"),
        ("export", "last"),
        ("compress", "last"),
    ):
        outcome = graphbox(*call, "-q")
        assert outcome.code == 0, (call, outcome.err)
    assert metrics() == measured, "the edge that came later plays no part"
    links = pq.read_table(Workspace("workspace").model("citer").path / "links.parquet")
    assert links.num_rows == edges


def test_describe_names_runs_and_cost_and_removing_the_run_frees_it(
    graphbox: Call, finished_folder: Path
) -> None:
    unchanged = graphbox("describe", "papers", "--json").json
    assert [(each["runs"], each["current"]) for each in unchanged["versions"]] == [(["papers-1"], True)]
    append_edge(graphbox, "--no-compact")
    assert graphbox("describe", "papers", "--json").json["versions_bytes"] == 0
    assert graphbox("compact", "papers").code == 0
    document = graphbox("describe", "papers", "--json").json
    (version,) = document["versions"]
    assert (version["runs"], version["current"]) == (["papers-1"], False)
    assert version["size_bytes"] == document["versions_bytes"] > 0
    assert "1 older version kept for runs" in graphbox("describe", "papers").out
    assert len(list(GRAPH.glob("base-*"))) == 2
    assert graphbox("runs", "rm", "papers-1", "--json").json["freed_bytes"] > document["versions_bytes"]
    assert len(list(GRAPH.glob("base-*"))) == 1
    assert graphbox("describe", "papers", "--json").json["versions"] == []


def test_compaction_releases_what_a_removed_run_left(graphbox: Call, finished_folder: Path) -> None:
    append_edge(graphbox, "--no-compact")
    Workspace("workspace").remove_run("papers-1")  # without the graph, as a process does that is killed next
    assert graphbox("compact", "papers").code == 0
    assert len(list(GRAPH.glob("base-*"))) == 1


@pytest.mark.parametrize("end", ["remove", "drop"])
def test_without_its_version_a_run_has_its_own_vectors(
    graphbox: Call, finished_folder: Path, end: str
) -> None:
    assert graphbox("embed", "export", "last", "-o", "before", "-q").code == 0
    near = graphbox("embed", "neighbors", "last", "p7", "--json").json
    if end == "remove":
        remove_paper(graphbox)
    else:
        append_edge(graphbox)
        assert graphbox("compact", "papers", "--drop-versions").code == 0
    assert not list(GRAPH.glob("versions/*.json"))
    before = record()
    assert graphbox("embed", "export", "last", "-o", "after", "-q").code == 0
    np.testing.assert_array_equal(np.load("after/paper.npy"), np.load("before/paper.npy"))
    assert pq.read_table("after/paper.parquet").equals(pq.read_table("before/paper.parquet"))
    assert graphbox("embed", "neighbors", "last", "p7", "--json").json == near
    for call in (
        ("embed", "neighbors", "last", "p7", "--not-linked"),
        ("eval", "last"),
        ("export", "last"),
        ("compress", "citer"),
        ("runs", "resume", "last"),
    ):
        outcome = graphbox(*call)
        if call[0] != "runs":
            assert outcome.code == 1, call
            assert "the version of the graph `papers` that the run was trained on is gone" in outcome.err
            assert "run the run file again" in outcome.err
        assert record() == before, call


def test_integer_ids_of_a_run_without_its_version(graphbox: Call, folder: Path) -> None:
    for name in ("paper", "cites", "writes"):
        table = (folder / f"{name}.csv").read_text()
        table = re.sub(r"\bp(\d)", r"\1", table)
        (folder / f"{name}.csv").write_text(table)
    rows = (folder / "cites.csv").read_text().splitlines()[1:]
    assert rows[0] == "0,3"
    outcome = graphbox("train", "run.yaml", "-q")
    assert outcome.code == 0, outcome.err
    assert graphbox("import", "--remove", "--name", "papers", "--node", "paper", "5", "-q").code == 0
    assert graphbox("embed", "export", "last", "-o", "after", "-q").code == 0
    ids = pq.read_table("after/paper.parquet").column("id")
    assert ids.to_pylist() == list(range(60))
    assert graphbox("embed", "neighbors", "last", "7").code == 0


def test_an_export_that_fails_its_checks_leaves_the_run_as_it_was(
    graphbox: Call, finished_folder: Path
) -> None:
    config = RUN / "config.yaml"
    strict = config.read_text().replace("max_absolute_error: 0.0001", "max_absolute_error: 1.0e-12")
    strict = strict.replace("max_relative_error: 0.001", "max_relative_error: 1.0e-12")
    assert strict != config.read_text()
    config.write_text(strict)
    before = record()
    outcome = graphbox("export", "last")
    assert outcome.code == 6, outcome.err
    assert record() == before


def test_a_run_goes_on_with_its_version_while_the_graph_grows(graphbox: Call, folder: Path) -> None:
    assert graphbox("train", "run.yaml", "-q").code == 0
    append_edge(graphbox, "--no-compact")
    assert graphbox("compact", "papers", "-q").code == 0
    outcome = graphbox("runs", "resume", "last", "-q", "--json")
    assert outcome.code == 0, outcome.err
    assert outcome.json["run"] == "papers-1"

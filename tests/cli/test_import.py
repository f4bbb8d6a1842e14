"""`graphbox import`: tables and run files, changing a graph, and what the workspace knows afterwards."""

from __future__ import annotations

import gzip
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import get_args

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from graphbox.config.graph import TableFormat
from graphbox.graph import Graph
from graphbox.graph.source import FORMATS
from graphbox.workspace import Workspace
from tests.cli.conftest import Call

BUYS = ("user", "buys", "item")


@pytest.fixture
def shop(folder: Path) -> Path:
    """A file of edges without header, in the working directory."""
    lines = [f"u{number % 7}\t{number}\t{number / 4 + 1}" for number in range(40)]
    path = folder / "shop.tsv.gz"
    path.write_bytes(gzip.compress(("\n".join(lines) + "\n").encode()))
    return path


def graph_of(name: str) -> Graph:
    return Graph.open(Path("workspace/graphs") / name)


def counts(name: str) -> tuple[dict[str, int], int]:
    """Return what the workspace knows: nodes by type, edges."""
    record = Workspace("workspace").graph(name)
    assert record.size_bytes == sum(
        file.stat().st_size for file in record.path.rglob("*") if file.is_file()
    ), "the record has the size on disk"
    return dict(record.node_types), sum(each.edges for each in record.edge_types)


def imported_shop(graphbox: Call) -> None:
    outcome = graphbox(
        *("import", "shop.tsv.gz", "--name", "shop", "--type", "user,buys,item"),
        *("--columns", "user,item,price", "--weight", "price", "-q"),
    )
    assert outcome.code == 0, outcome.err


def test_a_table_without_a_header(graphbox: Call, shop: Path) -> None:
    imported_shop(graphbox)
    graph = graph_of("shop")
    assert graph.edge_types == [BUYS]
    assert counts("shop") == ({"user": 7, "item": 40}, 40)
    assert graph.ids("user", np.arange(3)).tolist() == ["u0", "u1", "u2"], "in order of first appearance"
    assert graph.id_type("item") == "int64"
    assert graph.csc(BUYS).weight is not None


def test_the_first_two_columns_are_the_ends(graphbox: Call, folder: Path) -> None:
    (folder / "follows.csv").write_text("who,whom,since\na,b,1\nb,c,2\n")
    outcome = graphbox("import", "follows.csv")
    assert outcome.code == 0, outcome.err
    assert "from column `who` to column `whom`" in outcome.err
    assert "not imported: `since`" in outcome.err
    assert counts("follows") == ({"node": 3}, 2)
    document = graphbox("import", "follows.csv", "--json").json
    assert document["report"] is None, "nothing has changed"
    report = graphbox("import", "follows.csv", "--json", "--again", "--memory", "4GiB").json["report"]
    assert report["memory_bytes"] == 2**32
    assert report["edges"][0]["rows"] == 2


def test_parts_by_pattern_and_folder(graphbox: Call, folder: Path) -> None:
    (folder / "parts").mkdir()
    for number in range(3):
        table = pa.table({"source": [number, number], "target": [number + 1, 100]})
        pq.write_table(table, folder / "parts" / f"p{number}.parquet")
    assert graphbox("import", "parts/*.parquet", "--name", "pattern").code == 0
    assert graphbox("import", "parts", "--name", "folder").code == 0
    assert counts("pattern") == counts("folder") == ({"node": 5}, 6)
    assert "already there" in graphbox("import", "parts", "--name", "folder").out
    pq.write_table(pa.table({"source": [7], "target": [8]}), folder / "parts" / "p9.parquet")
    assert "already there" not in graphbox("import", "parts", "--name", "folder").out, "a part was added"
    assert counts("folder") == ({"node": 7}, 7)


def test_a_run_file_of_a_graph_alone(graphbox: Call, folder: Path) -> None:
    (folder / "graph.yaml").write_text(
        "version: 1\nname: g\ngraph:\n  name: g\n  memory: 1GiB\n  nodes:\n    paper: {path: paper.csv}\n"
        "    author:\n  edges:\n    - {type: [author, writes, paper], path: writes.csv}\n"
    )
    assert "no models" in graphbox("check", "graph.yaml").out
    assert graphbox("run", "graph.yaml").code == 0, "the run ends with the graph"
    assert counts("g") == ({"paper": 60, "author": 30}, 120)
    outcome = graphbox("train", "graph.yaml")
    assert outcome.code == 2
    assert "the section `models` of the run file adds it" in outcome.err


def test_the_run_file_knows_every_format() -> None:
    assert set(get_args(TableFormat)) == {"auto", *FORMATS}


def test_append_a_table(graphbox: Call, folder: Path, shop: Path) -> None:
    imported_shop(graphbox)
    before = Workspace("workspace").graph("shop")
    (folder / "more.csv").write_text("source,target,price\nu1,3,2\nu9,400,1\n")
    outcome = graphbox("import", "--append", "more.csv", "--name", "shop", "--weight", "price")
    assert outcome.code == 0, outcome.err
    assert "user: 1 node added" in outcome.out
    assert counts("shop") == ({"user": 8, "item": 41}, 42)
    after = Workspace("workspace").graph("shop")
    assert after.created_at == before.created_at
    assert after.fingerprint != before.fingerprint
    again = graphbox("import", "--append", "more.csv", "--name", "shop", "--weight", "price", "--json").json
    assert again["edges"][0]["duplicate_edges"] == 2
    assert Workspace("workspace").graph("shop").fingerprint == after.fingerprint, "nothing has changed"
    events = [event.event for event in Workspace("workspace").history("graph", "shop")]
    assert events == ["imported", "appended to"]


def test_append_a_run_file_and_import_keeps_it(graphbox: Call, folder: Path) -> None:
    assert graphbox("import", "run.yaml").code == 0
    (folder / "new.csv").write_text("id,field,year\np3,botany,2001\np900,logic,2020\n")
    (folder / "new.yaml").write_text(
        "version: 1\nname: new\ngraph:\n  name: papers\n"
        "  nodes:\n    paper: {path: new.csv, features: {field: categorical, year: number}}\n"
    )
    outcome = graphbox("import", "new.yaml", "--append")
    assert outcome.code == 0, outcome.err
    assert "paper: 1 node added, 1 updated" in outcome.out
    kept = graphbox("import", "run.yaml")
    assert "is already there" in kept.out
    assert "appended and removed since" in kept.out
    assert counts("papers")[0]["paper"] == 61
    assert graphbox("import", "run.yaml", "--again").code == 0
    assert counts("papers")[0]["paper"] == 60


def test_a_finished_run_refuses_a_graph_without_removed_nodes(graphbox: Call, finished_folder: Path) -> None:
    assert graphbox("eval", "last").code == 0
    assert graphbox("import", "--remove", "--name", "papers", "--node", "paper", "p5").code == 0
    outcome = graphbox("eval", "last")
    assert outcome.code == 1
    assert "the version of the graph `papers` that the run was trained on is gone" in outcome.err


def test_remove_nodes_and_edges(graphbox: Call, folder: Path, shop: Path) -> None:
    imported_shop(graphbox)
    outcome = graphbox("import", "--remove", "--name", "shop", "--node", "item", "3", "4", "999")
    assert outcome.code == 0, outcome.err
    assert "item: 2 nodes removed" in outcome.out
    assert "item: 1 given are not in the graph" in outcome.out
    assert "gone from the files of the graph" in outcome.out
    assert "`graphbox forget`" in outcome.out
    assert counts("shop") == ({"user": 7, "item": 38}, 38)
    (folder / "gone.txt").write_text("u6\nu5\n")
    document = graphbox(
        *("import", "--remove", "--name", "shop", "--node", "user", "--ids", "gone.txt", "--no-compact"),
        "--json",
    ).json
    assert document["nodes"] == {"user": 2}
    assert document["compacted"] is False
    (folder / "returned.csv").write_text("source,target\nu0,0\nu0,7\n")
    assert graphbox("import", "--remove", "returned.csv", "--name", "shop").code == 0
    graph = graph_of("shop")
    assert graph.num_removed("user") == 2
    assert graph.index("item", [0], missing=-1)[0] >= 0, "an edge goes, its ends stay"
    assert counts("shop")[0] == {"user": 5, "item": 38}


def test_compact(graphbox: Call, folder: Path, shop: Path) -> None:
    imported_shop(graphbox)
    assert "no changes to compact" in graphbox("compact", "shop").out
    graphbox("import", "--remove", "--name", "shop", "--node", "user", "u0", "--no-compact", "-q")
    before = Workspace("workspace").graph("shop")
    document = graphbox("compact", "shop", "--json").json
    assert document["compacted"] is True
    assert document["size_bytes"] < before.size_bytes
    after = Workspace("workspace").graph("shop")
    assert after.fingerprint == before.fingerprint, "the content is the same"
    assert not list(Path("workspace/graphs/shop").glob("delta-*"))


def test_compact_in_the_background(graphbox: Call, folder: Path, shop: Path) -> None:
    imported_shop(graphbox)
    graphbox("import", "--remove", "--name", "shop", "--node", "user", "u0", "--no-compact", "-q")
    assert "too few changes" in graphbox("compact", "shop", "--if-needed", "--background").out
    document = graphbox("compact", "shop", "--background", "--json").json
    waited = time.monotonic() + 120
    while list(Path("workspace/graphs/shop").glob("delta-*")) or "compacted" not in _said(document["log"]):
        assert time.monotonic() < waited, _said(document["log"])
        time.sleep(0.05)
    assert graph_of("shop").num_removed("user") == 1


def _said(log: str) -> str:
    return Path(log).read_text()


def test_interrupted_import_leaves_the_old_graph(graphbox: Call, folder: Path) -> None:
    (folder / "edges.csv").write_text("source,target\na,b\n")
    assert graphbox("import", "edges.csv", "--name", "g").code == 0
    before = graph_of("g").num_edges()
    with (folder / "edges.csv").open("w") as file:
        file.write("source,target\n")
        file.writelines(f"node-{number},node-{number * 7919 % 1_000_003}\n" for number in range(1_500_000))
    process = subprocess.Popen(
        [sys.executable, "-m", "graphbox", "import", "edges.csv", "--name", "g"],
        stderr=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        text=True,
    )
    scratch = folder / "workspace/graphs/g"
    waited = time.monotonic() + 60
    while not list(scratch.glob("base-000002*")) and process.poll() is None and time.monotonic() < waited:
        time.sleep(0.01)
    process.send_signal(signal.SIGTERM)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 75, err
    assert "the graph is as it was before" in err
    assert graph_of("g").num_edges() == before
    assert graphbox("import", "edges.csv", "--name", "g", "-q").code == 0, "it starts again"


def test_a_graph_that_does_not_open_is_imported_anew(graphbox: Call, folder: Path) -> None:
    (folder / "follows.csv").write_text("source,target\na,b\nb,c\n")
    assert graphbox("import", "follows.csv").code == 0
    indices = next((folder / "workspace" / "graphs" / "follows").rglob("indices.npy"))
    indices.write_bytes(indices.read_bytes()[:-1])
    assert graphbox("describe", "follows").code == 4
    assert "already there" not in graphbox("import", "follows.csv").out
    assert counts("follows") == ({"node": 3}, 2)


def test_an_edge_list_of_snap(graphbox: Call, folder: Path) -> None:
    (folder / "web.txt").write_text("# Nodes: 3 Edges: 2\n# FromNodeId\tToNodeId\n0\t1\n1\t2\n")
    outcome = graphbox("import", "web.txt")
    assert outcome.code == 0, outcome.err
    assert "2 lines of comment" in outcome.err
    assert counts("web") == ({"node": 3}, 2)


def test_repeated_edges_are_kept_when_asked_for(graphbox: Call, folder: Path) -> None:
    (folder / "messages.txt").write_text("1 2 100\n1 2 200\n2 1 300\n")
    once = graphbox("import", "messages.txt", "--timestamp", "column_3")
    assert "--keep-duplicates" in once.out
    assert counts("messages") == ({"node": 2}, 2)
    every = graphbox("import", "messages.txt", "--timestamp", "column_3", "--keep-duplicates")
    assert "--keep-duplicates" not in every.out
    assert counts("messages") == ({"node": 2}, 3)


def test_text_of_the_data_cannot_steer_the_terminal(graphbox: Call, folder: Path) -> None:
    lines = ["source,target", "\x1b[31mred,2,3", "a\x1b]0;title\x07\u202e,b", "a\x1b]0;title\x07\u202e,b"]
    (folder / "edges.csv").write_text("\n".join(lines))
    imported = graphbox("import", "edges.csv", "--color", "never")
    assert "\u241b[31mred,2,3" in imported.out
    described = graphbox("describe", "edges", "--color", "never")
    assert "a\u241b]0;title" in described.out
    refused = graphbox("import", "edges.csv", "--strict", "--color", "never")
    assert refused.code == 4
    assert not any(
        code in outcome.out + outcome.err
        for outcome in (imported, described, refused)
        for code in "\x1b\x07\u202e"
    )


def test_an_import_that_loses_most_of_its_rows_says_so(graphbox: Call, folder: Path) -> None:
    (folder / "edges.csv").write_text("source,target\na,b\nc,d\n1;2\n3;4\n")
    assert "most of the rows" not in graphbox("import", "edges.csv").out
    (folder / "edges.csv").write_text("source,target\na,b\n1;2\n3;4\n")
    assert "most of the rows of node to node were skipped (2 of 3)" in graphbox("import", "edges.csv").out

"""Rows that cannot be used: skipped and counted by kind with their places, or refused in strict mode."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from graphbox.errors import DataError
from graphbox.graph import EdgeSource, Graph, GraphSource, NodeSource
from graphbox.graph.ingest import import_graph
from graphbox.graph.ingest.budget import Shares
from tests.graph.papers import (
    CITES,
    Change,
    content,
    edge_parquet,
    edges_of,
    imported,
    node_parquet,
    nodes,
    with_edges,
)


def test_what_is_skipped_is_counted_with_examples(papers: GraphSource, tmp_path: Path) -> None:
    lines = [
        "a,b",
        "a,b",
        "d,d",
        "x,a",
        "a,y",
        "z,z",
        "a,",
        "b,a",
        "a,b",
        '"quoted, id",a',
        "b",
        "d,e",
        "d,f",
    ]
    file = tmp_path / "cites.csv"
    file.write_text("source,target\n" + "\n".join(lines) + "\n")
    source = with_edges(papers, weight=None, timestamp=None)
    graph, report = imported(source, tmp_path)
    assert edges_of(graph) == [("b", "a"), ("a", "b"), ("d", "d")]
    edges = report.edges[0]
    assert edges.counts() == {
        "rows": 13,
        "edges": 3,
        "duplicate_edges": 2,
        "dangling_edges": 6,
        "self_loops": 1,
    }
    assert edges.skipped == {"missing id": 1, "wrong number of cells": 1}
    shortened = edges.examples.pop("wrong number of cells")  # type: ignore[attr-defined]
    assert shortened[0].startswith("cites.csv:12: ")
    assert edges.examples == {
        "duplicate_edges": ("cites.csv:3: `a` cites `b`",),
        "dangling_edges": (
            "cites.csv:5, column `source`: `x`",
            "cites.csv:6, column `target`: `y`",
            "cites.csv:7, column `source`: `z`",
            "cites.csv:11, column `source`: `quoted, id`",
            "cites.csv:13, column `target`: `e`",
        ),
        "missing id": ("cites.csv:8, column `target`: an empty cell",),
    }
    kept: dict[str, Any] = dict(graph.imported(CITES))
    assert kept["dangling_edges"] == 6
    assert kept["skipped"] == edges.skipped
    assert report.as_dict()["edges"][0]["dangling_edges"] == 6

    graph, report = imported(with_edges(source, keep_duplicates=True), tmp_path)
    assert edges_of(graph) == [("b", "a"), ("a", "b"), ("a", "b"), ("a", "b"), ("d", "d")]
    assert (report.edges[0].duplicate_edges, report.edges[0].edges) == (2, 5)


@pytest.mark.parametrize(
    ("line", "column", "message"),
    [
        ("x,a,1,1", "source", "expected the id of a node of type `paper`, received `x`"),
        ("a,x,1,1", "target", "expected the id of a node of type `paper`, received `x`"),
        (
            "a,b,1,1",
            "source",
            "expected each edge once, received `a` to `b` again (1 of 4 edges are repetitions)",
        ),
    ],
)
def test_strict_refuses_what_would_be_skipped(
    line: str, column: str, message: str, papers: GraphSource, tmp_path: Path
) -> None:
    with (tmp_path / "cites.csv").open("a") as file:
        file.write(line + "\n")
    with pytest.raises(DataError) as caught:
        imported(papers, tmp_path, strict=True)
    assert caught.value.message == message
    assert caught.value.where == f"{tmp_path}/cites.csv:5, column `{column}`"
    assert not (tmp_path / "graph").exists()


UNUSABLE: dict[str, tuple[Change, str, str, str]] = {
    "short line": (
        content("cites.csv", "source,target,w,t\na,b,1,1\n\nb,c\n"),
        "wrong number of cells",
        "cites.csv:4",
        "expected a line like the others",
    ),
    "not UTF-8": (
        content("cites.csv", b"source,target,w,t\na,b,1,1\n\xe9,c,1,1\n"),
        "bad encoding",
        "cites.csv:3",
        "expected a line like the others",
    ),
    "node without id": (
        content("paper.csv", "id,year,venue,open\na,1,X,1\n,1,X,1\nb,1,X,1\n"),
        "missing id",
        "paper.csv:3, column `id`",
        "expected an id in every row, received an empty cell",
    ),
    "id with a line break": (
        content("paper.csv", 'id,year,venue,open\na,1,X,1\n"b\nc",1,X,1\nb,1,X,1\n'),
        "id with a line break",
        "paper.csv:3, column `id`",
        "expected an id without line breaks",
    ),
    "empty id in Parquet": (
        node_parquet("number", id=["a", "", "b"]),
        "missing id",
        "n.parquet, row 2, column `id`",
        "expected an id in every row, received ''",
    ),
    "ids beyond 64 bits": (
        lambda source, folder: edge_parquet(source=[1, 2], target=[2, 1])(
            node_parquet("number", id=pa.array([1, 2**63, 2], pa.uint64()))(source, folder), folder
        ),
        "not an integer id",
        "n.parquet, row 2, column `id`",
        "expected a plain decimal integer of 64 bits, received 9223372036854775808",
    ),
    "ids asked to be integers": (
        lambda source, folder: edge_parquet(source=[1, 2], target=[2, 1])(
            nodes(id_type="int64")(
                content("paper.csv", "id,year,venue,open\n1,1,X,1\n007,1,X,1\n2,1,X,1\n")(source, folder),
                folder,
            ),
            folder,
        ),
        "not an integer id",
        "paper.csv:3, column `id`",
        "expected a plain decimal integer of 64 bits, received '007'",
    ),
    "number that is none": (
        content("paper.csv", "id,year,venue,open\na,1,X,1\nb,2,X,1\nc,soon,X,1\n"),
        "not a number",
        "paper.csv:4, column `year`",
        "expected a number, received 'soon'",
    ),
    "number beyond float32": (
        content("paper.csv", "id,year,venue,open\na,1,X,1\nb,2,X,1\nc,1e39,X,1\n"),
        "number beyond float32",
        "paper.csv:4, column `year`",
        "expected a number within the range of float32, received '1e39'",
    ),
    "boolean that is none": (
        content("paper.csv", "id,year,venue,open\na,1,X,yes\nb,1,X,1\nc,1,X,0\n"),
        "not a boolean",
        "paper.csv:2, column `open`",
        "expected true or false, received 'yes'",
    ),
    "missing boolean": (
        content("paper.csv", "id,year,venue,open\na,1,X,1\nb,1,X,\nc,1,X,1\n"),
        "missing boolean",
        "paper.csv:3, column `open`",
        "expected true or false in every row",
    ),
    "integer with a gap": (
        node_parquet("integer", id=["a", "b", "c"], year=[1, None, 3]),
        "missing integer",
        "n.parquet, row 2, column `year`",
        "expected an integer in every row, received an empty cell",
    ),
    "vectors of two lengths": (
        node_parquet("vector", id=["a", "b", "c"], x=[[1.0, 2.0], [1.0], [3.0, 4.0]]),
        "vector of another length",
        "n.parquet, row 2, column `x`",
        "expected 2 numbers in every row, as in the first, received [1.0]",
    ),
    "vector without numbers": (
        lambda source, folder: nodes(features={"year": "vector"})(
            content("paper.csv", "id,year\na,1|2\nb,3|\nc,5|6\n")(source, folder), folder
        ),
        "not a number",
        "paper.csv:3, column `year`",
        "expected a number, received '3|'",
    ),
    "weight of zero": (
        content("cites.csv", "source,target,w,t\na,b,1,1\nb,c,0,1\n"),
        "weight that is not positive",
        "cites.csv:3, column `w`",
        "expected a finite positive number, received '0'",
    ),
    "weight missing": (
        content("cites.csv", "source,target,w,t\na,b,,1\nb,c,1,1\n"),
        "missing weight",
        "cites.csv:2, column `w`",
        "expected a finite positive number, received an empty cell",
    ),
    "timestamp of text": (
        content("cites.csv", "source,target,w,t\na,b,1,1\nb,c,1,May\n"),
        "not a timestamp",
        "cites.csv:3, column `t`",
        "expected an integer, as in the first row, received 'May'",
    ),
}


@pytest.mark.parametrize("name", UNUSABLE)
def test_each_unusable_row_is_counted_or_refused(name: str, papers: GraphSource, tmp_path: Path) -> None:
    change, kind, where, message = UNUSABLE[name]
    source = change(papers, tmp_path)
    graph, report = imported(source, tmp_path)
    skipped: dict[str, Any] = {}
    examples: dict[str, Any] = {}
    for document in (*report.as_dict()["nodes"], *report.as_dict()["edges"]):
        skipped |= document["skipped"]
        examples |= document["examples"]
    assert skipped == {kind: 1}
    assert where in examples[kind][0]
    assert graph.num_edges() >= 1

    with pytest.raises(DataError) as caught:
        import_graph(source, tmp_path / "strict", strict=True)
    assert (caught.value.where or "").endswith(where)
    assert message in caught.value.message
    assert "strict" in (caught.value.hint or "")
    assert not (tmp_path / "strict").exists()


@pytest.mark.parametrize(
    ("change", "where", "message"),
    [
        (
            content("paper.csv", "id,year,venue,open\na,x,X,1\nb,y,X,1\n"),
            "paper.csv:2, column `year`",
            "expected a number, received 'x' (none of the 2 nodes can be used)",
        ),
        (
            content("cites.csv", "source,target,w,t\na,b,0,1\nb,c,-1,1\n"),
            "cites.csv:2, column `w`",
            "expected a finite positive number, received '0' (none of the 2 edges can be used)",
        ),
        (
            content("cites.csv", "source,target,w,t\nA,b,1,1\nB,c,1,1\n"),
            "cites.csv:2, column `source`",
            "expected the id of a node of type `paper`, received `A` (none of the 2 edges can be used)",
        ),
        (
            content("cites.csv", "source,target,w,t\na\nb\n"),
            "cites.csv:2",
            "(none of the 2 edges can be used)",
        ),
    ],
)
def test_a_table_of_which_no_row_can_be_used_is_refused(
    change: Change, where: str, message: str, papers: GraphSource, tmp_path: Path
) -> None:
    with pytest.raises(DataError) as caught:
        import_graph(change(papers, tmp_path), tmp_path / "graph")
    assert (caught.value.where or "").endswith(where)
    assert message in caught.value.message


def test_a_repeated_id_is_named_with_both_places(papers: GraphSource, tmp_path: Path) -> None:
    lines = ["a,1,X,1", "b,1,X,oops", "c,1,X,1", "d,1,X,1", "b,1,X,1", "c,2,Y,1"]
    file = tmp_path / "paper.csv"
    file.write_text("id,year,venue,open\n" + "\n".join(lines) + "\n")
    with pytest.raises(DataError) as caught:
        import_graph(papers, tmp_path / "graph")
    assert caught.value.where == f"{file}:7, column `id`"
    assert caught.value.message == (
        f"expected each node id once, received 1 again: `c` (before: {file}:4, column `id`)"
    )


def test_the_place_of_a_late_problem_skips_what_was_skipped(papers: GraphSource, tmp_path: Path) -> None:
    lines = ["a,b,1,1", "b,c,0,1", "b,c,1,1", "c,d,x,1", "a,b,1,1"]
    file = tmp_path / "cites.csv"
    file.write_text("source,target,w,t\n" + "\n".join(lines) + "\n")
    source = with_edges(papers, weight=None)
    with pytest.raises(DataError) as caught:
        import_graph(source, tmp_path / "graph", strict=True)
    assert caught.value.where == f"{file}:6, column `source`"
    graph: Graph = imported(papers, tmp_path)[0]
    assert edges_of(graph) == [("a", "b"), ("b", "c")]


def test_dangling_edges_are_named_when_the_ids_are_beyond_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    size = 800_000
    numbers = np.arange(size)
    ids = pc.binary_join_element_wise("node", pc.cast(pa.array(numbers), pa.string()), "")
    pq.write_table(pa.table({"id": ids}), tmp_path / "node.parquet")
    ends = pa.concat_arrays([ids, pa.array(["nobody", "node5", "node1"])])
    others = pa.concat_arrays([ids.slice(1), ids.slice(0, 1), pa.array(["node1", "noone", "node2"])])
    pq.write_table(pa.table({"source": ends, "target": others}), tmp_path / "edge.parquet")
    edges = EdgeSource(("n", "to", "n"), tmp_path / "edge.parquet")
    source = GraphSource("g", {"n": NodeSource(tmp_path / "node.parquet")}, (edges,))
    expected = import_graph(source, tmp_path / "memory").edges[0]
    monkeypatch.setattr(Shares, "of_ids", lambda self, _: 22 << 20)
    monkeypatch.setattr(Shares, "settle", lambda *_: None)
    report = import_graph(source, tmp_path / "disk").edges[0]
    assert report == expected
    assert report.examples == {
        "dangling_edges": (
            "edge.parquet, row 800,001, column `source`: `nobody`",
            "edge.parquet, row 800,002, column `target`: `noone`",
        ),
        "duplicate_edges": ("edge.parquet, row 800,003: `node1` to `node2`",),
    }
    files = {
        path.relative_to(tmp_path / "memory"): path.read_bytes()
        for path in (tmp_path / "memory").rglob("*.npy")
    }
    assert all((tmp_path / "disk" / name).read_bytes() == content for name, content in files.items())
    with pytest.raises(DataError) as caught:
        import_graph(source, tmp_path / "strict", strict=True)
    assert (caught.value.where or "").endswith("edge.parquet, row 800,001, column `source`")
    assert caught.value.message == "expected the id of a node of type `n`, received `nobody`"

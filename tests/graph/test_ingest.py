"""Importing tables: what is read, what is skipped and counted, and what each mistake is answered with."""

from __future__ import annotations

import gzip
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from graphbox.errors import DataError, GraphboxError, NotFoundError, UsageError
from graphbox.graph import EdgeSource, Graph, GraphSource, NodeSource
from graphbox.graph.ingest import EdgeTypeReport, ImportReport, import_graph

CITES = ("paper", "cites", "paper")


def parquet(path: Path, **columns: Any) -> Path:
    pq.write_table(pa.table(columns), path)
    return path


@pytest.fixture
def papers(tmp_path: Path) -> GraphSource:
    """Four papers, CSV, and the edges a-b, b-c, c-a."""
    (tmp_path / "paper.csv").write_text(
        "id,year,venue,open\na,2001,X,true\nb,,Y,false\nc,1999,,1\nd,2020,X,0\n"
    )
    (tmp_path / "cites.csv").write_text("source,target,w,t\na,b,1,10\nb,c,.25,20\nc,a,2,-30\n")
    nodes = NodeSource(
        tmp_path / "paper.csv", features={"year": "number", "venue": "categorical", "open": "boolean"}
    )
    return GraphSource(
        "papers", {"paper": nodes}, (EdgeSource(CITES, tmp_path / "cites.csv", weight="w", timestamp="t"),)
    )


def imported(source: GraphSource, folder: Path, **options: Any) -> tuple[Graph, ImportReport]:
    report = import_graph(source, folder / "graph", **options)
    return Graph.open(folder / "graph", verify_digests=True), report


def with_edges(source: GraphSource, **changes: Any) -> GraphSource:
    return replace(source, edges=(replace(source.edges[0], **changes),))


def with_nodes(source: GraphSource, **changes: Any) -> GraphSource:
    return replace(source, nodes={"paper": replace(source.nodes["paper"], **changes)})


def edges_of(graph: Graph) -> list[tuple[str, str]]:
    source, target = graph.csc(CITES).coo()
    return list(zip(graph.ids("paper", source).tolist(), graph.ids("paper", target).tolist(), strict=True))


def test_csv_is_imported(papers: GraphSource, tmp_path: Path) -> None:
    graph, report = imported(papers, tmp_path)
    assert edges_of(graph) == [("c", "a"), ("a", "b"), ("b", "c")]
    csc = graph.csc(CITES)
    assert csc.weight is not None
    assert csc.timestamp is not None
    assert (csc.weight.tolist(), csc.timestamp.tolist()) == ([2, 1, 0.25], [-30, 10, 20])
    np.testing.assert_array_equal(
        graph.feature("paper", "year"), np.array([2001, np.nan, 1999, 2020], np.float32)
    )
    assert graph.feature("paper", "venue").tolist() == [0, 1, -1, 0]
    assert graph.feature("paper", "open").tolist() == [True, False, True, False]
    assert report.nodes == {"paper": 4}
    assert report.edges == (EdgeTypeReport(CITES, 3, 3, 0, 0, 0),)
    assert graph.size_bytes == report.size_bytes


@pytest.mark.parametrize("suffix", [".csv", ".csv.gz", ".tsv", ".tsv.gz", ".parquet", ".CSV"])
def test_every_suffix_gives_the_same_graph(suffix: str, papers: GraphSource, tmp_path: Path) -> None:
    expected, _ = imported(papers, tmp_path)
    path = tmp_path / f"edges{suffix}"
    if suffix == ".parquet":
        parquet(
            path,
            source=["a", "b", "c"],
            target=["b", "c", "a"],
            w=[1, 0.25, 2],
            t=[10, 20, -30],
            other=[[], [], []],
        )
    else:
        text = (tmp_path / "cites.csv").read_text()
        content = (text.replace(",", "\t") if "tsv" in suffix else text).encode()
        path.write_bytes(gzip.compress(content) if suffix.endswith(".gz") else content)
    graph, _ = imported(with_edges(papers, data=path), tmp_path / "other")
    assert edges_of(graph) == edges_of(expected)
    for name in ("weight", "timestamp"):
        assert getattr(graph.csc(), name).tolist() == getattr(expected.csc(), name).tolist()


def test_what_is_skipped_is_counted_with_examples(papers: GraphSource, tmp_path: Path) -> None:
    lines = ["a,b", "a,b", "d,d", "x,a", "a,y", "z,z", "a,", "b,a", "a,b", '"quoted, id",a']
    (tmp_path / "cites.csv").write_text("source,target\n" + "\n".join(lines) + "\n")
    source = with_edges(papers, weight=None, timestamp=None)
    graph, report = imported(source, tmp_path)
    assert edges_of(graph) == [("b", "a"), ("a", "b"), ("d", "d")]
    edges = report.edges[0]
    assert (edges.rows, edges.edges, edges.duplicate_edges, edges.dangling_edges, edges.self_loops) == (
        10,
        3,
        2,
        5,
        1,
    )
    assert edges.examples == {
        "duplicate_edges": ("row 2: `a` cites `b`", "row 9: `a` cites `b`"),
        "dangling_edges": (
            "row 4: `x` cites `a`",
            "row 5: `a` cites `y`",
            "row 6: `z` cites `z`",
            "row 7: `a` cites (missing)",
            "row 10: `quoted, id` cites `a`",
        ),
    }
    assert graph.imported(CITES) == edges.counts()
    assert report.as_dict()["edges"][0]["dangling_edges"] == 5

    graph, report = imported(with_edges(source, keep_duplicates=True), tmp_path)
    assert edges_of(graph) == [("b", "a"), ("a", "b"), ("a", "b"), ("a", "b"), ("d", "d")]
    assert (report.edges[0].duplicate_edges, report.edges[0].edges) == (2, 5)


def test_first_of_duplicates_keeps_its_weight(papers: GraphSource, tmp_path: Path) -> None:
    parquet(tmp_path / "e.parquet", source=["b", "a", "a"], target=["c", "b", "b"], w=[1.0, 5.0, 7.0])
    source = with_edges(papers, data=tmp_path / "e.parquet", timestamp=None)
    graph, _ = imported(source, tmp_path)
    weight = graph.csc().weight
    assert weight is not None
    assert weight.tolist() == [5, 1]
    graph, _ = imported(with_edges(source, keep_duplicates=True), tmp_path)
    assert graph.csc().weight is not None
    assert graph.csc().weight.tolist() == [5, 7, 1]  # type: ignore[union-attr]


@pytest.mark.parametrize("line", ["x,a,1,1", "a,b,1,1"])
def test_strict_refuses_what_would_be_skipped(line: str, papers: GraphSource, tmp_path: Path) -> None:
    with (tmp_path / "cites.csv").open("a") as file:
        file.write(line + "\n")
    with pytest.raises(DataError, match=r"1 of 4 edges") as caught:
        imported(papers, tmp_path, strict=True)
    assert caught.value.where == f"{tmp_path}/cites.csv:5, column `source`"
    assert not (tmp_path / "graph").exists()


def test_progress_is_told_in_bytes_of_input(papers: GraphSource, tmp_path: Path) -> None:
    calls: list[tuple[str, int, int]] = []
    imported(papers, tmp_path, progress=lambda *call: calls.append(call))
    nodes, edges = ((tmp_path / name).stat().st_size for name in ("paper.csv", "cites.csv"))
    total = nodes + edges
    assert calls == [
        ("nodes paper", 0, total),
        ("edges paper__cites__paper", nodes, total),
        ("finishing", total, total),
    ]


@pytest.mark.parametrize(
    ("cells", "id_type", "expected"),
    [
        (["0", "-5", "9223372036854775807"], None, [0, -5, 2**63 - 1]),
        (["0", "-5", "9223372036854775808"], None, ["0", "-5", "9223372036854775808"]),
        (["1", "2", "x"], None, ["1", "2", "x"]),
        (["1", "2", "007"], None, ["1", "2", "007"]),
        (["1", "2", "-0"], None, ["1", "2", "-0"]),
        (["1", "2", "3"], "string", ["1", "2", "3"]),
        (["NA", "null", "nan"], None, ["NA", "null", "nan"]),
        (["é", "日本", "👩‍🚀"], None, ["é", "日本", "👩‍🚀"]),
    ],
)
def test_ids_in_text_keep_their_spelling(
    cells: list[str], id_type: Any, expected: list[Any], papers: GraphSource, tmp_path: Path
) -> None:
    (tmp_path / "paper.csv").write_text("id\n" + "\n".join(cells) + "\n")
    (tmp_path / "cites.csv").write_text(f"source,target\n{cells[2]},{cells[0]}\n")
    source = with_edges(with_nodes(papers, id_type=id_type, features={}), weight=None, timestamp=None)
    graph, _ = imported(source, tmp_path)
    assert graph.ids("paper").tolist() == expected
    assert edges_of(graph) == [(expected[2], expected[0])]


@pytest.mark.parametrize(
    "ids",
    [
        pa.array([3, 0, 2], pa.int8()),
        pa.array([3, 0, 2], pa.uint64()),
        pa.array(["3", "0", "2"]),
        pa.array(["3", "0", "2"]).dictionary_encode(),
        pa.array(["3", "0", "2"], pa.large_string()),
    ],
)
def test_parquet_ids_of_every_type(ids: pa.Array, papers: GraphSource, tmp_path: Path) -> None:
    nodes = parquet(tmp_path / "n.parquet", id=ids)
    edges = parquet(tmp_path / "e.parquet", source=ids, target=ids.take(pa.array([1, 1, 0])))
    source = with_edges(with_nodes(papers, data=nodes, features={}), data=edges, weight=None, timestamp=None)
    graph, report = imported(source, tmp_path)
    assert graph.ids("paper").tolist() == ids.to_pylist()
    assert graph.csc().indptr.tolist() == [0, 1, 3, 3]
    assert report.edges[0].self_loops == 1


def test_features_of_every_kind_from_parquet(papers: GraphSource, tmp_path: Path) -> None:
    moment = datetime(2024, 5, 1, 12, tzinfo=UTC)
    nodes = parquet(
        tmp_path / "n.parquet",
        id=["a", "b", "c"],
        number=[1, None, 2**60],
        category=[2, None, 10],
        truth=[True, False, None],
        vector=pa.array([[1, 2], [3, 4], [5, None]], pa.list_(pa.float64(), 2)),
        whole=[-1, 2**62, 0],
    )
    edges = parquet(
        tmp_path / "e.parquet",
        source=["a", "b"],
        target=["b", "a"],
        when=[moment, moment],
        flag=[True, False],
    )
    kinds: dict[str, Any] = {
        "number": "number",
        "category": "categorical",
        "truth": "categorical",
        "vector": "vector",
        "whole": "integer",
    }
    source = with_edges(
        with_nodes(papers, data=nodes, features=kinds),
        data=edges,
        weight=None,
        timestamp="when",
        features={"flag": "boolean"},
    )
    graph, _ = imported(source, tmp_path)
    np.testing.assert_array_equal(graph.feature("paper", "number"), np.array([1, np.nan, 2**60], np.float32))
    assert graph.features("paper")["category"].categories == ("10", "2")
    assert graph.feature("paper", "category").tolist() == [1, -1, 0]
    assert graph.feature("paper", "truth").tolist() == [1, 0, -1]
    assert graph.features("paper")["vector"].dim == 2
    np.testing.assert_array_equal(
        graph.feature("paper", "vector"), np.array([[1, 2], [3, 4], [5, np.nan]], np.float32)
    )
    assert graph.feature("paper", "whole").tolist() == [-1, 2**62, 0]
    assert graph.edge_feature(CITES, "flag").tolist() == [False, True]
    assert graph.csc().timestamp is not None
    assert graph.csc().timestamp.tolist() == [round(moment.timestamp() * 1e6)] * 2  # type: ignore[union-attr]


# Mistakes: each is (what is done to the papers, the error, its place, its message, its hint)

Change = Callable[[GraphSource, Path], GraphSource]


def content(name: str, text: str | bytes) -> Change:
    def change(source: GraphSource, folder: Path) -> GraphSource:
        (folder / name).write_bytes(text.encode() if isinstance(text, str) else text)
        return source

    return change


def edges(**changes: Any) -> Change:
    return lambda source, _: with_edges(source, **changes)


def nodes(**changes: Any) -> Change:
    return lambda source, _: with_nodes(source, **changes)


def edge_parquet(**columns: Any) -> Change:
    return lambda source, folder: with_edges(
        source, data=parquet(folder / "e.parquet", **columns), weight=None, timestamp=None
    )


def node_parquet(kind: str, **columns: Any) -> Change:
    features: dict[str, Any] = {name: kind for name in columns if name != "id"}
    return lambda source, folder: with_nodes(
        source, data=parquet(folder / "n.parquet", **columns), features=features
    )


MISTAKES: dict[str, tuple[Change, type[GraphboxError], str, str, str]] = {
    "missing file": (
        lambda source, folder: with_edges(source, data=folder / "cite.csv"),
        NotFoundError,
        "cite.csv",
        "there is no such file",
        "did you mean `cites.csv`?",
    ),
    "missing folder": (
        lambda source, folder: with_edges(source, data=folder / "no" / "cite.csv"),
        NotFoundError,
        "cite.csv",
        "there is no such file",
        "there is no folder",
    ),
    "folder for a file": (
        lambda source, folder: with_edges(source, data=folder),
        NotFoundError,
        "",
        "expected a file, received a folder",
        "",
    ),
    "unknown suffix": (
        lambda source, folder: with_edges(source, data=_write(folder / "e.xls", b"")),
        UsageError,
        "e.xls",
        "expected a file ending in .parquet, .csv, .csv.gz, .tsv, .tsv.gz, received `e.xls`",
        "",
    ),
    "missing column": (
        edges(weight="weigth"),
        DataError,
        "cites.csv",
        "expected a column `weigth`, received `source`, `target`, `w`, `t`",
        "",
    ),
    "misspelt column": (
        content("cites.csv", "sorce,target,w,t\na,b,1,1\n"),
        DataError,
        "cites.csv",
        "expected a column `source`",
        "did you mean `sorce`?",
    ),
    "column twice": (
        content("cites.csv", "source,source,target,w,t\na,a,b,1,1\n"),
        DataError,
        "cites.csv",
        "expected one column `source`, received 2",
        "",
    ),
    "empty file": (content("paper.csv", ""), DataError, "paper.csv", "expected a header line", ""),
    "no node": (
        content("paper.csv", "id,year,venue,open\n"),
        DataError,
        "paper.csv, column `id`",
        "expected at least one node, received none",
        "",
    ),
    "no edge": (
        content("cites.csv", "source,target,w,t\n"),
        DataError,
        "graph `papers`",
        "expected at least one edge, received none",
        "",
    ),
    "short line": (
        content("cites.csv", "source,target,w,t\na,b,1,1\n\nb,c\n"),
        DataError,
        "cites.csv:4",
        "expected a line of CSV like the header, received a malformed one (Expected 4 columns, got 2: b,c)",
        "",
    ),
    "not UTF-8": (
        content("cites.csv", b"source,target,w,t\na,b,1,1\n\xe9,c,1,1\n"),
        DataError,
        "cites.csv:3",
        "invalid UTF8 data",
        "",
    ),
    "truncated gzip": (
        lambda source, folder: with_edges(
            source,
            data=_write(
                folder / "e.csv.gz", gzip.compress(b"source,target,w,t\n" + bytes(range(256)) * 99)[:-20]
            ),
        ),
        DataError,
        "e.csv.gz",
        "expected CSV, received something else",
        "",
    ),
    "no Parquet": (
        lambda source, folder: with_edges(source, data=_write(folder / "e.parquet", b"PAR1 not really")),
        DataError,
        "e.parquet",
        "expected a Parquet file, received a damaged or another one",
        "",
    ),
    "duplicate node": (
        content("paper.csv", "id,year,venue,open\na,1,X,1\nb,1,X,1\na,1,X,1\n"),
        DataError,
        "paper.csv:4, column `id`",
        "expected each node id once, received 1 again: `a`",
        "one row per node",
    ),
    "node without id": (
        content("paper.csv", "id,year,venue,open\na,1,X,1\n,1,X,1\n"),
        DataError,
        "paper.csv:3, column `id`",
        "expected an id in every row, received an empty cell",
        "",
    ),
    "id with a line break": (
        content("paper.csv", 'id,year,venue,open\na,1,X,1\n"b\nc",1,X,1\n'),
        DataError,
        "paper.csv:3, column `id`",
        "expected an id without line breaks",
        "",
    ),
    "empty id in Parquet": (
        node_parquet("number", id=["a", ""]),
        DataError,
        "n.parquet, row 2, column `id`",
        "expected an id in every row, received ''",
        "",
    ),
    "ids that are floats": (
        node_parquet("number", id=[1.0, 2.0]),
        DataError,
        "n.parquet, column `id`",
        "expected ids (strings or integers), received values of type double",
        "",
    ),
    "ids beyond 64 bits": (
        node_parquet("number", id=pa.array([1, 2**63], pa.uint64())),
        DataError,
        "n.parquet, row 2, column `id`",
        "expected a 64-bit signed integer, received 9223372036854775808",
        "",
    ),
    "ids asked to be integers": (
        nodes(id_type="int64"),
        DataError,
        "paper.csv:2, column `id`",
        "expected a plain decimal integer, received 'a' (and 3 more such cells)",
        "",
    ),
    "integer ends for string nodes": (
        edge_parquet(source=[1], target=[2]),
        DataError,
        "e.parquet, column `source`",
        "expected strings, received values of type int64",
        "",
    ),
    "string ends for integer nodes": (
        lambda source, folder: with_edges(
            with_nodes(source, data=parquet(folder / "n.parquet", id=[1, 2]), features={}),
            weight=None,
            timestamp=None,
        ),
        DataError,
        "cites.csv:2, column `source`",
        "expected a plain decimal integer, received 'a'",
        "",
    ),
    "all edges dangling": (
        content("cites.csv", "source,target,w,t\nA,b,1,1\nB,c,1,1\n"),
        DataError,
        "cites.csv:2, column `source`",
        "expected the id of a node of type `paper`, received `A` (2 of 2 edges",
        "the right way round",
    ),
    "number that is none": (
        content("paper.csv", "id,year,venue,open\na,1,X,1\nb,2,X,1\nc,soon,X,1\n"),
        DataError,
        "paper.csv:4, column `year`",
        "expected a number, received 'soon'",
        "",
    ),
    "number column of strings": (
        node_parquet("number", id=["a", "b", "c"], year=["1", "2", "3"]),
        DataError,
        "n.parquet, column `year`",
        "expected numbers, received values of type large_string",
        "",
    ),
    "boolean that is none": (
        content("paper.csv", "id,year,venue,open\na,1,X,yes\n"),
        DataError,
        "paper.csv:2, column `open`",
        "expected true or false, received 'yes'",
        "",
    ),
    "missing boolean": (
        content("paper.csv", "id,year,venue,open\na,1,X,1\nb,1,X,\n"),
        DataError,
        "paper.csv:3, column `open`",
        "expected true or false in every row",
        "",
    ),
    "boolean column of numbers": (
        node_parquet("boolean", id=["a"], open=[2.5]),
        DataError,
        "n.parquet, column `open`",
        "expected booleans, received values of type double",
        "",
    ),
    "category of floats": (
        node_parquet("categorical", id=["a"], venue=[2.5]),
        DataError,
        "n.parquet, column `venue`",
        "expected strings, integers or booleans, received values of type double",
        "",
    ),
    "integer with a gap": (
        node_parquet("integer", id=["a", "b"], year=[1, None]),
        DataError,
        "n.parquet, row 2, column `year`",
        "expected an integer in every row (`number` may be missing), received an empty cell",
        "",
    ),
    "integer column of floats": (
        node_parquet("integer", id=["a"], year=[0.5]),
        DataError,
        "n.parquet, column `year`",
        "expected integers, received values of type double",
        "",
    ),
    "vector column of numbers": (
        node_parquet("vector", id=["a"], x=[0.5]),
        DataError,
        "n.parquet, column `x`",
        "expected lists of numbers, received values of type double",
        "",
    ),
    "vector of strings": (
        node_parquet("vector", id=["a"], x=[["b"]]),
        DataError,
        "n.parquet, column `x`",
        "expected lists of numbers",
        "",
    ),
    "vectors of two lengths": (
        node_parquet("vector", id=["a", "b"], x=[[1.0, 2.0], [1.0]]),
        DataError,
        "n.parquet, row 2, column `x`",
        "expected 2 numbers in every row, as in the first, received [1.0]",
        "",
    ),
    "weight of zero": (
        content("cites.csv", "source,target,w,t\na,b,1,1\nb,c,0,1\n"),
        DataError,
        "cites.csv:3, column `w`",
        "expected a finite positive number, received '0'",
        "",
    ),
    "weight missing": (
        content("cites.csv", "source,target,w,t\na,b,,1\nb,c,1,1\n"),
        DataError,
        "cites.csv:2, column `w`",
        "expected a finite positive number, received an empty cell",
        "",
    ),
    "timestamp of text": (
        content("cites.csv", "source,target,w,t\na,b,1,1\nb,c,1,May\n"),
        DataError,
        "cites.csv:3, column `t`",
        "expected a 64-bit signed integer, received 'May'",
        "",
    ),
    "unknown kind": (
        nodes(features={"year": "numbre"}),
        UsageError,
        "node type `paper`, feature `year`",
        "expected one of number, integer, categorical, boolean, vector, received `numbre`",
        "did you mean `number`?",
    ),
    "unknown node type": (
        edges(type=("paper", "cites", "papre")),
        UsageError,
        "edge type paper__cites__papre",
        "expected one of the node types paper, received `papre`",
        "did you mean `paper`?",
    ),
    "edge type twice": (
        lambda source, _: replace(source, edges=source.edges * 2),
        UsageError,
        "paper__cites__paper",
        "expected each edge type once",
        "",
    ),
    "reverse that is there": (
        edges(reverse="cites"),
        UsageError,
        "paper__cites__paper",
        "expected each edge type once",
        "",
    ),
    "name with a dot": (
        edges(type=("paper", "cites.more", "paper")),
        UsageError,
        "edge type paper__cites.more__paper",
        "expected letters, digits",
        "",
    ),
    "no edge types": (
        lambda source, _: replace(source, edges=()),
        UsageError,
        "graph `papers`",
        "expected at least one node type and one edge type, received 1 and 0",
        "",
    ),
}


def _write(path: Path, data: bytes) -> Path:
    path.write_bytes(data)
    return path


@pytest.mark.parametrize("name", MISTAKES)
def test_each_mistake_is_named_with_its_place(name: str, papers: GraphSource, tmp_path: Path) -> None:
    change, error, where, message, hint = MISTAKES[name]
    with pytest.raises(GraphboxError) as caught:
        import_graph(change(papers, tmp_path), tmp_path / "graph")
    assert type(caught.value) is error
    assert (caught.value.where or "").endswith(where)
    assert message in caught.value.message
    assert hint in (caught.value.hint or "")
    assert not (tmp_path / "graph").exists()


def test_a_refused_import_leaves_the_old_graph(papers: GraphSource, tmp_path: Path) -> None:
    imported(papers, tmp_path)
    before = sorted(path.name for path in (tmp_path / "graph").iterdir())
    with pytest.raises(DataError):
        imported(with_edges(papers, weight="nope"), tmp_path)
    assert sorted(path.name for path in (tmp_path / "graph").iterdir()) == before
    assert len(edges_of(Graph.open(tmp_path / "graph"))) == 3


def test_the_same_tables_give_the_same_bytes(papers: GraphSource, tmp_path: Path) -> None:
    for name in ("one", "two"):
        import_graph(papers, tmp_path / name)
    files = sorted(
        path.relative_to(tmp_path / "one") for path in (tmp_path / "one").rglob("*") if path.is_file()
    )
    assert files == sorted(
        path.relative_to(tmp_path / "two") for path in (tmp_path / "two").rglob("*") if path.is_file()
    )
    for file in files:
        assert (tmp_path / "one" / file).read_bytes() == (tmp_path / "two" / file).read_bytes(), file

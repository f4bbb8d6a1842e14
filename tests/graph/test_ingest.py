"""Importing tables: what becomes of ids, edges and features of every kind and format."""

from __future__ import annotations

import gzip
import itertools
import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import xxhash
from pyarrow import feather

from graphbox.errors import DataError, UsageError
from graphbox.graph import EdgeSource, Graph, GraphSource, NodeSource
from graphbox.graph.ingest import DegreeReport, EdgeTypeReport, NodeTypeReport, import_graph
from graphbox.graph.ingest.budget import least_bytes
from graphbox.graph.ingest.demand import Demand
from tests.graph.papers import CITES, edges_of, imported, parquet, with_edges, with_nodes


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
    in_degree, out_degree = DegreeReport(0.75, 1, 1, 1, 1), DegreeReport(0.75, 1, 1, 1, 1)
    assert report.edges == (EdgeTypeReport(CITES, 3, 3, 0, 0, 0, in_degree, out_degree),)
    assert report.node_types == (NodeTypeReport("paper", "string", 4, 1, 4),)
    assert graph.size_bytes == report.size_bytes
    assert report.rows == 7
    assert report.written_bytes is None or report.written_bytes > report.size_bytes
    assert report.peak_memory_bytes > 10_000_000
    assert json.loads(json.dumps(report.as_dict()))["edges"][0]["in_degree"]["max"] == 1


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


def test_progress_is_told_in_bytes_of_input(papers: GraphSource, tmp_path: Path) -> None:
    calls: list[tuple[str, int, int]] = []
    imported(papers, tmp_path, progress=lambda *call: calls.append(call))
    nodes, edges = ((tmp_path / name).stat().st_size for name in ("paper.csv", "cites.csv"))
    total = nodes + edges
    assert list(dict.fromkeys(calls)) == [
        ("nodes paper", 0, total),
        ("nodes paper", nodes, total),
        ("edges paper__cites__paper", nodes, total),
        ("edges paper__cites__paper", total, total),
        ("sorting paper__cites__paper", total, total),
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


def test_slots_are_integers_or_hashes_of_strings(papers: GraphSource, tmp_path: Path) -> None:
    rows = ["a,1|-2", "b,", "c,red|7|blue|007", "d,9223372036854775807"]
    (tmp_path / "paper.csv").write_text("id,tags\n" + "\n".join(rows) + "\n")
    source = with_nodes(papers, features={"tags": "slots"})
    graph, _ = imported(source, tmp_path)
    column = graph.node_columns("paper")["tags"]
    assert column.offsets is not None
    assert column.offsets.tolist() == [0, 2, 2, 6, 7]
    red, blue, zeros = map(xxh64, ("red", "blue", "007"))
    assert column.values.tolist() == [1, -2, red, 7, blue, zeros, 2**63 - 1]

    typed = parquet(
        tmp_path / "n.parquet",
        id=["a", "b", "c", "d"],
        tags=[["red", "7"], [], None, ["blue"]],
        numbers=pa.array([[2**64 - 1], None, [], [0, 5]], pa.list_(pa.uint64())),
    )
    source = with_nodes(papers, data=typed, features={"tags": "slots", "numbers": "slots"})
    graph, _ = imported(source, tmp_path)
    columns = graph.node_columns("paper")
    assert columns["tags"].values.tolist() == [red, xxh64("7"), blue]
    assert columns["numbers"].values.tolist() == [-1, 0, 5]
    assert [columns[name].offsets.tolist() for name in columns] == [[0, 2, 2, 2, 3], [0, 1, 1, 1, 3]]  # type: ignore[union-attr]


def xxh64(text: str) -> int:
    value = xxhash.xxh64_intdigest(text.encode())
    return value - 2**64 if value >= 2**63 else value


def slot_lists(graph: Graph, name: str) -> list[list[int]]:
    offsets, values = graph.slot_lists("paper", name)
    return [part.tolist() for part in np.split(values, offsets[1:-1])]


EMPTY_IN_LISTS = [["red", "", "7"], [""], None, ["", None, "blue"], ["red"]]


@pytest.mark.parametrize("form", ["csv", "tsv", "parquet", "arrow", "table", "polars"])
def test_empty_values_in_slot_lists_are_left_out_and_counted(
    papers: GraphSource, tmp_path: Path, form: str
) -> None:
    ids = ["a", "b", "c", "d", ""]
    table = pa.table({"id": ids, "tags": EMPTY_IN_LISTS})
    path: Any = tmp_path / f"lists.{form}"
    if form in {"csv", "tsv"}:
        comma = "," if form == "csv" else "\t"
        rows = ["a,red||7", "b,|", "c,", "d,||blue", ",red||"]
        path.write_text("\n".join(["id,tags", *rows]).replace(",", comma) + "\n")
    elif form == "parquet":
        pq.write_table(table, path)
    elif form == "arrow":
        feather.write_feather(table, path, compression="uncompressed")
    else:
        path = pl.from_arrow(table) if form == "polars" else table
    graph, report = imported(with_nodes(papers, data=path, features={"tags": "slots"}), tmp_path)
    red, blue = map(xxh64, ("red", "blue"))
    seven = 7 if form in {"csv", "tsv"} else xxh64("7")
    assert slot_lists(graph, "tags") == [[red, seven], [], [], [blue]]
    assert graph.ids("paper").tolist() == ["a", "b", "c", "d"]
    # Split at `|`, "b" has two empty values; the row without an id counts as skipped alone.
    assert report.node_types[0].empty_values == {"tags": 5 if form in {"csv", "tsv"} else 4}
    assert report.as_dict()["nodes"][0]["empty_values"] == report.node_types[0].empty_values
    assert report.node_types[0].skipped == {"missing id": 1}


def test_missing_values_in_lists_of_integers_are_left_out(papers: GraphSource, tmp_path: Path) -> None:
    numbers = pa.array([[1, None, 3], [None], [], [2]], pa.list_(pa.uint32()))
    table = pa.table({"id": ["a", "b", "c", "d"], "tags": numbers})
    graph, report = imported(with_nodes(papers, data=table, features={"tags": "slots"}), tmp_path)
    assert slot_lists(graph, "tags") == [[1, 3], [], [], [2]]
    assert report.node_types[0].empty_values == {"tags": 2}


def test_an_empty_text_is_no_slot(papers: GraphSource, tmp_path: Path) -> None:
    table = pa.table({"id": ["a", "b", "c", "d"], "tags": ["x", "", None, "y"]})
    graph, report = imported(with_nodes(papers, data=table, features={"tags": "slots"}), tmp_path)
    assert slot_lists(graph, "tags") == [[xxh64("x")], [], [], [xxh64("y")]]
    assert report.node_types[0].empty_values == {}


def test_lists_in_text_with_another_separator(papers: GraphSource, tmp_path: Path) -> None:
    (tmp_path / "paper.csv").write_text("id,tags,x\na,1;x|y,1;2\nb,,3;4\nc,;7,5;6\n")
    features: dict[str, Any] = {"tags": "slots", "x": "vector"}
    source = with_nodes(papers, features=features, list_separator=";")
    graph, report = imported(source, tmp_path)
    assert slot_lists(graph, "tags") == [[1, xxh64("x|y")], [], [7]]
    assert graph.feature("paper", "x").tolist() == [[1, 2], [3, 4], [5, 6]]
    assert report.node_types[0].empty_values == {"tags": 1}


@pytest.mark.parametrize("separator", [None, ";"])
def test_text_of_typed_tables_is_split_as_in_csv(
    papers: GraphSource, tmp_path: Path, separator: str | None
) -> None:
    bar = separator or "|"
    parquet(
        tmp_path / "paper.parquet",
        id=["a", "b", "c"],
        tags=[f"x{bar}12", None, f"{bar}y"],
        x=[f"1{bar}2.5", f"3{bar}4", f"5{bar}6"],
    )
    features: dict[str, Any] = {"tags": "slots", "x": "vector"}
    data = tmp_path / "paper.parquet"
    graph, report = imported(
        with_nodes(papers, data=data, features=features, list_separator=separator), tmp_path
    )
    assert slot_lists(graph, "tags") == [[xxh64("x"), xxh64("12")], [], [xxh64("y")]]
    assert graph.feature("paper", "x").tolist() == [[1, 2.5], [3, 4], [5, 6]]
    assert report.node_types[0].empty_values == {"tags": 1}


@pytest.mark.parametrize(
    ("separator", "name", "message"),
    [
        ("", "paper.csv", "expected one character, neither a double quote nor a line break, received ''"),
        ("; ", "paper.csv", "expected one character, neither a double quote nor a line break, received '; '"),
        ('"', "paper.csv", "neither a double quote nor a line break, received '\"'"),
        (",", "paper.csv", "expected another character than the one between columns, received ','"),
        ("\t", "paper.tsv", "expected another character than the one between columns, received '\\t'"),
        ("|", "bars.csv", "expected another character than the one between columns, received '|'"),
        ("; ", "n.parquet", "expected one character, neither a double quote nor a line break, received '; '"),
    ],
)
def test_separators_that_cannot_be(
    papers: GraphSource, tmp_path: Path, separator: str, name: str, message: str
) -> None:
    comma = {"paper.csv": ",", "paper.tsv": "\t", "bars.csv": "|"}.get(name)
    if comma is None:
        parquet(tmp_path / name, id=["a", "b", "c"], tags=[["x"], [], []])
    else:
        (tmp_path / name).write_text("id,tags\na,1\nb,2\nc,3\n".replace(",", comma))
    source = with_nodes(papers, data=tmp_path / name, features={"tags": "slots"}, list_separator=separator)
    with pytest.raises(UsageError) as caught:
        imported(source, tmp_path)
    assert message in caught.value.message
    assert caught.value.where == f"{tmp_path / name}, `list_separator`"


def test_vectors_in_text(papers: GraphSource, tmp_path: Path) -> None:
    (tmp_path / "paper.csv").write_text("id,x\na,1|-2.5\nb,nan|1e3\nc,0|0\n")
    graph, _ = imported(with_nodes(papers, features={"x": "vector"}), tmp_path)
    np.testing.assert_array_equal(
        graph.feature("paper", "x"), np.array([[1, -2.5], [np.nan, 1000], [0, 0]], np.float32)
    )


def test_nodes_without_a_table_are_numbered_as_they_are_met(tmp_path: Path) -> None:
    (tmp_path / "buys.csv").write_text("source,target\nu9,p1\n,p7\nu1,p1\nu9,p3\n")
    (tmp_path / "sees.csv").write_text("source,target\nu2,p9\nu1,p1\n")
    source = GraphSource(
        "shop",
        {"user": NodeSource(), "product": NodeSource()},
        tuple(EdgeSource(("user", name, "product"), tmp_path / f"{name}.csv") for name in ("buys", "sees")),
    )
    graph, report = imported(source, tmp_path)
    assert graph.ids("user").tolist() == ["u9", "u1", "u2"]
    assert graph.ids("product").tolist() == ["p1", "p3", "p9"]  # a row without a source is no edge
    assert graph.csc(("user", "buys", "product")).indptr.tolist() == [0, 2, 3, 3]
    assert graph.csc(("user", "sees", "product")).indptr.tolist() == [0, 1, 1, 2]
    assert report.edges[0].skipped == {"missing id": 1}
    assert [each.isolated for each in report.node_types] == [0, 0]


def test_ids_that_turn_out_to_be_strings_begin_again(tmp_path: Path) -> None:
    numbers = "".join(f"{source},{source + 1}\n" for source in range(100_000))
    (tmp_path / "to.csv").write_text(f"source,target\n{numbers}5,x\n")
    edges = EdgeSource(("n", "to", "n"), tmp_path / "to.csv")
    graph, report = imported(
        GraphSource("g", {"n": NodeSource()}, (edges,)), tmp_path, memory_bytes=small_memory()
    )
    assert graph.id_type("n") == "string"
    assert graph.ids("n", [0, 100_001]).tolist() == ["0", "x"]
    assert report.edges[0].edges == 100_001

    stream = pa.RecordBatchReader.from_batches(
        pa.schema([("source", pa.int64()), ("target", pa.int64())]),
        [pa.record_batch({"source": [1], "target": [2]})],
    )
    once = EdgeSource(("m", "to", "m"), stream)
    with pytest.raises(UsageError, match="can be read once only") as caught:
        imported(GraphSource("g", {"m": NodeSource(), "n": NodeSource()}, (once, edges)), tmp_path)
    assert caught.value.hint == "say that the ids of `n` are strings (`id_type: string`)"


def small_memory() -> int:
    """Return memory that leaves batches small, so that tables have several."""
    return least_bytes(Demand(2)) + (64 << 20)


@pytest.mark.parametrize("of", [dict, pa.table, lambda columns: pa.table(columns).to_reader()])
def test_tables_in_memory(of: Any, papers: GraphSource, tmp_path: Path) -> None:
    nodes, edges = {"id": [3, 1, 2]}, {"source": [1, 2, 3], "target": [2, 2, 1]}
    source = with_edges(
        with_nodes(papers, data=of(nodes), features={}), data=of(edges), weight=None, timestamp=None
    )
    graph, _ = imported(source, tmp_path)
    assert graph.ids("paper").tolist() == [3, 1, 2]
    assert edges_of(graph) == [(3, 1), (1, 2), (2, 2)]


def test_text_without_a_header(papers: GraphSource, tmp_path: Path) -> None:
    (tmp_path / "cites.csv").write_text("a,b\nb,c\n")
    source = with_edges(papers, weight=None, timestamp=None, has_header=False, names=("source", "target"))
    assert edges_of(imported(source, tmp_path)[0]) == [("a", "b"), ("b", "c")]


def test_edges_by_source_are_kept_where_asked(papers: GraphSource, tmp_path: Path) -> None:
    graph, _ = imported(with_edges(papers, csr=True), tmp_path)
    csr, csc = graph.csr(), graph.csc()
    assert csr.indptr.tolist() == [0, 1, 2, 3, 3]
    assert csr.indices.tolist() == [1, 2, 0]
    assert csc.coo()[0][csr.edge_ids].tolist() == [0, 1, 2]
    assert np.load(graph.array_file(CITES, "csr-indices").path).tolist() == [1, 2, 0]


def test_a_refused_import_leaves_the_old_graph(papers: GraphSource, tmp_path: Path) -> None:
    imported(papers, tmp_path)
    before = sorted(path.name for path in (tmp_path / "graph").iterdir())
    with pytest.raises(DataError):
        imported(with_edges(papers, weight="nope"), tmp_path)
    assert sorted(path.name for path in (tmp_path / "graph").iterdir()) == before
    assert len(edges_of(Graph.open(tmp_path / "graph"))) == 3


@pytest.mark.parametrize("degrees", [[], [0], [1] * 99 + [7], [0, 1, 2, 3, 100]])
def test_degree_percentiles(degrees: list[int]) -> None:
    counts = [(degree, len(list(group))) for degree, group in itertools.groupby(sorted(degrees))]
    values, nodes = np.array(counts, np.int64).reshape(-1, 2).T
    report = DegreeReport.of(values, nodes)
    if degrees:
        expected = np.percentile(degrees, [50, 90, 99], method="inverted_cdf").tolist()
        assert [report.p50, report.p90, report.p99] == expected
        assert (report.mean, report.max) == (sum(degrees) / len(degrees), max(degrees))
    else:
        assert report == DegreeReport(0, 0, 0, 0, 0)


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

"""Appending to a graph on disk and removing from it: what is taken, refused and reported."""

from __future__ import annotations

import shutil
import timeit
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from graphbox.errors import DataError, GraphboxError, NotFoundError, UsageError
from graphbox.graph import EdgeSource, Graph, GraphSource, NodeSource
from graphbox.graph.columns import Column
from graphbox.graph.compact import MAX_CHANGES, compact, needs_compaction
from graphbox.graph.delta import append, remove
from graphbox.graph.format import read_manifest
from graphbox.graph.ids import IntegerIds, StringIds
from graphbox.graph.ingest import import_graph
from graphbox.graph.schema import EdgeType, FeatureKind
from graphbox.graph.tables import EdgeTable, NodeTable, edge_table

USER, ITEM = "user", "item"
BUYS = ("user", "buys", "item")
LIKES = ("user", "likes", "tag")

NAMES = ["ann", "bob", "cid", "dan"]


def column(kind: Any, values: Any, dtype: Any, categories: list[str] | None = None) -> Column:
    known = None if categories is None else pa.array(categories, pa.large_string())
    return Column(kind, np.array(values, dtype), known)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Four users with every kind of feature, five items, six weighted edges."""
    users = NodeTable(
        StringIds.of(pa.array(NAMES, pa.large_string())),
        {
            "age": column("number", [1, 2, 3, 4], np.float32),
            "city": column("categorical", [0, 1, -1, 0], np.int32, ["Köln", "Ulm"]),
            "tags": Column("slots", np.array([7, 8, 9]), None, np.array([0, 2, 2, 3, 3])),
        },
    )
    items = NodeTable(
        IntegerIds(np.array([10, 20, 30, 40, 50])), {"n": column("integer", range(5), np.int64)}
    )
    source, target = np.array([0, 1, 2, 3, 0, 1]), np.array([0, 0, 1, 2, 3, 4])
    table = edge_table(source, target, 4, 5, weight=np.arange(1, 7))
    graph = Graph("shop", {USER: users, ITEM: items}, {BUYS: table.reversed_as((ITEM, "bought", USER))})
    graph.save(tmp_path / "shop")
    return tmp_path / "shop"


def edges(source: list[Any], target: list[Any], edge_type: EdgeType = BUYS, **options: Any) -> GraphSource:
    data = {"source": np.array(source), "target": np.array(target), "w": np.ones(len(source))}
    return GraphSource("", {}, (EdgeSource(edge_type, data, weight="w", **options),))


def users(kinds: Any = None, **columns: list[Any]) -> GraphSource:
    kinds = kinds or {"age": "number", "city": "categorical", "tags": "slots", "height": "number"}
    data = {name: np.array(values) for name, values in columns.items()}
    features = {name: kinds[name] for name in columns if name != "id"}
    return GraphSource("", {USER: NodeSource(data, features=features)}, ())


def test_rows_update_nodes_or_add_them(path: Path) -> None:
    report = append(path, users(id=["bob", "eve"], age=[20, 50], city=["Bonn", "Ulm"]))
    assert (report.nodes[USER].rows, report.nodes[USER].added, report.nodes[USER].updated) == (2, 1, 1)
    graph = Graph.open(path)
    assert graph.ids(USER).tolist() == [*NAMES, "eve"]
    assert graph.feature(USER, "age").tolist() == [1, 20, 3, 4, 50]
    assert graph.features(USER)["city"].categories == ("Köln", "Ulm", "Bonn")  # codes stay
    assert graph.feature(USER, "city").tolist() == [0, 2, -1, 0, 1]
    slots = graph.node_columns(USER)["tags"]
    assert slots.offsets is not None
    assert (slots.offsets.tolist(), slots.values.tolist()) == ([0, 2, 2, 3, 3, 3], [7, 8, 9])
    assert graph.csc(BUYS).num_sources == 5
    assert graph.csr(BUYS).indptr.tolist() == [0, 2, 4, 5, 6, 6]


def test_appended_edges_follow_the_rules_of_the_import(path: Path) -> None:
    source = ["ann", "ann", "zed", "dan", "dan", "dan"]
    report = append(path, edges(source, [10, 50, 10, 99, 10, 10]), compact="never").edges[0]
    assert (report.rows, report.edges, report.duplicate_edges, report.dangling_edges) == (6, 2, 2, 2)
    assert report.examples["duplicate_edges"] == ("row 1: `ann` buys `10`", "row 6: `dan` buys `10`")
    assert report.examples["dangling_edges"] == ("row 3: `zed` buys `10`", "row 4: `dan` buys `99`")
    graph = Graph.open(path)
    csc = graph.csc(BUYS)
    assert (csc.indptr.tolist(), csc.indices.tolist()) == ([0, 3, 4, 5, 6, 8], [0, 1, 3, 2, 3, 0, 0, 1])
    assert csc.edge_ids is not None
    assert csc.edge_ids.tolist() == [0, 1, 6, 2, 3, 4, 7, 5]
    assert csc.weight is not None
    assert csc.weight.tolist() == [1, 2, 1, 3, 4, 5, 1, 6]
    kept = append(path, edges(["ann"], [10], keep_duplicates=True)).edges[0]
    assert (kept.edges, kept.duplicate_edges) == (1, 1)
    with pytest.raises(DataError, match=r"expected no dangling edges, received 1, first row 1: `zed` buys"):
        append(path, edges(["zed"], [10]), strict=True)
    with pytest.raises(DataError, match=r"expected no duplicate edges, received 1, first row 1: `ann` buys"):
        append(path, edges(["ann"], [10]), strict=True)


def test_a_change_costs_what_it_changes(path: Path) -> None:
    before = {entry for entry in path.rglob("*") if entry.is_file() and entry.suffix == ".npy"}
    times = {entry: entry.stat().st_mtime_ns for entry in before}
    report = append(path, edges(["dan"], [10]))
    assert {entry: entry.stat().st_mtime_ns for entry in before} == times
    written = [entry for entry in path.rglob("*.npy") if entry not in before]
    assert report.size_bytes == sum(entry.stat().st_size for entry in written) < 1000
    assert {entry.relative_to(path).parts[0] for entry in written} == {"delta-000001"}
    nothing = append(path, edges(["dan"], [10]))
    assert (nothing.edges[0].edges, nothing.size_bytes) == (0, 0)
    assert sorted(entry.name for entry in path.iterdir()) == ["base-000001", "delta-000001", "manifest.json"]


def test_new_types_may_be_appended_and_tables_left_out(path: Path) -> None:
    data = {"source": np.array(["ann", "bob"]), "target": np.array(["red", "blue"])}
    source = GraphSource("", {"tag": NodeSource()}, (EdgeSource(LIKES, data, reverse="liked"),))
    report = append(path, source)
    assert report.nodes["tag"].added == 2
    graph = Graph.open(path)
    assert graph.edge_types == [BUYS, (ITEM, "bought", USER), LIKES, ("tag", "liked", "user")]
    assert graph.ids("tag").tolist() == ["red", "blue"]
    # From now on the type discovers its nodes, also in later changes.
    more = {"source": np.array(["cid", "ann"]), "target": np.array(["green", "red"])}
    again = append(path, GraphSource("", {}, (EdgeSource(LIKES, more),)))
    assert (again.nodes["tag"].added, again.edges[0].duplicate_edges) == (1, 1)
    assert Graph.open(path).csc("liked").indices.tolist() == [0, 1, 2]
    with pytest.raises(UsageError, match="expected no table of a node type whose nodes are those met"):
        append(path, GraphSource("", {"tag": NodeSource({"id": np.array(["x"])})}, ()))
    compact(path)
    graph = Graph.open(path)
    assert graph.node_table("tag").discovered
    assert graph.index("tag", ["green"]).tolist() == [2]


@pytest.mark.parametrize(
    ("source", "error", "message"),
    [
        (
            lambda: users(id=["eve"], height=[1.0]),
            UsageError,
            r"features that nodes of type `user` have, received `h",
        ),
        (lambda: users(id=["eve", "eve"], age=[1, 2]), DataError, r"each node id once, received 1 again"),
        (
            lambda: GraphSource("", {ITEM: NodeSource({"id": np.array([60])})}, ()),
            UsageError,
            r"expected the feature `n` of every new node \(integer has no missing value\)",
        ),
        (
            lambda: users(id=["x"], age=["y"], kinds={"age": "categorical"}),
            UsageError,
            r"feature `age`: expected number, as the graph has, received categorical",
        ),
        (
            lambda: edges(["ann"], [10], ("user", "buys", "thing")),
            UsageError,
            r"item, user, received `thing`",
        ),
        (
            lambda: edges(["ann"], [10], ("item", "bought", "user")),
            UsageError,
            r"reverse one\n.*append to user__buys__item",
        ),
        (
            lambda: GraphSource("", {}, (replace(edges(["ann"], [10]).edges[0], weight=None),)),
            UsageError,
            r"expected a weight as the graph has, received none",
        ),
        (
            lambda: edges(["ann"], [10], features={"w": "number"}),
            UsageError,
            r"features none, as the graph has, received w",
        ),
        (
            lambda: GraphSource("", {}, 2 * edges(["ann"], [10]).edges),
            UsageError,
            r"user__buys__item: expected each edge type once, received it twice",
        ),
        (lambda: GraphSource("", {"a__b": NodeSource({"id": np.array([1])})}, ()), UsageError, r"letters"),
        (lambda: GraphSource("", {USER: NodeSource("no.parquet")}, ()), NotFoundError, r"no\.parquet"),
    ],
)
def test_what_does_not_fit_the_graph_is_refused_and_changes_nothing(
    path: Path, source: Callable[[], GraphSource], error: type[GraphboxError], message: str
) -> None:
    before = (path / "manifest.json").read_bytes()
    with pytest.raises(error, match=message):
        append(path, source())
    assert (path / "manifest.json").read_bytes() == before
    assert sorted(entry.name for entry in path.iterdir()) == ["base-000001", "manifest.json"]


def test_there_must_be_a_graph_to_change(tmp_path: Path) -> None:
    for change in (lambda path: append(path, edges(["a"], [1])), remove, compact):
        with pytest.raises(NotFoundError, match="there is no graph"):
            change(tmp_path / "nothing")
        assert not (tmp_path / "nothing").exists()


# Removing


def test_removed_nodes_take_their_edges_with_them(path: Path) -> None:
    report = remove(path, nodes={USER: ["ann", "nobody"], ITEM: [50]})
    assert report.nodes == {USER: 1, ITEM: 1}
    assert report.edges == {BUYS: 3}
    assert (report.absent, report.examples) == ({USER: 1}, {USER: ("`nobody`",)})
    graph = Graph.open(path)
    assert (graph.num_nodes(USER), graph.num_removed(USER)) == (4, 1)
    assert graph.csc(BUYS).indices.tolist() == [1, 2, 3]
    assert graph.csc("bought").indptr.tolist() == [0, 0, 1, 2, 3]
    assert graph.index(USER, ["ann"], missing=-1).tolist() == [-1]
    with pytest.raises(NotFoundError, match="received `ann`"):
        graph.index(USER, ["ann"])
    again = append(path, users(id=["ann"], age=[9]))
    assert again.nodes[USER].added == 1
    assert Graph.open(path).index(USER, ["ann"]).tolist() == [4]


def test_removed_edges_are_named_in_either_direction(path: Path) -> None:
    report = remove(path, edges={BUYS: (["ann", "ann"], [10, 20])})
    assert (report.edges, report.absent) == ({BUYS: 1}, {"user__buys__item": 1})
    assert report.examples == {"user__buys__item": ("`ann` buys `20`",)}
    assert remove(path, edges={"bought": ([10], ["bob"])}).edges == {BUYS: 1}
    graph = Graph.open(path)
    assert graph.csc(BUYS).indices.tolist() == [2, 3, 0, 1]
    assert graph.stable_edge_ids(BUYS, graph.csc(BUYS).ids_at(np.arange(4))).tolist() == [2, 3, 4, 5]
    with pytest.raises(UsageError, match="as many targets as the 1 sources, received 2"):
        remove(path, edges={BUYS: (["ann"], [10, 20])})
    with pytest.raises(NotFoundError, match="no edge type `eats`"):
        remove(path, edges={"eats": ([], [])})
    with pytest.raises(UsageError, match="expected strings"):
        remove(path, nodes={USER: [1]})


def bytes_on_disk(path: Path) -> bytes:
    return b"".join(entry.read_bytes() for entry in sorted(path.parent.rglob("*")) if entry.is_file())


def test_what_was_removed_is_in_no_file_once_compacted(path: Path) -> None:
    secret = users(id=["secret-person", "other"], age=[1234.5678, 1], city=["hidden-town", "Ulm"])
    append(path, secret, compact="never")
    append(path, edges(["secret-person"], [10]), compact="never")
    remove(path, nodes={USER: ["secret-person", "bob"]})
    traces = [b"secret-person", b"hidden-town", np.float32(1234.5678).tobytes(), b"bob"]
    assert all(trace in bytes_on_disk(path) for trace in traces)
    report = compact(path)
    assert report.changes == 3
    left = bytes_on_disk(path)
    assert [trace for trace in traces if trace in left] == []
    graph = Graph.open(path, verify_digests=True)
    assert graph.arrow_ids(USER).to_pylist() == ["ann", None, "cid", "dan", None, "other"]
    assert graph.ids(USER).tolist() == ["ann", "", "cid", "dan", "", "other"]
    assert graph.features(USER)["city"].categories == ("Köln", "Ulm", "")
    assert graph.index(USER, ["bob", "secret-person", "other"], missing=-1).tolist() == [-1, -1, 5]
    assert append(path, users(id=["bob"], age=[1])).nodes[USER].added == 1


def test_removed_numbers_leave_no_id_behind(path: Path) -> None:
    low = np.iinfo(np.int64).min
    items = {"id": np.array([low, 0, low + 2]), "n": np.array([1, 2, 3])}
    append(path, GraphSource("", {ITEM: NodeSource(items, features={"n": "integer"})}, ()), compact="never")
    remove(path, nodes={ITEM: [10, 0]})
    for _ in range(2):
        compact(path)
        graph = Graph.open(path)
        assert graph.arrow_ids(ITEM).to_pylist() == [None, 20, 30, 40, 50, low, None, low + 2]
        asked = [10, 0, low, low + 1, low + 2, low + 3, 20]
        assert graph.index(ITEM, asked, missing=-1).tolist() == [-1, -1, 5, -1, 7, -1, 1]
        append(path, edges(["dan"], [40]), compact="never")


# Compaction


@pytest.mark.parametrize("memory_bytes", [1, 1 << 28])
def test_a_stored_csr_is_used_and_kept(tmp_path: Path, memory_bytes: int) -> None:
    """Compaction writes the out-neighbours again where the base has them, in any memory."""
    rng = np.random.default_rng(3)
    source, target = rng.integers(0, 40, 300), rng.integers(0, 30, 300)
    table = edge_table(source, target, 40, 30, weight=rng.random(300) + 0.1)
    stored = EdgeTable(table.csc, csr=replace(table.csr, weight=None), reverse=("b", "back", "a"))
    nodes = {"a": IntegerIds(np.arange(40)), "b": IntegerIds(np.arange(30))}
    graph = Graph("x", {name: NodeTable(ids, {}) for name, ids in nodes.items()}, {("a", "to", "b"): stored})
    path = tmp_path / "x"
    graph.save(path)
    assert Graph.open(path).array_file("to", "csr-edge-ids").shape == (300,)
    remove(path, nodes={"a": [3], "b": [7]})
    append(path, edges(list(range(10, 20)), [5] * 10, ("a", "to", "b")), compact="never")
    for _ in range(2):
        live = Graph.open(path)
        for edge_type in ("to", "back"):
            csc, csr = live.csc(edge_type), live.csr(edge_type)
            order = np.lexsort((csc.coo()[1], csc.coo()[0]))
            assert csr.indices.tolist() == csc.coo()[1][order].tolist()
            assert csr.edge_ids.tolist() == csc.ids_at(np.arange(csc.num_edges))[order].tolist()
            assert csr.weight is not None
            assert csc.weight is not None
            assert csr.weight.tolist() == csc.weight[order].tolist()
        compact(path, memory_bytes=memory_bytes)
    assert Graph.open(path).array_file("to", "csr-indices").shape == (live.num_edges("to"),)


def test_compaction_gives_the_same_bytes_in_any_memory(path: Path, tmp_path: Path) -> None:
    append(path, edges(["dan", "cid"], [10, 50]), compact="never")
    remove(path, nodes={USER: ["ann"]})
    shutil.copytree(path, tmp_path / "copy")
    compact(path, memory_bytes=1)
    compact(tmp_path / "copy")
    assert (path / "manifest.json").read_bytes() == (tmp_path / "copy" / "manifest.json").read_bytes()


def test_many_changes_are_compacted_by_rule(path: Path) -> None:
    first = append(path, edges(["dan"], [10]))
    assert not first.compacted
    assert not needs_compaction(path)
    second = append(path, edges(["cid"], [10]))  # 2 of 6 edges
    assert second.compacted
    assert read_manifest(path)["deltas"] == []
    assert Graph.open(path).stable_edge_ids(BUYS, range(8)).tolist() == [0, 1, 7, 6, 2, 3, 4, 5]
    for number in range(MAX_CHANGES):
        append(path, users(id=["ann"], age=[number]), compact="never")
    assert not needs_compaction(path)
    assert min(timeit.repeat(lambda: Graph.open(path), number=1, repeat=10)) < 0.05
    assert append(path, users(id=["ann"], age=[77.0])).compacted
    assert Graph.open(path).feature(USER, "age")[0] == 77


def test_a_view_of_a_changed_graph_can_be_saved(path: Path, tmp_path: Path) -> None:
    append(path, edges(["dan", "cid"], [10, 50]), compact="never")
    remove(path, nodes={USER: ["ann"]})
    graph = Graph.open(path)
    ids = graph.csc(BUYS).ids_at(np.array([0]))
    view = graph.without_edges({BUYS: ids})
    assert view.num_edges(BUYS) == graph.num_edges(BUYS) - 1
    assert view.csc(BUYS).indices.tolist() == graph.csc(BUYS).indices.tolist()[1:]
    view.with_reverse_edges().save(tmp_path / "view")
    again = Graph.open(tmp_path / "view")
    assert again.csc(BUYS).indices.tolist() == view.csc(BUYS).indices.tolist()
    assert again.removed_nodes(USER).tolist() == [0]
    graph.save(tmp_path / "copy")
    assert Graph.open(tmp_path / "copy").csc(BUYS).indices.tolist() == graph.csc(BUYS).indices.tolist()


def test_what_node_tables_lose_is_reported_as_by_an_import(tmp_path: Path) -> None:
    first = ["p,1,a|b", "n,2,c", "o,3,"]
    features: dict[str, FeatureKind] = {"age": "number", "tags": "slots"}

    def source_of(name: str, rows: list[str]) -> GraphSource:
        (tmp_path / name).write_text("\n".join(["id,age,tags", *rows]) + "\n")
        return GraphSource("posts", {"post": NodeSource(tmp_path / name, features=features)}, ())

    rows = ["x,4,a||b|", "y,old,c", "z,5,", "w,6"]
    imported = import_graph(source_of("all.csv", [*first, *rows]), tmp_path / "all")
    import_graph(source_of("first.csv", first), tmp_path / "grown")
    report = append(tmp_path / "grown", source_of("posts.csv", rows), compact="never").nodes["post"]
    expected = imported.node_types[0]
    assert (report.rows, report.added, report.updated) == (4, 2, 0)
    assert report.skipped == expected.skipped
    assert sum(report.skipped.values()) == 2
    assert report.empty_values == expected.empty_values == {"tags": 2}
    assert {kind: len(each) for kind, each in report.examples.items()} == dict.fromkeys(report.skipped, 1)
    assert "'old'" in str(report.examples)
    with pytest.raises(DataError, match="wrong number of cells: w,6"):
        append(tmp_path / "grown", source_of("posts.csv", rows), strict=True)

"""Counts of `describe`, against plain loops over the edges, and the problems it names."""

from __future__ import annotations

import subprocess
import sys
import tracemalloc
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from graphbox.errors import FormatError
from graphbox.graph import CSC, EdgeSource, Graph, GraphSource, NodeSource
from graphbox.graph.columns import Column
from graphbox.graph.describe import (
    DegreeHistogram,
    Description,
    EdgeTypeDescription,
    NodeTypeDescription,
    describe,
)
from graphbox.graph.describe.problems import find_problems
from graphbox.graph.ingest import import_graph
from graphbox.graph.ingest.report import DegreeReport
from graphbox.graph.overlay import merged_lists
from graphbox.graph.schema import FeatureKind
from graphbox.graph.snapshot import as_live
from graphbox.graph.tables import EdgeTable, numbered_nodes


@pytest.fixture
def graph(tmp_path: Path) -> Graph:
    (tmp_path / "a.csv").write_text("id,n,c,b,[i]\n1,2,x,true,7\n2,,y,false,8\n3,4,,true,9\n4,9,x,true,7\n")
    (tmp_path / "b.csv").write_text("id\np\nq\n")
    (tmp_path / "aa.csv").write_text("source,target\n1,1\n1,2\n1,2\n2,2\n9,1\n")
    (tmp_path / "ab.csv").write_text("source,target\n1,p\n3,p\n3,p\n")
    kinds: dict[str, FeatureKind] = {"n": "number", "c": "categorical", "b": "boolean", "[i]": "integer"}
    source = GraphSource(
        "tiny",
        {"a": NodeSource(tmp_path / "a.csv", features=kinds), "b": NodeSource(tmp_path / "b.csv")},
        (
            EdgeSource(("a", "to", "a"), tmp_path / "aa.csv"),
            EdgeSource(("a", "of", "b"), tmp_path / "ab.csv", reverse="has", keep_duplicates=True),
        ),
    )
    import_graph(source, tmp_path / "graph")
    return Graph.open(tmp_path / "graph")


def test_everything_is_counted(graph: Graph) -> None:
    description = graph.describe().as_dict()
    assert (description["nodes"], description["edges"]) == (6, 6)
    assert description["size_bytes"] == graph.size_bytes
    a, b = description["node_types"]
    assert (a["name"], a["nodes"], a["isolated"], a["id_type"]) == ("a", 4, 1, "int64")
    assert (b["name"], b["nodes"], b["isolated"], b["id_type"]) == ("b", 2, 1, "string")
    assert a["features"] == [
        {
            "name": "n",
            "kind": "number",
            "rows": 4,
            "missing": 1,
            "min": 2,
            "p50": 4,
            "max": 9,
            "constant": False,
        },
        {"name": "c", "kind": "categorical", "rows": 4, "missing": 1, "categories": 2, "constant": False},
        {"name": "b", "kind": "boolean", "rows": 4, "true": 3, "constant": False},
        {"name": "[i]", "kind": "integer", "rows": 4, "min": 7, "p50": 7, "max": 9, "constant": False},
    ]
    to, of, has = description["edge_types"]
    assert (to["edges"], to["self_loops"], to["duplicate_edges"], to["reverse_of"]) == (3, 2, 0, None)
    assert to["in_degree"] == {
        "mean": 0.75,
        "p50": 0,
        "p90": 2,
        "p99": 2,
        "max": 2,
        "histogram": [
            {"low": 0, "high": 0, "nodes": 2},
            {"low": 1, "high": 1, "nodes": 1},
            {"low": 2, "high": 3, "nodes": 1},
        ],
        "hubs": [{"id": 2, "degree": 2}, {"id": 1, "degree": 1}],
    }
    assert [hub["id"] for hub in to["out_degree"]["hubs"]] == [1, 2]
    assert (of["edges"], of["duplicate_edges"], of["self_loops"]) == (3, 1, 0)
    assert of["in_degree"]["hubs"] == [{"id": "p", "degree": 3}]
    assert has == {"source": "b", "relation": "has", "target": "a", "edges": 3, "reverse_of": "a__of__b"}


def test_problems_are_named_with_examples(graph: Graph) -> None:
    problems = {(problem.kind, problem.where): problem for problem in graph.describe().problems}
    assert set(problems) == {
        ("dangling_edges", "a to a"),
        ("dropped_duplicates", "a to a"),
        ("isolated_nodes", "a"),
        ("isolated_nodes", "b"),
        ("self_loops", "a to a"),
        ("duplicate_edges", "a of b"),
        ("missing_values", "a, feature n"),
        ("missing_values", "a, feature c"),
    }
    dangling = problems["dangling_edges", "a to a"]
    assert (dangling.count, dangling.total) == (1, 5)
    assert dangling.message.startswith("1 of 5 (20.0 %) rows were skipped")
    assert problems["isolated_nodes", "a"].examples == ("4",)
    assert problems["isolated_nodes", "b"].examples == ("q",)
    assert all(problem.hint for problem in problems.values())


def test_rows_that_the_import_skipped_are_problems() -> None:
    imported = {
        "rows": 40,
        "edges": 34,
        "duplicate_edges": 1,
        "dangling_edges": 2,
        "skipped": {"not a number": 3},
        "examples": {
            "not a number": ["cites.csv:7, column `weight`: 'x'"],
            "dangling_edges": ["cites.csv:9: p1 -> p77"],
        },
    }
    edges = EdgeTypeDescription(("a", "cites", "a"), 34, imported=imported)
    nodes = NodeTypeDescription(
        "a", 9, 0, 0, "string", (), {"rows": 10, "nodes": 9, "skipped": {"bad encoding": 1}, "examples": {}}
    )
    dangling, malformed_edges, malformed_nodes, duplicates = find_problems([nodes], [edges], {})
    assert (dangling.kind, dangling.count, dangling.examples) == (
        "dangling_edges",
        2,
        ("cites.csv:9: p1 -> p77",),
    )
    assert malformed_edges.message == "3 of 40 (7.5 %) rows were skipped by the import: not a number"
    assert malformed_edges.examples == ("cites.csv:7, column `weight`: 'x'",)
    assert (malformed_nodes.where, malformed_nodes.count) == ("a", 1)
    assert (duplicates.kind, duplicates.count) == ("dropped_duplicates", 1)


def test_hubs_and_useless_features_are_problems() -> None:
    sources = np.arange(3000)
    graph = Graph.from_coo(sources, np.minimum(sources, 1), num_nodes=200_000)
    kinds = Counter(problem.kind for problem in graph.describe().problems)
    assert kinds == {"hubs": 1, "isolated_nodes": 1, "self_loops": 1}
    hub = next(problem for problem in graph.describe().problems if problem.kind == "hubs")
    assert hub.examples == ("1 (2,999 edges)", "0 (1 edge)")


def _loops(edges: np.ndarray, size: int, description: Description) -> None:
    pairs = [tuple(edge) for edge in edges.tolist()]
    entry = description.edge_types[0]
    assert entry.in_degree is not None
    assert entry.out_degree is not None
    assert entry.self_loops == sum(source == target for source, target in pairs)
    assert entry.duplicate_edges == len(pairs) - len(set(pairs))
    for side, degrees in ((0, entry.out_degree), (1, entry.in_degree)):
        expected = [sum(pair[side] == node for pair in pairs) for node in range(size)]
        ascending = sorted(expected)
        assert degrees.mean == pytest.approx(sum(expected) / size)
        assert degrees.max == ascending[-1]
        for name, percent in (("p50", 50), ("p90", 90), ("p99", 99)):
            at_least = next(value for rank, value in enumerate(ascending, 1) if 100 * rank >= percent * size)
            assert getattr(degrees, name) == at_least
        for each in degrees.histogram:
            assert each.nodes == sum(each.low <= value <= each.high for value in expected)
        assert sum(each.nodes for each in degrees.histogram) == size
        largest = sorted(range(size), key=lambda node: (-expected[node], node))[:3]
        assert [(hub.id, hub.degree) for hub in degrees.hubs] == [
            (node, expected[node]) for node in largest if expected[node]
        ]
    touched = {node for pair in pairs for node in pair}
    assert description.node_types[0].isolated == size - len(touched)


def test_random_graphs_agree_with_loops(monkeypatch: pytest.MonkeyPatch) -> None:
    generator = np.random.default_rng(0)
    # Blocks and ranges far smaller than the graph: what they cut apart must come out whole.
    monkeypatch.setattr("graphbox.graph.describe.degrees._BLOCK_NODES", 3)
    for _ in range(60):
        size = int(generator.integers(1, 12))
        edges = generator.integers(0, size, (int(generator.integers(0, 40)), 2))
        graph = Graph.from_coo(edges[:, 0], edges[:, 1], num_nodes=size)
        for memory_bytes in (1, 25, 1 << 20):
            _loops(edges, size, describe(graph, memory_bytes=memory_bytes))


def test_blocks_are_whole_rows_and_lose_nothing() -> None:
    generator = np.random.default_rng(1)
    for _ in range(50):
        lengths = generator.integers(0, 6, generator.integers(1, 20))
        indptr = np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths)])
        indices = generator.integers(0, 9, indptr[-1]).astype(np.int32)
        seen = []
        for block in merged_lists(as_live(EdgeTable(CSC(indptr, indices, 9))), "in", 3):
            assert len(block.lengths) == 1 or len(block.indices) <= 3
            rows = np.repeat(block.first_row + np.arange(len(block.lengths)), block.lengths)
            seen += list(zip(rows.tolist(), block.indices.tolist(), strict=True))
        rows = np.repeat(np.arange(len(lengths)), lengths)
        assert seen == list(zip(rows.tolist(), indices.tolist(), strict=True))


def test_a_histogram_is_exact_beyond_its_dense_part() -> None:
    generator = np.random.default_rng(2)
    degrees = generator.zipf(1.3, 5000) % (1 << 40)
    histogram = DegreeHistogram()
    for part in np.array_split(degrees, 7):
        histogram.add(part)
    histogram.add(np.empty(0, np.int64))
    values, counts = np.unique(degrees, return_counts=True)
    np.testing.assert_array_equal(histogram.degrees, values)
    np.testing.assert_array_equal(histogram.nodes, counts)
    report = DegreeReport.of(histogram.degrees, histogram.nodes)
    assert report.max == degrees.max()
    assert report.mean == pytest.approx(degrees.mean())
    for percent, found in ((50, report.p50), (90, report.p90), (99, report.p99)):
        assert found == np.percentile(degrees, percent, method="inverted_cdf")
    assert sum(each.nodes for each in histogram.bins()) == len(degrees)
    assert DegreeHistogram().bins() == []


def test_memory_stays_bounded() -> None:
    generator = np.random.default_rng(3)
    num_nodes, num_edges = 3_000_000, 16_000_000
    indptr = np.sort(generator.integers(0, num_edges, num_nodes + 1))
    indptr[[0, -1]] = 0, num_edges
    csc = CSC(indptr, generator.integers(0, num_nodes, num_edges, np.int32), num_nodes)
    graph = Graph("large", {"node": numbered_nodes(num_nodes)}, {("node", "to", "node"): EdgeTable(csc)})
    calls: list[tuple[str, int, int]] = []
    tracemalloc.start()
    try:
        description = describe(graph, memory_bytes=1 << 23, progress=lambda *call: calls.append(call))
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 48 * 2**20, f"{peak:,} bytes"
    assert description.edges == num_edges
    assert calls[-1][1:] == (2 * num_edges, 2 * num_edges), (
        "two ranges of nodes, a pass over the edges for each"
    )


def test_a_damaged_graph_is_an_error() -> None:
    nodes = {"node": numbered_nodes(3)}
    for indptr, indices, expected in (
        ([0, 2, 1, 3], [0, 1, 2], "rising offsets"),
        ([0, 1, 2, 9], [0, 1, 2], "rising offsets"),
        ([0, 1, 2, 3], [0, 3, 2], "nodes from 0 to 2"),
        ([0, 1, 2, 3], [0, -1, 2], "nodes from 0 to 2"),
    ):
        csc = CSC(np.array(indptr), np.array(indices, np.int32), 3)
        with pytest.raises(FormatError, match=f"node__to__node: expected {expected}.*\n.*--verify"):
            describe(Graph("damaged", nodes, {("node", "to", "node"): EdgeTable(csc)}))


_RESIDENT = """
import sys
from graphbox.graph import Graph

def resident(key):
    status = dict(line.split(":", 1) for line in open("/proc/self/status"))
    return int(status[key].split()[0]) * 1024

graph = Graph.open(sys.argv[1])
graph.describe(memory_bytes=1)  # loads what it takes to look at a graph
open("/proc/self/clear_refs", "w").write("5")
before = resident("VmRSS")
graph = Graph.open(sys.argv[2])
graph.describe(memory_bytes=1 << 20)
print(resident("VmHWM") - before)
"""


@pytest.mark.slow
def test_resident_memory_stays_bounded(tmp_path: Path) -> None:
    generator = np.random.default_rng(4)
    num_nodes, num_edges = 500_000, 40_000_000
    indptr = np.sort(generator.integers(0, num_edges, num_nodes + 1))
    indptr[[0, -1]] = 0, num_edges
    csc = CSC(indptr, generator.integers(0, num_nodes, num_edges, np.int32), num_nodes)
    features = {"n": Column("number", generator.random(num_edges, np.float32))}
    edges = {("node", "to", "node"): EdgeTable(csc, features)}
    Graph("large", {"node": numbered_nodes(num_nodes)}, edges).save(tmp_path / "large")
    Graph.from_coo([0], [1]).save(tmp_path / "small")
    run = subprocess.run(
        [sys.executable, "-c", _RESIDENT, str(tmp_path / "small"), str(tmp_path / "large")],
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    )
    assert int(run.stdout) < 64 * 2**20, f"{int(run.stdout):,} bytes for a graph of 320 MB"


def test_rows_that_a_real_import_skipped_are_shown_with_their_places(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("id,n\n1,2\n2,x\n3,4\n,6\n4,1\n")
    (tmp_path / "aa.csv").write_text("source,target,w\n1,3,x\n3,1\n,1,1\n4,1,2\n3,4,1\n")
    source = GraphSource(
        "skipping",
        {"a": NodeSource(tmp_path / "a.csv", features={"n": "number"})},
        (EdgeSource(("a", "to", "a"), tmp_path / "aa.csv", weight="w"),),
    )
    import_graph(source, tmp_path / "graph")
    malformed = [
        each for each in Graph.open(tmp_path / "graph").describe().problems if each.kind == "malformed_rows"
    ]
    assert sorted((each.where, each.count) for each in malformed) == [("a", 1)] * 2 + [("a to a", 1)] * 3
    examples = "\n".join(example for each in malformed for example in each.examples)
    for place in ("a.csv:3, column `n`", "a.csv:5, column `id`", "aa.csv:2, column `w`", "aa.csv:3"):
        assert place in examples, place
    assert "2 rows skipped" in str(Graph.open(tmp_path / "graph").describe())

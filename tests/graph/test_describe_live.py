"""Descriptions of changed graphs: as of one with the changes merged, without merging them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from graphbox.graph import CSC, EdgeSource, Graph, GraphSource, NodeSource
from graphbox.graph.columns import Column
from graphbox.graph.compact import compact
from graphbox.graph.delta import append, remove
from graphbox.graph.describe import describe
from graphbox.graph.ids import IntegerIds
from graphbox.graph.ingest import import_graph
from graphbox.graph.live_nodes import LiveNodeTable, NodeChange
from graphbox.graph.snapshot import EdgeChange, LiveEdgeTable
from graphbox.graph.tables import EdgeTable, edge_table, numbered_nodes
from graphbox.words import counted

TYPE = ("node", "to", "node")


def _change(
    generator: np.random.Generator, edges: LiveEdgeTable | EdgeTable, num_nodes: int, gone: np.ndarray
) -> EdgeChange:
    """Return a change that adds some edges and removes some, among them those of the nodes that are gone."""
    first, count = edges.num_edge_ids, int(generator.integers(0, 8))
    alive = np.setdiff1d(np.arange(num_nodes), gone)
    ends = np.sort(generator.choice(alive, (count, 2)).view("i8,i8"), axis=0, order=["f1", "f0"])
    csc = edges.csc
    source, target = csc.coo()
    ids = csc.ids_at(np.arange(csc.num_edges))
    of_gone = np.isin(source, gone) | np.isin(target, gone)
    removed = ids[of_gone | (generator.random(len(ids)) < 0.2)]
    return EdgeChange(
        first,
        ends["f0"].reshape(-1),
        ends["f1"].reshape(-1),
        features={"n": Column("number", generator.normal(size=count).astype(np.float32))},
        removed=np.sort(removed),
        imported={"rows": count, "edges": count},
    )


@pytest.mark.parametrize("seed", range(25))
def test_changes_are_counted_as_if_merged(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    generator = np.random.default_rng(seed)
    monkeypatch.setattr("graphbox.graph.describe.degrees._BLOCK_NODES", 3)
    size, added = int(generator.integers(2, 10)), int(generator.integers(0, 4))
    total = size + added
    gone = np.flatnonzero(generator.random(total) < 0.2)[: total - 1]
    values = generator.normal(size=total).astype(np.float32)
    nodes = LiveNodeTable(
        numbered_nodes(size, {"n": Column("number", values[:size])}),
        [
            NodeChange(
                first=size,
                ids=IntegerIds(np.arange(size, total)) if added else None,
                features={"n": Column("number", values[size:])} if added else {},
                removed=gone,
            )
        ],
    )
    num_edges = int(generator.integers(0, 30))
    source, target = generator.integers(0, size, (2, num_edges))
    numbers = Column("number", generator.normal(size=num_edges).astype(np.float32))
    base = edge_table(source, target, size, size, features={"n": numbers})
    first = _change(generator, base, total, gone)
    once = LiveEdgeTable(base, [first], total, total)
    live = LiveEdgeTable(base, [first, _change(generator, once, total, gone)], total, total)
    assert live.csc.edge_ids is not None or not live.is_changed
    merged = _merged(live)

    graph = Graph("g", {"node": nodes}, {TYPE: live})
    described = describe(graph, memory_bytes=1)
    expected = describe(Graph("g", {"node": nodes}, {TYPE: merged}))
    assert described.as_dict() == expected.as_dict()
    assert described.node_types[0].removed == len(gone)
    assert described.node_types[0].nodes == total - len(gone)
    kept = np.delete(values, gone)
    assert described.node_types[0].features[0].max == kept.max()
    if len(gone):
        assert f"{counted(len(gone), 'node')} removed" in str(described)


def _merged(live: LiveEdgeTable) -> EdgeTable:
    csc = live.csc
    ids = csc.ids_at(np.arange(csc.num_edges))
    features = {name: column.take(ids) for name, column in live.features.items()}
    return EdgeTable(replace(csc, edge_ids=None), features, imported=live.imported)


def test_changes_are_not_merged(monkeypatch: pytest.MonkeyPatch) -> None:
    base = edge_table(np.array([0, 1]), np.array([1, 2]), 3, 3)
    live = LiveEdgeTable(base, [EdgeChange(2, np.array([2]), np.array([0]))], 3, 3)
    monkeypatch.setattr(LiveEdgeTable, "csc", None)
    graph = Graph("g", {"node": numbered_nodes(3)}, {TYPE: live})
    assert graph.describe().edges == 3


def test_kept_out_neighbors_are_used(monkeypatch: pytest.MonkeyPatch) -> None:
    generator = np.random.default_rng(0)
    source, target = generator.integers(0, 50, (2, 300))
    derived = edge_table(source, target, 50, 50)
    csr = replace(derived.csr)
    kept = EdgeTable(CSC(derived.csc.indptr, derived.csc.indices, 50), csr=csr)
    calls: list[int] = []
    nodes = {"node": numbered_nodes(50)}
    monkeypatch.setattr("graphbox.graph.describe.degrees._BLOCK_NODES", 7)
    described = describe(
        Graph("g", nodes, {TYPE: kept}), memory_bytes=1, progress=lambda *call: calls.append(call[1])
    )
    assert described.as_dict() == describe(Graph("g", nodes, {TYPE: derived})).as_dict()
    assert calls == [300], "one pass, whatever the memory"


def test_reports_of_imports_add_up_and_come_back(tmp_path: Path) -> None:
    first = {
        "rows": 4,
        "edges": 2,
        "skipped": {"not a number": 2},
        "examples": {"not a number": ["a:1", "a:2"]},
    }
    second = {"rows": 3, "edges": 1, "skipped": {"not a number": 1, "bad encoding": 1}, "examples": {}}
    base = edge_table(np.array([0, 1]), np.array([1, 2]), 3, 3)
    base = EdgeTable(base.csc, imported=first)
    change = EdgeChange(2, np.array([2]), np.array([0]), imported=second)
    nodes = replace(numbered_nodes(3), imported={"rows": 5, "nodes": 3, "skipped": {"repeated id": 2}})
    live = LiveEdgeTable(base, [change], 3, 3)
    assert live.imported == {
        "rows": 7,
        "edges": 3,
        "skipped": {"not a number": 3, "bad encoding": 1},
        "examples": {"not a number": ["a:1", "a:2"]},
    }
    Graph("g", {"node": nodes}, {TYPE: live}).save(tmp_path / "g")
    opened = Graph.open(tmp_path / "g")
    assert opened.imported(TYPE) == live.imported
    kinds = [(problem.where, problem.count, problem.examples) for problem in opened.describe().problems]
    assert ("node", 2, ()) in kinds
    assert ("node to node", 3, ("a:1", "a:2")) in kinds


def test_a_graph_changed_on_disk(tmp_path: Path) -> None:
    """Append, remove and compaction, as describe and PyTorch Geometric's face see them."""
    (tmp_path / "people.csv").write_text("id,age\nann,30\nbob,\ncid,50\n")
    (tmp_path / "knows.csv").write_text("source,target,since\nann,bob,1\nbob,cid,2\ncid,ann,3\n")
    source = _people(tmp_path, "people.csv", "knows.csv")
    import_graph(source, tmp_path / "graph")
    (tmp_path / "more.csv").write_text("id,age\ndan,70\nbob,40\n")
    (tmp_path / "more_knows.csv").write_text("source,target,since\ndan,bob,4\nann,bob,9\ndan,nobody,5\n")
    append(tmp_path / "graph", _people(tmp_path, "more.csv", "more_knows.csv"), compact="never")
    remove(tmp_path / "graph", nodes={"person": ["ann"]})

    def shown() -> tuple[Any, ...]:
        graph = Graph.open(tmp_path / "graph")
        description = graph.describe()
        (people,), (knows,) = description.node_types, description.edge_types
        age, since = people.features[0], knows.features[0]
        data = graph.to_pyg()
        ends = [[data.ids[index] for index in row] for row in data.edge_index.tolist()]
        assert knows.in_degree is not None
        return (
            (people.nodes, people.removed, people.isolated, age.rows, age.missing, age.min, age.max),
            (knows.edges, since.rows, since.min, since.max, knows.in_degree.histogram, knows.in_degree.hubs),
            sorted(zip(*ends, data.since.tolist(), strict=True)),
            data.age.tolist(),
            [problem.kind for problem in description.problems],
        )

    changed = shown()
    assert changed[0] == (3, 1, 0, 3, 0, 40, 70)
    assert changed[1][:4] == (2, 2, 2, 4)
    assert changed[2:4] == ([("bob", "cid", 2), ("dan", "bob", 4)], [40, 50, 70])
    assert "dangling_edges" in changed[4]
    compact(tmp_path / "graph")
    assert "ann" not in (tmp_path / "graph" / "manifest.json").read_text()
    assert shown()[:4] == changed[:4]


def _people(folder: Path, people: str, knows: str) -> GraphSource:
    return GraphSource(
        "people",
        {"person": NodeSource(folder / people, features={"age": "number"})},
        (EdgeSource(("person", "knows", "person"), folder / knows, features={"since": "integer"}),),
    )

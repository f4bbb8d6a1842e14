"""What `describe` says of a changed graph: as of one with the changes merged, without merging them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from graphbox.graph import CSC, Graph
from graphbox.graph.columns import Column
from graphbox.graph.describe import describe, outline
from graphbox.graph.ids import IntegerIds
from graphbox.graph.live_nodes import LiveNodeTable, NodeChange
from graphbox.graph.snapshot import EdgeChange, LiveEdgeTable
from graphbox.graph.tables import EdgeTable, edge_table, numbered_nodes

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
        assert f"{len(gone)} nodes removed" in str(described)
        assert f"{len(gone)} removed" in outline(graph)._repr_html_()


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
    assert "3 edges" in graph._repr_html_()


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

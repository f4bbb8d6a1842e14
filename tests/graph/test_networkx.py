"""Graphs from and to NetworkX."""

from __future__ import annotations

import sys
from typing import Any

import networkx as nx
import pytest

from graphbox.errors import BackendMissingError, DataError, UsageError
from graphbox.graph import Graph
from graphbox.graph.tables import edge_table, numbered_nodes


def _edges(graph: Graph) -> list[tuple[Any, Any]]:
    source, target = graph.csc().coo()
    return list(zip(graph.ids("node", source).tolist(), graph.ids("node", target).tolist(), strict=True))


def test_a_directed_graph_comes_back() -> None:
    given = nx.DiGraph()
    given.add_node("alone", size=3)
    given.add_node("ä", size=1)
    given.add_node("b", size=2)
    given.add_edge("ä", "b", weight=2.5, at=7)
    given.add_edge("b", "ä", weight=1.0, at=9)
    graph = Graph.from_networkx(given, timestamp="at", node_features=["size"], name="letters")
    assert graph.ids("node").tolist() == ["alone", "ä", "b"]
    assert graph.feature("node", "size").tolist() == [3, 1, 2]
    back = graph.to_networkx()
    assert back.name == "letters"
    assert dict(back.nodes(data=True))["alone"] == {"node_type": "node", "size": 3}
    assert sorted(back.edges(data=True)) == [
        ("b", "ä", {"relation": "to", "weight": 1.0, "timestamp": 9}),
        ("ä", "b", {"relation": "to", "weight": 2.5, "timestamp": 7}),
    ]


def test_undirected_edges_go_both_ways_and_loops_once() -> None:
    given = nx.Graph([(1, 2), (2, 2), (0, -5)])
    assert sorted(_edges(Graph.from_networkx(given))) == [(-5, 0), (0, -5), (1, 2), (2, 1), (2, 2)]


def test_repeated_edges_stay() -> None:
    given = nx.MultiDiGraph()
    given.add_edges_from([(0, 1, {"weight": 1.0}), (0, 1, {"weight": 2.0}), (1, 0, {"weight": 3.0})])
    graph = Graph.from_networkx(given)
    assert _edges(graph) == [(1, 0), (0, 1), (0, 1)]
    assert sorted(data["weight"] for _, _, data in graph.to_networkx().edges(data=True)) == [1, 2, 3]


def test_several_types_keep_theirs() -> None:
    nodes = {"user": numbered_nodes(2), "item": numbered_nodes(1)}
    edges = {("user", "buys", "item"): edge_table(*_ends([0, 1], [0, 0]), 2, 1)}
    back = Graph("shop", nodes, edges).with_reverse_edges().to_networkx()
    assert sorted(back.nodes) == [("item", 0), ("user", 0), ("user", 1)]
    assert list(back.edges(data="relation")) == [
        (("user", 0), ("item", 0), "buys"),
        (("user", 1), ("item", 0), "buys"),
    ]


def _ends(source: list[int], target: list[int]) -> tuple[Any, Any]:
    import numpy as np

    return np.array(source), np.array(target)


def test_wrong_graphs_are_refused() -> None:
    with pytest.raises(UsageError, match="expected a NetworkX graph, received list"):
        Graph.from_networkx([])
    with pytest.raises(UsageError, match="all strings or all 64-bit integers"):
        Graph.from_networkx(nx.DiGraph([("a", 1)]))
    with pytest.raises(UsageError, match="received int"):
        Graph.from_networkx(nx.DiGraph([(2**63, 1)]))
    with pytest.raises(DataError, match="at least one node"):
        Graph.from_networkx(nx.DiGraph())
    half = nx.DiGraph([(0, 1), (1, 2, {"weight": 2.0})])
    with pytest.raises(UsageError, match="expected the attribute on all 2, 1 have none"):
        Graph.from_networkx(half)
    assert Graph.from_networkx(half, weight=None).csc().weight is None


def test_without_networkx_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "networkx", None)
    with pytest.raises(BackendMissingError, match="networkx"):
        Graph.from_coo([0], [1]).to_networkx()

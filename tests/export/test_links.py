"""Known links are those of the graph; what training did not see is held out."""

from __future__ import annotations

import numpy as np

from graphbox.artifact import Links
from graphbox.export import linked_nodes, links_of
from graphbox.graph import Graph
from graphbox.graph.schema import CSC, EdgeType


class _Seen:
    """A graph without every third edge."""

    def __init__(self, graph: Graph) -> None:
        self._graph = graph

    @property
    def edge_types(self) -> list[EdgeType]:
        return self._graph.edge_types

    def csc(self, edge_type: EdgeType) -> CSC:
        csc = self._graph.csc(edge_type)
        kept = np.arange(csc.num_edges) % 3 != 0
        _, target = csc.coo()
        indptr = np.concatenate([[0], np.cumsum(np.bincount(target[kept], minlength=csc.num_targets))])
        return CSC(indptr.astype(np.int64), csc.indices[kept], csc.num_sources)


def test_links_of_a_graph_with_held_out_edges() -> None:
    random = np.random.default_rng(0)
    pairs = np.unique(random.integers(0, 20, (80, 2)), axis=0)
    graph = Graph.from_coo(pairs[:, 0], pairs[:, 1], num_nodes=20)
    (edge_type,) = graph.edge_types
    node_type = edge_type[0]
    table = links_of(graph, _Seen(graph), {node_type})
    links = Links(table)
    assert len(links) == len(pairs)
    source, target = graph.csc(edge_type).coo()
    for number, (first, second) in enumerate(zip(source.tolist(), target.tolist(), strict=True)):
        found = links.between(node_type, first, node_type, np.array([second]))[0]
        held_out = {link.direction: link.held_out for link in found}
        assert held_out["out"] == (number % 3 == 0)


def test_reverse_edges_and_other_node_types_are_left_out() -> None:
    graph = Graph.from_coo(np.array([0, 1]), np.array([1, 2]), num_nodes=3).with_reverse_edges()
    assert len(graph.edge_types) == 2
    (node_type,) = graph.node_types
    assert len(Links(links_of(graph, graph, {node_type}))) == 2
    assert len(Links(links_of(graph, graph, {"other"}))) == 0


def test_types_that_were_not_seen_are_held_out_and_negatives_are_no_links() -> None:
    graph = Graph.from_coo(np.array([0, 1]), np.array([1, 2]), num_nodes=3)
    (edge_type,) = graph.edge_types
    hidden = graph.without_edges({edge_type: [0, 1]})

    class Blind:
        edge_types: list[EdgeType] = []  # noqa: RUF012 - none, for good

        def csc(self, edge_type: EdgeType) -> CSC:
            return hidden.csc(edge_type)

    found = Links(links_of(graph, Blind(), {"node"})).between("node", 0, "node", np.array([1]))[0]
    assert [link.held_out for link in found] == [True]
    assert len(Links(links_of(graph, graph, {"node"}, negatives={edge_type}))) == 0


def test_linked_nodes_are_those_at_the_other_ends() -> None:
    random = np.random.default_rng(1)
    pairs = np.unique(random.integers(0, 20, (60, 2)), axis=0)
    graph = Graph.from_coo(pairs[:, 0], pairs[:, 1], num_nodes=20)
    (edge_type,) = graph.edge_types
    for node in range(20):
        expected = {int(b) for a, b in pairs if a == node} | {int(a) for a, b in pairs if b == node}
        assert linked_nodes(graph, edge_type[0], node, edge_type[2]).tolist() == sorted(expected)
    assert not len(linked_nodes(graph, edge_type[0], 0, edge_type[2], negatives=[edge_type]))

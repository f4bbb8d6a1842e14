"""The graph as networks see it: relations, normalized weights, and the edges of whole graphs and samples."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from graphbox.graph.schema import EdgeType
from graphbox.models.graph_layers import Edges
from graphbox.models.graph_network import LayerEdges
from graphbox.sample.adjacency import EdgeColumnName
from graphbox.sample.sampled import HeteroSample
from graphbox.train.view import GraphView

__all__ = ["NetworkGraph"]

_MERGED = "edges"


class NetworkGraph:
    """Turns samples of a graph into what the layers of a network work on.

    With ``normalized`` an edge's weight is divided by the roots of the degrees of its ends, which count one
    edge from each node to itself where source and target are of one type (Kipf and Welling, ICLR 2017); that
    edge is among the edges. Degrees are those of the whole graph, and what a node draws stands for all its
    edges: the expectation of a sum over drawn edges is the sum over all.

    Args:
        view: the graph.
        edge_types: along which messages go.
        merge: take all edge types between two node types as one relation.
        weights: take the edges' own weights.
        normalized: see above.
    """

    def __init__(
        self,
        view: GraphView,
        edge_types: Sequence[EdgeType],
        *,
        merge: bool,
        weights: bool,
        normalized: bool,
    ) -> None:
        self.view = view
        self.edge_types = tuple(edge_types)
        self._weights = weights
        self._normalized = normalized
        self._members: dict[EdgeType, list[EdgeType]] = {}
        for edge_type in edge_types:
            relation = (edge_type[0], _MERGED, edge_type[2]) if merge else edge_type
            self._members.setdefault(relation, []).append(edge_type)
        touched = dict.fromkeys(end for edge_type in edge_types for end in (edge_type[0], edge_type[2]))
        self.node_types = [name for name in view.node_types if name in touched]
        self._degrees = {
            relation: self._degrees_of(relation) for relation in (self._members if normalized else ())
        }
        self._list_lengths = {
            edge_type: np.diff(view.csc(edge_type).indptr) for edge_type in (edge_types if normalized else ())
        }

    @property
    def relations(self) -> tuple[EdgeType, ...]:
        """The relations that layers know."""
        return tuple(self._members)

    @property
    def edge_attributes(self) -> tuple[EdgeColumnName, ...]:
        """What is to be sampled of the edges: their weights, if those are taken and there are any."""
        weighted = self._weights and any(self.view.csc(each).weight is not None for each in self.edge_types)
        return ("weight",) if weighted else ()

    def layers_of(self, sample: HeteroSample[NDArray[np.int64]], layers: int) -> list[LayerEdges]:
        """Return what each of so many layers works on: the first on all hops, the last on the first alone."""
        return [self._layer(sample, layers - number) for number in range(layers)]

    def whole(self) -> LayerEdges:
        """Return all edges between all nodes, what every layer of a network over the whole graph works on."""
        edges: dict[EdgeType, Edges] = {}
        for relation, members in self._members.items():
            parts = []
            for edge_type in members:
                csc = self.view.csc(edge_type)
                source, target = csc.coo()
                parts.append((source, target, csc.weight if self._weights else None))
            nodes = np.arange(self.view.num_nodes(relation[2]))
            edges[relation] = self._edges(relation, parts, np.arange(self.view.num_nodes(relation[0])), nodes)
        return LayerEdges(edges, {name: self.view.num_nodes(name) for name in self.node_types})

    def _layer(self, sample: HeteroSample[NDArray[np.int64]], hops: int) -> LayerEdges:
        counts = {name: sum(sample.nodes_per_hop[name][: hops + 1]) for name in self.node_types}
        edges: dict[EdgeType, Edges] = {}
        for relation, members in self._members.items():
            parts = []
            for edge_type in members:
                count = sum(sample.edges_per_hop[edge_type][:hops])
                rows, cols = sample.rows[edge_type][:count], sample.cols[edge_type][:count]
                weight = sample.weight[edge_type][:count] if edge_type in sample.weight else None
                parts.append((rows, cols, self._scaled(sample, edge_type, cols, weight)))
            source = sample.nodes[relation[0]][: counts[relation[0]]]
            target = sample.nodes[relation[2]][: counts[relation[2]]]
            edges[relation] = self._edges(relation, parts, source, target)
        return LayerEdges(edges, counts)

    def _scaled(
        self,
        sample: HeteroSample[NDArray[np.int64]],
        edge_type: EdgeType,
        cols: NDArray[np.int64],
        weight: NDArray[np.float32] | None,
    ) -> NDArray[np.float32] | None:
        """Return weights with which the drawn edges of a node stand for all its edges, if sums are taken."""
        if not self._normalized:
            return weight
        nodes = sample.nodes[edge_type[2]]
        drawn = np.bincount(cols, minlength=len(nodes))
        share = self._list_lengths[edge_type][nodes] / np.maximum(drawn, 1)
        scale: NDArray[np.float32] = share[cols].astype(np.float32)
        return scale if weight is None else scale * weight

    def _edges(
        self,
        relation: EdgeType,
        parts: Iterable[tuple[NDArray[np.int64], NDArray[np.int64], Any]],
        source: NDArray[np.int64],
        target: NDArray[np.int64],
    ) -> Edges:
        """Return the edges of a relation's members as one.

        Args:
            relation: the relation.
            parts: positions of sources, those of targets, and weights or None, of each member.
            source: the nodes that sources are positions in.
            target: the nodes that targets are positions in.
        """
        found = list(parts)
        rows = np.concatenate([rows for rows, _, _ in found])
        cols = np.concatenate([cols for _, cols, _ in found])
        # Where some edges have weights of their own, those of the others are 1, whatever their relation.
        if not (self._normalized or self.edge_attributes):
            return Edges(torch.from_numpy(np.stack([rows, cols])))
        weight = np.concatenate(
            [np.ones(len(rows), np.float32) if weight is None else weight for rows, _, weight in found]
        )
        if self._normalized:
            leaving, arriving = self._degrees[relation]
            weight = weight * leaving[source[rows]] * arriving[target[cols]]
            if relation[0] == relation[2]:
                own = np.arange(len(target))
                rows, cols = np.concatenate([rows, own]), np.concatenate([cols, own])
                weight = np.concatenate([weight, arriving[target] ** 2])
        return Edges(torch.from_numpy(np.stack([rows, cols])), torch.from_numpy(weight.astype(np.float32)))

    def _degrees_of(self, relation: EdgeType) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """Return one over the root of the degree of each source and of each target; 0 where that is 0."""
        leaving = np.zeros(self.view.num_nodes(relation[0]))
        arriving = np.zeros(self.view.num_nodes(relation[2]))
        for edge_type in self._members[relation]:
            csc = self.view.csc(edge_type)
            weight = csc.weight if self._weights else None
            source, target = csc.coo()
            leaving += np.bincount(source, weight, len(leaving))
            arriving += np.bincount(target, weight, len(arriving))
        if relation[0] == relation[2]:
            leaving = arriving = arriving + 1.0
        return _inverse_root(leaving), _inverse_root(arriving)


def _inverse_root(degree: NDArray[np.float64]) -> NDArray[np.float32]:
    return np.where(degree > 0, 1.0 / np.sqrt(np.maximum(degree, 1e-12)), 0.0).astype(np.float32)

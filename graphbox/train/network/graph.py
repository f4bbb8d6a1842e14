"""The graph as networks see it: relations, normalized weights, and the edges of whole graphs and samples."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from graphbox.graph.schema import EdgeType
from graphbox.models.edge_inputs import TIMESTAMP
from graphbox.models.features import LearntFeature
from graphbox.models.graph_layers import Edges
from graphbox.models.graph_network import LayerEdges
from graphbox.sample.adjacency import EdgeColumnName
from graphbox.sample.sampled import HeteroSample
from graphbox.train.memory import TrainingMemory
from graphbox.train.network.edge_data import LearntEdges, edge_columns, latest_timestamp
from graphbox.train.network.merged_graph import MergedGraph, merged_graph, merged_types
from graphbox.train.view import GraphView


class NetworkGraph:
    """Turns samples of a graph into what the layers of a network work on.

    With ``normalized`` an edge's weight is divided by the roots of the degrees of its ends, which count one
    edge from each node to itself where source and target are of one type (Kipf and Welling, ICLR 2017); that
    edge is among the edges. Degrees are those of the whole graph, and what a node draws stands for all its
    edges: the expectation of a sum over drawn edges is the sum over all.

    Args:
        view: the graph.
        edge_types: along which messages go.
        merge: take all edge types between two node types as one, and all edges of a pair of nodes as one
            edge that has the sum of their weights.
        weights: take the edges' own weights.
        normalized: see above.
        memory: says whether what is merged is written to disk, and where; None: it is kept in memory.
        node_types: types that are there without an edge, too.
        edge_learnt: what is known of the features of edges, by edge type with edges of its own; those of
            other types are not read. Nothing is merged beside them.

    Attributes:
        members: the edge types that were given.
        view: the graph whose edge types are the relations that layers know.
        is_merged: whether they are several of the graph's taken as one.
        edge_learnt: what is known of the features of edges, by relation with any.
    """

    def __init__(
        self,
        view: GraphView,
        edge_types: Sequence[EdgeType],
        *,
        merge: bool,
        weights: bool,
        normalized: bool,
        memory: TrainingMemory | None = None,
        node_types: Collection[str] = (),
        edge_learnt: LearntEdges | None = None,
    ) -> None:
        touched = dict.fromkeys(end for edge_type in edge_types for end in (edge_type[0], edge_type[2]))
        self.node_types = [name for name in view.node_types if name in touched or name in node_types]
        self.view: GraphView | MergedGraph = view
        if merge and memory is not None and memory.graph_on_disk:
            self.view = _merged_on_disk(view, edge_types, memory, weights=weights)
        elif merge:
            self.view = merged_graph(view, edge_types, weights=weights)
        self.members = tuple(edge_types)
        self.edge_types = tuple(self.view.edge_types if merge else edge_types)
        self.is_merged = merge
        self._weights = weights
        self._normalized = normalized
        known, read = edge_learnt or {}, self.edge_types if edge_learnt else ()
        self.edge_learnt: dict[EdgeType, Mapping[str, LearntFeature]] = {
            each: known[view.own_type(each)] for each in read if view.own_type(each) in known
        }
        self._features = {each: edge_columns(view, each, learnt) for each, learnt in self.edge_learnt.items()}
        among = self.edge_types if normalized else ()
        self._degrees = {edge_type: self._degrees_of(edge_type) for edge_type in among}
        self._list_lengths = {
            edge_type: torch.from_numpy(np.diff(self.view.csc(edge_type).indptr)) for edge_type in among
        }
        self._brought: dict[tuple[int, torch.device], Tensor] = {}

    @property
    def edge_attributes(self) -> tuple[EdgeColumnName, ...]:
        """Edge columns to sample: the weights, if they are used and there are any."""
        weighted = self._weights and any(self.view.has_weights(each) for each in self.edge_types)
        return ("weight",) if weighted else ()

    @property
    def source_scales(self) -> dict[EdgeType, NDArray[np.float32]]:
        """By relation one over the root of the degree of each source; none where degrees do not normalize."""
        return {edge_type: leaving.numpy() for edge_type, (leaving, _) in self._degrees.items()}

    @property
    def latest(self) -> dict[EdgeType, int]:
        """By relation whose edges' ages are read, the moment from which they are counted."""
        return {
            each: latest_timestamp(self.view, each)
            for each, learnt in self.edge_learnt.items()
            if TIMESTAMP in learnt and isinstance(self.view, GraphView)
        }

    def layers_of(self, sample: HeteroSample[Tensor], layers: int) -> list[LayerEdges]:
        """Return what each of so many layers works on: the first on all hops, the last on the first alone.

        It is where the sample is.
        """
        return [self._layer(sample, layers - number) for number in range(layers)]

    def whole(self) -> LayerEdges:
        """Return all edges between all nodes, what every layer of a network over the whole graph works on."""
        edges: dict[EdgeType, Edges] = {}
        for edge_type in self.edge_types:
            csc = self.view.csc(edge_type)
            targets = len(csc.indptr) - 1
            target = torch.from_numpy(np.repeat(np.arange(targets), np.diff(csc.indptr)))
            weight = csc.weight if self._weights else None
            ends = torch.arange(self.view.num_nodes(edge_type[0])), torch.arange(targets)
            edges[edge_type] = self._edges(
                edge_type,
                torch.from_numpy(csc.indices.astype(np.int64)),
                target,
                None if weight is None else torch.from_numpy(np.array(weight)),
                ends,
                torch.arange(csc.num_edges) if edge_type in self._features else None,
            )
        return LayerEdges(edges, {name: self.view.num_nodes(name) for name in self.node_types})

    def _layer(self, sample: HeteroSample[Tensor], hops: int) -> LayerEdges:
        counts = {name: sum(sample.num_sampled_nodes[name][: hops + 1]) for name in self.node_types}
        edges: dict[EdgeType, Edges] = {}
        for edge_type in self.edge_types:
            count = sum(sample.num_sampled_edges[edge_type][:hops])
            rows, cols = sample.row[edge_type][:count], sample.col[edge_type][:count]
            weight = sample.weight[edge_type][:count] if edge_type in sample.weight else None
            weight = self._scaled(sample, edge_type, cols, weight)
            source = sample.nodes[edge_type[0]][: counts[edge_type[0]]]
            target = sample.nodes[edge_type[2]][: counts[edge_type[2]]]
            places = sample.edge_ids[edge_type][:count] if edge_type in self._features else None
            edges[edge_type] = self._edges(edge_type, rows, cols, weight, (source, target), places)
        return LayerEdges(edges, counts)

    def _scaled(
        self, sample: HeteroSample[Tensor], edge_type: EdgeType, cols: Tensor, weight: Tensor | None
    ) -> Tensor | None:
        """Return weights with which the drawn edges of a node stand for all its edges, if sums are taken."""
        if not self._normalized:
            return weight
        nodes = sample.nodes[edge_type[2]]
        drawn = torch.zeros_like(nodes).index_add_(0, cols, torch.ones_like(cols))
        lengths = self._near(self._list_lengths[edge_type], nodes)[nodes]
        scale = (lengths.double() / drawn.clamp(min=1)).float()[cols]
        return scale if weight is None else scale * weight

    def _edges(
        self,
        edge_type: EdgeType,
        rows: Tensor,
        cols: Tensor,
        weight: Tensor | None,
        nodes: tuple[Tensor, Tensor],
        places: Tensor | None,
    ) -> Edges:
        """Return the edges of a relation.

        Args:
            edge_type: the relation.
            rows: positions of sources.
            cols: positions of targets.
            weight: float32 [edges], or None.
            nodes: the nodes that sources, and those that targets are positions in.
            places: int64 [edges], positions in the CSC, of edges that have features.
        """
        # Where some edges have weights of their own, those of the others are 1, whatever their relation.
        if weight is None and (self._normalized or self.edge_attributes):
            weight = torch.ones(len(rows), device=rows.device)
        if self._normalized and weight is not None:
            leaving, arriving = (self._near(each, rows) for each in self._degrees[edge_type])
            weight = weight * leaving[nodes[0][rows]] * arriving[nodes[1][cols]]
            if edge_type[0] == edge_type[2]:
                own = torch.arange(len(nodes[1]), device=rows.device)
                rows, cols = torch.cat([rows, own]), torch.cat([cols, own])
                weight = torch.cat([weight, arriving[nodes[1]].square()])
        features = None if places is None else self._near(self._features[edge_type], rows)[places]
        return Edges(torch.stack([rows, cols]), weight, features)

    def _near(self, of_nodes: Tensor, others: Tensor) -> Tensor:
        """Return a tensor over all nodes of a type where others are; it is brought there once."""
        if of_nodes.device == others.device:
            return of_nodes
        key = (id(of_nodes), others.device)
        if key not in self._brought:
            self._brought[key] = of_nodes.to(others.device)
        return self._brought[key]

    def _degrees_of(self, edge_type: EdgeType) -> tuple[Tensor, Tensor]:
        """Return one over the root of the degree of each source and of each target; 0 where that is 0."""
        csc = self.view.csc(edge_type)
        targets = len(csc.indptr) - 1
        weight = csc.weight if self._weights else None
        target = np.repeat(np.arange(targets), np.diff(csc.indptr))
        leaving = np.bincount(csc.indices, weight, self.view.num_nodes(edge_type[0])).astype(np.float64)
        arriving = np.bincount(target, weight, targets).astype(np.float64)
        if edge_type[0] == edge_type[2]:
            leaving = arriving = arriving + 1.0
        return _inverse_root(leaving), _inverse_root(arriving)


def _merged_on_disk(
    view: GraphView, edge_types: Sequence[EdgeType], memory: TrainingMemory, *, weights: bool
) -> GraphView:
    return view.merged_on_disk(
        merged_types(edge_types),
        memory.new_folder("edges"),
        memory.pass_bytes,
        weighted=weights and any(view.has_weights(each) for each in edge_types),
    )


def _inverse_root(degree: NDArray[np.float64]) -> Tensor:
    root = np.where(degree > 0, 1.0 / np.sqrt(np.maximum(degree, 1e-12)), 0.0)
    return torch.from_numpy(root.astype(np.float32))

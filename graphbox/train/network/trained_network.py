"""A trained graph network with all it takes to embed and classify the nodes of a graph as it is later.

Nodes that came after training have no row in a table: such a node enters as its features, and becomes what
its neighbours make of it. What is known of features, such as the numbers of categories, is that of training.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from graphbox.config import (
    DenseNetworkSection,
    GraphNetworkConfig,
    NetworkConfig,
    TwoTowerConfig,
)
from graphbox.errors import UsageError, did_you_mean
from graphbox.graph import Graph
from graphbox.graph.schema import EdgeType, edge_type_text
from graphbox.models.edge_inputs import EdgeSizes
from graphbox.models.features import FeatureSizes, LearntFeature
from graphbox.models.graph_inputs import InputSizes
from graphbox.models.graph_layers import Edges
from graphbox.models.graph_network import GraphNetwork, NetworkShape
from graphbox.models.layer_kinds import OWN_LINEAR, LayerKind, layer_kind
from graphbox.models.link_scorer import LinkScorer
from graphbox.table import Table
from graphbox.train.import_path import import_by_path
from graphbox.train.network.edge_data import LearntEdges
from graphbox.train.network.feature_kinds import check_features
from graphbox.train.network.graph import NetworkGraph
from graphbox.train.network.inference import embed_graph
from graphbox.train.network.node_data import NetworkData, NodeData
from graphbox.train.view import GraphView

_BLOCK_NODES = 65_536
"""Nodes whose first vectors are computed together."""

Vectors = dict[str, NDArray[np.float32]]


@dataclass(frozen=True)
class ClassHead:
    """Classification head of a network: ``classes`` of the nodes of ``node_type``.

    Attributes:
        node_type: type of the nodes.
        classes: names of the classes.
        has_several: whether a node can have several, so that probabilities do not add up to 1.
    """

    node_type: str
    classes: tuple[str, ...]
    has_several: bool = False

    def module(self, config: NetworkConfig) -> nn.Module:
        """Return what makes logits of embeddings."""
        return nn.Linear(config.dim, len(self.classes))

    def probabilities(self, logits: NDArray[np.float32]) -> NDArray[np.float32]:
        """Return the probabilities of logits: float32 [n, classes]."""
        made = torch.tensor(logits)  # a copy: what is mapped from a file cannot be written
        return (torch.sigmoid(made) if self.has_several else torch.softmax(made, dim=1)).numpy()


@dataclass(frozen=True)
class LinkHead:
    """Link head of a network: scores of ``relations`` between sources and targets."""

    node_type: str
    target_type: str
    relations: tuple[str, ...]

    def module(self, config: NetworkConfig) -> LinkScorer:
        """Return what makes vectors of sources and of targets of embeddings."""
        if isinstance(config, TwoTowerConfig):
            return LinkScorer(config.dim, config.initial_scale, popularity=False)
        assert isinstance(config, GraphNetworkConfig)  # noqa: S101 - others have no task of links
        return LinkScorer(config.dim, config.links.initial_scale)

    def in_degree(self, graph: Graph) -> NDArray[np.float32]:
        """Return how many sources the relations join to each target: float32 [targets]."""
        targets = graph.num_nodes(self.target_type)
        keys = [np.zeros(0, np.int64)]
        for relation in self.relations:
            edge_type = (self.node_type, relation, self.target_type)
            if edge_type in graph.edge_types:
                source, target = graph.csc(edge_type).coo()
                keys.append(source.astype(np.int64) * targets + target)
        joined = np.unique(np.concatenate(keys)) % max(targets, 1)
        return np.bincount(joined, minlength=targets).astype(np.float32)


Head = ClassHead | LinkHead


class TrainedRows(Protocol):
    """The rows of the nodes of one type that training saw.

    Attributes:
        ids: their original ids, null of removed nodes.
    """

    @property
    def ids(self) -> pa.Array:
        """Original ids of the nodes."""
        ...

    def take(self, nodes: NDArray[np.int64]) -> NDArray[np.float32]:
        """Return the rows of nodes by their index in training: float32 [n, dim], zeros without one."""
        ...


@dataclass(frozen=True, eq=False)
class RowsOfTable:
    """Rows that are in the table of a trainer."""

    ids: pa.Array
    table: Table

    def take(self, nodes: NDArray[np.int64]) -> NDArray[np.float32]:
        """See :class:`TrainedRows`."""
        rows: NDArray[np.float32] = np.asarray(self.table.pull(nodes, create=False))
        rows *= np.asarray(self.table.contains(nodes))[:, None]
        return rows


@dataclass(frozen=True, eq=False)
class StoredRows:
    """Rows that are in an array."""

    ids: pa.Array
    values: NDArray[np.float32]

    def take(self, nodes: NDArray[np.int64]) -> NDArray[np.float32]:
        """See :class:`TrainedRows`."""
        return np.asarray(self.values[nodes])


@dataclass(frozen=True, eq=False)
class NetworkVectors:
    """Vectors and logits that a network computes for a graph.

    Attributes:
        embeddings: float32 [nodes, dim] by node type; of networks of links those of sources.
        target: float32 [targets, dim], of networks of links.
        logits: float32 [nodes, classes], of networks that classify.
    """

    embeddings: Vectors
    target: NDArray[np.float32] | None = None
    logits: NDArray[np.float32] | None = None


@dataclass(frozen=True, eq=False)
class NetworkParts:
    """Network, edges and inputs of an encoder of the nodes of a graph.

    Attributes:
        network: in evaluation mode, on the CPU.
        edges: all edges of each relation, by node indices, as every layer reads them.
        inputs: by node type float32 [nodes, dim], what goes into the first layer.
        source_scales: by relation float32 [sources], one over the root of the degree of each source, which
            the weights of edges have been multiplied by; none where degrees do not normalize.
        edge_features: what is known of the features of edges, by relation.
        latest: by relation whose age edges are read by, the moment from which it is counted.
    """

    network: GraphNetwork
    edges: Mapping[EdgeType, Edges]
    inputs: Vectors
    source_scales: Mapping[EdgeType, NDArray[np.float32]]
    edge_features: Mapping[EdgeType, Mapping[str, LearntFeature]]
    latest: Mapping[EdgeType, int]


@dataclass(frozen=True, eq=False)
class TrainedNetwork:
    """See the module.

    Attributes:
        config: the section of the run file that it was trained by.
        edge_types: along which messages go, before any are taken as one.
        is_merged: whether those between two node types are taken as one.
        weighted: whether edges come with weights.
        learnt: what is known of the features that are read, by node type and name.
        edge_learnt: likewise of edges, by edge type with edges of its own.
        values: parameters and buffers by name.
        rows: of the node types that have them.
        head: what it was trained for.
        positions: rows of another model that the nodes of the head's type enter with, or None.
    """

    config: NetworkConfig
    edge_types: tuple[EdgeType, ...]
    is_merged: bool
    weighted: bool
    learnt: Mapping[str, Mapping[str, LearntFeature]]
    edge_learnt: LearntEdges
    values: Mapping[str, Tensor]
    rows: Mapping[str, TrainedRows]
    head: Head
    positions: TrainedRows | None = None

    @torch.no_grad()
    def over(
        self, graph: Graph, nodes: Mapping[str, NDArray[np.int64]] | None = None, threads: int | None = None
    ) -> NetworkVectors:
        """Return what the network makes of a graph, layer by layer.

        Args:
            graph: the graph that it was trained on, as it is now, or another with the same types.
            nodes: of which vectors are asked for, by node type; None: all. Those of others are no use.
            threads: threads of the sampler.

        Raises:
            UsageError: the graph lacks an edge type, a feature, or weights that the network was trained with;
                or features are of another kind.
        """
        network, seen, data = self._in(GraphView(graph, None))
        vectors = embed_graph(network, seen, data, nodes=nodes, threads=threads)
        if isinstance(self.head, ClassHead):
            logits = network.head(torch.from_numpy(vectors[self.head.node_type])).numpy()
            return NetworkVectors(vectors, logits=logits)
        scorer = network.head
        assert isinstance(scorer, LinkScorer)  # noqa: S101 - for the type checker
        sources = scorer.sources(torch.from_numpy(vectors[self.head.node_type])).numpy()
        degree = torch.from_numpy(self.head.in_degree(graph))
        targets = scorer.targets(torch.from_numpy(vectors[self.head.target_type]), degree).numpy()
        return NetworkVectors({self.head.node_type: sources}, target=targets)

    @torch.no_grad()
    def parts(self, view: GraphView) -> NetworkParts:
        """Return what an encoder of the nodes of a graph is made of.

        Args:
            view: the graph, without what the network was not given.

        Raises:
            UsageError: see :meth:`over`.
        """
        network, seen, data = self._in(view)
        inputs: Vectors = {}
        for name in seen.node_types:
            inputs[name] = np.empty((view.num_nodes(name), self.config.dim), np.float32)
            for first in range(0, len(inputs[name]), _BLOCK_NODES):
                block = torch.arange(first, min(first + _BLOCK_NODES, len(inputs[name])))
                batch = {name: data[name].take(block)}
                rows = {name: network.input_module(name).fetch(batch[name])}
                inputs[name][first : first + len(block)] = network.enter(batch, rows)[name].numpy()
        return NetworkParts(
            network, dict(seen.whole().edges), inputs, seen.source_scales, seen.edge_learnt, seen.latest
        )

    def class_probabilities(
        self, graph: Graph, nodes: NDArray[np.int64], threads: int | None = None
    ) -> NDArray[np.float32]:
        """Return the probabilities of the classes of nodes of the task's type: float32 [nodes, classes].

        Args:
            graph: see :meth:`over`.
            nodes: int64, of the type of the head.
            threads: threads of the sampler.

        Raises:
            UsageError: the network does not classify, or does not fit the graph.
        """
        head = self.class_head()
        logits = self.over(graph, {head.node_type: nodes}, threads).logits
        assert logits is not None  # noqa: S101 - for the type checker
        return head.probabilities(logits[nodes])

    def class_head(self) -> ClassHead:
        """Return the head of a network that classifies nodes.

        Raises:
            UsageError: the network is one of links.
        """
        if not isinstance(self.head, ClassHead):
            raise UsageError(
                "expected a network that classifies nodes, received one of links",
                hint="`graphbox embed` gives the vectors of nodes, and what is near them",
            )
        return self.head

    @property
    def classes(self) -> tuple[str, ...]:
        """Names of the classes of a network that classifies nodes; none of one of links."""
        return self.head.classes if isinstance(self.head, ClassHead) else ()

    @property
    def has_several_classes(self) -> bool:
        """Whether a node can have several of the classes."""
        return isinstance(self.head, ClassHead) and self.head.has_several

    def is_known(self, graph: Graph, node_type: str) -> NDArray[np.bool_]:
        """Return of which nodes of a type there is anything to go by: bool [nodes].

        That is a row of training, or features that the network reads, or an edge towards the node along which
        messages go. Removed nodes have none of it.
        """
        known = np.full(graph.num_nodes(node_type), bool(self.learnt[node_type]))
        if node_type in self.rows:
            known |= _places(self.rows[node_type].ids, graph.arrow_ids(node_type)) >= 0
        if self.positions is not None and node_type == self.head.node_type:
            known |= _places(self.positions.ids, graph.arrow_ids(node_type)) >= 0
        view = self._view(GraphView(graph, None))
        for edge_type in self.edge_types:
            if edge_type[2] == node_type:
                known |= np.diff(view.csc(edge_type).indptr) > 0
        known[graph.removed_nodes(node_type)] = False
        return known

    # ----------------------------------------------------------------------------- details

    def _in(self, view: GraphView) -> tuple[GraphNetwork, NetworkGraph, NetworkData]:
        """Return the network with the rows of a graph's nodes, the graph as it sees it, and its features."""
        kind = layer_kind_of(self.config, "the layer of the network")
        seen, data = self._graph(view, kind), self._data(view)
        network = self._network(kind, seen)
        for name, rows in self.rows.items():
            network.input_module(name).set_trained_rows(rows.take, _places(rows.ids, view.arrow_ids(name)))
        return network, seen, data

    def _view(self, view: GraphView) -> GraphView:
        view = view.with_reverse_edges() if self.config.reverse else view
        for edge_type in self.edge_types:
            if edge_type not in view.edge_types:
                text, known = edge_type_text(edge_type), list(map(edge_type_text, view.edge_types))
                raise UsageError(
                    f"expected the edge type {text}, which the network was trained with, received a graph "
                    "without it",
                    where=f"graph {view.name}",
                    hint=did_you_mean(text, known) or f"there are: {', '.join(known) or 'none'}",
                )
        for edge_type, features in self.edge_learnt.items():
            check_features(
                features, view.edge_features(edge_type), f"edges of type {edge_type_text(edge_type)}"
            )
        return view

    def _graph(self, view: GraphView, kind: LayerKind) -> NetworkGraph:
        found = NetworkGraph(
            self._view(view),
            self.edge_types,
            merge=self.is_merged,
            weights=self.config.edge_weights,
            normalized=kind.normalized,
            node_types=self.learnt,
            edge_learnt=self.edge_learnt,
        )
        if self.weighted and not found.edge_attributes:
            raise UsageError(
                "expected edges with weights, as those that the network was trained with, received none",
                where=f"graph {view.name}",
            )
        return found

    def _data(self, view: GraphView) -> NetworkData:
        for node_type, features in self.learnt.items():
            check_features(features, view.features(node_type), f"node type {node_type}")
        return NetworkData(
            {
                name: NodeData(view, name, list(each), learnt=each, positions=self._positions_in(view, name))
                for name, each in self.learnt.items()
            }
        )

    def _positions_in(self, view: GraphView, node_type: str) -> NDArray[np.float32] | None:
        """Return the rows of another model of the nodes of a type, zeros of those without; None: of none."""
        if self.positions is None or node_type != self.head.node_type:
            return None
        places = _places(self.positions.ids, view.arrow_ids(node_type))
        found = np.zeros((len(places), self.position_width), np.float32)
        found[places >= 0] = self.positions.take(places[places >= 0])
        return found

    @property
    def position_width(self) -> int:
        """Length of the rows of another model; 0: there are none."""
        return 0 if self.positions is None else self.positions.take(np.zeros(0, np.int64)).shape[1]

    def _network(self, kind: LayerKind, graph: NetworkGraph) -> GraphNetwork:
        sizes = {
            name: _sizes(features, self.position_width if name == self.head.node_type else 0)
            for name, features in self.learnt.items()
        }
        shape = network_shape(self.config, kind, weighted=self.weighted, edge_learnt=graph.edge_learnt)
        network = GraphNetwork(shape, sizes, graph.edge_types, {}, self.head.module(self.config)).eval()
        for name, value in (*network.named_parameters(), *network.named_buffers()):
            value.copy_(self.values[name])
        return network


def layer_kind_of(config: NetworkConfig, where: str) -> LayerKind:
    """Return the kind of layer of a section; ``where`` names its key, should there be none.

    Raises:
        UsageError: there is no such layer, or it cannot be imported.
    """
    if isinstance(config, DenseNetworkSection):
        return OWN_LINEAR
    own = import_by_path(config.layer, where) if ":" in config.layer else None
    return layer_kind(config.layer, own)


def network_shape(
    config: NetworkConfig, kind: LayerKind, *, weighted: bool, edge_learnt: LearntEdges
) -> NetworkShape:
    """Return how the network of a section is built.

    Args:
        config: the section.
        kind: of its layers.
        weighted: whether edges come with weights of their own.
        edge_learnt: what is known of the features of edges, by relation.
    """
    return NetworkShape(
        layer=config.layer,
        kind=kind,
        options=config.layer_options,
        dim=config.dim,
        layers=config.layers,
        weighted=weighted,
        dropout=config.dropout,
        input_dropout=config.input_dropout,
        row_dropout=config.row_dropout,
        normalize=config.normalize,
        residual=config.residual,
        edge_sizes={relation: EdgeSizes.of(learnt) for relation, learnt in edge_learnt.items()},
    )


def _places(ids: pa.Array, wanted: pa.Array) -> NDArray[np.int64]:
    """Return the places of ids among others: int64 [wanted], -1 where they are not there, or null."""
    found = pc.index_in(wanted, value_set=ids.cast(wanted.type), skip_nulls=True)
    return np.asarray(found.fill_null(-1).to_numpy(zero_copy_only=False), dtype=np.int64)


def _sizes(features: Mapping[str, LearntFeature], position: int) -> InputSizes:
    learnt = list(features.values())
    return InputSizes(
        FeatureSizes(
            tuple(len(each.categories) + 1 for each in learnt if each.kind == "categorical"),
            sum(each.kind in {"number", "integer", "boolean"} for each in learnt),
        ),
        sum(each.dim for each in learnt),
        tuple(max(1, len(each.slots)) for each in learnt if each.slots is not None),
        position,
    )

"""A graph neural network: inputs of each node type, layers of one kind, and a head for the task."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from torch import Tensor, nn
from torch.nn import functional

from graphbox.graph.schema import EdgeType
from graphbox.models.dropout import dropout
from graphbox.models.edge_inputs import EdgeSizes
from graphbox.models.graph_inputs import InputSizes, NodeBatch, NodeInputs, input_modules
from graphbox.models.graph_layers import Edges, GraphLayer, PaddedLayerInputs
from graphbox.models.layer_kinds import LayerKind, LayerShape, make_layer
from graphbox.table import Table


@dataclass(frozen=True)
class NetworkShape:
    """Architecture of a network; :class:`graphbox.config.GraphNetworkConfig` explains the terms.

    Attributes:
        layer: name of the layer.
        kind: properties of the layer.
        options: options of the layer.
        dim: length of vectors.
        layers: number of layers.
        weighted: whether edges come with weights of their own.
        dropout: share of the values between layers that is left out in training.
        input_dropout: share of the values of features that is left out in training.
        row_dropout: share of the rows that is left out in training.
        normalize: whether values between layers are normalized.
        residual: whether the input of a layer is added to its output.
        edge_sizes: columns of the features of edges, by relation; those without have none.
    """

    layer: str
    kind: LayerKind
    options: Mapping[str, object]
    dim: int
    layers: int
    weighted: bool = False
    dropout: float = 0.5
    input_dropout: float = 0.0
    row_dropout: float = 0.0
    normalize: bool = False
    residual: bool = False
    edge_sizes: Mapping[EdgeType, EdgeSizes] = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class LayerEdges:
    """Edges of a batch that one layer reads.

    Attributes:
        edges: edges of each relation.
        nodes: number of nodes of each type, the first ones of the batch, that are at an end of these edges.
    """

    edges: Mapping[EdgeType, Edges]
    nodes: Mapping[str, int]


class GraphNetwork(nn.Module):
    """See the module.

    Args:
        shape: how it is built.
        sizes: what the nodes of each type have.
        relations: edge types along which messages go.
        tables: rows of those node types that have them.
        head: what the task makes of embeddings; trained with the network.

    Raises:
        UsageError: the layer cannot be made so.
    """

    def __init__(
        self,
        shape: NetworkShape,
        sizes: Mapping[str, InputSizes],
        relations: Sequence[EdgeType],
        tables: Mapping[str, Table],
        head: nn.Module,
    ) -> None:
        super().__init__()
        self.shape = shape
        self.inputs = input_modules(sizes, shape.dim, tables, shape.input_dropout, shape.row_dropout)
        options: list[dict[str, object]] = [dict(shape.options) for _ in range(shape.layers)]
        if shape.layer == "gcn2":  # whose matrices matter less with depth: each layer knows its own
            options = [{"theta": 0.5, **each, "layer": number} for number, each in enumerate(options, 1)]
        self.layers = nn.ModuleList(
            make_layer(
                shape.layer,
                shape.kind,
                LayerShape(shape.dim, relations, list(sizes), each, shape.weighted, shape.edge_sizes),
            )
            for each in options
        )
        places = [(number, name) for number in range(shape.layers) for name in sizes]
        self.norms = nn.ModuleDict(
            {f"{number}_{name}": nn.LayerNorm(shape.dim) for number, name in places if shape.normalize}
        )
        self.head = head

    def input_module(self, node_type: str) -> NodeInputs:
        """Return the inputs of a node type."""
        module = self.inputs[node_type]
        assert isinstance(module, NodeInputs)  # noqa: S101 - for the type checker
        return module

    def enter(self, batch: Mapping[str, NodeBatch], rows: Mapping[str, Tensor | None]) -> dict[str, Tensor]:
        """Return what goes into the first layer, before dropout: float32 [nodes, dim] by node type."""
        entered = {name: self.input_module(name)(each, rows[name]) for name, each in batch.items()}
        if self.shape.kind.starts_active:
            entered = {name: functional.relu(each) for name, each in entered.items()}
        return entered

    def layer(
        self, number: int, vectors: Mapping[str, Tensor], edges: LayerEdges, first: Mapping[str, Tensor]
    ) -> dict[str, Tensor]:
        """Return what comes out of a layer, ready for the next one or the head: by node type.

        Args:
            number: of the layer, from 0.
            vectors: what came out of the layer before.
            edges: what it works on; of the vectors the first ``edges.nodes`` are taken.
            first: what went into the first layer.
        """
        vectors = {name: each[: edges.nodes[name]] for name, each in vectors.items()}
        first = {name: each[: edges.nodes[name]] for name, each in first.items()}
        found = self.layers[number](vectors, edges.edges, first)
        if self.shape.residual:
            found = {name: each + vectors[name] for name, each in found.items()}
        return self._after_layer(number, found)

    def graph_layer(self, number: int) -> GraphLayer:
        """Return a layer, without what comes after it."""
        module = self.layers[number]
        assert isinstance(module, GraphLayer)  # noqa: S101 - for the type checker
        return module

    def reads_own(self, number: int, node_type: str) -> bool:
        """Return whether a node's output of a layer depends on its own vector directly."""
        return self.shape.residual or self.graph_layer(number).reads_own(node_type)

    def padded_layer(self, number: int, inputs: PaddedLayerInputs) -> dict[str, Tensor]:
        """Return what :meth:`layer` returns of the targets, float32 [n, dim] by node type.

        Args:
            number: of the layer, from 0.
            inputs: what it works on.

        Raises:
            UsageError: the layer has no padded-block form.
        """
        found = self.graph_layer(number).padded(inputs)
        if self.shape.residual:
            found = {name: each + inputs.own_vectors(name) for name, each in found.items()}
        return self._after_layer(number, found)

    def _after_layer(self, number: int, found: Mapping[str, Tensor]) -> dict[str, Tensor]:
        found = {name: self._normalized(number, name, each) for name, each in found.items()}
        if self.shape.kind.propagates:
            return dict(found)
        return {name: self._dropped(functional.relu(each)) for name, each in found.items()}

    def forward(
        self,
        batch: Mapping[str, NodeBatch],
        rows: Mapping[str, Tensor | None],
        edges: Sequence[LayerEdges],
    ) -> dict[str, Tensor]:
        """Return the embeddings of the nodes that the last layer keeps: float32 [n, dim] by node type.

        Args:
            batch: the nodes of each type.
            rows: their rows, see :meth:`NodeInputs.fetch`.
            edges: what each layer works on.
        """
        first = self.enter(batch, rows)
        vectors = {name: self._dropped(each) for name, each in first.items()}
        if self.shape.kind.propagates:  # of one thing, of which every step takes the same share
            first = vectors
        for number, each in enumerate(edges):
            vectors = self.layer(number, vectors, each, first)
        return vectors

    def _normalized(self, number: int, node_type: str, values: Tensor) -> Tensor:
        if not self.shape.normalize:
            return values
        normalized: Tensor = self.norms[f"{number}_{node_type}"](values)
        return normalized

    def _dropped(self, values: Tensor) -> Tensor:
        return dropout(values, self.shape.dropout, self.training)

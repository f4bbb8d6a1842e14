"""Layers of graph networks: the convolutions of PyTorch Geometric by name, over one or many edge types.

A layer maps the vectors of nodes, by node type, to new ones along edges, by relation. All nodes of a layer's
edges are given, and all get an output; only that of nodes whose in-edges are all there means anything, so
the same code serves whole graphs, sampled batches, and the blocks of inference layer by layer.

Degrees come with the edges instead of being counted among them: ``gcn``, ``gcn2``, ``appnp`` and ``lightgcn``
get weights that the whole graph's degrees normalize, so that what a node becomes does not depend on which
others are in its batch.
"""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import accumulate
from typing import Any

import torch
from torch import Tensor, nn

from graphbox.errors import UsageError, did_you_mean
from graphbox.graph.schema import EdgeType, edge_type_text

Vectors = Mapping[str, Tensor]


@dataclass(frozen=True, eq=False)
class Edges:
    """The edges of one relation.

    Attributes:
        index: int64 [2, e], positions of sources and targets among the nodes of their types.
        weight: float32 [e]: the edges' own weights, or those that degrees normalize; None: all are 1.
    """

    index: Tensor
    weight: Tensor | None = None


class GraphLayer(nn.Module, ABC):
    """Base of layers."""

    @abstractmethod
    def forward(self, vectors: Vectors, edges: Mapping[EdgeType, Edges], first: Vectors) -> dict[str, Tensor]:
        """Return the new vectors of the nodes of each type: float32 [nodes, out].

        Args:
            vectors: float32 [nodes, dim] by node type.
            edges: the edges of each relation.
            first: what went into the first layer, of the same nodes.
        """


@dataclass(frozen=True)
class LayerShape:
    """What a layer is made of.

    Attributes:
        dim: length of the vectors that go in and come out.
        relations: edge types along which messages go.
        node_types: all there are.
        options: arguments of the convolution's class beyond its sizes.
        weighted: whether edges come with weights of their own.
    """

    dim: int
    relations: Sequence[EdgeType]
    node_types: Sequence[str]
    options: Mapping[str, Any]
    weighted: bool = False

    @property
    def is_heterogeneous(self) -> bool:
        """Whether there is more than one node type or relation."""
        return len(self.node_types) > 1 or len(self.relations) > 1


@dataclass(frozen=True)
class LayerKind:
    """What is special about a kind of layer.

    Attributes:
        make: makes it.
        normalized: it wants weights that degrees normalize, with an edge from each node to itself.
        takes_weights: the edges' own weights reach it.
        propagates: it has no activation of its own after it.
        starts_active: what goes into the first layer is passed through the activation.
    """

    make: Callable[[LayerShape], GraphLayer]
    normalized: bool = False
    takes_weights: bool = False
    propagates: bool = False
    starts_active: bool = False


class PerRelation(GraphLayer):
    """A convolution of its own for each relation; what arrives at a node by several is added up.

    Args:
        convolutions: by relation.
        weight_name: argument of the convolution that takes the edges' weights; None: it takes none.
        own: of layers that leave a node's own vector out: a map of it for each node type.
    """

    def __init__(
        self,
        convolutions: Mapping[EdgeType, nn.Module],
        weight_name: str | None,
        own: Mapping[str, nn.Module] | None = None,
    ) -> None:
        super().__init__()
        self._relations = {edge_type_text(relation): relation for relation in convolutions}
        self.convolutions = nn.ModuleDict(
            {edge_type_text(relation): convolution for relation, convolution in convolutions.items()}
        )
        self.own = nn.ModuleDict(own or {})
        self._weight_name = weight_name

    def forward(self, vectors: Vectors, edges: Mapping[EdgeType, Edges], first: Vectors) -> dict[str, Tensor]:  # noqa: ARG002
        """See :class:`GraphLayer`; a node type at which no relation arrives keeps its vectors."""
        sums: dict[str, Tensor] = {name: layer(vectors[name]) for name, layer in self.own.items()}
        for name, relation in self._relations.items():
            source, _, target = relation
            both = vectors[source] if source == target else (vectors[source], vectors[target])
            options: dict[str, Any] = {}
            weight = edges[relation].weight
            if self._weight_name is not None and weight is not None:
                options[self._weight_name] = weight if self._weight_name == "edge_weight" else weight[:, None]
            arrived = self.convolutions[name](both, edges[relation].index, **options)
            sums[target] = sums[target] + arrived if target in sums else arrived
        return {name: sums.get(name, given) for name, given in vectors.items()}


class InitialResidual(GraphLayer):
    """GCNII's layer: propagation mixed with what went into the first layer (Chen et al., ICML 2020).

    Args:
        relations: each between nodes of one type.
        convolutions: by relation.
    """

    def __init__(self, relations: Sequence[EdgeType], convolutions: Sequence[nn.Module]) -> None:
        super().__init__()
        self._relations = list(relations)
        self.convolutions = nn.ModuleList(convolutions)

    def forward(self, vectors: Vectors, edges: Mapping[EdgeType, Edges], first: Vectors) -> dict[str, Tensor]:
        """See :class:`GraphLayer`."""
        sums: dict[str, Tensor] = {}
        for relation, convolution in zip(self._relations, self.convolutions, strict=True):
            name = relation[2]
            arrived = convolution(vectors[name], first[name], edges[relation].index, edges[relation].weight)
            sums[name] = sums[name] + arrived if name in sums else arrived
        return {name: sums.get(name, given) for name, given in vectors.items()}


class PersonalizedPropagation(GraphLayer):
    """One step of APPNP: neighbours' vectors, and a share of the first ones (Gasteiger et al., ICLR 2019).

    Args:
        relations: along which to propagate.
        alpha: share of what went into the first step.
        dropout: share of the edges that is left out in training.
    """

    def __init__(self, relations: Sequence[EdgeType], alpha: float = 0.1, dropout: float = 0.0) -> None:
        super().__init__()
        from torch_geometric.nn import SimpleConv

        self._relations = list(relations)
        self._alpha = alpha
        self._dropout = dropout
        self.propagate = SimpleConv(aggr="sum")

    def forward(self, vectors: Vectors, edges: Mapping[EdgeType, Edges], first: Vectors) -> dict[str, Tensor]:
        """See :class:`GraphLayer`."""
        sums: dict[str, Tensor] = {}
        for relation in self._relations:
            source, _, target = relation
            both = vectors[source] if source == target else (vectors[source], vectors[target])
            weight = edges[relation].weight
            if weight is not None and self._dropout:
                weight = nn.functional.dropout(weight, self._dropout, self.training)
            arrived = self.propagate(both, edges[relation].index, weight)
            sums[target] = sums[target] + arrived if target in sums else arrived
        return {
            name: (1.0 - self._alpha) * sums[name] + self._alpha * first[name] if name in sums else given
            for name, given in vectors.items()
        }


class Relational(GraphLayer):
    """R-GCN: one convolution over all relations, each with its own matrix (Schlichtkrull et al., ESWC 2018).

    Args:
        relations: in the order of their numbers.
        node_types: all there are.
        convolution: takes vectors, edges, and the relation of each edge.
    """

    def __init__(
        self, relations: Sequence[EdgeType], node_types: Sequence[str], convolution: nn.Module
    ) -> None:
        super().__init__()
        self._relations = list(relations)
        self._node_types = list(node_types)
        self.convolution = convolution

    def forward(self, vectors: Vectors, edges: Mapping[EdgeType, Edges], first: Vectors) -> dict[str, Tensor]:  # noqa: ARG002
        """See :class:`GraphLayer`."""
        sizes = [len(vectors[name]) for name in self._node_types]
        start = dict(zip(self._node_types, accumulate([0, *sizes]), strict=False))
        indices = [
            torch.stack([source + start[relation[0]], target + start[relation[2]]])
            for relation in self._relations
            for source, target in [edges[relation].index]
        ]
        kinds = [
            torch.full((index.shape[1],), number, device=index.device) for number, index in enumerate(indices)
        ]
        joined = self.convolution(
            torch.cat([vectors[name] for name in self._node_types]),
            torch.cat(indices, dim=1),
            torch.cat(kinds),
        )
        return dict(zip(self._node_types, joined.split(sizes), strict=True))


class Transformer(GraphLayer):
    """HGT: attention whose maps depend on node types and relations (Hu et al., WWW 2020).

    Args:
        convolution: over all relations.
    """

    def __init__(self, convolution: nn.Module) -> None:
        super().__init__()
        self.convolution = convolution

    def forward(self, vectors: Vectors, edges: Mapping[EdgeType, Edges], first: Vectors) -> dict[str, Tensor]:  # noqa: ARG002
        """See :class:`GraphLayer`; a node type at which no relation arrives keeps its vectors."""
        indices = {relation: each.index for relation, each in edges.items()}
        found = self.convolution(dict(vectors), indices)
        return {name: given if found.get(name) is None else found[name] for name, given in vectors.items()}


def layer_kind(name: str, convolution: Callable[..., nn.Module] | None = None) -> LayerKind:
    """Return the kind of layer of a name.

    Args:
        name: a key of :data:`LAYER_KINDS`, or the import path of ``convolution``.
        convolution: a user's own class, made for each relation with (dim, dim, **options).

    Raises:
        UsageError: there is no such layer.
    """
    if convolution is not None:
        return LayerKind(partial(_own, convolution))
    if name not in LAYER_KINDS:
        raise UsageError(
            f"there is no layer `{name}`",
            where="layer",
            hint=did_you_mean(name, LAYER_KINDS) or f"there are: {', '.join(LAYER_KINDS)}; or an import path",
        )
    return LAYER_KINDS[name]


def make_layer(name: str, kind: LayerKind, shape: LayerShape) -> GraphLayer:
    """Return a layer of a kind, which has been tried on two nodes of each type.

    Raises:
        UsageError: it takes no such options, or not these relations, or is no convolution.
    """
    try:
        layer = kind.make(shape)
        _try(layer, kind, shape)
        return layer
    except (
        TypeError,
        ValueError,
        AttributeError,
        LookupError,
        AssertionError,
        RuntimeError,
        ArithmeticError,
    ) as error:
        given = ", ".join(f"{key}: {value}" for key, value in shape.options.items()) or "none"
        raise UsageError(
            f"the layer `{name}` cannot be made with the options {given}: {error}",
            where="layer_options",
            hint="the options are arguments of the layer's class in torch_geometric.nn",
        ) from error


def _try(layer: GraphLayer, kind: LayerKind, shape: LayerShape) -> None:
    """Run a copy of a layer (layers may remember their first graph) where a mistake costs nothing yet."""
    vectors = {name: torch.zeros(2, shape.dim) for name in shape.node_types}
    weight = torch.ones(1) if kind.normalized or shape.weighted else None
    edges = {relation: Edges(torch.tensor([[0], [1]]), weight) for relation in shape.relations}
    with torch.no_grad():
        found = copy.deepcopy(layer).eval()(vectors, edges, vectors)
    for name, given in vectors.items():
        if found[name].shape != given.shape:
            raise ValueError(
                f"expected vectors of {shape.dim} values, received {list(found[name].shape)[1:]}"
            )


def _own(convolution: Callable[..., nn.Module], shape: LayerShape) -> GraphLayer:
    made = {relation: convolution(shape.dim, shape.dim, **shape.options) for relation in shape.relations}
    return PerRelation(made, None)


def _convolutions(
    class_name: str, shape: LayerShape, out: int, arguments: Mapping[str, Any]
) -> dict[EdgeType, nn.Module]:
    """Return a convolution for each relation, whose outputs have the length ``out``."""
    import torch_geometric.nn

    convolution, dim = getattr(torch_geometric.nn, class_name), shape.dim
    return {
        relation: convolution(dim if relation[0] == relation[2] else (dim, dim), out, **arguments)
        for relation in shape.relations
    }


def _attention(class_name: str, shape: LayerShape) -> GraphLayer:
    """Return a layer of attention, whose heads share the ``dim`` outputs."""
    heads, joined = int(shape.options.get("heads", 1)), shape.options.get("concat", True)
    if heads < 1:
        raise ValueError(f"expected 1 or more heads, received {heads}")
    if joined and shape.dim % heads:
        raise ValueError(f"dim {shape.dim} is no multiple of heads {heads}")
    arguments = {**({"edge_dim": 1} if shape.weighted else {}), **shape.options}
    own = None
    if class_name != "TransformerConv":  # which has a map of a node's own vector
        arguments.setdefault("add_self_loops", not shape.is_heterogeneous)
        targets = dict.fromkeys(relation[2] for relation in shape.relations)
        own = {name: nn.Linear(shape.dim, shape.dim) for name in targets} if shape.is_heterogeneous else None
    out = shape.dim // heads if joined else shape.dim
    return PerRelation(_convolutions(class_name, shape, out, arguments), "edge_attr", own)


class _PropagatedLinear(nn.Module):
    """GCN's layer (Kipf and Welling, ICLR 2017) over edges with weights that are normalized already."""

    def __init__(self, dim: int, **options: Any) -> None:
        super().__init__()
        from torch_geometric.nn import SimpleConv

        self.linear = nn.Linear(dim, dim, **{**options, "bias": False})
        self.bias = nn.Parameter(torch.zeros(dim)) if options.get("bias", True) else None
        self.propagate = SimpleConv(aggr="sum")

    def forward(
        self, vectors: Tensor | tuple[Tensor, Tensor], index: Tensor, edge_weight: Tensor | None = None
    ) -> Tensor:
        if isinstance(vectors, Tensor):
            both: Any = self.linear(vectors)
        else:
            both = self.linear(vectors[0]), vectors[1]
        result: Tensor = self.propagate(both, index, edge_weight)
        return result if self.bias is None else result + self.bias


def _gcn(shape: LayerShape) -> GraphLayer:
    made = {relation: _PropagatedLinear(shape.dim, **shape.options) for relation in shape.relations}
    looped = {relation[2] for relation in shape.relations if relation[0] == relation[2]}
    apart = dict.fromkeys(relation[2] for relation in shape.relations if relation[2] not in looped)
    return PerRelation(made, "edge_weight", {name: nn.Linear(shape.dim, shape.dim) for name in apart})


def _sage(shape: LayerShape) -> GraphLayer:
    options = dict(shape.options)
    if options.get("aggr") == "pool":  # the paper's name for a maximum over transformed neighbours
        options |= {"aggr": "max", "project": True}
    return PerRelation(_convolutions("SAGEConv", shape, shape.dim, options), None)


def _gin(shape: LayerShape) -> GraphLayer:
    from torch_geometric.nn import GINConv

    def network() -> nn.Module:
        return nn.Sequential(nn.Linear(shape.dim, shape.dim), nn.ReLU(), nn.Linear(shape.dim, shape.dim))

    return PerRelation({relation: GINConv(network(), **shape.options) for relation in shape.relations}, None)


def _gcn2(shape: LayerShape) -> GraphLayer:
    from torch_geometric.nn import GCN2Conv

    if any(relation[0] != relation[2] for relation in shape.relations):
        raise ValueError("it takes relations between nodes of one type alone")
    arguments = {"alpha": 0.1, **shape.options, "normalize": False, "add_self_loops": False}
    made = [GCN2Conv(shape.dim, **arguments) for _ in shape.relations]
    return InitialResidual(shape.relations, made)


def _rgcn(shape: LayerShape) -> GraphLayer:
    from torch_geometric.nn import RGCNConv

    convolution = RGCNConv(shape.dim, shape.dim, len(shape.relations), **shape.options)
    return Relational(shape.relations, shape.node_types, convolution)


def _hgt(shape: LayerShape) -> GraphLayer:
    from torch_geometric.nn import HGTConv

    metadata = list(shape.node_types), list(shape.relations)
    return Transformer(HGTConv(shape.dim, shape.dim, metadata, **shape.options))


LAYER_KINDS: Mapping[str, LayerKind] = {
    "sage": LayerKind(_sage),
    "gcn": LayerKind(_gcn, normalized=True, takes_weights=True),
    "gat": LayerKind(partial(_attention, "GATConv"), takes_weights=True),
    "gatv2": LayerKind(partial(_attention, "GATv2Conv"), takes_weights=True),
    "gin": LayerKind(_gin),
    "gcn2": LayerKind(_gcn2, normalized=True, takes_weights=True, starts_active=True),
    "appnp": LayerKind(
        lambda shape: PersonalizedPropagation(shape.relations, **shape.options),
        normalized=True,
        takes_weights=True,
        propagates=True,
        starts_active=True,
    ),
    "transformer": LayerKind(partial(_attention, "TransformerConv"), takes_weights=True),
    "rgcn": LayerKind(_rgcn),
    "hgt": LayerKind(_hgt),
    "lightgcn": LayerKind(
        lambda shape: PersonalizedPropagation(shape.relations, alpha=0.0, **shape.options),
        normalized=True,
        takes_weights=True,
        propagates=True,
    ),
}
"""The layers by name."""

"""Kinds of layers by name, and the layers that run files ask for made of them."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
from torch import nn

from graphbox.errors import UsageError, did_you_mean
from graphbox.graph.schema import EdgeType
from graphbox.models.edge_inputs import EdgeInputs, EdgeSizes
from graphbox.models.graph_layers import (
    Edges,
    GraphLayer,
    InitialResidual,
    OwnLinear,
    PerRelation,
    PersonalizedPropagation,
    PropagatedLinear,
    Relational,
    Transformer,
)


@dataclass(frozen=True)
class LayerShape:
    """Sizes and options from which a layer is made.

    Attributes:
        dim: length of the vectors that go in and come out.
        relations: edge types along which messages go.
        node_types: all there are.
        options: arguments of the convolution's class beyond its sizes.
        weighted: whether edges come with weights of their own.
        edge_sizes: columns of the features of edges, by relation; those without have none.
    """

    dim: int
    relations: Sequence[EdgeType]
    node_types: Sequence[str]
    options: Mapping[str, Any]
    weighted: bool = False
    edge_sizes: Mapping[EdgeType, EdgeSizes] = field(default_factory=dict)

    @property
    def is_heterogeneous(self) -> bool:
        """True with more than one node type or relation."""
        return len(self.node_types) > 1 or len(self.relations) > 1


@dataclass(frozen=True)
class LayerKind:
    """Properties of a kind of layer.

    Attributes:
        make: makes it.
        normalized: it wants weights that degrees normalize, with an edge from each node to itself.
        takes_weights: the edges' own weights reach it.
        reads_edges: features of edges reach it.
        propagates: it has no activation of its own after it.
        starts_active: what goes into the first layer is passed through the activation.
    """

    make: Callable[[LayerShape], GraphLayer]
    normalized: bool = False
    takes_weights: bool = False
    reads_edges: bool = False
    propagates: bool = False
    starts_active: bool = False


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
    edges = {
        relation: Edges(torch.tensor([[0], [1]]), weight, _no_features(shape.edge_sizes.get(relation)))
        for relation in shape.relations
    }
    with torch.no_grad():
        found = copy.deepcopy(layer).eval()(vectors, edges, vectors)
    for name, given in vectors.items():
        if found[name].shape != given.shape:
            raise ValueError(
                f"expected vectors of {shape.dim} values, received {list(found[name].shape)[1:]}"
            )


def _no_features(sizes: EdgeSizes | None) -> torch.Tensor | None:
    """Return the columns of one edge whose features are all missing; None: there are no columns."""
    return None if sizes is None else torch.zeros(1, sizes.columns)


def _own(convolution: Callable[..., nn.Module], shape: LayerShape) -> GraphLayer:
    made = {relation: convolution(shape.dim, shape.dim, **shape.options) for relation in shape.relations}
    return PerRelation(made)


def _convolutions(
    class_name: str, shape: LayerShape, out: int, arguments: Mapping[str, Any]
) -> dict[EdgeType, nn.Module]:
    """Return a convolution for each relation, whose outputs have the length ``out``."""
    import torch_geometric.nn

    convolution, dim = getattr(torch_geometric.nn, class_name), shape.dim
    edge_dims = {relation: {"edge_dim": sizes.width} for relation, sizes in shape.edge_sizes.items()}
    return {
        relation: convolution(
            dim if relation[0] == relation[2] else (dim, dim),
            out,
            **{**edge_dims.get(relation, {}), **arguments},
        )
        for relation in shape.relations
    }


def _edge_inputs(shape: LayerShape) -> dict[EdgeType, EdgeInputs]:
    """Return what maps the features of edges, by relation."""
    return {relation: EdgeInputs(sizes) for relation, sizes in shape.edge_sizes.items()}


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
    made = _convolutions(class_name, shape, out, arguments)
    return PerRelation(made, own, takes_weights=True, edge_inputs=_edge_inputs(shape))


def _gcn(shape: LayerShape) -> GraphLayer:
    made = {relation: PropagatedLinear(shape.dim, **shape.options) for relation in shape.relations}
    looped = {relation[2] for relation in shape.relations if relation[0] == relation[2]}
    apart = dict.fromkeys(relation[2] for relation in shape.relations if relation[2] not in looped)
    return PerRelation(made, {name: nn.Linear(shape.dim, shape.dim) for name in apart})


def _sage(shape: LayerShape) -> GraphLayer:
    options = dict(shape.options)
    if options.get("aggr") == "pool":  # the paper's name for a maximum over transformed neighbours
        options |= {"aggr": "max", "project": True}
    return PerRelation(_convolutions("SAGEConv", shape, shape.dim, options))


def _gin(shape: LayerShape) -> GraphLayer:
    """Return a layer of sums; GINE in relations with features of edges, GIN in others."""
    from torch_geometric.nn import GINConv, GINEConv

    def convolution(relation: EdgeType) -> nn.Module:
        network = nn.Sequential(nn.Linear(shape.dim, shape.dim), nn.ReLU(), nn.Linear(shape.dim, shape.dim))
        sizes = shape.edge_sizes.get(relation)
        made: nn.Module = (
            GINConv(network, **shape.options)
            if sizes is None
            else GINEConv(network, edge_dim=sizes.width, **shape.options)
        )
        return made

    made = {relation: convolution(relation) for relation in shape.relations}
    return PerRelation(made, edge_inputs=_edge_inputs(shape))


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


OWN_LINEAR = LayerKind(lambda shape: OwnLinear(shape.node_types, shape.dim), starts_active=True)
"""The layer of networks that read no edges."""

LAYER_KINDS: Mapping[str, LayerKind] = {
    "sage": LayerKind(_sage),
    "gcn": LayerKind(_gcn, normalized=True, takes_weights=True),
    "gat": LayerKind(partial(_attention, "GATConv"), takes_weights=True, reads_edges=True),
    "gatv2": LayerKind(partial(_attention, "GATv2Conv"), takes_weights=True, reads_edges=True),
    "gin": LayerKind(_gin),
    "gine": LayerKind(_gin, reads_edges=True),
    "gcn2": LayerKind(_gcn2, normalized=True, takes_weights=True, starts_active=True),
    "appnp": LayerKind(
        lambda shape: PersonalizedPropagation(shape.relations, **shape.options),
        normalized=True,
        takes_weights=True,
        propagates=True,
        starts_active=True,
    ),
    "transformer": LayerKind(partial(_attention, "TransformerConv"), takes_weights=True, reads_edges=True),
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

"""Layers of graph networks: the convolutions of PyTorch Geometric by name, over one or many edge types.

A layer maps the vectors of nodes, by node type, to new ones along edges, by relation. All nodes of a layer's
edges are given, and all get an output; only that of nodes whose in-edges are all there means anything, so
the same code serves whole graphs, sampled batches, and the blocks of inference layer by layer.

Degrees come with the edges instead of being counted among them: ``gcn``, ``gcn2``, ``appnp`` and ``lightgcn``
get weights that the whole graph's degrees normalize, so that what a node becomes does not depend on which
others are in its batch.

Each layer computes the same over padded neighbour tables, the form in which it is exported: ``padded``.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

import torch
from torch import Tensor, nn

from graphbox.graph.schema import EdgeType, edge_type_text
from graphbox.models.dropout import dropout
from graphbox.models.edge_inputs import EdgeInputs
from graphbox.models.edge_sums import EdgeSums
from graphbox.models.padded_layers import (
    PaddedNeighbors,
    RelationEnds,
    aggregated,
    attended,
    gathered,
    masked_softmax,
    padded_convolution,
    scores_of,
    weighted_sum,
)

Vectors = Mapping[str, Tensor]


@dataclass(frozen=True, eq=False)
class Edges:
    """The edges of one relation.

    Attributes:
        index: int64 [2, e], positions of sources and targets among the nodes of their types.
        weight: float32 [e]: the edges' own weights, or those that degrees normalize; None: all are 1.
        features: float32 [e, columns], see :class:`graphbox.models.edge_inputs.EdgeSizes`; None: the layer
            reads none.
    """

    index: Tensor
    weight: Tensor | None = None
    features: Tensor | None = None

    def sums(self, sources: Tensor, targets: int, weight: Tensor | None) -> Tensor:
        """Return the weighted sums of what arrives at each target: float32 [targets, dim].

        Args:
            sources: float32 [nodes, dim], vectors of the sources.
            targets: number of targets.
            weight: float32 [e], of the edges; None: all are 1.
        """
        if sources.device.type != "cpu":  # there a hub's sum in order would hold up all others
            messages = sources.index_select(0, self.index[0])
            messages = messages if weight is None else messages * weight[:, None]
            return sources.new_zeros(targets, sources.shape[1]).index_add_(0, self.index[1], messages)
        return self._ordered(len(sources), targets).at_targets(sources, weight)

    def _ordered(self, sources: int, targets: int) -> EdgeSums:
        """Return the edges in order for sums; kept, as the layers of a whole graph have the same edges."""
        known = self.__dict__.get("_kept")
        if known is None or known[0] != (sources, targets):
            known = ((sources, targets), EdgeSums(self.index, sources, targets))
            self.__dict__["_kept"] = known
        found: EdgeSums = known[1]
        return found


@dataclass(frozen=True, eq=False)
class PaddedLayerInputs:
    """Inputs of a layer over padded neighbour tables.

    Targets are the nodes that get an output. Position 0 among the nodes below stands for an absent node.

    Attributes:
        below: float32 [U, dim] by node type, the vectors that go in.
        neighbors: of each relation whose target type has targets; relations of others are left out.
        own: int64 [n] by node type, positions of the targets among the nodes below; of the types for which
            :meth:`GraphLayer.reads_own` says so.
        first: float32 [n, dim] by node type, what went into the first layer, of the targets in ``own``.
    """

    below: Vectors
    neighbors: Mapping[EdgeType, PaddedNeighbors]
    own: Mapping[str, Tensor]
    first: Vectors

    @property
    def targets(self) -> list[str]:
        """Node types that have targets."""
        return list(dict.fromkeys([*self.own, *(relation[2] for relation in self.neighbors)]))

    def own_vectors(self, node_type: str) -> Tensor:
        """Return the vectors below of a type's targets: float32 [n, dim]."""
        return self.below[node_type].index_select(0, self.own[node_type])


class GraphLayer(nn.Module, ABC):
    """Base of layers."""

    @abstractmethod
    def padded(self, inputs: PaddedLayerInputs) -> dict[str, Tensor]:
        """Return the new vectors of the targets of each type, float32 [n, out], as ``forward`` computes them.

        Raises:
            UsageError: the convolution, or an option of it, has no padded-block form.
        """

    @abstractmethod
    def reads_own(self, node_type: str) -> bool:
        """Return whether a node's output depends on its own vector, or on its own first one, directly."""

    @abstractmethod
    def forward(self, vectors: Vectors, edges: Mapping[EdgeType, Edges], first: Vectors) -> dict[str, Tensor]:
        """Return the new vectors of the nodes of each type: float32 [nodes, out].

        Args:
            vectors: float32 [nodes, dim] by node type.
            edges: the edges of each relation.
            first: what went into the first layer, of the same nodes.
        """


class PerRelation(GraphLayer):
    """A convolution of its own for each relation; what arrives at a node by several is added up.

    Args:
        convolutions: by relation.
        takes_weights: give convolutions of PyTorch Geometric the edges' weights, as features of the edges.
        own: of layers that leave a node's own vector out: a map of it for each node type.
        edge_inputs: maps the features of the edges of those relations whose convolutions read them.
    """

    def __init__(
        self,
        convolutions: Mapping[EdgeType, nn.Module],
        own: Mapping[str, nn.Module] | None = None,
        *,
        takes_weights: bool = False,
        edge_inputs: Mapping[EdgeType, EdgeInputs] | None = None,
    ) -> None:
        super().__init__()
        self._relations = {edge_type_text(relation): relation for relation in convolutions}
        self.convolutions = nn.ModuleDict(
            {edge_type_text(relation): convolution for relation, convolution in convolutions.items()}
        )
        self.own = nn.ModuleDict(own or {})
        self.edge_inputs = nn.ModuleDict(
            {edge_type_text(relation): each for relation, each in (edge_inputs or {}).items()}
        )
        self._takes_weights = takes_weights

    def forward(self, vectors: Vectors, edges: Mapping[EdgeType, Edges], first: Vectors) -> dict[str, Tensor]:  # noqa: ARG002
        """See :class:`GraphLayer`; a node type at which no relation arrives keeps its vectors."""
        sums: dict[str, Tensor] = {name: layer(vectors[name]) for name, layer in self.own.items()}
        for name, relation in self._relations.items():
            source, _, target = relation
            convolution, of_relation = self.convolutions[name], edges[relation]
            if isinstance(convolution, PropagatedLinear):
                arrived = convolution(vectors[source], of_relation, len(vectors[target]))
            else:
                both = vectors[source] if source == target else (vectors[source], vectors[target])
                attributes = self._attributes(name, of_relation)
                options: dict[str, Any] = {} if attributes is None else {"edge_attr": attributes}
                arrived = convolution(both, of_relation.index, **options)
            sums[target] = sums[target] + arrived if target in sums else arrived
        return {name: sums.get(name, given) for name, given in vectors.items()}

    def padded(self, inputs: PaddedLayerInputs) -> dict[str, Tensor]:
        """See :class:`GraphLayer`."""
        sums: dict[str, Tensor] = {
            name: layer(inputs.own_vectors(name)) for name, layer in self.own.items() if name in inputs.own
        }
        for name, relation in self._relations.items():
            if relation not in inputs.neighbors:
                continue
            source, _, target = relation
            ends = RelationEnds(
                inputs.below[source],
                inputs.own_vectors(target) if target in inputs.own else None,
                inputs.own.get(target) if source == target else None,
            )
            convolution, table = self.convolutions[name], inputs.neighbors[relation]
            if isinstance(convolution, PropagatedLinear):
                arrived = convolution.padded(ends, table)
            else:
                table = PaddedNeighbors(table.index, features=self._attributes(name, table))
                arrived = padded_convolution(convolution)(convolution, ends, table)
            sums[target] = sums[target] + arrived if target in sums else arrived
        return {name: sums[name] if name in sums else inputs.own_vectors(name) for name in inputs.targets}

    def _attributes(self, name: str, edges: Edges | PaddedNeighbors) -> Tensor | None:
        """Return what the convolution of a relation reads of its edges, [..., width]; None: nothing."""
        if name in self.edge_inputs:
            mapped: Tensor = self.edge_inputs[name](edges.features)
            return mapped
        if self._takes_weights and edges.weight is not None:
            return edges.weight.unsqueeze(-1)
        return None

    def reads_own(self, node_type: str) -> bool:
        """See :class:`GraphLayer`."""
        arriving = [
            self.convolutions[name] for name, relation in self._relations.items() if relation[2] == node_type
        ]
        only_sums = all(isinstance(each, PropagatedLinear) for each in arriving)
        return not arriving or node_type in self.own or not only_sums


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
            of_relation = edges[relation]
            propagated = of_relation.sums(vectors[name], len(vectors[name]), of_relation.weight)
            arrived = _mixed_with_first(convolution, propagated, first[name])
            sums[name] = sums[name] + arrived if name in sums else arrived
        return {name: sums.get(name, given) for name, given in vectors.items()}

    def padded(self, inputs: PaddedLayerInputs) -> dict[str, Tensor]:
        """See :class:`GraphLayer`."""
        sums: dict[str, Tensor] = {}
        for relation, convolution in zip(self._relations, self.convolutions, strict=True):
            name = relation[2]
            if relation in inputs.neighbors:
                propagated = weighted_sum(inputs.below[name], inputs.neighbors[relation])
                arrived = _mixed_with_first(convolution, propagated, inputs.first[name])
                sums[name] = sums[name] + arrived if name in sums else arrived
        return {name: sums[name] if name in sums else inputs.own_vectors(name) for name in inputs.targets}

    def reads_own(self, node_type: str) -> bool:  # noqa: ARG002 - the first vectors always
        """See :class:`GraphLayer`."""
        return True


class PersonalizedPropagation(GraphLayer):
    """One step of APPNP: neighbours' vectors, and a share of the first ones (Gasteiger et al., ICLR 2019).

    Args:
        relations: along which to propagate.
        alpha: share of what went into the first step.
        dropout: share of the edges that is left out in training.
    """

    def __init__(self, relations: Sequence[EdgeType], alpha: float = 0.1, dropout: float = 0.0) -> None:
        super().__init__()
        self._relations = list(relations)
        self._alpha = alpha
        self._dropout = dropout

    def forward(self, vectors: Vectors, edges: Mapping[EdgeType, Edges], first: Vectors) -> dict[str, Tensor]:
        """See :class:`GraphLayer`."""
        sums: dict[str, Tensor] = {}
        for relation in self._relations:
            source, _, target = relation
            weight = edges[relation].weight
            if weight is not None and self._dropout:
                weight = dropout(weight, self._dropout, self.training)
            arrived = edges[relation].sums(vectors[source], len(vectors[target]), weight)
            sums[target] = sums[target] + arrived if target in sums else arrived
        return {
            name: (1.0 - self._alpha) * sums[name] + self._alpha * first[name] if name in sums else given
            for name, given in vectors.items()
        }

    def padded(self, inputs: PaddedLayerInputs) -> dict[str, Tensor]:
        """See :class:`GraphLayer`."""
        sums: dict[str, Tensor] = {}
        for relation in self._relations:
            if relation in inputs.neighbors:
                source, _, target = relation
                arrived = weighted_sum(inputs.below[source], inputs.neighbors[relation])
                sums[target] = sums[target] + arrived if target in sums else arrived
        found = {}
        for name in inputs.targets:
            if name not in sums:
                found[name] = inputs.own_vectors(name)
            elif self._alpha:
                found[name] = (1.0 - self._alpha) * sums[name] + self._alpha * inputs.first[name]
            else:
                found[name] = sums[name]
        return found

    def reads_own(self, node_type: str) -> bool:
        """See :class:`GraphLayer`."""
        return bool(self._alpha) or all(relation[2] != node_type for relation in self._relations)


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

    def padded(self, inputs: PaddedLayerInputs) -> dict[str, Tensor]:
        """See :class:`GraphLayer`."""
        convolution: Any = self.convolution
        weight = convolution.weight
        if convolution.num_bases is not None:
            weight = (convolution.comp @ weight.flatten(1)).view(-1, *weight.shape[1:])
        found = {}
        for name in inputs.targets:
            own = inputs.own_vectors(name)
            total = torch.zeros_like(own)
            for number, relation in enumerate(self._relations):
                if relation[2] == name and relation in inputs.neighbors:
                    arrived = aggregated(
                        inputs.below[relation[0]], inputs.neighbors[relation], convolution.aggr
                    )
                    if convolution.num_blocks is None:
                        total = total + arrived @ weight[number]
                    else:
                        blocks = arrived.view(-1, *weight.shape[1:3]).transpose(0, 1)
                        total = total + torch.matmul(blocks, weight[number]).transpose(0, 1).flatten(1)
            if convolution.root is not None:
                total = total + own @ convolution.root
            found[name] = total if convolution.bias is None else total + convolution.bias
        return found

    def reads_own(self, node_type: str) -> bool:  # noqa: ARG002 - of all types alike
        """See :class:`GraphLayer`."""
        return True


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

    def padded(self, inputs: PaddedLayerInputs) -> dict[str, Tensor]:
        """See :class:`GraphLayer`; one softmax goes over the neighbours of all relations of a node."""
        convolution: Any = self.convolution
        heads, dim = convolution.heads, convolution.out_channels
        mapped = {
            name: torch.tensor_split(convolution.kqv_lin.lins[name](below), 3, dim=1)
            for name, below in inputs.below.items()
        }
        found = {}
        for name in inputs.targets:
            own = inputs.own_vectors(name)
            around = [(each, table) for each, table in inputs.neighbors.items() if each[2] == name]
            if not around:
                found[name] = own
                continue
            query = mapped[name][1].index_select(0, inputs.own[name]).view(-1, heads, dim // heads)
            scores, values, masks = [], [], []
            for relation, table in around:
                key, value = (
                    self._of_relation(relation, mapped[relation[0]][part], part=part) for part in (0, 2)
                )
                share = convolution.p_rel["__".join(relation)] / math.sqrt(dim // heads)
                by_head = (*table.index.shape, heads, dim // heads)
                scores.append(scores_of(query, gathered(key, table).view(by_head)) * share)
                values.append(gathered(value, table).view(by_head))
                masks.append(table.mask)
            attention = masked_softmax(torch.cat(scores, dim=1), torch.cat(masks, dim=1))
            arrived = nn.functional.gelu(attended(attention, torch.cat(values, dim=1)).flatten(1))
            share = convolution.skip[name].sigmoid()
            found[name] = share * convolution.out_lin.lins[name](arrived) + (1 - share) * own
        return found

    def _of_relation(self, relation: EdgeType, vectors: Tensor, *, part: int) -> Tensor:
        """Return keys or values as a relation maps them, head by head: float32 [U, dim]."""
        convolution: Any = self.convolution
        heads, count = convolution.heads, len(convolution.edge_types)
        layer = convolution.v_rel if part else convolution.k_rel
        weight = layer.weight.view(heads, count, *layer.weight.shape[1:])
        of_heads = weight[:, convolution.edge_types_map[relation]]
        by_head = vectors.view(-1, heads, layer.weight.shape[1]).transpose(0, 1)
        return torch.matmul(by_head, of_heads).transpose(0, 1).flatten(1)

    def reads_own(self, node_type: str) -> bool:  # noqa: ARG002 - of all types alike
        """See :class:`GraphLayer`."""
        return True


class OwnLinear(GraphLayer):
    """A linear map of each node's own vector; no edge is read.

    Args:
        node_types: all there are.
        dim: length of the vectors that go in and come out.
    """

    def __init__(self, node_types: Sequence[str], dim: int) -> None:
        super().__init__()
        self.own = nn.ModuleDict({name: nn.Linear(dim, dim) for name in node_types})

    def forward(self, vectors: Vectors, edges: Mapping[EdgeType, Edges], first: Vectors) -> dict[str, Tensor]:  # noqa: ARG002
        """See :class:`GraphLayer`."""
        return {name: self.own[name](given) for name, given in vectors.items()}

    def padded(self, inputs: PaddedLayerInputs) -> dict[str, Tensor]:
        """See :class:`GraphLayer`."""
        return {name: self.own[name](inputs.own_vectors(name)) for name in inputs.targets}

    def reads_own(self, node_type: str) -> bool:  # noqa: ARG002 - nothing else
        """See :class:`GraphLayer`."""
        return True


class PropagatedLinear(nn.Module):
    """GCN's layer (Kipf and Welling, ICLR 2017) over edges with weights that are normalized already."""

    def __init__(self, dim: int, **options: Any) -> None:
        super().__init__()
        self.linear = nn.Linear(dim, dim, **{**options, "bias": False})
        self.bias = nn.Parameter(torch.zeros(dim)) if options.get("bias", True) else None

    def forward(self, sources: Tensor, edges: Edges, targets: int) -> Tensor:
        """Return the new vectors of targets: float32 [targets, dim].

        Args:
            sources: float32 [nodes, dim], vectors of the sources.
            edges: along which they are summed.
            targets: number of targets.
        """
        result = edges.sums(self.linear(sources), targets, edges.weight)
        return result if self.bias is None else result + self.bias

    def padded(self, ends: RelationEnds, neighbors: PaddedNeighbors) -> Tensor:
        """Compute the same over padded neighbours: the sum first, which has fewer rows to map."""
        result: Tensor = self.linear(weighted_sum(ends.source, neighbors))
        return result if self.bias is None else result + self.bias


def _mixed_with_first(convolution: Any, propagated: Tensor, first: Tensor) -> Tensor:
    """Return what a ``GCN2Conv`` makes of propagated vectors and those that went into the first layer."""
    propagated, first, beta = (
        (1 - convolution.alpha) * propagated,
        convolution.alpha * first,
        convolution.beta,
    )
    if convolution.weight2 is None:
        both = propagated + first
        found: Tensor = (1.0 - beta) * both + beta * (both @ convolution.weight1)
        return found
    mapped: Tensor = (1.0 - beta) * propagated + beta * (propagated @ convolution.weight1)
    first = (1.0 - beta) * first + beta * (first @ convolution.weight2)
    return mapped + first

"""A graph network over padded neighbour tables, the form in which it is exported."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from graphbox.graph.schema import EdgeType
from graphbox.models.edge_inputs import EdgeSizes
from graphbox.models.graph_layers import PaddedLayerInputs
from graphbox.models.graph_network import GraphNetwork
from graphbox.models.link_scorer import LinkScorer
from graphbox.models.padded_layers import PaddedNeighbors

RelationGroup = tuple[EdgeType, ...]
"""Relations with the same source and the same target type, which share a neighbour table."""


@dataclass(frozen=True)
class PaddedLayerPlan:
    """Relations and own positions that a layer reads for queries of one node type.

    Attributes:
        groups: the relations that arrive at the layer's targets.
        own: node types whose targets' own positions it reads.
    """

    groups: tuple[RelationGroup, ...]
    own: tuple[str, ...]


def padded_layer_plans(
    network: GraphNetwork, relations: Sequence[EdgeType], node_type: str
) -> tuple[PaddedLayerPlan, ...]:
    """Return what each layer reads, first applied first, so that the last one has nodes of a type.

    Args:
        network: the network.
        relations: edge types along which its messages go.
        node_type: of the queries.
    """
    plans: list[PaddedLayerPlan] = []
    targets = [node_type]
    for number in reversed(range(network.shape.layers)):
        groups: dict[tuple[str, str], list[EdgeType]] = {}
        for relation in relations:
            if relation[2] in targets:
                groups.setdefault((relation[0], relation[2]), []).append(relation)
        own = tuple(name for name in targets if network.reads_own(number, name))
        plans.insert(0, PaddedLayerPlan(tuple(tuple(group) for group in groups.values()), own))
        targets = list(dict.fromkeys([*own, *(source for source, _ in groups)]))
    return tuple(plans)


def group_columns(sizes: Mapping[EdgeType, EdgeSizes], group: RelationGroup) -> int:
    """Return how many columns the features of a group's edges have; relations with fewer read the first."""
    return max((sizes[each].columns for each in group if each in sizes), default=0)


class PaddedNetwork(nn.Module):
    """The same function as a ``GraphNetwork`` and its head, of padded neighbour tables.

    The output is the embedding of queries, float32 [B, dim]; of networks of links the vectors of sources, or
    of targets, float32 [B, width]; of networks that classify the embedding, and the probabilities of classes.

    Args:
        network: the trained network, in evaluation mode; it is not copied.
        plans: what each layer reads, see :func:`padded_layer_plans`.
        row_types: node types of the row inputs, in their order.
        node_type: of the queries.
        weighted: whether there are inputs of edge weights.
        has_several: whether a node can have several classes, each with a probability of its own.
        encodes_targets: of a network of links, whether the queries are targets; their logits have no
            popularity then.
    """

    def __init__(
        self,
        network: GraphNetwork,
        plans: Sequence[PaddedLayerPlan],
        row_types: Sequence[str],
        node_type: str,
        *,
        weighted: bool,
        has_several: bool = False,
        encodes_targets: bool = False,
    ) -> None:
        super().__init__()
        self._has_several = has_several
        self._encodes_targets = encodes_targets
        self.network = network
        self._plans = tuple(plans)
        self._row_types = tuple(row_types)
        self._node_type = node_type
        self._weighted = weighted

    def forward(
        self,
        rows: list[Tensor],
        own: list[Tensor],
        neighbors: list[Tensor],
        weights: list[Tensor],
        features: list[Tensor],
    ) -> Tensor | tuple[Tensor, Tensor]:
        """Return the outputs for the queries.

        Args:
            rows: of each row type float32 [U, dim], what goes into the first layer; row 0 is absent.
            own: of each layer and type in its ``own`` int64 [n], positions in the rows or targets below.
            neighbors: of each layer and group int64 [n, R, F], likewise; 0 = absent.
            weights: of each layer and group float32 [n, R, F]; none where edges have no weights.
            features: of each layer and group whose edges have features float32 [n, R, F, columns], see
                :func:`group_columns`.
        """
        positions, tables, factors, columns = iter(own), iter(neighbors), iter(weights), iter(features)
        sizes = self.network.shape.edge_sizes
        vectors = dict(zip(self._row_types, rows, strict=True))
        first = dict(vectors)
        for number, plan in enumerate(self._plans):
            places = {name: next(positions) for name in plan.own}
            first = {name: first[name].index_select(0, each) for name, each in places.items()}
            around: dict[EdgeType, PaddedNeighbors] = {}
            for group in plan.groups:
                table, factor = next(tables), next(factors) if self._weighted else None
                of_edges = next(columns) if group_columns(sizes, group) else None
                for place, relation in enumerate(group):
                    weight = None if factor is None else factor.select(1, place)
                    read = None
                    if of_edges is not None and relation in sizes:
                        read = of_edges.select(1, place)
                    around[relation] = PaddedNeighbors(table.select(1, place), weight, read)
            inputs = PaddedLayerInputs(vectors, around, places, first)
            vectors = self.network.padded_layer(number, inputs)
        found = vectors[self._node_type]
        head = self.network.head
        if isinstance(head, LinkScorer):
            return head.targets(found, None) if self._encodes_targets else head.sources(found)
        logits = head(found)
        return found, torch.sigmoid(logits) if self._has_several else torch.softmax(logits, dim=1)
